"""A given process is refused that no task can be made of, from its arrays alone, before anything is compiled."""

import numpy as np
import scipy.sparse

from experiments.settings.fields import require
from experiments.settings.grid import Settings
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.processes import reachable

# Draws of mu, after as many of which a task is given up, and the texts that they label.
_DRAWS, _TEXTS = 1000, 200


def check(settings: Settings, distribution: HMM | MemoryHMM) -> None:
  """Raises SettingsError where a hidden state never occurs, or every draw of mu gives all texts one label."""
  start = np.asarray(distribution.joint_initial_probs).reshape(-1, distribution.num_states).max(0) > 0
  never = np.flatnonzero(~reachable(np.asarray(distribution.transition_matrix), start)).tolist()
  valid = f'a process whose hidden states all occur: of this one {never[:10]} never do'
  require(not never, 'distribution', settings.distribution, valid)
  d, rng = settings.downstream, np.random.default_rng(0)
  probs = _label_probs(settings, distribution, rng)
  shape = _DRAWS, d.num_classes, probs.shape[1]
  places = rng.random((_DRAWS, shape[1] * shape[2])).argsort(1).reshape(shape)
  weights = rng.standard_normal(shape) * (places < d.num_nonzero)
  varies = np.ptp((weights @ probs.T).argmax(1), axis=1).any()
  valid = f'a process whose texts tell of their first state or memory: {_DRAWS} draws of mu give all of them one label'
  require(varies, 'distribution', settings.distribution, valid)


def _label_probs(settings: Settings, distribution: HMM | MemoryHMM, rng: np.random.Generator) -> np.ndarray:
  """The posterior [n, S] that labels speak of, P[H_1 | X_{-1}] or that of the memory cell, times a number a text."""
  fields = distribution.transition_matrix, distribution.joint_initial_probs, distribution.joint_emission_matrix
  transition, initial, emission = (np.asarray(rows, np.float64) for rows in fields)
  joint = scipy.sparse.kron(scipy.sparse.eye_array(len(initial) // len(transition)), transition, 'csr')
  # Of exponential times with these rates, the first.
  drawn = lambda rates: (rates / rng.exponential(size=rates.shape)).argmax(1)
  state, tokens = drawn(np.tile(initial, (_TEXTS, 1))), []
  for _ in range(settings.downstream.length - 1):
    state = drawn(joint[state].toarray())
    tokens.append(drawn(emission[state]))
  messages = np.ones((_TEXTS, len(initial)))
  for token in reversed(tokens):
    messages = (emission.T[token] * messages) @ joint.T
    messages /= messages.max(1, keepdims=True)
  memory = distribution.memory_probs.shape if isinstance(distribution, MemoryHMM) else ()
  posterior = (initial * messages).reshape(_TEXTS, *memory, len(transition))
  cell = settings.memory.label_cell if memory else 0
  return posterior.sum(tuple(axis for axis in range(1, posterior.ndim) if axis != 1 + cell))
