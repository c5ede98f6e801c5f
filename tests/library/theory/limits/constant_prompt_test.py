"""Facts about prompts of the exact model: rows are one row, and whether one with a head is right on every text."""

import itertools

import numpy as np
import pytest
import rationals
import scipy.optimize

from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import constant_prompt as lib
from hmm_jax.theory.limits.constant_prompt import Limits
from hmm_jax.theory.theorems import assumptions
from tests.theory_cases import drawn, EXACT, exact_posteriors

LIMITS = Limits(max_covers=300, max_boxes=600, max_nodes=1000)
CYCLE = HMM(np.array([1.0, 0, 0]), np.roll(np.eye(3), 1, 1), np.array([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]]))


def stochastic(rng, *shape):
  """Dense rows of small fractions."""
  counts = rng.integers(1, 9, shape).astype(float)
  return counts / counts.sum(-1, keepdims=True)


def dense(seed, num_states, num_tokens):
  rng = np.random.default_rng(seed)
  shapes = (num_states,), (num_states, num_states), (num_states, num_tokens)
  return HMM(*(stochastic(rng, *shape) for shape in shapes)), rng


def all_texts(num_tokens, length):
  return np.array(list(itertools.product(range(num_tokens), repeat=length)))


def decided(hmm, task_weights, silent_probs, thresholds=EXACT, limits=LIMITS):
  return lib.constant_prompt(hmm, task_weights, silent_probs, thresholds, limits)


def assert_built_is_right(found, hmm, posteriors, task_weights, texts):
  """The head's scores relative to the last class are those of the task, but for a positive factor of each text."""
  scores = lib.token_probs_behind(hmm, found.construction['prompt'], texts) @ found.construction['head'].weights
  wanted = posteriors @ assumptions.contrasts(task_weights).T
  cosine = (scores * wanted).sum(1) / (np.linalg.norm(scores, axis=1) * np.linalg.norm(wanted, axis=1))
  np.testing.assert_allclose(cosine, 1, atol=1e-7)
  assert found.outcome == 'yes' and 0 <= found.construction['prompt'].min() <= found.construction['prompt'].max() == 1


def some_rows(rng, num_rows):
  """Rows in [0, 1] of which a third is 0, that do not contradict each other."""
  rows = rng.uniform(size=(num_rows, 4)) * (rng.uniform(size=(num_rows, 4)) < 0.7)
  rows[:, 0] = 0.5
  return rows


@pytest.mark.parametrize('num_rows', [1, 2, 3, 20])
def test_rows_are_one_row(num_rows):
  """G behind k rows, in fractions by other code, is that behind the one row, and what numpy has behind either."""
  hmm, rng = dense(num_rows, 4, 3)
  rows, texts, exact = some_rows(rng, num_rows), all_texts(3, 2), rationals.exact_hmm(hmm)
  single = (lib.masked_state_weights(hmm, rows) / hmm.initial_probs)[None]
  for prompt in (rows, single):
    before = list(rationals.exact(prompt))
    behind = [
      rationals.token_probs(exact, before + rationals.likelihood_rows(exact, [3, *text]), len(before)) for text in texts
    ]
    np.testing.assert_allclose(lib.token_probs_behind(hmm, rows, texts), np.array(behind, float), rtol=1e-13)


def test_rows_are_not_one_row_where_not_every_state_can_be_first():
  """On a cycle from state 0 two rows leave the masked state to be 2, and every single row leaves it to be 1."""
  texts, two_rows = all_texts(2, 2), np.ones((2, 3))
  behind_two = lib.token_probs_behind(CYCLE, two_rows, texts)
  np.testing.assert_allclose(behind_two, CYCLE.emission_matrix[[2] * 4])
  for row in itertools.product([0.2, 1.0], repeat=3):
    np.testing.assert_allclose(lib.token_probs_behind(CYCLE, [row], texts), CYCLE.emission_matrix[[1] * 4])


def test_rows_that_contradict_each_other_predict_nothing():
  rows = np.array([[1.0, 0, 0], [1.0, 0, 1.0]])
  assert not lib.token_probs_behind(CYCLE, rows, all_texts(2, 2)).any()


@pytest.mark.parametrize('family', ['planted', 'unplanted'])
@pytest.mark.parametrize('seed', range(4))
def test_where_assumption_3_5_holds_the_condition_does(family, seed):
  """Three classes, more states than tokens; even a search that ends at once has the cover of 3.5."""
  problem, texts = drawn('3.6', family, seed), all_texts(4, 3)
  posteriors = exact_posteriors(problem, texts).astype(float)
  supports = posteriors[:, assumptions.weighted_states(problem.task_weights)].any(1)
  for limits in (LIMITS, LIMITS._replace(max_covers=1, max_boxes=1)):
    found = decided(problem.hmm, problem.task_weights, problem.silent_probs, limits=limits)
    assert_built_is_right(found, problem.hmm, posteriors[supports], problem.task_weights, texts[supports])
    assert found.error < 1e-9


def solvable(seed, num_classes):
  """Every state moves to every one, five states over three tokens, and a task that some b and w are right on."""
  hmm, rng = dense(seed, 5, 3)
  heads, w, silent_probs = rng.standard_normal((num_classes - 1, 3)), rng.uniform(size=5), stochastic(rng, 5)
  v = heads @ hmm.emission_matrix.T * (w @ hmm.transition_matrix)
  return hmm, np.vstack([v / silent_probs, np.zeros(5)]), silent_probs


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('num_classes', [2, 3])
def test_the_condition_holds_where_assumption_3_5_fails(seed, num_classes):
  """H* would be all states, with W dependent; a task that has a solution is recovered, by whatever prompt and head."""
  hmm, task_weights, silent_probs = solvable(seed, num_classes)
  assert not assumptions.relaxed_non_degeneracy(hmm, task_weights, EXACT, 1000).holds
  found, texts = decided(hmm, task_weights, silent_probs), all_texts(3, 3)
  weights = silent_probs * lib.likelihoods(hmm, texts)
  assert_built_is_right(found, hmm, weights / weights.sum(1, keepdims=True), task_weights, texts)
  assert found.reached_states.tolist() == list(range(5))


def test_dependence_among_states_that_the_task_does_not_weigh_does_no_harm():
  """States 2 and 3 speak alike, so that 3.5 fails; 0 and 1 are off their span, and any prompt will do."""
  W = np.array([[6, 1, 1], [1, 6, 1], [1, 1, 6], [1, 1, 6]]) / 8
  hmm, rng = dense(0, 4, 3)
  hmm, task_weights = hmm._replace(emission_matrix=W), np.array([[1.0, -0.7, 0, 0], [0, 0, 0, 0]])
  assert not assumptions.relaxed_non_degeneracy(hmm, task_weights, EXACT, 1000).holds
  found, texts = decided(hmm, task_weights, hmm.initial_probs), all_texts(3, 3)
  weights = hmm.initial_probs * lib.likelihoods(hmm, texts)
  assert_built_is_right(found, hmm, weights / weights.sum(1, keepdims=True), task_weights, texts)


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
  away there is none. Half of the cones are narrow."""
  outcomes = []
  for seed in range(28):
    hmm, rng = dense(seed, 3 + seed % 2, 2)
    narrow = 0.15 if seed % 4 < 2 else 0.8
    moves = (1 - narrow) * hmm.transition_matrix[:1] + narrow * hmm.transition_matrix
    hmm = hmm._replace(transition_matrix=moves)
    signs = np.sign(hmm.emission_matrix @ rng.standard_normal(2))
    v = signs * rng.uniform(0.3, 1, len(signs)) * (rng.uniform(size=len(signs)) @ moves)
    task_weights = np.vstack([v / hmm.initial_probs, 0 * v])
    found, distance = decided(hmm, task_weights, hmm.initial_probs), best_by_angle(hmm, v)
    assert {'yes': distance < 3e-3, 'no': distance > 1e-5}[found.outcome], (seed, found.outcome, distance)
    outcomes.append(found.outcome)
  assert min(map(outcomes.count, ('yes', 'no'))) >= 8


@pytest.mark.parametrize('share', [1e-6, 1e-12])
def test_a_transition_however_small_may_be_all_that_a_prompt_needs(share):
  """With w = (1 / share, 1, 0) and b = (1, -1): column 2 of W is the mean of the others."""
  transitions = np.array([[share, 0, 1 - share], [0, 1, 0], [0, 0, 1]])
  hmm = HMM(np.ones(3) / 3, transitions, np.array([[1.0, 0], [0, 1], [0.5, 0.5]]))
  found = decided(hmm, np.eye(3)[:2], hmm.initial_probs)
  assert found.outcome != 'no'
  assert share < 1e-6 or found.outcome == 'yes'


def test_signs_that_no_head_has_are_no():
  """Over two tokens W^T b changes sign once in the order of P[token 0 | state]; a task that does twice has no head."""
  hmm, _ = dense(1, 3, 2)
  hmm = hmm._replace(emission_matrix=np.array([[3, 1], [2, 2], [1, 3]]) / 4)
  found = decided(hmm, [[1.0, -1.0, 1.0], [0, 0, 0]], hmm.initial_probs)
  assert (found.outcome, found.construction) == ('no', None)


def meeting(*columns):
  """Five states over four tokens. The task weighs states 0 and 1, between which 2 speaks, and 4 speaks as 0 does: a
  head has q_0 = q_1, and none where 4 is reached. `columns` are the first ones of A, the others reach 4."""
  W = np.array([[5, 1, 1, 1], [1, 5, 1, 1], [3, 3, 1, 1], [1, 1, 5, 1], [5, 1, 1, 1]]) / 8
  moves = np.vstack([columns, np.tile([0.25, 0.25, 0, 0, 0.5], (5 - len(columns), 1))])
  hmm = HMM(np.ones(5) / 5, moves, W)
  return hmm, np.array([[1.0, -1.0, 0, 0, 0], [0, 0, 0, 0, 0]]), hmm.initial_probs


def test_a_prompt_may_have_to_reach_more_than_a_cover():
  """State 0 of the prompt reaches 0, 1 and 2, by itself unevenly; state 1, which reaches 0 and 3, makes up for it. A
  search that ends before their union is undecided, and without state 1 there is no solution."""
  uneven, makes_up = [0.2, 0.3, 0.5, 0, 0], [0.6, 0, 0, 0.4, 0]
  problem = meeting(uneven, makes_up)
  found, short = decided(*problem), decided(*problem, limits=LIMITS._replace(max_covers=1))
  assert found.outcome == 'yes' and found.reached_states.tolist() == [0, 1, 2, 3]
  np.testing.assert_allclose(found.construction['prompt'], [[1, 1 / 6, 0, 0, 0]], atol=1e-9)
  assert short.outcome == 'undecided'
  assert decided(*meeting(uneven)).outcome == 'no'


def test_a_search_that_is_cut_off_still_has_the_cover_of_assumption_3_5():
  """The smallest cover is {0, 1, 2}, which has no solution; H* = {0, 1, 3} comes after it."""
  problem = meeting([0.2, 0.3, 0.5, 0, 0], [0.1, 0.5, 0, 0.4, 0])
  found = decided(*problem, limits=LIMITS._replace(max_covers=1))
  assert found.outcome == 'yes' and found.reached_states.tolist() == [0, 1, 3]
  assert assumptions.relaxed_non_degeneracy(*problem[:2], EXACT, 1000).holds


def test_boxes_that_run_out_leave_it_undecided():
  """Two boxes are not enough for the solution that more of them lead to."""
  hmm, task_weights, silent_probs = solvable(0, 2)
  found, short = (
    decided(hmm, task_weights, silent_probs, limits=LIMITS._replace(max_boxes=boxes)) for boxes in (600, 2)
  )
  assert (found.outcome, short.outcome) == ('yes', 'undecided')


def test_prompts_use_no_state_that_cannot_be_first():
  """On the cycle, where state 0 alone is first, one row reaches state 1 alone: a task on it is constant and built, and
  one that weighs state 2 is not reached."""
  found = decided(CYCLE, [[0, 1.0, 0], [0, 0, 0]], np.ones(3) / 3)
  assert found.outcome == 'yes' and found.construction['prompt'].tolist() == [[1, 0, 0]]
  found = decided(CYCLE, [[0, 1.0, -1.0], [0, 0, 0]], np.ones(3) / 3)
  assert found.outcome == 'no'


def test_a_task_that_no_text_decides_is_refused():
  with pytest.raises(ValueError, match='silent_probs are 0 wherever'):
    decided(CYCLE, [[0, 1.0, 0], [0, 0, 0]], [1, 0, 0])
