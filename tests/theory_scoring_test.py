"""A construction beside the exact label: every number agrees with exact rational arithmetic."""

from fractions import Fraction

from conftest import compiling_fast
import jax
import numpy as np
import pytest

from hmm_jax.blocks import in_blocks
from hmm_jax.theory import assumptions, rationals, recovery, scoring, structured
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.structured import Sizes

THRESHOLDS = Thresholds(0.0, 1e-9)
MARGIN = 1e-9
LENGTH = 3


@pytest.fixture(autouse=True)
def _fast():
  with compiling_fast():
    yield


def _prompt_problem(num_classes):
  sizes = Sizes(6, 5, num_classes, 0, 0)
  problem = structured.for_theorem_3_6(jax.random.key(1), sizes, THRESHOLDS, 0.05, 10_000)
  built = recovery.theorem_3_6(problem.hmm, problem.task_weights, problem.silent_probs, THRESHOLDS, 10_000)
  return problem, built


def _head_problem(num_classes):
  problem = structured.for_theorem_3_3(jax.random.key(2), Sizes(4, 4, num_classes, 0, 0), THRESHOLDS, 0.05)
  return problem, recovery.theorem_3_3(problem.hmm, problem.task_weights, problem.silent_probs, THRESHOLDS)


def _memory_problem(num_cells):
  """With one cell Theorem 4.6, with two 4.3."""
  key = jax.random.key(3)
  if num_cells == 1:
    problem = structured.for_theorem_4_6(key, Sizes(4, 5, 2, 3, 1), THRESHOLDS, 0.05, 1e-9)
    hmm, _, mu, cell, _ = problem
    finding = assumptions.relaxed_recoverable_hidden_states(hmm, cell, mu, THRESHOLDS)
    return problem, finding, recovery.theorem_4_6(hmm, mu, problem.silent_probs, cell, LENGTH, THRESHOLDS, 1e-9)
  problem = structured.for_theorem_4_3(key, Sizes(4, 5, 2, 2, 2), THRESHOLDS, 0.05)
  hmm, _, mu, cell, _ = problem
  return (
    problem,
    assumptions.recoverable_hidden_states(hmm, cell, THRESHOLDS),
    recovery.theorem_4_3(hmm, mu, cell, LENGTH, THRESHOLDS),
  )


def _rows(hmm, tokens):
  """Likelihood rows of (MASK, x)."""
  return rationals.likelihood_rows(hmm, [hmm.num_tokens, *tokens])


def test_all_sequences():
  """Each of V + ... + V^T sequences once, with [MASK] after the end and nowhere else."""
  tokens = scoring.all_sequences(3, 4)
  assert tokens.shape == (3 + 9 + 27 + 81, 4) and tokens.dtype == np.int32
  assert len(np.unique(tokens, axis=0)) == len(tokens) and set(tokens.flat) == {0, 1, 2, 3}
  is_mask = tokens == 3
  assert (np.diff(is_mask.astype(int), axis=1) >= 0).all() and not is_mask[:, 0].any()


@pytest.mark.parametrize('num_classes', [2, 3])
@pytest.mark.parametrize('make', [_head_problem, _prompt_problem])
def test_states_agree_with_rational_arithmetic(make, num_classes):
  """Scores of P[H_0 | x], the construction's on the exact G, and which sequences are possible."""
  problem, built = make(num_classes)
  mu, hmm = assumptions.contrasts(problem.task_weights), rationals.exact_hmm(problem.hmm)
  silent = hmm._replace(initial_probs=rationals.exact(problem.silent_probs))
  tokens = scoring.all_sequences(problem.hmm.num_tokens, LENGTH)[::3]
  found = scoring.evaluate_states(problem, built, tokens)
  prompt = [rationals.exact(row) for row in built.get('prompt', [])]
  for index, sequence in enumerate(tokens):
    posterior = rationals.state_probs(silent, _rows(silent, sequence), 0, leave_out=False)
    np.testing.assert_allclose(found.exact[index], mu @ posterior.astype(float), atol=1e-12)
    assert found.possible[index] == found.in_region[index] == bool(posterior.any())
    features = rationals.token_probs(hmm, prompt + _rows(hmm, sequence), len(prompt)).astype(float)
    np.testing.assert_allclose(found.constructed[index], features @ built['head'].weights, atol=1e-9)
  count = scoring.count(found, MARGIN)
  assert count.sequences == count.in_region == found.possible.sum() and count.outside_margin == 0


def test_first_predictions_agree_with_rational_arithmetic():
  """G_1 of (MASK, x) and the scores of the masked state."""
  problem, _ = _head_problem(2)
  hmm = rationals.exact_hmm(problem.hmm)
  tokens = scoring.all_sequences(problem.hmm.num_tokens, 2)
  silent = hmm._replace(initial_probs=rationals.exact(problem.silent_probs))
  features, scores, possible = scoring.first_predictions(problem, tokens)
  for index, sequence in enumerate(tokens):
    rows = _rows(hmm, sequence)
    states = rationals.state_probs(silent, rows, 0, leave_out=True).astype(float)
    np.testing.assert_allclose(features[index], rationals.token_probs(hmm, rows, 0).astype(float), atol=1e-12)
    np.testing.assert_allclose(scores[index], assumptions.contrasts(problem.task_weights) @ states, atol=1e-12)
    assert possible[index] == (states.sum() > 0)


@pytest.mark.parametrize('num_cells', [1, 2])
def test_memory_agrees_with_rational_arithmetic(num_cells):
  """Scores of P[M_j* | x], the region R by exact zeros, and in it the exact labels."""
  problem, finding, built = _memory_problem(num_cells)
  tokens = scoring.all_sequences(problem.hmm.num_tokens, LENGTH)[::2]
  found = scoring.evaluate_memory(problem, built, finding, tokens)
  hmm, mu = rationals.exact_hmm(problem.hmm), assumptions.contrasts(problem.task_weights)
  shape = problem.hmm.memory_probs.shape + (problem.hmm.num_states,)
  others = tuple(axis for axis in range(len(shape)) if axis != problem.cell)
  outside = np.setdiff1d(np.arange(problem.hmm.num_states), finding.witness['recoverable_states'])
  for index, sequence in enumerate(tokens):
    rows = rationals.likelihood_rows(hmm, sequence)
    joint = rationals.state_probs(hmm, rows, 0, leave_out=False).reshape(shape)
    cell_probs = joint.sum(others)
    assert found.possible[index] == bool(joint.any())
    np.testing.assert_allclose(found.exact[index], mu @ cell_probs.astype(float), atol=1e-12)
    if not joint.any():
      assert not found.in_region[index]
      continue
    states = [rationals.state_probs(hmm, rows, t, leave_out=True).reshape(shape) for t in range(LENGTH)]
    surely = [token < hmm.num_tokens and not probs[..., outside].any() for token, probs in zip(sequence, states)]
    assert found.in_region[index] == any(surely)
    scores = [sum(map(Fraction.__mul__, row, cell_probs)) for row in rationals.exact(mu)]
    if any(surely) and len(set(scores)) == len(scores):
      assert found.constructed[index].argmax() == np.argmax(scores)
  assert 0 < found.in_region.sum() < found.possible.sum()


def test_counts():
  """Impossible sequences and those outside the region count nowhere; a tie is no clear disagreement."""
  exact = np.array([[1.0, 0], [1.0, 0], [0.5, 0.5], [0, 0.25], [0, 1.0], [0, 1.0]])
  constructed = np.array([[1.0, 0], [0, 1.0], [0, 1.0], [0, 1.0], [1.0, 0], [1.0, 0]])
  possible = np.array([True, True, True, True, True, False])
  in_region = np.array([True, True, True, True, False, False])
  count = scoring.count(scoring.Evaluation(exact, constructed, possible, in_region), MARGIN)
  expected = dict(sequences=5, in_region=4, disagreements=2, outside_margin=1, ties=1, smallest_gap=0.25)
  assert count._asdict() == expected


def test_one_compilation_a_tuner_and_shape():
  """Constructions of the same kind share a tuner, so that a second HMM compiles nothing."""
  for key in (5, 6):
    problem = structured.for_theorem_3_3(jax.random.key(key), Sizes(4, 4, 2, 0, 0), THRESHOLDS, 0.01)
    built = recovery.theorem_3_3(problem.hmm, problem.task_weights, problem.silent_probs, THRESHOLDS)
    tokens = scoring.all_sequences(4, LENGTH)[::3]
    scoring.evaluate_states(problem, built, tokens)
    size = scoring._state_scores._cache_size()
    if key == 5:
      after_first = size
  assert size == after_first


@pytest.mark.parametrize('num_cells', [0, 1, 2])
def test_possible_sequences_are_those_with_probability(num_cells):
  """By supports alone, the very sequences of `all_sequences` that exact arithmetic finds possible, in its order."""
  problem = _memory_problem(num_cells)[0] if num_cells else _prompt_problem(2)[0]
  every = scoring.all_sequences(problem.hmm.num_tokens, LENGTH)
  exact = rationals.exact_hmm(problem.hmm)
  is_possible = [
    any(rationals.state_probs(exact, rationals.likelihood_rows(exact, x), 0, False)) for x in every.tolist()
  ]
  assert sum(is_possible) < len(every) or not num_cells
  np.testing.assert_array_equal(scoring.possible_sequences(problem.hmm, LENGTH), every[is_possible])


@pytest.mark.parametrize('size', [1, 3, 7, 20])
def test_blocks_change_nothing(size):
  """Results of any block size are those of all at once, the filled-up last block cut off."""
  tokens = np.arange(14).reshape(7, 2)
  seen = []

  def evaluate(block):
    seen.append(len(block))
    return block.sum(1), block[:, 0]

  for whole, parts in zip(evaluate(tokens), in_blocks(evaluate, tokens, size)):
    np.testing.assert_array_equal(parts, whole)
  assert set(seen[1:]) == {size}
