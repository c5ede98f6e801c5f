"""Rows of small fractions with exact zeros, and problems with the fractions that their floats stand for."""

from fractions import Fraction
import functools

import jax
import numpy as np
import pytest

from hmm_jax._support.rational.algebra import as_fractions, stationary_law
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.processes import stationary_probs
from hmm_jax.theory import problem as problem_lib


def test_sparse_probs_have_exact_zeros_and_small_denominators():
  """A row has one positive entry for sure and the others with the density, of a denominator of at most 64."""
  rng = np.random.default_rng(0)
  for size, density in ((2, 0.5), (6, 0.25), (6, 0.75)):
    rows = problem_lib.sparse_probs(rng, 800, size, density)
    probs = problem_lib.small_fractions(rows)
    np.testing.assert_array_equal(rows, probs.astype(float))
    assert (probs.sum(-1) == 1).all() and max(value.denominator for value in probs.flat) <= 64
    np.testing.assert_allclose((probs > 0).mean(), (1 + (size - 1) * density) / size, atol=0.04)


def test_small_fractions_are_those_that_were_rounded():
  """They are found from float64 a few roundings off, up to a denominator of nearly 10^6."""
  exact = [Fraction(sign * numerator, 1000) for numerator in range(999) for sign in (1, -1)] + [Fraction(7, 999_983)]
  for roundings in (0, 4, -4):
    floats = np.array(exact, float) * (1 + roundings * np.finfo(float).eps)
    assert problem_lib.small_fractions(floats).tolist() == exact


def test_a_stationary_law_is_unique_if_one_class_is_closed():
  """A transient state has probability 0; two closed classes have many laws."""
  assert stationary_law(as_fractions([[0.5, 0.5], [0, 1]])).tolist() == [0, 1]
  assert stationary_law(as_fractions(np.eye(2))) is None


@pytest.mark.parametrize('stationary', [False, True])
def test_laws_that_follow_from_others_do_so_without_rounding(stationary):
  """A problem with its fractions is the one that was drawn, and P[H_1] = A P[H_0] exactly, also where it is P[H_0]."""
  rng = np.random.default_rng(4)
  moves, emissions = problem_lib.sparse_probs(rng, 3, 3, 0.9), problem_lib.sparse_probs(rng, 3, 4)
  silent_probs = stationary_probs(moves) if stationary else problem_lib.full_probs(rng, 3)
  weights = problem_lib.random_weights(rng, 2, np.arange(2), 3)
  drawn = problem_lib.StateProblem(HMM(silent_probs @ moves, moves, emissions), silent_probs, weights)
  problem = problem_lib.with_fractions(drawn)
  exact = problem.fractions
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-14), problem._replace(fractions=None), drawn)
  assert (exact.silent_probs @ exact.hmm.transition_matrix == exact.hmm.initial_probs).all()
  assert exact.silent_probs.sum() == 1 and (exact.silent_probs == exact.hmm.initial_probs).all() == stationary
