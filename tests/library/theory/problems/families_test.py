"""Facts about the problems of every family: what their theorem assumes holds, decided here and in fractions."""

from fractions import Fraction
import itertools

import jax
import numpy as np
import pytest
from theory_assumptions_cases import is_ergodic_by_powers
from theory_cases import CONDITIONING, drawn, FAMILIES, LIMITS, SIZES

from hmm_jax.theory.exact.algebra import rank
from hmm_jax.theory.exact.constructions import exact_construction
from hmm_jax.theory.problems import families

SEEDS = range(3)


def smallest_singular_value(columns):
  return np.linalg.svd(columns.astype(float), compute_uv=False)[-1]


def weighed_by(problem):
  """supp(mu) of `Fraction`s, relative to the last class."""
  mu = problem.exact.task_weights
  return np.flatnonzero((mu != mu[-1]).any(0))


def split(problem, states):
  """Columns of W of H* = `states` over the values that the theorem recovers, and those of V-bar, [V, n] each."""
  hmm, weighed = problem.exact.hmm, weighed_by(problem)
  own, others = [], [np.zeros(hmm.num_tokens)]
  for m, h in np.ndindex(hmm.memory_size, hmm.num_states):
    reads = hmm.cell_index[h] == problem.cell
    if m in weighed or not reads:
      (own if reads and h in states else others).append(hmm.emission_matrix[m, h])
  return np.array(own, float).T, np.array(others, float).T


def conditioning_of(problem, theorem):
  """The smallest singular value of the columns that the theorem inverts, for the best H* that there is."""
  hmm = problem.exact.hmm
  if theorem == '3.3':
    return smallest_singular_value(hmm.emission_matrix) if rank(hmm.emission_matrix) == hmm.num_states else 0
  if theorem == '3.6':
    # Every union of supports of rows of A that holds supp(mu) and has independent columns of W.
    supports = {frozenset(np.flatnonzero(row).tolist()) for row in hmm.transition_matrix}
    every = itertools.chain(*(itertools.combinations(supports, size) for size in range(1, 4)))
    unions = [sorted(frozenset().union(*some)) for some in every]
    covers = [hmm.emission_matrix[union] for union in unions if set(weighed_by(problem)) <= set(union)]
    return max(smallest_singular_value(rows) for rows in covers if rank(rows) == len(rows))
  least = []
  for state in exact_construction(problem.exact, theorem).states:
    own, others = split(problem, [state])
    least.append(smallest_singular_value(own - others @ np.linalg.lstsq(others, own, rcond=1e-9)[0]))
  return min(least)


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_the_theorem_assumes_holds(theorem, family):
  """By ranks and supports of fractions; the chain is ergodic in all but 4.3, whose proof uses nothing of it."""
  for problem in [drawn(theorem, family, seed) for seed in SEEDS]:
    assert conditioning_of(problem, theorem) >= CONDITIONING
    assert theorem == '4.3' or is_ergodic_by_powers(problem.hmm.transition_matrix > 0)
    assert theorem == '4.3' or (problem.silent_probs > 0).all() and (problem.hmm.initial_probs > 0).all()
    assert theorem != '3.6' or rank(problem.exact.hmm.emission_matrix) < problem.hmm.num_states
    assert len(problem.task_weights) == SIZES[theorem].num_classes
    assert len(weighed_by(problem)) == problem.hmm.memory_size if theorem == '4.3' else len(weighed_by(problem)) > 1


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_is_drawn_are_small_fractions_decided_by_the_key(theorem, family):
  """Rows sum to 1 and have denominators of at most 64, but for laws that follow from others; floats are those."""
  again = families.draw(theorem, family, jax.random.key(0), SIZES[theorem], LIMITS, CONDITIONING)
  problem = drawn(theorem, family)
  jax.tree.map(np.testing.assert_array_equal, problem, again)
  exact, hmm = problem.exact, problem.exact.hmm
  assert (hmm.emission_matrix != drawn(theorem, family, 1).exact.hmm.emission_matrix).any()
  assert (hmm.initial_probs == exact.silent_probs @ hmm.transition_matrix).all() and exact.silent_probs.sum() == 1
  for rows in (hmm.transition_matrix, hmm.emission_matrix):
    assert (rows.sum(-1) == 1).all() and (rows >= 0).all()
    assert max(value.denominator for value in rows.flat) <= 64
  for floats, fractions in zip(problem.hmm.validate(), hmm):
    np.testing.assert_array_equal(floats, np.array(fractions, floats.dtype))


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_impossible_conditioning_is_refused(theorem, family, monkeypatch):
  """No distributions have a smallest singular value of 2."""
  monkeypatch.setattr(families, 'MAX_DRAWS', 10)
  with pytest.raises(ValueError, match='conditioning is 2'):
    families.draw(theorem, family, jax.random.key(0), SIZES[theorem], LIMITS, 2.0)


def test_imitators_of_theorem_3_6_carry_the_mark():
  """All but H*, which is supp(mu), say the last token in a share of MARKED, H* never; the rest is said by two of H*."""
  problem = drawn('3.6')
  emissions, essential = problem.exact.hmm.emission_matrix, weighed_by(problem)
  others = np.delete(emissions, essential, axis=0)
  assert not emissions[essential, -1].any() and (others[:, -1] == families.MARKED).all()
  pairs = itertools.combinations_with_replacement(emissions[essential, :-1].tolist(), 2)
  mixtures = [[Fraction(3, 8) * (p + q) for p, q in zip(*pair)] for pair in pairs]
  assert all(row in mixtures for row in others[:, :-1].tolist())


@pytest.mark.parametrize(('theorem', 'num_shown'), [('4.3', 1), ('4.6', 2), ('C.6', 1)])
def test_an_announcer_says_the_first_token_and_moves_to_those_that_show(theorem, num_shown):
  """For weighed values no other state says token 0, and what follows is in H*; sizes ask for how many show."""
  sizes = SIZES[theorem]._replace(num_tokens=8, num_recoverable=num_shown)
  problem = drawn(theorem, 'planted', 0, sizes)
  says_first = problem.exact.hmm.emission_matrix[weighed_by(problem), :, 0]
  assert (says_first == (np.arange(sizes.num_states) == num_shown)).all()
  follows = np.flatnonzero(problem.hmm.transition_matrix[num_shown])
  assert set(follows) <= set(range(num_shown)) <= set(exact_construction(problem.exact, theorem).states)


@pytest.mark.parametrize('theorem', ['4.6', 'C.6'])
def test_adversarial_problems_are_where_the_papers_beta_can_fail(theorem):
  """Some token has a key score of 5 or more, unweighed values of the memory are likely, and in H* they say it."""
  problem = drawn(theorem, 'adversarial')
  construction, hmm = exact_construction(problem.exact, theorem), problem.exact.hmm
  assert max(construction.attention) >= 5
  unweighed = np.setdiff1d(np.arange(hmm.memory_size), weighed_by(problem))
  assert hmm.memory_probs[unweighed].sum() > 0.5
  assert (hmm.emission_matrix[unweighed][:, construction.states, construction.attention.argmax()] > 0.5).all()


def test_families_vary_what_the_theorems_do_not_fix():
  """Over seeds: P[M] with zeros and without, stationary starts and others."""
  many = [drawn('C.6', 'unplanted', seed) for seed in range(10)]
  assert {bool((p.hmm.memory_probs > 0).all()) for p in many} == {True, False}
  assert {bool(np.allclose(p.silent_probs, p.hmm.initial_probs)) for p in many} == {True, False}
