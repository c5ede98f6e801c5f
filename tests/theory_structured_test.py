"""Rows of small fractions with exact zeros, and the generator that a key decides."""

from fractions import Fraction

import jax
import numpy as np
import pytest

from hmm_jax.theory import structured


@pytest.mark.parametrize('density', [0.25, 0.5, 0.75])
def test_sparse_probs_have_exact_zeros_and_small_denominators(density):
  """Rows sum to 1, one entry is always positive, the others with the density; denominators are at most 64."""
  rng = np.random.default_rng(0)
  for size in (1, 2, 6):
    probs = structured.sparse_probs(rng, 800, size, density)
    assert probs.shape == (800, size) and (probs.sum(-1) == 1).all() and (probs >= 0).all()
    assert max(value.denominator for value in probs.flat) <= 64
    np.testing.assert_allclose((probs > 0).mean(), (1 + (size - 1) * density) / size, atol=0.04)


def test_composed_is_positive_where_it_is_kept():
  """Of the denominator that is asked for, or of as many as there are entries."""
  rng, kept = np.random.default_rng(1), np.array([True, False, True, True, False])
  for denominator in (3, 8, 64):
    row = structured.composed(rng, kept, denominator)
    assert row.sum() == 1 and ((row > 0) == kept).all() and (row * denominator % 1 == 0).all()
  assert (structured.composed(rng, kept, 2) == np.array([1, 0, 1, 1, 0]) * Fraction(1, 3)).all()
  assert (structured.full_probs(rng, 5) > 0).all()


def test_concentrated_has_nearly_all_at_one_place():
  """64ths: one where it is kept, the rest at the place, kept or not."""
  kept = np.array([True, False, True])
  assert (structured.concentrated(kept, 1) * 64 == np.array([1, 62, 1])).all()
  assert (structured.concentrated(kept, 2) * 64 == np.array([1, 0, 63])).all()


def test_random_weights_differ_at_their_places_alone():
  """The last class has none, and every place is weighed by some class."""
  rng = np.random.default_rng(2)
  for num_classes in (2, 3):
    weights = structured.random_weights(rng, num_classes, np.array([1, 3]), 5)
    assert weights.shape == (num_classes, 5) and not weights[-1].any()
    assert np.flatnonzero(weights.any(0)).tolist() == [1, 3]
    assert all((value * 8).denominator == 1 and abs(value) <= 2 for value in weights.flat)


def test_the_numpy_generator_is_that_of_the_key():
  """Equal keys give equal streams, and keys that are split or folded give others."""
  key = jax.random.key(5)
  stream = structured.generator(key).random(3).tolist()
  assert structured.generator(jax.random.key(5)).random(3).tolist() == stream
  others = [jax.random.key(6), jax.random.fold_in(key, 7), *jax.random.split(key)]
  assert len({tuple(structured.generator(other).random(3)) for other in [key, *others]}) == 5
