"""Assumption 3.5, of states that together cover the weighted ones: against a search of all sets of states."""

import jax
import numpy as np
import pytest
from theory_assumptions_cases import (
  chain_of,
  classes_by_powers,
  EXACT,
  is_ergodic_by_powers,
  memory_hmm,
  MIXING,
  sparse_hmm,
  subsets,
)

from hmm_jax.hmm import HMM, random_hmm
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Thresholds


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


@pytest.mark.parametrize(
  'weights', [[], [[1.0, 0, 0]], [[1.0, 2.0, 3.0]] * 2], ids=['empty', 'one class', 'equal rows']
)
def test_the_relaxed_assumptions_refuse_a_task_that_labels_nothing(weights):
  """Assumptions 3.5 and 4.5 speak of supp(mu), and raise ValueError where there is none."""
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.relaxed_non_degeneracy(chain_of(MIXING), weights, EXACT, 100)
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.relaxed_recoverable_hidden_states(memory_hmm(np.ones((3, 2, 1))), 0, weights, EXACT)
