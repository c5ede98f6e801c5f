"""Laws at the [MASK]s before a text: of every path in fractions, and on a BERT."""

import itertools

from bert_cases import random_params, SMALLEST
from mask_chains import CHAIN
import numpy as np
import pytest
from rationals import exact_hmm, path_weights

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning.mask_laws import joint_at_masks, marginals_at_masks

pytestmark = pytest.mark.usefixtures('without_optimisation')

V = CHAIN.num_tokens
WORDS = [*itertools.product(range(V), repeat=2)]
INPUTS = np.array([(V, *word) for word in WORDS], np.int32)


def test_laws_at_two_masks_are_those_of_every_path():
  weights = [[path_weights(*exact_hmm(CHAIN), word + text, 0).sum() for word in WORDS] for text in WORDS]
  joint = np.array(weights, float) / np.sum(weights, axis=1, keepdims=True).astype(float)
  joint = joint.reshape(-1, V, V)
  for law, expected in ((joint_at_masks, joint), (marginals_at_masks, np.stack([joint.sum(2), joint.sum(1)], 1))):
    found = law(ExactModel(V), CHAIN, INPUTS, 2, batch_size=5)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-6)


def test_laws_of_a_bert_agree_at_the_first_mask():
  bert = SMALLEST.clone(num_tokens=V, max_positions=4)
  model, params = BertModel(bert), random_params(bert, 2)
  joint, marginals = (law(model, params, INPUTS, 2, batch_size=5) for law in (joint_at_masks, marginals_at_masks))
  np.testing.assert_allclose(joint.reshape(-1, V, V).sum(2), marginals[:, :V], atol=1e-6)
