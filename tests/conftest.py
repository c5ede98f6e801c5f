"""What several test modules share: the enumeration oracle, and running things in float64 or on several devices."""

import contextlib
import itertools
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.inference import Posterior


def in_float64(function, *arguments):
  """`function` of the arguments with every floating-point leaf in float64; the result as numpy arrays."""

  def convert(leaf):
    leaf = np.asarray(leaf)
    return jnp.asarray(leaf, jnp.float64 if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype)

  with jax.enable_x64(True), compiling_fast():
    return jax.tree.map(np.asarray, function(*jax.tree.map(convert, arguments)))


@contextlib.contextmanager
def compiling_fast():
  """What runs once and is small costs more to optimise than to run."""
  jax.config.update('jax_disable_most_optimizations', True)
  try:
    yield
  finally:
    jax.config.update('jax_disable_most_optimizations', False)


def assert_same_bits(first, second):
  assert jax.tree.structure(first) == jax.tree.structure(second)
  for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
    np.testing.assert_array_equal(a, b)


def run_on_devices(count, program):
  """Runs Python source in a process of its own that has `count` CPU devices; its traceback is the failure."""
  root = pathlib.Path(__file__).parents[1]
  flags = f'--xla_force_host_platform_device_count={count}'
  env = {**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(root)}
  done = subprocess.run([sys.executable, '-c', program], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


def dirichlet_hmm(rng, num_states, num_tokens=4):
  """A numpy HMM without small probabilities, float64."""
  return HMM(
    rng.dirichlet(np.ones(num_states)),
    rng.dirichlet(np.ones(num_states), num_states),
    rng.dirichlet(np.ones(num_tokens), num_states),
  )


def state_paths(num_states, length):
  """All H^T state paths, [N, T]."""
  return np.array(list(itertools.product(range(num_states), repeat=length)))


def path_probs(hmm, likelihoods):
  """P[path, evidence] of each of `state_paths`, [N]."""
  paths = state_paths(*likelihoods.shape[::-1])
  probs = hmm.initial_probs[paths[:, 0]] * likelihoods[0, paths[:, 0]]
  for t in range(1, len(likelihoods)):
    probs = probs * hmm.transition_matrix[paths[:, t - 1], paths[:, t]] * likelihoods[t, paths[:, t]]
  return probs


def enumerated_posterior(hmm, likelihoods, xp=np):
  """The `Posterior` by its definition, a sum over state paths; with `xp=jnp` it can be differentiated."""
  length, num_states = likelihoods.shape
  ones = xp.ones_like(likelihoods)

  def state_probs(t, kept):
    """P[H_t | the likelihood rows of the positions `kept`], summed over paths up to the last of them and t."""
    observed = np.isin(np.arange(length), kept)[:, None]
    end = max([t, *kept]) + 1
    probs = path_probs(hmm, xp.where(observed, likelihoods, ones)[:end])
    weights = probs @ np.eye(num_states)[state_paths(num_states, end)[:, t]]
    return xp.where(weights.sum() > 0, weights / xp.where(weights.sum() > 0, weights.sum(), 1), 0)

  times = range(length)
  evidence = path_probs(hmm, likelihoods).sum()
  return Posterior(
    filtered_probs=xp.stack([state_probs(t, range(t + 1)) for t in times]),
    predicted_probs=xp.stack([state_probs(t, range(t)) for t in times]),
    smoothed_probs=xp.stack([state_probs(t, times) for t in times]),
    leave_one_out_probs=xp.stack([state_probs(t, [s for s in times if s != t]) for t in times]),
    marginal_loglik=xp.where(evidence > 0, xp.log(xp.where(evidence > 0, evidence, 1)), -xp.inf),
  )
