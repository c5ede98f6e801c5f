"""Rows of small fractions with exact zeros, and the generator that a key decides."""

from fractions import Fraction
import functools

import jax
import numpy as np
import pytest

from hmm_jax.hmm import HMM
from hmm_jax.theory.exact import problem as problem_lib
from hmm_jax.theory.exact.algebra import stationary_law


@pytest.mark.parametrize('density', [0.25, 0.5, 0.75])
def test_sparse_probs_have_exact_zeros_and_small_denominators(density):
  """Rows sum to 1, one entry is always positive, the others with the density; denominators are at most 64."""
  rng = np.random.default_rng(0)
  for size in (1, 2, 6):
    rows = problem_lib.sparse_probs(rng, 800, size, density)
    probs = problem_lib.small_fractions(rows)
    np.testing.assert_array_equal(rows, probs.astype(float))
    assert probs.shape == (800, size) and (probs.sum(-1) == 1).all() and (probs >= 0).all()
    assert max(value.denominator for value in probs.flat) <= 64
    np.testing.assert_allclose((probs > 0).mean(), (1 + (size - 1) * density) / size, atol=0.04)


def test_composed_is_positive_where_it_is_kept():
  """Of the denominator that is asked for, or of as many as there are entries."""
  rng, kept = np.random.default_rng(1), np.array([True, False, True, True, False])
  for denominator in (3, 8, 64):
    row = problem_lib.small_fractions(problem_lib.composed(rng, kept, denominator))
    assert row.sum() == 1 and ((row > 0) == kept).all() and (row * denominator % 1 == 0).all()
  assert (problem_lib.composed(rng, kept, 2) == np.array([1, 0, 1, 1, 0]) / 3).all()
  assert (problem_lib.full_probs(rng, 5) > 0).all()


def test_concentrated_has_nearly_all_at_one_place():
  """64ths: one where it is kept, the rest at the place, kept or not."""
  kept = np.array([True, False, True])
  assert (problem_lib.concentrated(kept, 1) * 64 == np.array([1, 62, 1])).all()
  assert (problem_lib.concentrated(kept, 2) * 64 == np.array([1, 0, 63])).all()


def test_random_weights_differ_at_their_places_alone():
  """The last class has none, and every place is weighed by some class."""
  rng = np.random.default_rng(2)
  for num_classes in (2, 3):
    weights = problem_lib.random_weights(rng, num_classes, np.array([1, 3]), 5)
    assert weights.shape == (num_classes, 5) and not weights[-1].any()
    assert np.flatnonzero(weights.any(0)).tolist() == [1, 3]
    assert all((value * 8).is_integer() and abs(value) <= 2 for value in weights.flat)


def test_small_fractions_are_those_that_were_rounded():
  """Any of a denominator up to 1000, of float64 a few roundings off; zeros and signs stay."""
  rng = np.random.default_rng(3)
  exact = [Fraction(int(rng.integers(-d, d + 1)), int(d)) for d in rng.integers(1, 1001, 500)] + [Fraction(0)]
  for roundings in (0, 4, -4):
    floats = np.array(exact, float) * (1 + roundings * np.finfo(float).eps)
    assert problem_lib.small_fractions(floats).tolist() == exact
  assert problem_lib.small_fractions(floats[:6].reshape(2, 3)).shape == (2, 3)


@pytest.mark.parametrize('stationary', [False, True])
def test_a_problem_with_its_fractions_is_that_of_floats_but_for_rounding(stationary):
  """Rows are those that were drawn; laws that follow from them do so without rounding, also a stationary start."""
  rng = np.random.default_rng(4)
  moves, emissions = problem_lib.sparse_probs(rng, 3, 3, 0.9), problem_lib.sparse_probs(rng, 3, 4)
  silent_probs = stationary_law(moves) if stationary else problem_lib.full_probs(rng, 3)
  hmm = HMM(silent_probs @ moves, moves, emissions)
  drawn = problem_lib.StateProblem(hmm, silent_probs, problem_lib.random_weights(rng, 2, np.arange(2), 3))
  problem = problem_lib.with_fractions(drawn)
  exact = problem.exact
  np.testing.assert_array_equal(problem.hmm.transition_matrix, moves)
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-14), problem._replace(exact=None), drawn)
  assert (exact.silent_probs @ exact.hmm.transition_matrix == exact.hmm.initial_probs).all()
  assert exact.silent_probs.sum() == 1 and (exact.silent_probs == exact.hmm.initial_probs).all() == stationary


def test_the_numpy_generator_is_that_of_the_key():
  """Equal keys give equal streams, and keys that are split or folded give others."""
  key = jax.random.key(5)
  stream = problem_lib.generator(key).random(3).tolist()
  assert problem_lib.generator(jax.random.key(5)).random(3).tolist() == stream
  others = [jax.random.key(6), jax.random.fold_in(key, 7), *jax.random.split(key)]
  assert len({tuple(problem_lib.generator(other).random(3)) for other in [key, *others]}) == 5
