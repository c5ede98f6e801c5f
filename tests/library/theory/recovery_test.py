"""Theorems 3.3, 3.6, 4.3, 4.6 and C.6 as trainables of a tuner, and assumptions that they need.

`scoring_test.py` compares their scores with posteriors in fractions.
"""

import itertools

from conftest import at, contradictory_memory, contradictory_states, in_float64
import jax
import numpy as np
import pytest
from theory_cases import CRITERIA, drawn, EXACT

from hmm_jax.models.model import ExactModel
from hmm_jax.theory import enumeration, recovery, scoring, theorems
from hmm_jax.theory.assumptions import AssumptionError, Thresholds
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Attention, Linear
from hmm_jax.tuning.tasks import labelled

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.slow
@pytest.mark.parametrize(('theorem', 'problem'), [('3.6', contradictory_states()), ('4.6', contradictory_memory())])
def test_a_tuner_scores_a_construction(theorem, problem):
  """On the exact model its labels are those of the posterior, contradictions of prompt and text included."""
  hmm, num_classes = problem.hmm, len(problem.task_weights)
  tokens = enumeration.all_texts(hmm.num_tokens, 3)
  answers = scoring.answer(problem, tokens)
  covered = scoring.in_region(problem, theorems.finding(theorems.ON_EMISSIONS[theorem], problem, CRITERIA), answers)
  inputs, head = tokens, Attention(num_classes, hmm.num_states + 1, hmm.joint_initial_probs.size, temperature=0.0)
  if theorem == '3.6':
    inputs, head = np.insert(tokens, 0, hmm.num_tokens, axis=1), Linear(num_classes)
  tuner = tuner_lib.Tuner(ExactModel(hmm.num_tokens), head, tuner_lib.Prompt(1, 0.5))

  @jax.jit
  def scored(trainable, frozen, inputs):
    return tuner.scores(at(trainable, None), frozen, tuner.features(frozen, inputs))[0]

  scores = in_float64(scored, theorems.construct(theorem, problem, 3, CRITERIA), hmm, inputs)[covered]
  labels = labelled(problem.task_weights, answers.posterior).labels[covered]
  assert scores.argmax(1).tolist() == labels.tolist() and set(labels) == {0, 1} and not scores.any(1).all()


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
  owner = problem if field == 'silent_probs' else problem.hmm
  broken = owner._replace(**{field: BROKEN[field](getattr(owner, field))})
  problem = broken if field == 'silent_probs' else problem._replace(hmm=broken)
  with pytest.raises(AssumptionError) as error:
    theorems.program(theorem, problem, 3, CRITERIA)
  assert error.value.finding.statement == f'Assumption {statement}' and not error.value.finding.holds


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
