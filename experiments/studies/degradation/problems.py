"""The problems of the study: HMMs in which a theorem's assumptions hold, the same with damage, and tasks on them."""

from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import batched_tuning
from experiments.settings.fields import SettingsError
from experiments.studies.degradation.settings import DegradationSettings
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.theory import assumptions, families, recovery
from hmm_jax.theory.degradation import leaking, with_smallest_singular_value
from hmm_jax.theory.enumeration import normalised
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.problem import generator
from hmm_jax.theory.theorems import Criteria
from hmm_jax.tuning import tasks

# Each theorem with the number that its problems are drawn by.
THEOREMS = {'3.3': 33, '3.6': 36}

# '' for nothing, 'singular_value' of W, or a 'leak'; and the degree of it.
Damage = tuple[str, float]
UNDAMAGED: Damage = ('', 0.0)


class Condition(NamedTuple):
  """A theorem, a damage of the HMM and an error of the model's G. Fields of every record.

  Attributes:
    theorem: '3.3' or '3.6'.
    damage: of the HMM.
    degree: of the damage.
    error: of the model: 'noise', 'short_context', or 'bert'.
    level: the KL that the error is of, in nats, or the steps of pretraining.
    kind: 'task' for the theorem's own, or 'control'.
  """

  theorem: str
  damage: str
  degree: float
  error: str
  level: float
  kind: str = 'task'


class DamagedProblem(NamedTuple):
  """An HMM, a task on its masked first state, and what a theorem constructs for it.

  Attributes:
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6; None where the model has no place for its prompt.
    inverted_states: whose columns of W the construction inverts: all, or H*.
    reader: a [V] with a^T G the mass on H*; zeros for Theorem 3.3.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    states: P[H_1 | X_{-1}] of them, [n, H] float64.
  """

  hmm: HMM
  task_weights: np.ndarray
  construction: recovery.Construction | None
  inverted_states: np.ndarray
  reader: np.ndarray
  inputs: np.ndarray
  states: np.ndarray

  @property
  def labels(self) -> np.ndarray:
    """Labels of the masked first state, [n] int32."""
    return (self.states @ assumptions.contrasts(self.task_weights).T).argmax(-1).astype(np.int32)

  def is_balanced(self, largest_majority: float) -> bool:
    return np.bincount(self.labels).max() <= largest_majority * len(self.inputs)

  @property
  def built_prompt(self) -> np.ndarray | None:
    """The construction's, one row u; None for Theorem 3.3."""
    return (self.construction or {}).get('prompt')

  def ideal_after(self, prompt: np.ndarray | None) -> np.ndarray:
    """G at the [MASK] without a prompt or after one of one row u, [n, V].

    P[H_2 | u, x] is proportional to A(u * P[H_1]) * P[x | its state], the latter to P[H_1 | x] / P[H_1] (Lemma B.1).
    """
    if prompt is None:
      return self.states @ self.hmm.emission_matrix
    start = self.hmm.initial_probs
    states = self.states * ((prompt[0] * start) @ self.hmm.transition_matrix / start)
    return normalised(states) @ self.hmm.emission_matrix


def draw(s: DegradationSettings, theorem: str, key: Array) -> dict[Damage, DamagedProblem]:
  """An HMM with a task, undamaged and with each damage; drawn again until all of these are balanced.

  Every initial probability is above what the largest leak puts into a state, so that a threshold over the leak keeps
  it.

  Raises:
    SettingsError: no HMM is as well conditioned, or no draw is balanced.
  """
  sizes = Sizes({'3.3': s.num_states_3_3, '3.6': s.num_states_3_6}[theorem], s.num_tokens, 2)
  criteria = Criteria(s.thresholds, tolerance=0.0, max_nodes=s.max_nodes)  # No memory, so stationarity is not tested.
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    try:
      drawn = families.draw(theorem, 'planted', key_draw, sizes, criteria, s.conditioning)
    except ValueError as error:
      raise SettingsError(str(error)) from error
    if drawn.hmm.initial_probs.min() > max(s.leaks) / 2:
      versions = _versions(s, theorem, drawn.hmm, drawn.task_weights, key_text)
      if all(problem.is_balanced(s.largest_majority) for problem in versions.values()):
        return versions
  reason = f'no draw for Theorem {theorem} had every start above the leaks and every class at most'
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: {reason} {s.largest_majority:.0%}')


def _versions(
  s: DegradationSettings, theorem: str, hmm: HMM, mu: np.ndarray, key: Array
) -> dict[Damage, DamagedProblem]:
  """The problem itself, and made worse, each with text of its own HMM."""
  inverted, reader, exact = np.arange(hmm.num_states), np.zeros(hmm.num_tokens), s.thresholds._replace(rank=0.0)
  if theorem == '3.3':
    worse = {('singular_value', least): with_smallest_singular_value(hmm, least) for least in s.singular_values}
  else:
    witness = assumptions.relaxed_non_degeneracy(hmm, mu, s.thresholds, s.max_nodes).witness
    inverted = np.asarray(witness['essential_states'])
    reader = recovery.mass_weights(hmm, inverted, s.thresholds)
    worse = {('leak', share): leaking(hmm, witness['prompt_states'], inverted, share) for share in s.leaks}
  versions = {}
  for (kind, degree), version in {UNDAMAGED: hmm, **worse}.items():
    if theorem == '3.3':
      built = recovery.theorem_3_3(version, mu, version.initial_probs, exact)
    else:
      # Probability that leaks into a state outside H* counts as 0.
      over_leak = s.thresholds._replace(support=1.01 * degree / (hmm.num_states - len(inverted)))
      built = recovery.theorem_3_6(version, mu, version.initial_probs, over_leak, s.max_nodes)
    tokens = sample_corpus(key, batched_tuning.float32(version), s.num_train + s.num_test, s.length)
    inputs = np.asarray(tasks.hide(tokens, hmm.num_tokens))
    states = tasks.hidden_state_probs(version, inputs)
    versions[kind, degree] = DamagedProblem(version, mu, built, inverted, reader, inputs, states)
  return versions


def about_other_states(s: DegradationSettings, problem: DamagedProblem, key: Array) -> DamagedProblem:
  """The control of a mass on H*: the same HMM and inputs, with mu on as many states outside H* as H* has.

  Raises SettingsError if no draw of mu is balanced.
  """
  rng, others = generator(key), np.setdiff1d(np.arange(problem.hmm.num_states), problem.inverted_states)
  for _ in range(s.max_draws):
    mu = np.zeros_like(problem.task_weights)
    chosen = rng.choice(others, min(len(problem.inverted_states), len(others)), replace=False)
    mu[:, chosen] = rng.standard_normal((len(mu), len(chosen)))
    control = problem._replace(task_weights=mu, construction=None)
    if control.is_balanced(s.largest_majority):
      return control
  reason = f'no mu on states outside H* had every class at most {s.largest_majority:.0%}'
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: {reason}')
