"""Theorems 3.3, 3.6, 4.3, 4.6 and C.6 as trainables of a tuner, and assumptions that they need.

`scoring_test.py` compares their scores with posteriors in fractions.
"""

from conftest import at, in_float64
import jax
import numpy as np
import pytest
from theory_cases import CRITERIA, drawn

from hmm_jax.models.model import ExactModel
from hmm_jax.theory import enumeration, head_fails_attention_succeeds, recovery, scoring, theorems
from hmm_jax.theory.assumptions import AssumptionError, Thresholds
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Attention
from hmm_jax.tuning.tasks import labelled


@pytest.mark.slow
def test_a_tuner_scores_a_construction():
  """On the exact model its labels are those of the posterior, contradictions of prompt and text included."""
  problem = drawn('4.6')
  hmm, num_classes = problem.hmm, len(problem.task_weights)
  tokens = enumeration.all_texts(hmm.num_tokens, 3)
  answers = scoring.answer(problem, tokens)
  covered = scoring.in_region(problem, theorems.finding('4.5', problem, CRITERIA), answers)
  head = Attention(num_classes, hmm.num_states + 1, hmm.joint_initial_probs.size, argmax=True)
  tuner = tuner_lib.Tuner(ExactModel(hmm.num_tokens), head, tuner_lib.Prompt(1, 0.5))
  scored = lambda trainable, hmm, inputs: tuner.scores(at(trainable, None), hmm, tuner.features(hmm, inputs))[0]
  scores = in_float64(jax.jit(scored), theorems.construct('4.6', problem, 3, CRITERIA), hmm, tokens)[covered]
  labels = labelled(problem.task_weights, answers.posterior).labels[covered]
  assert scores.argmax(1).tolist() == labels.tolist() and len(set(labels)) > 1 and not scores.any(1).all()


@pytest.mark.parametrize(
  ('theorem', 'of_emissions', 'of_start'),
  [
    ('3.3', '3.1', '3.2'),
    ('3.6', '3.5', '3.2'),
    ('4.3', '4.2', None),
    ('4.6', '4.5', '4.4 relaxed'),
    ('C.6', 'C.5', '4.4 relaxed'),
  ],
)
def test_a_theorem_is_refused_if_an_assumption_fails(theorem, of_emissions, of_start):
  """All states emit the same, or the start or P[H_0] lacks a state."""
  problem = drawn(theorem)
  emissions, size = problem.hmm.emission_matrix, problem.hmm.num_states
  changed = lambda **fields: problem._replace(hmm=problem.hmm._replace(**fields))
  cases = [(changed(emission_matrix=np.broadcast_to(emissions[..., :1, :], emissions.shape)), of_emissions)]
  if of_start:
    start = np.insert(np.full(size - 1, 1 / (size - 1)), 1, 0)
    cases += [(changed(initial_probs=start), of_start), (problem._replace(silent_probs=start), of_start)]
  for broken, statement in cases:
    with pytest.raises(AssumptionError) as error:
      theorems.program(theorem, broken, 3, CRITERIA)
    assert error.value.finding.statement == f'Assumption {statement}'


def test_the_region_ignores_mass_up_to_epsilon():
  """A posterior with mass up to the support threshold outside H* = {1} counts; a posterior of zeros does not."""
  problem = head_fails_attention_succeeds()
  finding = theorems.finding('4.5', problem, CRITERIA)._replace(thresholds=Thresholds(0.125, 1e-9))
  probs = [[0, 0.875, 0.125], [0, 0, 1], [0, 0.75, 0.25], [0, 0, 0]]
  assert recovery.recoverable_positions(problem.hmm, probs, finding).tolist() == [True, False, False, False]
