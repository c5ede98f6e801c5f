"""Laws at k [MASK]s and prompts between a [MASK] and its text: by every path in fractions, and on a BERT."""

import itertools

from bert_cases import random_params, SMALLEST
from mask_chains import CHAIN
import numpy as np
import pytest
from rationals import as_fractions, path_weights

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel, token_probs
from hmm_jax.tuning.mask_laws import joint_at_masks, marginals_at_masks

pytestmark = pytest.mark.usefixtures('without_optimisation')

V, MASKS = CHAIN.num_tokens, 2
TEXTS = [*itertools.product(range(V), repeat=3)]
INPUTS = np.array([(V, *text) for text in TEXTS], np.int32)


def paths():
  """P[word, text] [n, V^k] of every word of k masks before each text."""
  exact = [as_fractions(np.float64(field)) for field in CHAIN]
  words = [*itertools.product(range(V), repeat=MASKS)]
  return np.array([[float(path_weights(*exact, (*word, *text), 0).sum()) for word in words] for text in TEXTS])


@pytest.mark.parametrize('law', [marginals_at_masks, joint_at_masks])
def test_laws_at_masks_are_those_of_every_path(law):
  joint = paths()
  joint = joint / joint.sum(1, keepdims=True)
  if law is marginals_at_masks:
    joint = np.hstack([joint.reshape(-1, V, V).sum(axis) for axis in (2, 1)])
  found = law(ExactModel(V), CHAIN, INPUTS, MASKS, batch_size=5)
  np.testing.assert_allclose(found, joint, atol=1e-6)


def test_a_bert_reads_the_masks_in_place():
  """Its marginals are its predictions at the masks, and sums of its joint law are those at the first."""
  bert = SMALLEST.clone(num_tokens=V, max_positions=5)
  model, params = BertModel(bert), random_params(bert, 2)
  rows = np.pad(INPUTS, ((0, 0), (1, 0)), constant_values=V)
  marginals = marginals_at_masks(model, params, INPUTS, MASKS, batch_size=8)
  np.testing.assert_allclose(marginals.reshape(-1, MASKS, V), token_probs(model, params, rows)[:, :MASKS], atol=1e-6)
  joint = joint_at_masks(model, params, INPUTS, MASKS, batch_size=8)
  np.testing.assert_allclose(joint.reshape(-1, V, V).sum(2), marginals[:, :V], atol=1e-6)
  with pytest.raises(ValueError, match='max_positions 5'):
    marginals_at_masks(model, params, INPUTS, 3, batch_size=8)
