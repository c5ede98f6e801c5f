"""What is assumed of a memory: recoverable states and stationarity, against ranks over all sets and against powers."""

import itertools
import math

import numpy as np
import pytest
from theory_assumptions_cases import CYCLE, EXACT, memory_hmm, stationary_by_powers, subsets

from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Finding, Thresholds


def rank(columns):
  return np.linalg.matrix_rank(columns, tol=1e-9) if columns.shape[1] else 0


def random_memory(rng, memory_size, num_states, num_tokens, num_cells):
  """Emissions of which some columns are new and some are mixtures of a few, so that spans of states often meet."""
  pool = rng.dirichlet(np.ones(num_tokens), 2)
  emission_matrix = rng.dirichlet(np.ones(num_tokens), (memory_size, num_states))
  mixed = rng.random((memory_size, num_states)) < 0.35
  emission_matrix[mixed] = rng.dirichlet(np.ones(2), mixed.sum()) @ pool
  return memory_hmm(emission_matrix, rng.integers(num_cells, size=num_states), num_cells)


def columns_of(hmm, pairs):
  """W[:, (m, h)] of each pair, [V, n]."""
  return np.array([hmm.emission_matrix[m, h] for m, h in pairs]).reshape(-1, hmm.num_tokens).T


def split_columns(hmm, cell, states, values):
  """The columns of H* = `states` and those of the paper's V-bar, pair by pair."""
  own, others = [], []
  for m, h in itertools.product(range(hmm.memory_size), range(hmm.num_states)):
    if hmm.cell_index[h] != cell:
      others.append((m, h))
    elif m in values:
      (own if h in states else others).append((m, h))
  return columns_of(hmm, own), columns_of(hmm, others)


def is_recoverable(hmm, cell, states, values):
  """The definition by ranks: independent columns whose span meets that of the others in 0 alone."""
  own, others = split_columns(hmm, cell, states, values)
  return rank(own) == own.shape[1] and rank(np.hstack([own, others])) == own.shape[1] + rank(others)


def assert_largest_recoverable(hmm, cell, values, finding):
  readers = np.flatnonzero(hmm.cell_index == cell).tolist()
  valid = [set(states) for states in subsets(readers) if states and is_recoverable(hmm, cell, states, values)]
  states = set(finding.witness['recoverable_states'].tolist())
  assert finding.holds == bool(valid) and finding.witness['memory_values'].tolist() == sorted(values)
  assert states == (max(valid, key=len) if valid else set())
  assert all(other <= states for other in valid)
  distances = finding.witness['distances']
  assert sorted(distances) == readers
  for state in readers:
    own, others = split_columns(hmm, cell, [state], values)
    off = own - others @ np.linalg.lstsq(others, own, rcond=1e-9)[0]
    expected = np.linalg.svd(off, compute_uv=False)[-1] if own.shape[1] <= own.shape[0] else 0
    np.testing.assert_allclose(distances[state], expected, atol=1e-9)
  over = min if states else max
  chosen = [distances[state] for state in states or readers]
  assert finding.closeness['smallest_singular_value'] == over(chosen, default=0.0)
  if states:
    own, _ = split_columns(hmm, cell, states, values)
    np.testing.assert_allclose(finding.closeness['condition_number'], np.linalg.cond(own), rtol=1e-6)
    cosines = []
    for state in states:
      own, others = split_columns(hmm, cell, [state], values)
      left, singular, _ = np.linalg.svd(others, full_matrices=False)
      onto = left[:, singular > 1e-9].T @ np.linalg.qr(own)[0]
      cosines.append(np.linalg.norm(onto, 2) if onto.size else 0.0)
    np.testing.assert_allclose(math.cos(finding.closeness['principal_angle']), max(cosines), atol=1e-9)


@pytest.mark.parametrize('num_cells', [1, 2])
def test_recoverable_states_are_the_largest_set_that_ranks_allow(num_cells):
  """Assumption 4.2, and 4.5 or C.5 for the values of the cell in supp(mu), with all values of the other cells.

  Of all sets of states that read the cell, the valid ones lie in the one that is found.
  """
  rng = np.random.default_rng(10 + num_cells)
  strict_sizes, sizes, relaxed = [], [], 0
  for num_tokens in (4, 6, 9):
    for draw in range(30):
      hmm = random_memory(rng, 2 + draw % 2, 4, num_tokens, num_cells)
      values = sorted(rng.choice(hmm.memory_size, 1 + draw % hmm.memory_size, replace=False).tolist())
      task_weights = np.full((2, hmm.memory_size), 0.7)
      task_weights[0, values] += 1
      finding = assumptions.relaxed_recoverable_hidden_states(hmm, num_cells - 1, task_weights, EXACT)
      strict = assumptions.recoverable_hidden_states(hmm, num_cells - 1, EXACT)
      assert finding.statement == ('Assumption 4.5' if num_cells == 1 else 'Assumption C.5')
      assert strict.statement == 'Assumption 4.2'
      assert_largest_recoverable(hmm, num_cells - 1, values, finding)
      assert_largest_recoverable(hmm, num_cells - 1, list(range(hmm.memory_size)), strict)
      sizes.append(len(finding.witness['recoverable_states']))
      strict_sizes.append(len(strict.witness['recoverable_states']))
      # It is a relaxation: what 4.2 recovers, it recovers.
      assert set(strict.witness['recoverable_states']) <= set(finding.witness['recoverable_states'])
      relaxed += finding.holds and not strict.holds
  assert {0, 1} < set(sizes) and {0, 1, 2} <= set(strict_sizes) and relaxed


def test_a_cell_that_no_state_reads_has_nothing_recoverable():
  """Without a reader Assumption 4.2 fails with smallest singular value 0."""
  hmm = memory_hmm(np.eye(4).reshape(2, 2, 4), [0, 0], num_cells=2)
  assert assumptions.recoverable_hidden_states(hmm, 0, EXACT).holds
  finding = assumptions.recoverable_hidden_states(hmm, 1, EXACT)
  assert not finding.holds and finding.closeness == {'smallest_singular_value': 0.0}


def test_one_state_alone_has_nothing_to_be_distinguished_from():
  """With no column outside, independence over the memory is all, at a right angle to nothing."""
  hmm = memory_hmm(np.eye(2)[:, None])
  finding = assumptions.recoverable_hidden_states(hmm, 0, EXACT)
  assert finding.holds and finding.closeness['principal_angle'] == math.pi / 2


@pytest.mark.parametrize('cell', [-1, 2])
def test_a_cell_that_is_not_there_is_refused(cell):
  """Cells are numbered from 0 to N - 1; any other raises ValueError."""
  hmm = memory_hmm(np.eye(4).reshape(2, 2, 4), [0, 1], num_cells=2)
  with pytest.raises(ValueError, match=f'cell is {cell}'):
    assumptions.recoverable_hidden_states(hmm, cell, EXACT)
  with pytest.raises(ValueError, match=f'cell is {cell}'):
    assumptions.relaxed_recoverable_hidden_states(hmm, cell, np.eye(2), EXACT)


def test_a_distance_below_the_rank_threshold_is_none():
  """A column 1e-3 off the span of the others is recoverable below that share of its length, not above."""
  emission_matrix = np.array([[[0.5, 0.5, 0], [0.5, 0.5 - 1e-3, 1e-3]]])
  hmm = memory_hmm(emission_matrix)
  relative = math.sqrt(1.5) * 1e-3 / math.sqrt(0.5)
  assert assumptions.recoverable_hidden_states(hmm, 0, Thresholds(0.0, 0.9 * relative)).holds
  assert not assumptions.recoverable_hidden_states(hmm, 0, Thresholds(0.0, 1.1 * relative)).holds


def stationary_memory(rng, by_memory=False):
  hmm = memory_hmm(np.ones((2, 3, 1)))
  transition_matrix = rng.dirichlet(np.ones(3), 3)
  law = stationary_by_powers(transition_matrix)
  return hmm._replace(transition_matrix=transition_matrix, initial_probs=np.tile(law, (2, 1)) if by_memory else law)


@pytest.mark.parametrize('by_memory', [False, True], ids=['one start', 'start by memory'])
def test_stationarity_is_that_a_step_changes_nothing(by_memory):
  """It holds from the limiting law, and fails with the largest change of a step as its error from any other."""
  rng = np.random.default_rng(8)
  hmm = stationary_memory(rng, by_memory)
  finding = assumptions.stationarity(hmm, EXACT, 1e-12)
  assert finding.holds and finding.statement == 'Assumption 4.4'
  np.testing.assert_allclose(
    finding.witness['stationary_probs'], stationary_by_powers(hmm.transition_matrix), atol=1e-12
  )
  assert finding.witness['period'] == 1 and 'smallest_positive_prob' in finding.closeness
  moved = np.array(hmm.initial_probs)
  moved[..., :2] += [0.01, -0.01]
  if by_memory:
    moved[0] = hmm.initial_probs[0]
  other = hmm._replace(initial_probs=moved)
  error = max(np.abs(law @ hmm.transition_matrix - law).max() for law in np.atleast_2d(moved))
  finding = assumptions.stationarity(other, EXACT, 0.9 * error)
  assert not finding.holds and 'not stationary' in finding.reason
  np.testing.assert_allclose(finding.closeness['stationarity_error'], error, rtol=1e-9)
  assert assumptions.stationarity(other, EXACT, 1.1 * error).holds


def test_a_memory_without_probability_may_start_anywhere():
  """The start of a memory value that never occurs is not asked to be stationary."""
  hmm = stationary_memory(np.random.default_rng(9), by_memory=True)
  hmm.initial_probs[1] = [0.2, 0.3, 0.5]
  assert not assumptions.stationarity(hmm, EXACT, 1e-6).holds
  assert assumptions.stationarity(hmm._replace(memory_probs=np.array([1.0, 0])), EXACT, 1e-6).holds


def test_a_stationary_periodic_chain_is_not_enough():
  """Assumption 4.4 asks 3.2 too: a uniform start on a cycle is stationary, but not regular."""
  finding = assumptions.stationarity(memory_hmm(np.ones((2, 3, 1)))._replace(transition_matrix=CYCLE), EXACT, 1e-9)
  assert isinstance(finding, Finding) and not finding.holds
  assert finding.closeness['stationarity_error'] == 0 and 'period is 3' in finding.reason
