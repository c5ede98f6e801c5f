"""Facts about the structured draws: each satisfies its theorem's assumptions by definition, and its key decides it."""

import jax
import numpy as np
import pytest

from hmm_jax.theory import assumptions, structured
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.structured import Sizes

EXACT = Thresholds(support=0.0, rank=1e-9)
CONDITIONING = 0.05
SIZES = {
  '3.3': Sizes(num_states=4, num_tokens=5, num_classes=3, memory_size=0, num_cells=0),
  '3.6': Sizes(num_states=7, num_tokens=4, num_classes=3, memory_size=0, num_cells=0),
  '4.3': Sizes(num_states=4, num_tokens=6, num_classes=3, memory_size=2, num_cells=1),
  '4.3 two cells': Sizes(num_states=4, num_tokens=6, num_classes=2, memory_size=2, num_cells=2),
  '4.6': Sizes(num_states=4, num_tokens=6, num_classes=3, memory_size=4, num_cells=1),
  '4.6 two cells': Sizes(num_states=5, num_tokens=6, num_classes=2, memory_size=3, num_cells=2),
}


def drawn(name, key, conditioning=CONDITIONING, sizes=None):
  """A problem of the theorem that the name starts with."""
  sizes = sizes or SIZES[name]
  theorem = name.split()[0]
  if theorem == '3.3':
    return structured.for_theorem_3_3(key, sizes, EXACT, conditioning)
  if theorem == '3.6':
    return structured.for_theorem_3_6(key, sizes, EXACT, conditioning, 10_000)
  if theorem == '4.3':
    return structured.for_theorem_4_3(key, sizes, EXACT, conditioning)
  return structured.for_theorem_4_6(key, sizes, EXACT, conditioning, 1e-10)


def problems(name):
  return [drawn(name, jax.random.key(seed)) for seed in range(6)]


def is_ergodic(transition_matrix):
  """Whether Wielandt's power, H^2 - 2H + 2, is positive throughout."""
  size = len(transition_matrix)
  return (np.linalg.matrix_power((transition_matrix > 0).astype(object), size**2 - 2 * size + 2) > 0).all()


def smallest_singular_value(columns):
  return np.linalg.svd(columns, compute_uv=False)[-1] if columns.shape[1] <= columns.shape[0] else 0.0


def off_span(own, others):
  """What is left of columns off the span of others."""
  return own - others @ np.linalg.lstsq(others, own, rcond=1e-9)[0]


def assert_distributions(hmm):
  assert hmm.validate() is hmm
  assert all(array.dtype == np.float64 for array in (hmm.initial_probs, hmm.transition_matrix, hmm.emission_matrix))
  assert (hmm.transition_matrix == 0).any() and (hmm.emission_matrix == 0).any()
  assert is_ergodic(hmm.transition_matrix)


@pytest.mark.parametrize('name', SIZES)
def test_a_problem_is_decided_by_its_key(name):
  """The same key draws the same arrays, another key others."""
  first, again, other = (drawn(name, jax.random.key(seed)) for seed in (3, 3, 4))
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert not np.array_equal(first.task_weights, other.task_weights)
  assert not np.array_equal(first.hmm.emission_matrix, other.hmm.emission_matrix)


@pytest.mark.parametrize('name', SIZES)
def test_impossible_conditioning_is_refused(name, monkeypatch):
  """No distributions have a smallest singular value of 2: ValueError, with the number asked for."""
  monkeypatch.setattr(structured, '_MAX_DRAWS', 30)
  with pytest.raises(ValueError, match='conditioning is 2'):
    drawn(name, jax.random.key(0), conditioning=2.0)


@pytest.mark.parametrize('name', SIZES)
def test_drawn_counts_the_proposals(name):
  """A problem keeps how many proposals it took; harder conditioning takes more, and is a later draw of that key."""
  easy, hard = (drawn(name, jax.random.key(1), conditioning) for conditioning in (1e-6, 0.15))
  assert 1 <= easy.drawn <= hard.drawn <= 1000
  assert (easy.drawn == hard.drawn) == np.array_equal(easy.task_weights, hard.task_weights)


def test_more_states_than_tokens_are_refused_for_theorem_3_3(monkeypatch):
  """Assumption 3.1 cannot hold with H > V, so that no draw is found."""
  monkeypatch.setattr(structured, '_MAX_DRAWS', 30)
  sizes = Sizes(num_states=4, num_tokens=3, num_classes=2, memory_size=0, num_cells=0)
  with pytest.raises(ValueError, match='conditioning'):
    drawn('3.3', jax.random.key(0), conditioning=0.0, sizes=sizes)


@pytest.mark.parametrize('name', ['3.3', '3.6'])
def test_the_first_state_follows_the_silent_one(name):
  """P[H_1] = A P[H_0], both with full support, and mu has C rows that differ."""
  for problem in problems(name):
    assert_distributions(problem.hmm)
    np.testing.assert_allclose(problem.hmm.initial_probs, problem.silent_probs @ problem.hmm.transition_matrix)
    assert (problem.silent_probs > 0).all() and (problem.hmm.initial_probs > 0).all()
    np.testing.assert_allclose(problem.silent_probs.sum(), 1)
    assert problem.task_weights.shape == (3, problem.hmm.num_states)
    assert len(np.unique(problem.task_weights, axis=0)) == 3


def test_problems_of_theorem_3_3_have_independent_columns():
  """The smallest singular value of W is at least the conditioning."""
  for problem in problems('3.3'):
    assert problem.hmm.emission_matrix.shape == (4, 5)
    assert smallest_singular_value(problem.hmm.emission_matrix.T) >= CONDITIONING


def test_problems_of_theorem_3_6_have_a_cover_but_fail_theorem_3_3():
  """Two states move into half as many states as tokens alone, which hold supp(mu) and have independent columns; with
  H > V all columns are dependent, and those outside H* lie no further off its span than their own half."""
  for problem in problems('3.6'):
    hmm = problem.hmm
    assert hmm.emission_matrix.shape == (7, 4)
    assert np.linalg.matrix_rank(hmm.emission_matrix) < 7
    assert not assumptions.non_degeneracy(hmm, EXACT).holds
    targets = set(np.flatnonzero(np.ptp(problem.task_weights, axis=0)).tolist())
    assert len(targets) == 2
    supports = [frozenset(np.flatnonzero(row).tolist()) for row in hmm.transition_matrix]
    # Each of the two covers one state of supp(mu), and nothing else.
    starts = [h for h, support in enumerate(supports) if support <= targets]
    assert frozenset().union(*(supports[h] for h in starts)) == targets
    assert smallest_singular_value(hmm.emission_matrix[sorted(targets)].T) >= CONDITIONING


def test_a_linear_head_sees_other_states_as_those_of_the_task():
  """In problems of theorem 3.6 a state outside H* speaks half in mixtures of H*: its column is never orthogonal."""
  for problem in problems('3.6'):
    essential = np.flatnonzero(np.ptp(problem.task_weights, axis=0))
    others = np.delete(problem.hmm.emission_matrix, essential, axis=0)
    overlap = others @ problem.hmm.emission_matrix[essential].T
    assert (overlap.max(-1) > 0).all()


def split(hmm, cell, values):
  """Columns of W of state 0 over `values`, and those of all other pairs that Assumption C.5 names, [V, n]."""
  own = [hmm.emission_matrix[m, 0] for m in values]
  others = [
    hmm.emission_matrix[m, h]
    for h in range(1, hmm.num_states)
    for m in (values if hmm.cell_index[h] == cell else range(hmm.memory_size))
  ]
  return np.array(own).T, np.array(others).T


@pytest.mark.parametrize('name', ['4.3', '4.3 two cells', '4.6', '4.6 two cells'])
def test_state_1_announces_state_0(name):
  """State 1 moves to state 0 alone and emits token 0, which no other state does; both read the cell of the task."""
  for problem in problems(name):
    hmm = problem.hmm
    assert_distributions(hmm)
    assert problem.cell == 0 and hmm.cell_index[:2].tolist() == [0, 0]
    assert hmm.num_cells == SIZES[name].num_cells and hmm.memory_size == SIZES[name].memory_size
    assert problem.task_weights.shape == (SIZES[name].num_classes, hmm.memory_size)
    np.testing.assert_array_equal(hmm.transition_matrix[1], np.eye(hmm.num_states)[0])
    np.testing.assert_array_equal(hmm.emission_matrix[:, 1, 0], 1)
    np.testing.assert_array_equal(np.delete(hmm.emission_matrix, 1, axis=1)[..., 0], 0)
    assert (hmm.memory_probs > 0).all()


@pytest.mark.parametrize('name', ['4.3', '4.3 two cells'])
def test_problems_of_theorem_4_3_show_every_value_at_state_0(name):
  """The columns of state 0 for all values are as far as the conditioning off the span of all others, and no other
  state is recoverable where M (H - 2) > V - 1 - M."""
  for problem in problems(name):
    assert smallest_singular_value(off_span(*split(problem.hmm, 0, range(2)))) >= CONDITIONING
    finding = assumptions.recoverable_hidden_states(problem.hmm, 0, EXACT)
    assert finding.witness['recoverable_states'].tolist() == [0]
    assert (problem.hmm.initial_probs > 0).all()


@pytest.mark.parametrize('name', ['4.6', '4.6 two cells'])
def test_problems_of_theorem_4_6_hold_for_two_values_and_fail_4_2(name):
  """mu weighs values 0 and 1 alone, whose columns at state 0 are off the span of the others; those of all M > 2 values
  are dependent, so that Assumption 4.2 holds for no set of states. The start is stationary."""
  for problem in problems(name):
    hmm = problem.hmm
    np.testing.assert_array_equal(problem.task_weights[:, 2:], 0)
    assert smallest_singular_value(off_span(*split(hmm, 0, range(2)))) >= CONDITIONING
    assert np.linalg.matrix_rank(hmm.emission_matrix[:, 0], tol=1e-9) == 2 < hmm.memory_size
    assert not assumptions.recoverable_hidden_states(hmm, 0, EXACT).holds
    limit = np.linalg.matrix_power(hmm.transition_matrix, 2**12)[0]
    np.testing.assert_allclose(hmm.initial_probs, limit, atol=1e-9)


def test_with_room_in_the_vocabulary_another_state_can_keep_4_2():
  """With three states over eight tokens state 2 is recoverable for all three values, but never state 0."""
  sizes = Sizes(num_states=3, num_tokens=8, num_classes=2, memory_size=3, num_cells=1)
  found = [
    assumptions.recoverable_hidden_states(
      drawn('4.6', jax.random.key(seed), conditioning=0.02, sizes=sizes).hmm, 0, EXACT
    ).witness['recoverable_states']
    for seed in range(4)
  ]
  assert all(0 not in states for states in found) and any(states.tolist() == [2] for states in found)


def test_sparse_probs_have_exact_zeros_and_no_small_entries():
  """About half of the entries are 0, rows sum to 1, none is empty, and what is positive is over 0.02 / (1.02 size)."""
  rng = np.random.default_rng(0)
  for size in (1, 2, 4, 20):
    probs = structured.sparse_probs(rng, 2000, size)
    assert probs.shape == (2000, size)
    np.testing.assert_allclose(probs.sum(-1), 1)
    assert probs[probs > 0].min() > 0.02 / (1.02 * size)
    zeros = (probs == 0).mean()
    # One entry of a row is always kept, the others with probability a half.
    np.testing.assert_allclose(zeros, (size - 1) / size / 2, atol=0.02)


def test_the_numpy_generator_is_that_of_the_key():
  """Equal keys give equal streams, and keys that are split or folded give others."""
  key = jax.random.key(5)
  stream = structured.generator(key).random(3).tolist()
  assert structured.generator(jax.random.key(5)).random(3).tolist() == stream
  others = [jax.random.key(6), jax.random.fold_in(key, 7), *jax.random.split(key)]
  assert len({tuple(structured.generator(other).random(3)) for other in [key, *others]}) == 5
