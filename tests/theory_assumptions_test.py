"""Facts about the checks of assumptions: brute force over all sets of states, and chains whose answer is known."""

import itertools
import math

import jax
import numpy as np
import pytest

from hmm_jax.hmm import HMM, random_hmm
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import AssumptionError, Finding, Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
CYCLE = np.roll(np.eye(3), 1, axis=1)
MIXING = np.full((3, 3), 1 / 3)


def sparse_rows(rng, num_rows, size, density):
  """Distributions with exact zeros, none of them empty."""
  kept = rng.random((num_rows, size)) < density
  kept[np.arange(num_rows), rng.integers(size, size=num_rows)] = True
  weights = kept * rng.uniform(0.2, 1, (num_rows, size))
  return weights / weights.sum(-1, keepdims=True)


def sparse_hmm(rng, num_states, num_tokens, density=0.35):
  start = rng.dirichlet(np.ones(num_states))
  transitions = sparse_rows(rng, num_states, num_states, density)
  return HMM(start, transitions, rng.dirichlet(np.ones(num_tokens), num_states))


def chain_of(transition_matrix, initial_probs=None):
  """An HMM of which only the chain matters."""
  num_states = len(transition_matrix)
  uniform = np.full(num_states, 1 / num_states)
  return HMM(uniform if initial_probs is None else np.array(initial_probs), transition_matrix, np.eye(num_states))


def rank(columns):
  return np.linalg.matrix_rank(columns, tol=1e-9) if columns.shape[1] else 0


def subsets(items):
  return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


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


def test_two_states_that_speak_alike_are_the_dependence():
  """Two equal columns of W fail, and the witness is their difference alone."""
  emission_matrix = np.array([[0.5, 0.5, 0, 0], [0, 0.2, 0.8, 0], [0.5, 0.5, 0, 0]])
  finding = assumptions.non_degeneracy(HMM(np.zeros(3), MIXING, emission_matrix), EXACT)
  assert not finding.holds
  direction = finding.witness['dependence'] * np.sign(finding.witness['dependence'][0])
  np.testing.assert_allclose(direction, [math.sqrt(0.5), 0, -math.sqrt(0.5)], atol=1e-12)


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


# Assumption 3.2.


def reachable(edges):
  """Whether state j can be reached from i in any number of steps, 0 included, by powers."""
  size = len(edges)
  return np.linalg.matrix_power((edges + np.eye(size)) > 0, size).astype(bool)


def classes_by_powers(edges):
  mutual = reachable(edges) & reachable(edges).T
  return {frozenset(np.flatnonzero(row).tolist()) for row in mutual}


def period_by_powers(edges, state):
  """The gcd of the n up to 3 H^2 for which the state can return in n steps; 0 if it never does."""
  walks, returns = np.eye(len(edges), dtype=bool), []
  for steps in range(1, 3 * len(edges) ** 2):
    walks = (walks.astype(int) @ edges.astype(int)) > 0
    if walks[state, state]:
      returns.append(steps)
  return math.gcd(*returns)


def is_ergodic_by_powers(edges):
  """Whether some power of the matrix is positive throughout; Wielandt's H^2 - 2H + 2 is enough."""
  size, walks = len(edges), np.eye(len(edges), dtype=int)
  for _ in range(size**2 - 2 * size + 2):
    walks = ((walks @ edges.astype(int)) > 0).astype(int)
  return bool(walks.all())


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


def test_a_periodic_chain_is_not_regular():
  """A cycle of three states has period 3; one state that may stay makes it aperiodic."""
  finding = assumptions.regularity(chain_of(CYCLE), EXACT)
  assert not finding.holds and finding.witness['period'] == 3 and 'period is 3' in finding.reason
  staying = CYCLE.copy()
  staying[0] = [0.5, 0.5, 0]
  assert assumptions.regularity(chain_of(staying), EXACT).holds


def test_a_reducible_chain_is_not_regular():
  """A state that is never left again makes a class of its own."""
  absorbing = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0, 1.0]])
  finding = assumptions.regularity(chain_of(absorbing), EXACT)
  assert not finding.holds and '2 communicating classes' in finding.reason
  assert sorted(map(list, finding.witness['communicating_classes'])) == [[0, 1], [2]]


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


def dense_draw(seed, num_states=6, num_tokens=10):
  """The paper's draw, warm enough that every transition has a positive probability."""
  draw = random_hmm(jax.random.key(seed), num_states, num_tokens, num_permutations=40, transition_temperature=0.2)
  return HMM(*(np.asarray(array, np.float64) for array in draw))


@pytest.mark.parametrize('epsilon', [0.0, 0.02, 0.1, 0.3])
def test_epsilon_supports_of_a_dense_draw(epsilon):
  """Regularity and covers of a dense draw are those of the chain with all entries up to epsilon struck out."""
  for seed in range(3):
    hmm = dense_draw(seed)
    assert (hmm.transition_matrix > 0).all()
    kept = hmm.transition_matrix * (hmm.transition_matrix > epsilon)
    thresholds = Thresholds(epsilon, 1e-3)
    finding = assumptions.regularity(hmm, thresholds)
    assert set(map(lambda states: frozenset(states.tolist()), finding.witness['communicating_classes'])) == (
      classes_by_powers(kept > 0)
    )
    has_start = (hmm.initial_probs > epsilon).all()
    assert finding.holds == (is_ergodic_by_powers(kept > 0) and has_start)
    assert_best_cover(hmm._replace(transition_matrix=kept), np.eye(6)[[seed, 5]], hmm, thresholds)


# Assumption 3.5.


def covers_by_force(hmm, targets):
  """Each H* that some B reaches in one step and that holds all targets, with the smallest singular value of its W."""
  found = {}
  for starts in subsets(range(hmm.num_states)):
    cover = frozenset(np.flatnonzero(hmm.transition_matrix[list(starts)].any(0)).tolist())
    if targets <= cover:
      columns = hmm.emission_matrix[sorted(cover)].T
      values = np.linalg.svd(columns, compute_uv=False)
      found[cover] = values[-1] if len(cover) <= hmm.num_tokens else 0.0
  return found


def assert_best_cover(sparse, task_weights, hmm, thresholds, max_nodes=10_000):
  """The finding on `hmm` is what force finds on its epsilon-support, `sparse`; returns the finding."""
  targets = frozenset(np.flatnonzero(np.ptp(task_weights, axis=0)).tolist())
  covers = covers_by_force(sparse, targets)
  finding = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, max_nodes)
  assert finding.statement == 'Assumption 3.5'
  if not covers:
    assert not finding.holds
    reached = sparse.transition_matrix.any(0)
    assert finding.witness['unreachable_states'].tolist() == [h for h in sorted(targets) if not reached[h]]
    return finding
  cover = frozenset(finding.witness['essential_states'].tolist())
  assert finding.witness['exhaustive'] and cover in covers
  best = max(covers.values())
  np.testing.assert_allclose(covers[cover], best, atol=1e-12)
  np.testing.assert_allclose(finding.closeness['smallest_singular_value'], best, atol=1e-12)
  scale = np.linalg.norm(hmm.emission_matrix[sorted(cover)], 2)
  assert finding.holds == (best > thresholds.rank * scale)
  inside = [h for h, row in enumerate(sparse.transition_matrix) if set(np.flatnonzero(row)) <= cover]
  assert finding.witness['prompt_states'].tolist() == inside
  if finding.holds:
    smallest = sparse.transition_matrix[inside]
    assert finding.closeness['smallest_positive_prob'] == smallest[smallest > 0].min()
    assert 'dependence' not in finding.witness
  else:
    dependence = finding.witness['dependence']
    np.testing.assert_allclose(np.linalg.norm(dependence), 1, atol=1e-12)
    assert np.linalg.norm(dependence @ hmm.emission_matrix[sorted(cover)]) <= thresholds.rank * scale + 1e-12
  return finding


@pytest.mark.parametrize('num_tokens', [2, 3, 4, 7])
def test_the_best_cover_is_that_of_all_sets_of_states(num_tokens):
  """H* covers supp(mu), is what the largest such B reaches, and no other valid cover is better conditioned."""
  rng = np.random.default_rng(num_tokens)
  answers, chosen = [], []
  for draw in range(20):
    hmm = sparse_hmm(rng, 6, num_tokens)
    task_weights = np.zeros((2, 6))
    weighed = rng.choice(6, 1 + draw % 3, replace=False)
    task_weights[0, weighed] = rng.standard_normal(len(weighed))
    finding = assert_best_cover(hmm, task_weights, hmm, EXACT)
    answers.append(finding.holds)
    chosen += [len(finding.witness['essential_states']) > len(weighed)] if finding.holds else []
  assert True in answers and (False in answers or num_tokens == 7) and True in chosen


def test_a_search_cut_short_says_so_and_keeps_what_it_found():
  """At every budget a cover that holds is valid, an exhaustive answer is the best, and a small budget ends early."""
  rng = np.random.default_rng(7)
  task_weights = np.eye(7)[:2] + np.eye(7)[[3, 2]]
  ended, wrong_failures = set(), 0
  for _ in range(20):
    hmm = sparse_hmm(rng, 7, 5)
    covers = covers_by_force(hmm, frozenset(range(4)))
    if not covers:
      continue
    for max_nodes in (1, 2, 4, 8, 16, 10_000):
      finding = assumptions.relaxed_non_degeneracy(hmm, task_weights, EXACT, max_nodes)
      cover = frozenset(finding.witness['essential_states'].tolist())
      ended.add((max_nodes, finding.witness['exhaustive']))
      assert cover in covers and (not finding.holds or covers[cover] > 1e-9)
      if finding.witness['exhaustive']:
        np.testing.assert_allclose(covers[cover], max(covers.values()), atol=1e-12)
      else:
        wrong_failures += not finding.holds and max(covers.values()) > 1e-9
  assert (1, False) in ended and (1, True) not in ended and (10_000, False) not in ended and wrong_failures


def test_a_weighted_state_that_nothing_moves_to_is_named():
  """No B reaches it, so that no cover exists, unless the leak to it is above epsilon."""
  leak = 2.0**-6
  transition_matrix = np.array([[leak, 0.5, 0.5 - leak], [0, 0.5, 0.5], [0, 0.5, 0.5]])
  hmm = HMM(np.full(3, 1 / 3), transition_matrix, np.eye(3))
  task_weights = [[1.0, 0, 0], [0, 0, 0]]
  assert assumptions.relaxed_non_degeneracy(hmm, task_weights, Thresholds(leak / 2, 1e-9), 100).holds
  finding = assumptions.relaxed_non_degeneracy(hmm, task_weights, Thresholds(leak, 1e-9), 100)
  assert not finding.holds and finding.witness['unreachable_states'].tolist() == [0]
  assert 'no state moves to state 0' in finding.reason


def test_a_leak_below_epsilon_does_not_grow_the_cover():
  """A start that moves to its two states but for a leak has H* of these two; at epsilon 0 the leak spoils it."""
  leak = 1e-4
  transition_matrix = np.full((4, 4), 0.25)
  transition_matrix[3] = [0.5 - leak, 0.5, leak, 0]
  emission_matrix = np.array([[1.0, 0], [0, 1.0], [0.5, 0.5], [0.3, 0.7]])
  hmm = HMM(np.full(4, 0.25), transition_matrix, emission_matrix)
  task_weights = [[1.0, -1.0, 0, 0], [0, 0, 0, 0]]
  finding = assumptions.relaxed_non_degeneracy(hmm, task_weights, Thresholds(1e-3, 1e-9), 100)
  assert finding.holds and finding.witness['essential_states'].tolist() == [0, 1]
  assert finding.witness['prompt_states'].tolist() == [3]
  assert not assumptions.relaxed_non_degeneracy(hmm, task_weights, EXACT, 100).holds


@pytest.mark.parametrize(
  'weights', [[], [[1.0, 0, 0]], [[1.0, 2.0, 3.0]] * 2], ids=['empty', 'one class', 'equal rows']
)
def test_the_relaxed_assumptions_refuse_a_task_that_labels_nothing(weights):
  """Assumptions 3.5 and 4.5 speak of supp(mu), and raise ValueError where there is none."""
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.relaxed_non_degeneracy(chain_of(MIXING), weights, EXACT, 100)
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.relaxed_recoverable_hidden_states(memory_hmm(np.ones((3, 2, 1))), 0, weights, EXACT)


# Assumptions 4.2, 4.5 and C.5.


def memory_hmm(emission_matrix, cell_index=None, num_cells=1, initial_probs=None):
  """A memory HMM of which only the emissions [M, H, V] and cells matter."""
  memory_size, num_states, _ = emission_matrix.shape
  return MemoryHMM(
    memory_probs=np.full((memory_size,) * num_cells, memory_size**-num_cells),
    initial_probs=np.full(num_states, 1 / num_states) if initial_probs is None else initial_probs,
    transition_matrix=np.full((num_states, num_states), 1 / num_states),
    cell_index=np.zeros(num_states, int) if cell_index is None else np.array(cell_index),
    emission_matrix=emission_matrix,
  )


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
  """Assumption 4.2: of all sets of states that read the cell, the valid ones lie in the one that is found."""
  rng = np.random.default_rng(num_cells)
  sizes = []
  for num_tokens in (3, 6, 9):
    for _ in range(10):
      hmm = random_memory(rng, 2, 4, num_tokens, num_cells)
      finding = assumptions.recoverable_hidden_states(hmm, num_cells - 1, EXACT)
      assert finding.statement == 'Assumption 4.2'
      assert_largest_recoverable(hmm, num_cells - 1, [0, 1], finding)
      sizes.append(len(finding.witness['recoverable_states']))
  assert {0, 1, 2} <= set(sizes)


@pytest.mark.parametrize('num_cells', [1, 2])
def test_relaxed_recoverable_states_are_the_largest_set_that_ranks_allow(num_cells):
  """Assumptions 4.5 and C.5: the same for the values of the cell in supp(mu), with all values of the other cells."""
  rng = np.random.default_rng(10 + num_cells)
  sizes, relaxed = [], 0
  for num_tokens in (4, 6, 9):
    for draw in range(10):
      hmm = random_memory(rng, 3, 4, num_tokens, num_cells)
      values = sorted(rng.choice(3, 1 + draw % 3, replace=False).tolist())
      task_weights = np.full((2, 3), 0.7)
      task_weights[0, values] += 1
      finding = assumptions.relaxed_recoverable_hidden_states(hmm, num_cells - 1, task_weights, EXACT)
      assert finding.statement == ('Assumption 4.5' if num_cells == 1 else 'Assumption C.5')
      assert_largest_recoverable(hmm, num_cells - 1, values, finding)
      sizes.append(len(finding.witness['recoverable_states']))
      strict = assumptions.recoverable_hidden_states(hmm, num_cells - 1, EXACT)
      # It is a relaxation: what 4.2 recovers, it recovers.
      assert set(strict.witness['recoverable_states']) <= set(finding.witness['recoverable_states'])
      relaxed += finding.holds and not strict.holds
  assert {0, 1} < set(sizes) and relaxed


def test_a_state_that_says_the_same_for_every_memory_is_not_recoverable():
  """Equal columns over the memory are dependent; distinct ones of the other state, off that span, are independent."""
  emission_matrix = np.zeros((2, 2, 3))
  emission_matrix[:, 0] = [0, 0, 1.0]
  emission_matrix[:, 1] = np.eye(3)[:2]
  finding = assumptions.recoverable_hidden_states(memory_hmm(emission_matrix), 0, EXACT)
  assert finding.holds and finding.witness['recoverable_states'].tolist() == [1]
  np.testing.assert_allclose(finding.closeness['principal_angle'], math.pi / 2)


def test_spans_that_meet_leave_nothing_recoverable():
  """Two states with independent columns each, whose spans share a direction that no single column has."""
  first = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
  second = np.array([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]])
  hmm = memory_hmm(np.stack([first, second], axis=1))
  assert rank(first.T) == rank(second.T) == 2
  finding = assumptions.recoverable_hidden_states(hmm, 0, EXACT)
  assert not finding.holds and finding.witness['recoverable_states'].size == 0
  assert 'no state that reads cell 0' in finding.reason
  np.testing.assert_allclose(finding.closeness['smallest_singular_value'], 0, atol=1e-12)
  # With mu on one value alone the two columns are distinct, and each off the other.
  task_weights = [[1.0, 0], [0, 0]]
  relaxed = assumptions.relaxed_recoverable_hidden_states(hmm, 0, task_weights, EXACT)
  assert relaxed.holds and relaxed.witness['recoverable_states'].tolist() == [0, 1]


def test_states_of_another_cell_are_outside_with_all_their_values():
  """C.5 relaxes the values of the cell of the task alone: a state of another cell spoils it by any value."""
  emission_matrix = np.zeros((2, 2, 3))
  emission_matrix[:, 0] = np.eye(3)[:2]
  emission_matrix[:, 1] = np.eye(3)[[2, 0]]
  task_weights = [[1.0, 0], [0, 0]]
  same_cell = memory_hmm(emission_matrix, [0, 0], num_cells=2)
  assert assumptions.relaxed_recoverable_hidden_states(same_cell, 0, task_weights, EXACT).holds
  other_cell = memory_hmm(emission_matrix, [0, 1], num_cells=2)
  finding = assumptions.relaxed_recoverable_hidden_states(other_cell, 0, task_weights, EXACT)
  assert not finding.holds and finding.statement == 'Assumption C.5'


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


def test_columns_outside_are_those_of_the_definition():
  """columns_outside lists W[:, (m, h)] of V-bar, whatever set of states and values it is given."""
  rng = np.random.default_rng(4)
  hmm = random_memory(rng, 3, 4, 5, 2)
  for cell, states, values in itertools.product([0, 1], [[0], [1, 3]], [[0, 1, 2], [1]]):
    _, expected = split_columns(hmm, cell, states, values)
    # A state that does not read the cell can be in no H*.
    if all(hmm.cell_index[h] == cell for h in states):
      columns = assumptions.columns_outside(hmm, cell, states, values)
      np.testing.assert_array_equal(np.array(sorted(columns.T.tolist())), np.array(sorted(expected.T.tolist())))


def test_span_is_an_orthonormal_basis():
  """The basis has as many vectors as the rank, is orthonormal and reproduces the columns; of nothing it is empty."""
  rng = np.random.default_rng(5)
  columns = rng.standard_normal((5, 2)) @ rng.standard_normal((2, 4))
  basis = assumptions.span(columns, EXACT)
  assert basis.shape == (5, 2)
  np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
  np.testing.assert_allclose(basis @ (basis.T @ columns), columns, atol=1e-12)
  assert assumptions.span(np.zeros((5, 0)), EXACT).shape == (5, 0)
  assert assumptions.span(np.zeros((5, 2)), EXACT).shape == (5, 0)
  nearly_one = np.array([[1.0, 1.0], [0, 1e-3]])
  assert assumptions.span(nearly_one, Thresholds(0.0, 1e-2)).shape == (2, 1)


# Assumption 4.4.


def stationary_by_powers(transition_matrix):
  """The limit of the lazy chain, which has the same stationary law and no period."""
  lazy = (transition_matrix + np.eye(len(transition_matrix))) / 2
  return np.linalg.matrix_power(lazy, 2**14)[0]


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
