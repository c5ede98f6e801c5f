"""Marginals at the [MASK]s before a text, in fractions."""

import itertools

from mask_chains import CHAIN
import numpy as np
from rationals import exact_hmm, likelihood_rows, state_weights

from hmm_jax.models.model import ExactModel
from hmm_jax.tuning.mask_laws import marginals_at_masks

V = CHAIN.num_tokens
WORDS = [*itertools.product(range(V), repeat=2)]
INPUTS = np.array([(V, *word) for word in WORDS], np.int32)


def test_marginals_at_two_masks_are_those_of_every_word():
  hmm = exact_hmm(CHAIN)
  prob = lambda tokens: state_weights(hmm, likelihood_rows(hmm, tokens), 0).sum()
  weights = [[prob(word + text) for word in WORDS] for text in WORDS]
  joint = np.array(weights, float) / np.sum(weights, axis=1, keepdims=True).astype(float)
  joint = joint.reshape(-1, V, V)
  expected = np.concatenate([joint.sum(2), joint.sum(1)], 1)
  np.testing.assert_allclose(marginals_at_masks(ExactModel(V), CHAIN, INPUTS, 2, batch_size=5), expected, atol=1e-6)
