"""The assumptions of section 4: recoverable states against exact ranks over all sets, and the law of the start."""

import itertools

import numpy as np
import pytest
from theory_assumptions_cases import CYCLE, EXACT, memory_hmm, small_fractions, subsets

from hmm_jax._support.rational import algebra
from hmm_jax.theory import assumptions
from hmm_jax.theory.problem import sparse_probs


def is_recoverable(hmm, cell, states, values):
  """The definition by exact ranks: independent columns of H* = `states`, whose span meets the paper's V-bar in 0."""
  own, others = [], [np.zeros(hmm.num_tokens)]
  for (m, h), column in zip(np.ndindex(hmm.emission_matrix.shape[:2]), hmm.emission_matrix.reshape(-1, hmm.num_tokens)):
    if hmm.cell_index[h] != cell or m in values:
      (own if h in states else others).append(column)
  rank = lambda rows: algebra.rank(small_fractions(rows))
  return rank(own + others) == len(own) + rank(others)


@pytest.mark.parametrize('num_cells', [1, 2])
def test_recoverable_states_are_the_largest_set_that_ranks_allow(num_cells):
  """A set of states is valid iff it lies within the one found: 4.2, and 4.5 or C.5 for the values in supp(mu)."""
  rng, cell = np.random.default_rng(10 + num_cells), num_cells - 1
  for num_tokens, memory_size in [*itertools.product([4, 6, 9], [2, 3])] * 4:
    # Some say the same.
    said = rng.integers(12, size=(memory_size, 4))
    hmm = memory_hmm(sparse_probs(rng, 12, num_tokens)[said], rng.integers(num_cells, size=4), num_cells)
    weighed = sorted(rng.choice(memory_size, rng.integers(1, memory_size + 1), replace=False).tolist())
    mu = np.stack([np.isin(range(memory_size), weighed) + 0.7, np.full(memory_size, 0.7)])
    relaxed = assumptions.relaxed_recoverable_hidden_states(hmm, cell, mu, EXACT)
    strict = assumptions.recoverable_hidden_states(hmm, cell, EXACT)
    for finding, values in ((relaxed, weighed), (strict, [*range(memory_size)])):
      states = finding.witness['recoverable_states'].tolist()
      readers = np.flatnonzero(hmm.cell_index == cell)
      valid = [some for some in subsets(readers) if is_recoverable(hmm, cell, some, values)]
      assert valid == list(subsets(states)) and finding.holds == bool(states)
      assert finding.witness['memory_values'].tolist() == values


# The start.

MOVES = np.array([[0.5, 0.25, 0.25], [0.25, 0.75, 0], [0.5, 0, 0.5]])
LAW = np.array([0.4, 0.4, 0.2])
FIRST = np.array([0.3, 0.5, 0.2])
CHAIN = memory_hmm(np.ones((3, 3, 1)))._replace(transition_matrix=MOVES)


def test_stationarity_is_that_a_step_changes_nothing():
  """Assumption 4.4 holds within a tolerance of the largest change; a cycle from its law is stationary, not regular."""
  # FIRST moves to (.375, .45, .175).
  for start, tolerance, holds in ((LAW, 1e-12, True), (FIRST, 0.0749, False), (FIRST, 0.0751, True)):
    finding = assumptions.stationarity(CHAIN._replace(initial_probs=start), EXACT, tolerance)
    assert finding.holds == holds
    np.testing.assert_allclose(finding.witness['stationary_probs'], LAW, atol=1e-12)
  finding = assumptions.stationarity(CHAIN._replace(transition_matrix=CYCLE), EXACT, 1e-9)
  assert not finding.holds and finding.closeness['stationarity_error'] < 1e-15


def test_a_start_one_step_after_the_silent_law_is_accepted():
  """P[H_1] = A P[H_0] within a tolerance, and P[H_1] > 0 where P[H_0] is."""
  hmm = CHAIN._replace(initial_probs=np.array([0.375, 0.45, 0.175]))
  for silent, tolerance, holds in ((FIRST, 1e-12, True), (LAW, 0.0499, False), (LAW, 0.0501, True)):
    assert assumptions.silent_start(hmm, silent, EXACT, tolerance).holds == holds
  uncovered = CHAIN._replace(transition_matrix=np.eye(3)[[0, 0, 0]], initial_probs=np.eye(3)[0])
  assert not assumptions.silent_start(uncovered, LAW, EXACT, 1e-12).holds


@pytest.mark.parametrize(('probability', 'holds'), [(0, True), (0.25, False)])
def test_only_memories_that_have_probability_are_asked(probability, holds):
  """3.2, 4.4 and the start: the law given a memory of probability 0 may be anything, given another it may not."""
  memory_probs = np.array([0.5, probability, 0.5 - probability])
  hmm = CHAIN._replace(memory_probs=memory_probs, initial_probs=np.array([LAW, [1, 0, 0], LAW]))
  assert assumptions.regularity(hmm, EXACT).holds == holds
  assert assumptions.stationarity(hmm, EXACT, 1e-9).holds == holds
  assert assumptions.silent_start(hmm, np.tile(LAW, (3, 1)), EXACT, 1e-9).holds == holds
