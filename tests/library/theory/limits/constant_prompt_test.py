"""Facts about prompts of the exact model: rows are one row, and whether one with a head is right on every text."""

import itertools

import numpy as np
import pytest
import rationals
import scipy.optimize
from theory_cases import dense, drawn, EXACT, exact_posteriors

from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import constant_prompt as lib
from hmm_jax.theory.limits.constant_prompt import Limits
from hmm_jax.theory.problems.enumeration import all_texts
from hmm_jax.theory.theorems import assumptions

LIMITS = Limits(max_covers=300, max_boxes=600, max_nodes=1000)
CYCLE = HMM(np.array([1.0, 0, 0]), np.roll(np.eye(3), 1, 1), np.array([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]]))


def decided(hmm, weights, silent_probs=None, **limits):
  """For two classes by the weights of the first one relative to the other, or for the weights of all classes."""
  task_weights = np.vstack([weights, np.zeros(hmm.num_states)]) if np.ndim(weights) == 1 else weights
  start = hmm.initial_probs if silent_probs is None else silent_probs
  return lib.constant_prompt(hmm, task_weights, start, EXACT, LIMITS._replace(**limits))


def assert_built_is_right(found, hmm, posteriors, task_weights, texts):
  """The head's scores relative to the last class are those of the task, but for a positive factor of each text."""
  scores = lib.token_probs_behind(hmm, found.construction['prompt'], texts) @ found.construction['head'].weights
  wanted = posteriors @ assumptions.contrasts(task_weights).T
  cosine = (scores * wanted).sum(1) / (np.linalg.norm(scores, axis=1) * np.linalg.norm(wanted, axis=1))
  np.testing.assert_allclose(cosine, 1, atol=1e-7)
  assert found.outcome == 'yes' and 0 <= found.construction['prompt'].min() <= found.construction['prompt'].max() == 1


def test_rows_are_one_row():
  """G behind k rows, in fractions by other code, is that behind the one row, and what numpy has behind either.

  A [MASK] in the text, token 3, says nothing.
  """
  hmm, rng = dense(3, 4, 3)
  rows, texts, exact = rng.uniform(size=(3, 4)), all_texts(4, 2), rationals.exact_hmm(hmm)
  rows[0, 1] = rows[2, 3] = 0
  single = (lib.masked_state_weights(hmm, rows) / hmm.initial_probs)[None]
  for prompt in (rows, single):
    before = list(rationals.exact(prompt))
    after = [before + rationals.likelihood_rows(exact, [3, *text]) for text in texts]
    behind = np.float64([rationals.token_probs(exact, each, len(before)) for each in after])
    np.testing.assert_allclose(lib.token_probs_behind(hmm, rows, texts), behind, rtol=1e-13)


def test_rows_are_not_one_row_where_not_every_state_can_be_first():
  """On a cycle from state 0 two rows leave the masked state to be 2, and every single row leaves it to be 1.

  Rows that contradict each other predict nothing.
  """
  behind = lambda *rows: lib.token_probs_behind(CYCLE, rows, all_texts(2, 2))
  np.testing.assert_allclose(behind([1, 1, 1], [1, 1, 1]), CYCLE.emission_matrix[[2] * 4])
  for row in itertools.product([0.2, 1.0], repeat=3):
    np.testing.assert_allclose(behind(row), CYCLE.emission_matrix[[1] * 4])
  assert not behind([1, 0, 0], [1, 0, 1]).any()


@pytest.mark.parametrize('limits', [{}, dict(max_covers=1, max_boxes=1)])
def test_where_assumption_3_5_holds_the_condition_does(limits):
  """Three classes, more states than tokens; even a search that ends at once has the cover of 3.5."""
  problem, texts = drawn('3.6', 'unplanted'), all_texts(4, 3)
  posteriors = exact_posteriors(problem, texts).astype(float)
  supports = posteriors[:, assumptions.weighted_states(problem.task_weights)].any(1)
  found = decided(problem.hmm, problem.task_weights, problem.silent_probs, **limits)
  assert_built_is_right(found, problem.hmm, posteriors[supports], problem.task_weights, texts[supports])
  assert found.error < 1e-9


@pytest.mark.parametrize('num_classes', [2, 3])
def test_the_condition_holds_where_assumption_3_5_fails(num_classes):
  """H* would be all of five states, with W dependent; a task that some b and w are right on is recovered."""
  hmm, rng = dense(0, 5, 3)
  heads, w = rng.standard_normal((num_classes - 1, 3)), rng.uniform(size=5)
  silent_probs = dense(1, 5, 3)[0].initial_probs
  v = heads @ hmm.emission_matrix.T * (w @ hmm.transition_matrix)
  task_weights = np.vstack([v / silent_probs, np.zeros(5)])
  found, texts = decided(hmm, task_weights, silent_probs), all_texts(3, 3)
  weights = silent_probs * lib.likelihoods(hmm, texts)
  assert_built_is_right(found, hmm, weights / weights.sum(1, keepdims=True), task_weights, texts)
  assert num_classes == 3 or decided(hmm, task_weights, silent_probs, max_boxes=2).outcome == 'undecided'


def best_by_angle(hmm, v):
  """The least distance of 1 / q from the cone of A over all b of two tokens with the signs of v, relative to 1 / q."""
  best, A = np.inf, hmm.transition_matrix.T
  for angle in np.linspace(0, 2 * np.pi, 1000, endpoint=False):
    q = hmm.emission_matrix @ [np.cos(angle), np.sin(angle)] / v
    if (q > 1e-4 * np.abs(q).max()).all():
      best = min(best, scipy.optimize.nnls(A, 1 / q)[1] / np.linalg.norm(1 / q))
  return best


def test_two_tokens_agree_with_a_search_of_all_heads():
  """With two tokens a head is an angle: where 1 / q passes through the cone a solution is found, and where it stays
  away there is none."""
  outcomes = []
  for seed in range(12):
    hmm, rng = dense(seed, 4, 2)
    signs = np.sign(hmm.emission_matrix @ rng.standard_normal(2))
    v = signs * rng.uniform(0.3, 1, 4) * (rng.uniform(size=4) @ hmm.transition_matrix)
    found, distance = decided(hmm, v / hmm.initial_probs), best_by_angle(hmm, v)
    assert {'yes': distance < 3e-3, 'no': distance > 1e-5}[found.outcome], (seed, found.outcome, distance)
    outcomes.append(found.outcome)
  assert min(map(outcomes.count, ('yes', 'no'))) >= 4


def meeting(*columns):
  """Five states over four tokens. The task weighs states 0 and 1, between which 2 speaks, and 4 speaks as 0 does: a
  head has q_0 = q_1, and none where 4 is reached. `columns` are the first ones of A, the others reach 4."""
  W = np.array([[5, 1, 1, 1], [1, 5, 1, 1], [3, 3, 1, 1], [1, 1, 5, 1], [5, 1, 1, 1]]) / 8
  moves = np.vstack([columns, np.tile([0.25, 0.25, 0, 0, 0.5], (5 - len(columns), 1))])
  return HMM(np.ones(5) / 5, moves, W), [1.0, -1.0, 0, 0, 0]


def test_a_prompt_may_have_to_reach_more_than_a_cover():
  """State 0 of the prompt reaches 0, 1 and 2, by itself unevenly; state 1, which reaches 0 and 3, makes up for it. A
  search that ends before their union is undecided, and without state 1 there is no solution."""
  uneven, makes_up = [0.2, 0.3, 0.5, 0, 0], [0.6, 0, 0, 0.4, 0]
  problem = meeting(uneven, makes_up)
  found = decided(*problem)
  assert found.outcome == 'yes' and found.reached_states.tolist() == [0, 1, 2, 3]
  np.testing.assert_allclose(found.construction['prompt'], [[1, 1 / 6, 0, 0, 0]], atol=1e-9)
  assert decided(*problem, max_covers=1).outcome == 'undecided'
  assert decided(*meeting(uneven)).outcome == 'no'


def test_prompts_use_no_state_that_cannot_be_first():
  """On the cycle, where state 0 alone is first, one row reaches state 1 alone: a task on it is constant and built, and
  one that weighs state 2 is not reached."""
  found = decided(CYCLE, [0, 1.0, 0], np.ones(3) / 3)
  assert found.outcome == 'yes' and found.construction['prompt'].tolist() == [[1, 0, 0]]
  assert decided(CYCLE, [0, 1.0, -1.0], np.ones(3) / 3).outcome == 'no'


def test_a_task_that_no_text_decides_is_refused():
  with pytest.raises(ValueError, match='silent_probs'):
    decided(CYCLE, [0, 1.0, 0], [1, 0, 0])
