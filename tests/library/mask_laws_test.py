"""Laws at the [MASK]s before a text: of every path in fractions, and on a BERT."""

import itertools

from bert_cases import random_params, SMALLEST
from mask_chains import CHAIN
import numpy as np
import pytest
from rationals import exact_hmm, path_weights

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel, token_probs
from hmm_jax.tuning.mask_laws import joint_at_masks, marginals_at_masks

pytestmark = pytest.mark.usefixtures('without_optimisation')

V = CHAIN.num_tokens
TEXTS = [*itertools.product(range(V), repeat=2)]
INPUTS = np.array([(V, *text) for text in TEXTS], np.int32)


def test_laws_at_two_masks_are_those_of_every_path():
  words = [*itertools.product(range(V), repeat=2)]
  joint = np.array([[path_weights(*exact_hmm(CHAIN), word + text, 0).sum() for word in words] for text in TEXTS], float)
  joint = (joint / joint.sum(1, keepdims=True)).reshape(-1, V, V)
  of_model = lambda law: law(ExactModel(V), CHAIN, INPUTS, 2, batch_size=5).reshape(len(INPUTS), -1, V)
  np.testing.assert_allclose(of_model(joint_at_masks), joint, atol=1e-6)
  np.testing.assert_allclose(of_model(marginals_at_masks), np.stack([joint.sum(2), joint.sum(1)], 1), atol=1e-6)


def test_a_bert_reads_the_masks_in_place():
  """Its marginals are its predictions at the masks, and sums of its joint law are those at the first."""
  bert = SMALLEST.clone(num_tokens=V, max_positions=4)
  of_model = lambda law: law(BertModel(bert), params, INPUTS, 2, batch_size=8).reshape(len(INPUTS), -1, V)
  params, rows = random_params(bert, 2), np.insert(INPUTS, 0, V, axis=1)
  predicted = token_probs(BertModel(bert), params, rows)[:, :2]
  np.testing.assert_allclose(of_model(marginals_at_masks), predicted, atol=1e-6)
  np.testing.assert_allclose(of_model(joint_at_masks).sum(2), predicted[:, 0], atol=1e-6)
