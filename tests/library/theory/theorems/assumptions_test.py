"""Facts about the checks of assumptions: brute force over all sets of states, and chains whose answer is known."""

import itertools
import math

import numpy as np
import pytest
from theory_assumptions_cases import (
  chain_of,
  classes_by_powers,
  CYCLE,
  EXACT,
  is_ergodic_by_powers,
  memory_hmm,
  MIXING,
  sparse_hmm,
  sparse_rows,
  stationary_by_powers,
)

from hmm_jax.hmm import HMM
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import AssumptionError, Thresholds

# The task.


def test_contrasts_keep_the_label_of_every_posterior_ties_included():
  """argmax_c (mu_c - mu_C) @ p is argmax_c mu_c @ p, with the same ties, and class 0 has score 0 where two tie."""
  rng = np.random.default_rng(0)
  weights = rng.integers(-2, 3, (3, 4)).astype(float)
  relative = assumptions.contrasts(weights)
  np.testing.assert_array_equal(relative[-1], 0)
  for probs in itertools.product(range(3), repeat=4):
    np.testing.assert_array_equal((weights @ probs).argmax(), (relative @ probs).argmax())
  binary = assumptions.contrasts([[1.0, 2.0], [2.0, 1.0]])
  np.testing.assert_array_equal(binary, [[-1, 1], [0, 0]])
  assert (binary @ [0.5, 0.5]).argmax() == 0 and binary.dtype == np.float64


def test_weighted_states_are_those_that_the_classes_weigh_differently():
  """A state with the same weight in every class does not tell classes apart, however large that is."""
  weights = [[1.0, 7.0, 0.0, 2.0], [1.0, 7.0, 3.0, 0.0], [1.0, 7.0, 0.0, 0.0]]
  np.testing.assert_array_equal(assumptions.weighted_states(weights), [2, 3])


@pytest.mark.parametrize(
  'weights',
  [[], [1.0, 2.0], [[1.0, 2.0]], [[1.0, np.nan], [0.0, 0.0]], [[1.0, np.inf], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]],
  ids=['empty', 'one axis', 'one class', 'nan', 'infinite', 'equal rows'],
)
def test_a_task_that_labels_nothing_is_refused(weights):
  """Weights that are no [C, S] of finite entries, or that label every input alike, raise ValueError."""
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.contrasts(weights)
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.weighted_states(weights)


def test_an_assumption_error_carries_its_finding():
  """The error is a ValueError that says which assumption failed and why, and keeps the witness."""
  finding = assumptions.regularity(chain_of(CYCLE), EXACT)
  error = AssumptionError(finding)
  assert isinstance(error, ValueError) and error.finding is finding
  assert str(error) == f'Assumption 3.2 fails: {finding.reason}'


# Assumption 3.1.


@pytest.mark.parametrize('num_states, num_tokens', [(3, 5), (4, 4)])
def test_non_degeneracy_is_full_column_rank(num_states, num_tokens):
  """On draws of every rank it holds exactly where all H columns are independent, as their Gram matrix says too."""
  rng = np.random.default_rng(1)
  for columns in range(1, num_states + 1):
    basis = rng.dirichlet(np.ones(num_tokens), columns)
    mixing = np.vstack([np.eye(columns), rng.dirichlet(np.ones(columns), num_states - columns)])
    hmm = HMM(np.zeros(num_states), np.eye(num_states), mixing @ basis)
    finding = assumptions.non_degeneracy(hmm, EXACT)
    assert finding.holds == (columns == num_states) and finding.statement == 'Assumption 3.1'
    assert finding.thresholds == EXACT
    eigenvalues = np.linalg.eigvalsh(hmm.emission_matrix @ hmm.emission_matrix.T)
    expected = math.sqrt(max(eigenvalues[0], 0))
    np.testing.assert_allclose(finding.closeness['smallest_singular_value'], expected, atol=1e-7)
    if finding.holds:
      condition = math.sqrt(eigenvalues[-1] / eigenvalues[0])
      np.testing.assert_allclose(finding.closeness['condition_number'], condition, rtol=1e-6)
      assert finding.witness == {}
    else:
      direction = finding.witness['dependence']
      np.testing.assert_allclose(direction @ hmm.emission_matrix, 0, atol=1e-12)
      np.testing.assert_allclose(np.linalg.norm(direction), 1, atol=1e-12)


def test_more_states_than_tokens_are_always_dependent():
  """With H > V Assumption 3.1 fails at any rank threshold, even 0, with singular value 0 and a null vector."""
  hmm = sparse_hmm(np.random.default_rng(2), 5, 3)
  finding = assumptions.non_degeneracy(hmm, Thresholds(0.0, 0.0))
  assert not finding.holds and finding.closeness == {'smallest_singular_value': 0.0, 'condition_number': math.inf}
  np.testing.assert_allclose(finding.witness['dependence'] @ hmm.emission_matrix, 0, atol=1e-12)


def test_the_rank_threshold_is_a_share_of_the_largest_singular_value():
  """Columns nearly equal are independent below their relative distance and dependent above it."""
  emission_matrix = np.array([[0.5, 0.5], [0.5 + 1e-3, 0.5 - 1e-3]])
  hmm = HMM(np.zeros(2), np.eye(2), emission_matrix)
  ratio = 1 / np.linalg.cond(emission_matrix)
  assert assumptions.non_degeneracy(hmm, Thresholds(0.0, 0.9 * ratio)).holds
  assert not assumptions.non_degeneracy(hmm, Thresholds(0.0, 1.1 * ratio)).holds


def period_by_powers(edges, state):
  """The gcd of the n up to 3 H^2 for which the state can return in n steps; 0 if it never does."""
  walks, returns = np.eye(len(edges), dtype=bool), []
  for steps in range(1, 3 * len(edges) ** 2):
    walks = (walks.astype(int) @ edges.astype(int)) > 0
    if walks[state, state]:
      returns.append(steps)
  return math.gcd(*returns)


def cyclic_blocks(rng, sizes):
  """A chain that moves from each block of states to the next alone, in a random order of the states."""
  block = np.repeat(np.arange(len(sizes)), sizes)
  allowed = block[None] == (block[:, None] + 1) % len(sizes)
  weights = allowed * rng.uniform(0.2, 1, allowed.shape)
  order = rng.permutation(len(block))
  return (weights / weights.sum(-1, keepdims=True))[np.ix_(order, order)]


def test_ergodicity_classes_and_period_are_those_of_powers_of_the_chain():
  """On sparse chains of all kinds the classes, the period of the first and the answer agree with boolean powers."""
  rng = np.random.default_rng(3)
  chains = [sparse_rows(rng, 5, 5, density) for density in (0.1, 0.2, 0.3, 0.5) for _ in range(12)]
  chains += [cyclic_blocks(rng, sizes) for sizes in ([2, 3], [1, 2, 2], [2, 2], [1, 1, 1, 1], [3])]
  answers, periods = set(), set()
  for transition_matrix in chains:
    finding = assumptions.regularity(chain_of(transition_matrix), EXACT)
    classes = [frozenset(states.tolist()) for states in finding.witness['communicating_classes']]
    assert finding.holds == is_ergodic_by_powers(transition_matrix > 0), finding.reason
    assert set(classes) == classes_by_powers(transition_matrix > 0) and len(set(classes)) == len(classes)
    assert finding.witness['period'] == period_by_powers(transition_matrix > 0, min(classes[0]))
    assert finding.closeness['smallest_positive_prob'] == min(
      transition_matrix[transition_matrix > 0].min(), 1 / len(transition_matrix)
    )
    answers.add(finding.holds)
    periods.add(finding.witness['period'])
  assert answers == {True, False} and periods >= {1, 2, 3, 4}


def test_every_state_must_be_able_to_be_first():
  """A state without probability at the start is named; for a start by memory it is enough that one memory lacks it."""
  finding = assumptions.regularity(chain_of(MIXING, [0.5, 0, 0.5]), EXACT)
  assert not finding.holds and 'state 1' in finding.reason
  np.testing.assert_array_equal(finding.witness['states_without_start'], [1])
  by_memory = np.array([[0.2, 0.3, 0.5], [0.5, 0.5, 0]])
  chain = memory_hmm(np.ones((2, 3, 1)), initial_probs=by_memory)
  np.testing.assert_array_equal(assumptions.regularity(chain, EXACT).witness['states_without_start'], [2])
  assert assumptions.regularity(chain._replace(initial_probs=by_memory[0]), EXACT).holds


def test_probabilities_up_to_epsilon_are_ignored():
  """A leak makes a cycle aperiodic only above epsilon, exactly epsilon counts as none, and the same at the start."""
  leak = 2.0**-7
  leaking = (1 - leak) * CYCLE + leak * np.eye(3)
  assert assumptions.regularity(chain_of(leaking), Thresholds(leak / 2, 1e-9)).holds
  assert assumptions.regularity(chain_of(leaking), Thresholds(leak, 1e-9)).witness['period'] == 3
  start = [leak, 0.5, 0.5 - leak]
  assert assumptions.regularity(chain_of(MIXING, start), Thresholds(leak / 2, 1e-9)).holds
  finding = assumptions.regularity(chain_of(MIXING, start), Thresholds(leak, 1e-9))
  assert not finding.holds and finding.witness['states_without_start'].tolist() == [0]
  # What is ignored is not the smallest positive probability either.
  assert finding.closeness['smallest_positive_prob'] == 1 / 3


def test_a_state_that_never_returns_has_no_period():
  """Where no transition counts, every state is a class of its own, without a cycle, of period 0."""
  finding = assumptions.regularity(chain_of(MIXING), Thresholds(0.4, 1e-9))
  assert not finding.holds and finding.witness['period'] == 0
  assert len(finding.witness['communicating_classes']) == 3
  assert finding.closeness['smallest_positive_prob'] == math.inf


def test_the_stationary_law_is_the_limit_of_the_chain():
  """Of irreducible chains, periodic or not, by repeated multiplication."""
  rng = np.random.default_rng(6)
  chains = [rng.dirichlet(np.ones(4), 4) for _ in range(5)] + [CYCLE, cyclic_blocks(rng, [2, 3])]
  for transition_matrix in chains:
    expected = stationary_by_powers(transition_matrix)
    np.testing.assert_allclose(assumptions.stationary_probs(transition_matrix), expected, atol=1e-12)


def test_of_several_stationary_laws_the_one_of_least_norm():
  """Two classes that never meet: states 0 and 1 in turn, state 2 for itself; the least norm has 1/3 each."""
  transition_matrix = np.array([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 1.0]])
  np.testing.assert_allclose(assumptions.stationary_probs(transition_matrix), np.full(3, 1 / 3), atol=1e-12)
