"""Theorems 3.3, 3.6, 4.3, 4.6 and C.6 as trainables: exact labels on every short text, and assumptions that they need.

`scoring_test.py` compares their scores with posteriors in fractions.
"""

import itertools

from conftest import at, contradictory_memory, contradictory_states, in_float64
import jax
import numpy as np
import pytest
from theory_cases import CRITERIA, drawn, EXACT, exact_hmm, exact_posterior
from theory_fractions import in_region

from hmm_jax.models.model import ExactModel
from hmm_jax.theory import recovery, theorems
from hmm_jax.theory.assumptions import AssumptionError, Thresholds
from hmm_jax.theory.problem import StateProblem
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Attention, Linear

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.slow
@pytest.mark.parametrize(('theorem', 'problem'), [('3.6', contradictory_states()), ('4.6', contradictory_memory())])
def test_theorems_3_6_and_4_6_give_every_label(theorem, problem):
  """Scores of a tuner with the construction on the exact model have the argmax of exact scores, and their zeros.

  This holds for every text in R, with [MASK]s too, even if prompt and text contradict each other.
  """
  hmm, num_classes, with_states = problem.hmm, len(problem.task_weights), isinstance(problem, StateProblem)
  head = Linear(num_classes)
  if not with_states:
    head = Attention(num_classes, hmm.num_states + 1, hmm.memory_size * hmm.num_states, temperature=0.0)
  tuner = tuner_lib.Tuner(ExactModel(hmm.num_tokens), head, tuner_lib.Prompt(1, 0.5))
  construction = theorems.construct(theorem, problem, 3, CRITERIA)
  texts = np.array(list(itertools.product(range(hmm.num_tokens + 1), repeat=3)))
  inputs = np.insert(texts, 0, hmm.num_tokens, axis=1) if with_states else texts

  @jax.jit
  def scored(trainable, frozen, inputs):
    trainable, features = at(trainable, None), tuner.features(frozen, inputs)
    return tuner.scores(trainable, frozen, features)[0]

  exact, seen = exact_hmm(problem), set()
  for text, scores in zip(texts.tolist(), in_float64(scored, construction, hmm, inputs)):
    posterior = exact_posterior(problem, exact, text)
    # H* is state 0, which shows the memory.
    if posterior.any() if with_states else in_region(problem, exact, [0], text):
      label = ((problem.task_weights - problem.task_weights[-1]) @ posterior).astype(float)
      if label.any():
        np.testing.assert_allclose(scores / np.abs(scores).max(), label / np.abs(label).max(), atol=1e-9)
      else:
        np.testing.assert_allclose(scores, 0, atol=1e-12)
      seen.add((bool(label.any()), int(scores.argmax())))
  assert seen >= {(True, 0), (True, 1), (False, 0)}


# Broken fields: all states emit the same, a cycle, and a start that lacks a state.
BROKEN = {
  'emission_matrix': lambda old: np.broadcast_to(old.reshape(-1, old.shape[-1])[0], old.shape),
  'transition_matrix': lambda old: np.roll(np.eye(len(old)), 1, axis=1),
  'initial_probs': lambda old: np.insert(np.full(len(old) - 1, 1 / (len(old) - 1)), 1, 0),
}
BROKEN['silent_probs'] = BROKEN['initial_probs']


@pytest.mark.parametrize(
  ('field', 'theorem', 'statement'),
  [
    ('emission_matrix', '3.3', '3.1'),
    ('emission_matrix', '3.6', '3.5'),
    ('emission_matrix', '4.3', '4.2'),
    ('emission_matrix', '4.6', '4.5'),
    ('emission_matrix', 'C.6', 'C.5'),
    *itertools.product(['transition_matrix', 'initial_probs', 'silent_probs'], ['3.3', '3.6'], ['3.2']),
    *itertools.product(['initial_probs', 'silent_probs'], ['4.6', 'C.6'], ['4.4 relaxed']),
  ],
)
def test_a_theorem_is_refused_if_an_assumption_fails(field, theorem, statement):
  """The finding names the assumption: independent columns, an ergodic chain, or the law of the start."""
  problem = drawn(theorem)
  if field == 'silent_probs':
    problem = problem._replace(silent_probs=BROKEN[field](problem.silent_probs))
  else:
    problem = problem._replace(hmm=problem.hmm._replace(**{field: BROKEN[field](getattr(problem.hmm, field))}))
  for build in (theorems.construct, theorems.program):
    with pytest.raises(AssumptionError) as error:
      build(theorem, problem, 3, CRITERIA)
    assert error.value.finding.statement == f'Assumption {statement}' and not error.value.finding.holds


def test_an_unknown_number_of_a_statement_is_refused():
  problem = contradictory_memory()
  with pytest.raises(ValueError, match="assumption is '4.7'; valid are 3.1"):
    theorems.finding('4.7', problem, CRITERIA)
  with pytest.raises(ValueError, match="theorem is '4.5'; valid are 3.3"):
    theorems.construct('4.5', problem, 3, CRITERIA)


def test_the_region_ignores_mass_up_to_epsilon():
  """A posterior with mass up to the support threshold outside H* counts; a posterior of zeros does not."""
  problem = contradictory_memory()
  finding = theorems.finding('4.5', problem, CRITERIA)._replace(thresholds=Thresholds(0.125, 1e-9))
  probs = np.array([[0.875, 0.125], [0, 1], [0.75, 0.25], [0, 0]])
  found = recovery.recoverable_positions(problem.hmm, probs, finding)
  assert finding.witness['recoverable_states'].tolist() == [0] and found.tolist() == [True, False, False, False]


def test_mass_weights_refuses_a_mass_that_is_not_linear_in_g():
  """State 2 emits the mean of states 0 and 1, so G does not determine the mass on {0, 1}."""
  hmm = contradictory_states().hmm._replace(emission_matrix=np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5]]))
  with pytest.raises(ValueError, match='states'):
    recovery.mass_weights(hmm, [0, 1], EXACT)
