"""What the theorems with a memory ask of the first law: the start in place of Assumption 4.4, and what 3.2 ignores."""

import numpy as np
import pytest
from theory_cases import drawn, EXACT

from hmm_jax.theory.theorems import assumptions

TOLERANCE = 1e-12


def problem_and_even_start():
  """A problem of Theorem 4.6 that begins one step after the even law, and that law."""
  problem = drawn('4.6')
  even = np.full(problem.hmm.num_states, 1 / problem.hmm.num_states)
  return problem._replace(hmm=problem.hmm._replace(initial_probs=even @ problem.hmm.transition_matrix)), even


def test_a_start_that_is_one_step_after_the_silent_law_will_do():
  """P[H_1] = A P[H_0] holds, stationary or not; another P[H_0] misses by the largest change of an entry."""
  problem, even = problem_and_even_start()
  finding = assumptions.silent_start(problem.hmm, even, EXACT, TOLERANCE)
  assert finding.holds and finding.closeness['start_error'] < TOLERANCE
  assert not assumptions.stationarity(problem.hmm, EXACT, TOLERANCE).holds
  moved = even + np.eye(len(even))[0] * 0.01 - np.eye(len(even))[1] * 0.01
  finding = assumptions.silent_start(problem.hmm, moved, EXACT, TOLERANCE)
  A = problem.hmm.transition_matrix.T
  expected = np.abs(A @ moved - problem.hmm.initial_probs).max()
  assert not finding.holds and finding.closeness['start_error'] == pytest.approx(expected)
  assert assumptions.silent_start(problem.hmm, moved, EXACT, 1.1 * expected).holds


def test_stationarity_is_a_case_of_it():
  """With P[H_0] = P[H_1] it holds where the chain is stationary, and with a tolerance where it nearly is."""
  problem, _ = problem_and_even_start()
  hmm = problem.hmm
  stationary = np.linalg.matrix_power(hmm.transition_matrix, 2**12)[0]
  at_rest = hmm._replace(initial_probs=stationary)
  assert assumptions.silent_start(at_rest, stationary, EXACT, 1e-9).holds
  assert assumptions.stationarity(at_rest, EXACT, 1e-9).holds
  assert not assumptions.silent_start(hmm, hmm.initial_probs, EXACT, 1e-9).holds


def test_a_silent_state_that_cannot_be_first_is_refused():
  """The prompt divides by P[H_1]: state 1 is left at once and never come back to, and is possible before the first."""
  problem, _ = problem_and_even_start()
  transition_matrix = np.array([[0.5, 0, 0.25, 0.25]] * 4)
  silent = np.array([0.25, 0.25, 0.25, 0.25])
  hmm = problem.hmm._replace(transition_matrix=transition_matrix, initial_probs=silent @ transition_matrix)
  finding = assumptions.silent_start(hmm, silent, EXACT, TOLERANCE)
  assert not finding.holds and 'state 1 is possible before the first one' in finding.reason
  without = np.array([0.5, 0, 0.25, 0.25])
  assert assumptions.silent_start(hmm, without, EXACT, TOLERANCE).holds


def by_memory(memory_probs, laws):
  """A problem's chain whose first law depends on the memory, [M, H]."""
  hmm = drawn('4.6').hmm
  return hmm._replace(memory_probs=np.array(memory_probs), initial_probs=np.array(laws))


def test_only_memories_that_have_probability_are_asked():
  """Of 3.2, 4.4 and of the start: a law that no memory has may be anything, one that some memory has may not."""
  hmm = drawn('4.6').hmm
  stationary = np.linalg.matrix_power(hmm.transition_matrix, 2**12)[0]
  one_hot = np.eye(hmm.num_states)[0]
  laws = [stationary, one_hot, stationary]
  ignored, asked = by_memory([0.5, 0, 0.5], laws), by_memory([0.5, 0.25, 0.25], laws)
  assert assumptions.regularity(ignored, EXACT).holds
  finding = assumptions.regularity(asked, EXACT)
  assert not finding.holds and finding.witness['states_without_start'].tolist() == list(range(1, hmm.num_states))
  assert assumptions.stationarity(ignored, EXACT, 1e-9).holds and not assumptions.stationarity(asked, EXACT, 1e-9).holds
  silent = np.tile(stationary, (3, 1))
  assert assumptions.silent_start(ignored, silent, EXACT, 1e-9).holds
  assert not assumptions.silent_start(asked, silent, EXACT, 1e-9).holds
