"""Structured problems as a person tunes on them: sampled inputs with a masked first token, labels, a construction."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory.settings import DegradationSettings
from experiments.theory.settings import TheorySettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory import assumptions
from hmm_jax.theory import recovery
from hmm_jax.theory import structured
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.assumptions import Thresholds

Array = jax.Array
Construct = Callable[[HMM, np.ndarray], recovery.Construction]


class Problem(NamedTuple):
  """A chain, a task on its masked first state, its inputs, and what a theorem constructs for it.

  Attributes:
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    labels: [n] int32.
    ideal: G at the [MASK], [n, V] float64.
  """

  hmm: HMM
  task_weights: np.ndarray
  construction: recovery.Construction
  inputs: np.ndarray
  labels: np.ndarray
  ideal: np.ndarray


def make(s: DegradationSettings, hmm: HMM, task_weights: np.ndarray, construct: Construct, key: Array) -> Problem:
  """Inputs from the chain, labels of their masked first state in float64: P[H_0] of the theorems is `initial_probs`."""
  tokens = sample_corpus(key, float32(hmm), s.num_train + s.num_test, s.length)
  inputs = tasks.mask_first(tokens, hmm.num_tokens)
  states = np.asarray(tasks.first_state_probs(hmm, inputs))
  labels = (states @ assumptions.contrasts(task_weights).T).argmax(-1).astype(np.int32)
  construction = construct(hmm, task_weights)
  return Problem(hmm, task_weights, construction, np.asarray(inputs), labels, states @ hmm.emission_matrix)


def draw(settings: TheorySettings, theorem: str, key: Array) -> Problem:
  """A structured problem of Theorem '3.3' or '3.6', redrawn until no class holds more than `largest_majority` of
  inputs.

  Every state has a start above the supports' largest leak, so that a threshold over the leak takes it for possible.
  """
  s, thresholds = settings.degradation, settings.thresholds
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    if theorem == '3.3':
      sizes = structured.Sizes(s.num_states_3_3, s.num_tokens, 2, 0, 0)
      drawn = structured.for_theorem_3_3(key_draw, sizes, thresholds, settings.conditioning)
    else:
      sizes = structured.Sizes(s.num_states_3_6, s.num_tokens, 2, 0, 0)
      drawn = structured.for_theorem_3_6(key_draw, sizes, thresholds, settings.conditioning, settings.max_nodes)
    if drawn.hmm.initial_probs.min() <= max(s.leaks) / 2:
      continue
    problem = make(s, drawn.hmm, drawn.task_weights, constructor(settings, theorem, thresholds), key_text)
    if np.bincount(problem.labels).max() <= s.largest_majority * problem.labels.size:
      return problem
  raise ValueError(f'{s.max_draws} draws for Theorem {theorem} had one class above {s.largest_majority:.0%}')


def constructor(settings: TheorySettings, theorem: str, thresholds: Thresholds) -> Construct:
  """The construction of Theorem '3.3' or '3.6' for the masked first state."""
  if theorem == '3.3':
    return lambda hmm, mu: recovery.theorem_3_3(hmm, mu, hmm.initial_probs, thresholds)
  return lambda hmm, mu: recovery.theorem_3_6(hmm, mu, hmm.initial_probs, thresholds, settings.max_nodes)


def essential(settings: TheorySettings, problem: Problem) -> Finding:
  """H* and B of Assumption 3.5."""
  return assumptions.relaxed_non_degeneracy(problem.hmm, problem.task_weights, settings.thresholds, settings.max_nodes)


def mass_reader(settings: TheorySettings, problem: Problem) -> np.ndarray:
  """a [V] with a^T G the mass on H* (`recovery.mass_weights`)."""
  states = essential(settings, problem).witness['essential_states']
  return recovery.mass_weights(problem.hmm, states, settings.thresholds)


def float32(hmm: HMM) -> HMM:
  """The parameters as the models of tuning have them."""
  return jax.tree.map(jnp.float32, hmm)
