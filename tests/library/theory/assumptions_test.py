"""The task, and the assumptions of section 3: against exact ranks, walks and a search of all sets of states."""

import itertools
import math

import numpy as np
import pytest
from theory_assumptions_cases import EXACT, is_ergodic_by_powers, small_fractions, subsets, walks

from hmm_jax._support.rational import algebra
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.problem import sparse_probs

# States 0 and 1 take turns with states 2 and 3.
TURNS = np.kron(np.eye(2)[::-1], np.full((2, 2), 0.5))
# A probability that is taken for none, at a threshold as large.
LEAK = 2.0**-7


def test_contrasts_keep_the_label_of_every_posterior_ties_included():
  """argmax_c (mu_c - mu_C) @ p is argmax_c mu_c @ p; supp(mu) is where the classes differ, however large mu is."""
  weights = np.random.default_rng(0).integers(-2, 3, (3, 4)).astype(float)
  weights[:, 2] = 7
  relative = assumptions.contrasts(weights)
  for probs in itertools.product(range(3), repeat=4):
    assert (weights @ probs).argmax() == (relative @ probs).argmax()
  assert not relative[-1].any() and assumptions.weighted_states(weights).tolist() == [0, 1, 3]


@pytest.mark.parametrize('weights', [[], [[1.0, 2.0]], [[1.0, np.nan], [0, 0]], [[1.0, 2.0]] * 2])
def test_a_task_that_labels_nothing_is_refused(weights):
  """Valid are at least two rows of finite weights that differ."""
  with pytest.raises(ValueError, match='task_weights'):
    assumptions.contrasts(weights)


def test_non_degeneracy_is_full_column_rank():
  """Assumption 3.1 holds where the rank is full in fractions; a failure has a dependence, also with H > V.

  The rank threshold is a share of the largest singular value.
  """
  rng, answers = np.random.default_rng(1), set()
  for num_states, num_tokens in [(3, 4), (4, 4), (5, 3)] * 15:
    W = sparse_probs(rng, num_states, num_tokens, denominator=4)
    hmm = HMM(None, None, W)
    finding = assumptions.non_degeneracy(hmm, EXACT)
    assert finding.statement == 'Assumption 3.1'
    assert finding.holds == (algebra.rank(small_fractions(W)) == num_states)
    answers.add((num_states, finding.holds))
    if finding.holds:
      condition = np.linalg.cond(W)
      np.testing.assert_allclose(finding.closeness['condition_number'], condition)
      for share, holds in ((0.9, True), (1.1, False)):
        assert assumptions.non_degeneracy(hmm, Thresholds(0.0, share / condition)).holds == holds
    else:
      assert_dependent(finding.witness['dependence'], W)
      assert finding.closeness['smallest_singular_value'] < 1e-9 < 1e9 < finding.closeness['condition_number']
  assert answers == {(3, True), (3, False), (4, True), (4, False), (5, False)}


def assert_dependent(dependence, W):
  """It is a unit vector c with W c = 0, of a matrix [H, V]."""
  np.testing.assert_allclose(np.linalg.norm(dependence), 1, atol=1e-12)
  np.testing.assert_allclose(dependence @ W, 0, atol=1e-12)


def test_regularity_is_that_of_walks():
  """On chains of all kinds the classes, the period of the first and the answer of Assumption 3.2 agree with walks.

  Transitions of epsilon count as none, in every other chain.
  """
  rng = np.random.default_rng(3)
  chains = [sparse_probs(rng, 5, 5, density) for density in (0.1, 0.3, 0.5) for _ in range(12)]
  # The last is Wielandt's, which takes the most moves.
  slowest = np.roll(np.eye(5), 1, axis=1)
  slowest[4, :2] = 0.5
  chains += [np.roll(np.eye(4), 1, axis=0), TURNS, np.zeros((3, 3)), slowest]
  answers, periods = set(), set()
  for epsilon, chain in zip(itertools.cycle([0.0, LEAK]), chains):
    size, edges = len(chain), chain > 0
    hmm = HMM(np.full(size, 1 / size), np.where(edges, chain, epsilon), None)
    finding = assumptions.regularity(hmm, Thresholds(epsilon, 0.0))
    of_edges = walks(edges, 3 * size**2)
    mutual = of_edges.any(0) & of_edges.any(0).T | np.eye(size, dtype=bool)
    classes = [frozenset(states.tolist()) for states in finding.witness['communicating_classes']]
    assert set(classes) == {frozenset(np.flatnonzero(row).tolist()) for row in mutual}
    returns = of_edges[:, min(classes[0]), min(classes[0])]
    assert finding.witness['period'] == math.gcd(*(1 + np.flatnonzero(returns)).tolist())
    assert finding.holds == is_ergodic_by_powers(edges) == algebra.is_ergodic(chain)
    assert finding.closeness['smallest_positive_prob'] == min(chain[edges].min(initial=math.inf), 1 / size)
    answers.add(finding.holds)
    periods.add(finding.witness['period'])
  assert answers == {True, False} and periods >= {0, 1, 2, 3, 4}


# Assumption 3.5.


def covers_by_force(transition_matrix, emission_matrix, targets):
  """Each H* that some B reaches in one step and that holds all targets, with the smallest singular value of its W."""
  found = {}
  for starts in subsets(range(len(transition_matrix))):
    cover = frozenset(np.flatnonzero(transition_matrix[list(starts)].any(0)).tolist())
    if targets <= cover:
      singular = np.linalg.svd(emission_matrix[sorted(cover)], compute_uv=False)
      found[cover] = singular[-1] if len(cover) <= emission_matrix.shape[1] else 0.0
  return found


def test_the_best_cover_is_that_of_all_sets_of_states():
  """H* covers supp(mu), is what the largest B reaches, and no other such set is better conditioned.

  A search that is cut short says so, and its H* is such a set too. Transitions of epsilon count as none.
  """
  rng, ended, answers = np.random.default_rng(7), set(), set()
  for num_tokens, epsilon in [*itertools.product([2, 4, 7], [0.0, LEAK])] * 7:
    kept, emission_matrix = sparse_probs(rng, 6, 6, 0.35), sparse_probs(rng, 6, num_tokens, 0.7)
    hmm = HMM(None, np.where(kept > 0, kept, epsilon), emission_matrix)
    targets = rng.choice(6, rng.integers(1, 4), replace=False).tolist()
    covers = covers_by_force(kept, emission_matrix, frozenset(targets))
    mu = np.stack([np.isin(np.arange(6), targets), np.zeros(6)])
    for max_nodes in (1, 4, 10_000):
      finding = assumptions.relaxed_non_degeneracy(hmm, mu, Thresholds(epsilon, 1e-9), max_nodes)
      witness = finding.witness
      if not covers:
        assert not finding.holds
        assert witness['unreachable_states'].tolist() == [h for h in sorted(targets) if not kept[:, h].any()]
        continue
      cover, smallest = witness['essential_states'].tolist(), finding.closeness['smallest_singular_value']
      inside = [h for h, row in enumerate(kept) if set(np.flatnonzero(row)) <= set(cover)]
      assert witness['prompt_states'].tolist() == inside
      assert finding.holds == (algebra.rank(small_fractions(emission_matrix[cover])) == len(cover))
      assert finding.closeness['smallest_positive_prob'] == kept[inside][kept[inside] > 0].min()
      np.testing.assert_allclose(smallest, covers[frozenset(cover)], atol=1e-12)
      if not finding.holds:
        assert_dependent(witness['dependence'], emission_matrix[cover])
      if witness['exhaustive']:
        np.testing.assert_allclose(smallest, max(covers.values()), atol=1e-12)
        answers.add(finding.holds)
      ended.add((max_nodes, witness['exhaustive']))
  assert answers == {True, False} and ended == {(1, False), (4, False), (4, True), (10_000, True)}
