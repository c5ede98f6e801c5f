"""The assumptions of section 4: recoverable states against exact ranks over all sets, and the law of the start."""

import itertools
import math

import numpy as np
import pytest
from theory_assumptions_cases import CYCLE, EXACT, memory_hmm, small_fractions, subsets

from hmm_jax._support.rational import algebra
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.problem import sparse_probs


def split_columns(hmm, cell, states, values):
  """The columns W[:, (m, h)] of H* = `states` and those of the paper's V-bar, pair by pair."""
  own, others = [], []
  for m, h in itertools.product(range(hmm.memory_size), range(hmm.num_states)):
    if hmm.cell_index[h] != cell:
      others.append((m, h))
    elif m in values:
      (own if h in states else others).append((m, h))
  return [
    np.array([hmm.emission_matrix[pair] for pair in pairs]).reshape(-1, hmm.num_tokens).T for pairs in (own, others)
  ]


def is_recoverable(hmm, cell, states, values):
  """The definition by exact ranks: independent columns whose span meets that of the others only in 0."""
  own, others = map(small_fractions, split_columns(hmm, cell, states, values))
  return algebra.rank(np.hstack([own, others])) == own.shape[1] + algebra.rank(others)


def sine(columns, others):
  """The least singular value of columns off the span of others, 0 where there are too many."""
  off = columns - others @ np.linalg.lstsq(others, columns, rcond=1e-9)[0]
  return np.linalg.svd(off, compute_uv=False)[-1] if columns.shape[1] <= len(columns) else 0.0


def assert_largest_recoverable(hmm, cell, values, finding):
  """A set of states that read the cell is valid iff it lies within the set that is found."""
  readers, witness = np.flatnonzero(hmm.cell_index == cell).tolist(), finding.witness
  states = witness['recoverable_states'].tolist()
  valid = [some for some in subsets(readers) if is_recoverable(hmm, cell, some, values)]
  assert valid == list(subsets(states)) and finding.holds == bool(states)
  assert witness['memory_values'].tolist() == list(values)
  split = {state: split_columns(hmm, cell, [state], values) for state in readers}
  distances = {state: sine(*columns) for state, columns in split.items()}
  assert witness['distances'] == pytest.approx(distances, abs=1e-9)
  least = min(distances[state] for state in states) if states else max(distances.values(), default=0.0)
  np.testing.assert_allclose(finding.closeness['smallest_singular_value'], least, atol=1e-9)


@pytest.mark.parametrize('num_cells', [1, 2])
def test_recoverable_states_are_the_largest_set_that_ranks_allow(num_cells):
  """Assumption 4.2, and 4.5 or C.5 for the values of the cell in supp(mu), with all values of the other cells."""
  rng, sizes = np.random.default_rng(10 + num_cells), set()
  for num_tokens, memory_size in [*itertools.product([4, 6, 9], [2, 3])] * 6:
    # Some say the same.
    said = rng.integers(12, size=(memory_size, 4))
    hmm = memory_hmm(sparse_probs(rng, 12, num_tokens)[said], rng.integers(num_cells, size=4), num_cells)
    every = range(memory_size)
    weighed = sorted(rng.choice(memory_size, rng.integers(1, memory_size + 1), replace=False).tolist())
    mu = np.stack([np.isin(every, weighed) + 0.7, np.full(memory_size, 0.7)])
    relaxed = assumptions.relaxed_recoverable_hidden_states(hmm, num_cells - 1, mu, EXACT)
    strict = assumptions.recoverable_hidden_states(hmm, num_cells - 1, EXACT)
    assert relaxed.statement == ('Assumption 4.5' if num_cells == 1 else 'Assumption C.5')
    assert strict.statement == 'Assumption 4.2'
    assert_largest_recoverable(hmm, num_cells - 1, weighed, relaxed)
    assert_largest_recoverable(hmm, num_cells - 1, every, strict)
    sizes |= {(finding.statement, len(finding.witness['recoverable_states'])) for finding in (relaxed, strict)}
  for statement in (relaxed.statement, strict.statement):
    assert sizes >= {(statement, 0), (statement, 1), (statement, 2)}


def test_a_missing_cell_is_refused():
  with pytest.raises(ValueError, match='cell is 2'):
    assumptions.recoverable_hidden_states(memory_hmm(np.eye(4).reshape(2, 2, 4), num_cells=2), 2, EXACT)


def test_a_distance_below_the_rank_threshold_is_none():
  """A column 1e-3 off the span of the others is recoverable below that share of its length, not above."""
  hmm = memory_hmm(np.array([[[0.5, 0.5, 0], [0.5, 0.5 - 1e-3, 1e-3]]]))
  relative = math.sqrt(1.5) * 1e-3 / math.sqrt(0.5)
  for share, holds in ((0.9, True), (1.1, False)):
    assert assumptions.recoverable_hidden_states(hmm, 0, Thresholds(0.0, share * relative)).holds == holds


# The start.

MOVES = np.array([[0.5, 0.25, 0.25], [0.25, 0.75, 0], [0.5, 0, 0.5]])
LAW = np.array([0.4, 0.4, 0.2])
FIRST = np.array([0.3, 0.5, 0.2])
CHAIN = memory_hmm(np.ones((3, 3, 1)))._replace(transition_matrix=MOVES)


def test_stationarity_is_that_a_step_changes_nothing():
  """Assumption 4.4 holds within a tolerance of the largest change; a cycle from its law is stationary, not regular."""
  at_rest, moved = CHAIN._replace(initial_probs=LAW), CHAIN._replace(initial_probs=FIRST)
  finding = assumptions.stationarity(at_rest, EXACT, 1e-12)
  assert finding.holds and finding.statement == 'Assumption 4.4'
  np.testing.assert_allclose(finding.witness['stationary_probs'], LAW, atol=1e-12)
  error = np.abs(FIRST @ MOVES - FIRST).max()
  for share, holds in ((0.9, False), (1.1, True)):
    finding = assumptions.stationarity(moved, EXACT, share * error)
    assert finding.holds == holds and finding.closeness['stationarity_error'] == pytest.approx(error)
  finding = assumptions.stationarity(CHAIN._replace(transition_matrix=CYCLE), EXACT, 1e-9)
  assert not finding.holds and finding.closeness['stationarity_error'] < 1e-15 and finding.witness['period'] == 3


def test_a_start_one_step_after_the_silent_law_is_accepted():
  """P[H_1] = A P[H_0] within a tolerance, stationary or not."""
  hmm = CHAIN._replace(initial_probs=FIRST @ MOVES)
  finding = assumptions.silent_start(hmm, FIRST, EXACT, 1e-12)
  assert finding.holds and finding.closeness['start_error'] < 1e-12
  error = np.abs(LAW @ MOVES - FIRST @ MOVES).max()
  for share, holds in ((0.9, False), (1.1, True)):
    finding = assumptions.silent_start(hmm, LAW, EXACT, share * error)
    assert finding.holds == holds and finding.closeness['start_error'] == pytest.approx(error)


@pytest.mark.parametrize(('probability', 'holds'), [(0, True), (0.25, False)])
def test_only_memories_that_have_probability_are_asked(probability, holds):
  """3.2, 4.4 and the start: the law given a memory of probability 0 may be anything, given another it may not."""
  memory_probs = np.array([0.5, probability, 0.5 - probability])
  hmm = CHAIN._replace(memory_probs=memory_probs, initial_probs=np.array([LAW, [1, 0, 0], LAW]))
  regular = assumptions.regularity(hmm, EXACT)
  assert regular.holds == holds and regular.witness['states_without_start'].tolist() == ([] if holds else [1, 2])
  assert assumptions.stationarity(hmm, EXACT, 1e-9).holds == holds
  assert assumptions.silent_start(hmm, np.tile(LAW, (3, 1)), EXACT, 1e-9).holds == holds
