"""Checks of a process before anything is trained: it can carry a task, and the user's own corpus and model fit it."""

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.settings import own_code
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from hmm_jax.float64 import float64
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.processes import reachable

# Draws of mu, after as many of which a task is given up, and the texts that they label.
_DRAWS, _TEXTS = 1000, 200


def check(settings: Settings, distribution: HMM | MemoryHMM, documents: np.ndarray | None = None) -> None:
  """Raise SettingsError where a hidden state never occurs, or every draw of mu gives all texts one label.

  It also raises SettingsError where one of the user's own `documents` [S, T] cannot occur, or the user's own model
  fails on the process.
  """
  start = float64(distribution.joint_initial_probs).reshape(-1, distribution.num_states).max(0) > 0
  never = np.flatnonzero(~reachable(float64(distribution.transition_matrix), start)).tolist()
  valid = f'one whose hidden states all occur; states {never[:10]} never occur'
  require(not never, 'distribution', settings.distribution, valid)
  valid = f'one whose texts depend on the first state or memory: {_DRAWS} draws of mu gave all of them one label'
  require(has_task(settings, distribution), 'distribution', settings.distribution, valid)
  if documents is not None:
    are_possible = _possible(distribution, documents)
    valid = f'documents of positive probability, unlike document {are_possible.argmin()}, counted from 0'
    require(are_possible.all(), 'corpus_file', settings.corpus_file, valid)
  if settings.model:
    own_code.own_model(settings.model, distribution, jax.random.key(settings.seed))


def has_task(settings: Settings, distribution: HMM | MemoryHMM) -> bool:
  """False if every draw of mu gives all texts one label."""
  d, rng = settings.downstream, np.random.default_rng(0)
  probs = _label_probs(settings, distribution, rng)
  shape = _DRAWS, d.num_classes, probs.shape[1]
  places = rng.random((_DRAWS, shape[1] * shape[2])).argsort(1).reshape(shape)
  weights = rng.standard_normal(shape) * (places < d.num_nonzero)
  return bool(np.ptp((weights @ probs.T).argmax(1), axis=1).any())


def _possible(distribution: HMM | MemoryHMM, documents: np.ndarray) -> np.ndarray:
  """True for each document [S, T] of positive probability."""
  fields = distribution.transition_matrix, distribution.joint_initial_probs, distribution.joint_emission_matrix.T
  # Products of probabilities underflow, supports do not.
  transition, initial, emission = (np.float32(float64(field) > 0) for field in fields)
  return np.asarray(_reach_an_end(transition, initial, emission, documents))


@jax.jit
def _reach_an_end(transition: Array, initial: Array, emission: Array, documents: Array) -> Array:
  """True for each document that has a state after its last token, from supports as 0 and 1."""

  def step(states: Array, tokens: Array) -> tuple[Array, None]:
    # A joint state c H + h keeps the memory configuration c.
    following = (states * emission[tokens]).reshape(-1, len(transition)) @ transition
    return jnp.minimum(following, 1).reshape(states.shape), None

  return jax.lax.scan(step, jnp.tile(initial, (len(documents), 1)), documents.T)[0].any(1)


def _label_probs(settings: Settings, distribution: HMM | MemoryHMM, rng: np.random.Generator) -> np.ndarray:
  """The posterior [n, S] that labels speak of, P[H_1 | X_{-1}] or that of the memory cell, times a number a text."""
  fields = distribution.transition_matrix, distribution.joint_initial_probs, distribution.joint_emission_matrix
  transition, initial, emission = map(float64, fields)
  # Of exponential times with these rates, the first.
  drawn = lambda rates: (rates / rng.exponential(size=rates.shape)).argmax(1)
  joint, tokens, num_states = drawn(np.tile(initial, (_TEXTS, 1))), [], len(transition)
  for _ in range(settings.downstream.length - 1):
    # Of a joint state c H + h the memory configuration c stays.
    state = joint % num_states
    joint += drawn(transition[state]) - state
    tokens.append(drawn(emission[joint]))
  messages = np.ones((_TEXTS, len(initial)))
  for token in reversed(tokens):
    future = (emission.T[token] * messages).reshape(_TEXTS, -1, num_states) @ transition.T
    messages = future.reshape(_TEXTS, -1) / future.max((1, 2))[:, None]
  memory = distribution.memory_probs.shape if isinstance(distribution, MemoryHMM) else ()
  posterior = (initial * messages).reshape(_TEXTS, *memory, num_states)
  cell = settings.memory.label_cell if memory else 0
  return posterior.sum(tuple({*range(1, posterior.ndim)} - {1 + cell}))
