"""Rows of small fractions with exact zeros."""

import numpy as np
from theory_assumptions_cases import small_fractions

from hmm_jax.theory.problem import sparse_probs


def test_sparse_probs_have_exact_zeros_and_small_denominators():
  """A row has one positive entry for sure and the others with the density, of a denominator of at most 64."""
  rng = np.random.default_rng(0)
  for size, density in ((2, 0.5), (6, 0.25), (6, 0.75)):
    rows = sparse_probs(rng, 800, size, density)
    probs = small_fractions(rows)
    np.testing.assert_array_equal(rows, probs.astype(float))
    assert (probs.sum(-1) == 1).all()
    np.testing.assert_allclose((probs > 0).mean(), (1 + (size - 1) * density) / size, atol=0.04)
