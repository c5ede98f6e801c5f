"""The task, and the assumptions of section 3: against exact ranks and a search of all sets of states."""

import numpy as np
import pytest
from theory_assumptions_cases import CYCLE, EXACT, small_fractions, subsets

from hmm_jax._support.rational import algebra
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.problem import sparse_probs

# A cycle of three states that are left with probability 1/2 for state 0: lengths 1, 2 and 3.
RESTARTED = (CYCLE + np.eye(3)[[0, 0, 0]]) / 2
# A probability that is taken for none, at a threshold as large.
LEAK = 2.0**-7


@pytest.mark.parametrize('sizes', [(4, 4), (5, 3)])
def test_non_degeneracy_is_full_column_rank(sizes):
  """Assumption 3.1 holds where the rank is full in fractions; a failure has a unit vector c with W c = 0."""
  rng = np.random.default_rng(1)
  for _ in range(15):
    W = sparse_probs(rng, *sizes, denominator=4)
    finding = assumptions.non_degeneracy(HMM(None, None, W), EXACT)
    assert finding.holds == (algebra.rank(small_fractions(W)) == sizes[0])
    if not finding.holds:
      np.testing.assert_allclose(finding.witness['dependence'] @ W, 0, atol=1e-12)
      np.testing.assert_allclose(np.linalg.norm(finding.witness['dependence']), 1)


def test_the_rank_threshold_is_a_share_of_the_largest_singular_value():
  """[[1, 1], [1, -1]] has the singular values sqrt(2) twice; with the second column halved, the ratio is a half."""
  hmm = HMM(None, None, np.array([[1, 1], [0.5, -0.5]]))
  for share, holds in ((0.49, True), (0.51, False)):
    assert assumptions.non_degeneracy(hmm, Thresholds(0.0, share)).holds == holds


@pytest.mark.parametrize(
  ('chain', 'classes', 'period'),
  [
    (CYCLE, [[0, 1, 2]], 3),
    (RESTARTED, [[0, 1, 2]], 1),
    (np.array([[1, 0], [0.5, 0.5]]), [[0], [1]], 1),
  ],
)
def test_regularity_is_one_class_without_a_period(chain, classes, period):
  """Transitions up to the threshold count as none; the chains are known."""
  hmm = HMM(np.full(len(chain), 1 / len(chain)), np.where(chain > 0, chain, LEAK), None)
  finding = assumptions.regularity(hmm, Thresholds(LEAK, 0.0))
  assert sorted(states.tolist() for states in finding.witness['communicating_classes']) == classes
  assert finding.holds == (len(classes) == period == 1)
  assert finding.witness['period'] == period


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


@pytest.mark.parametrize('max_nodes', [1, 10_000])
@pytest.mark.parametrize('epsilon', [0.0, LEAK])
def test_the_best_cover_is_that_of_all_sets_of_states(max_nodes, epsilon):
  """H* covers supp(mu), is what the largest B reaches, and no other such set is better conditioned.

  A search that is cut short says so, and its H* is such a set too. Transitions of epsilon count as none.
  """
  rng, answers = np.random.default_rng(7), set()
  for num_tokens in [2, 4, 7] * 6:
    kept, emission_matrix = sparse_probs(rng, 6, 6, 0.35), sparse_probs(rng, 6, num_tokens, 0.7)
    hmm = HMM(None, np.where(kept > 0, kept, epsilon), emission_matrix)
    targets = sorted(rng.choice(6, rng.integers(1, 4), replace=False).tolist())
    covers = covers_by_force(kept, emission_matrix, frozenset(targets))
    mu = np.stack([np.isin(np.arange(6), targets), np.zeros(6)])
    finding = assumptions.relaxed_non_degeneracy(hmm, mu, Thresholds(epsilon, 1e-9), max_nodes)
    witness = finding.witness
    if not covers:
      assert witness['unreachable_states'].tolist() == [h for h in targets if not kept[:, h].any()]
      continue
    cover, smallest = witness['essential_states'].tolist(), finding.closeness['smallest_singular_value']
    inside = [h for h, row in enumerate(kept) if set(np.flatnonzero(row)) <= set(cover)]
    assert witness['prompt_states'].tolist() == inside
    assert finding.holds == (algebra.rank(small_fractions(emission_matrix[cover])) == len(cover))
    np.testing.assert_allclose(smallest, covers[frozenset(cover)], atol=1e-12)
    if witness['exhaustive']:
      np.testing.assert_allclose(smallest, max(covers.values()), atol=1e-12)
    answers.add((witness['exhaustive'], finding.holds))
  assert answers >= ({(False, False)} if max_nodes == 1 else {(True, True), (True, False)})
