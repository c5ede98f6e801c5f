"""Activations and patches, known exactly on the exact model, and pictures."""

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import hmm_jax as hj
from hmm_jax.models.model import representation

H, V, T = 3, SMALLEST.num_tokens, 5
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(V + 1, size=(6, T))
BERT = SMALLEST.clone(num_layers=2)
PARAMS = random_params(BERT)
MODEL = hj.BertModel(BERT)
HMM, EXACT = float32_hmm(0, H, V), hj.ExactModel(V)


@pytest.fixture(scope='module')
def streams():
  return hj.activations(MODEL, PARAMS, TOKENS)


def test_layers_are_named_and_the_last_is_the_representation(streams):
  """One text gives what it gives among others, and the names asked for are those returned."""
  assert list(streams) == ['embeddings', 'layer_1', 'layer_2']
  np.testing.assert_array_equal(streams['layer_2'], representation(MODEL, PARAMS, TOKENS))
  (name, alone), *rest = hj.activations(MODEL, PARAMS, TOKENS[1], ['layer_1']).items()
  assert name == 'layer_1' and not rest
  np.testing.assert_allclose(alone, streams['layer_1'][1], atol=1e-5)


def test_attention_weighs_the_values_of_a_layer():
  """Weights sum to 1 over the last axis, and follow the order of positions: swapped texts swap both axes.

  Without position embeddings a permuted text has permuted weights.
  """
  params = PARAMS | {'position_embedding': 0 * PARAMS['position_embedding']}
  weights = hj.attention_patterns(MODEL, params, TOKENS[0])
  assert weights.shape == (2, BERT.num_heads, T, T)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
  order = RNG.permutation(T)
  permuted = hj.attention_patterns(MODEL, params, TOKENS[0][order])
  np.testing.assert_allclose(permuted, weights[:, :, order][..., order], atol=1e-5)


def test_the_exact_model_decodes_whatever_belief_it_is_given():
  """A patch gives the patched belief's law. A prompt comes before the text. Float64 stays."""
  wide = jax.tree.map(np.float64, HMM)
  beliefs = hj.activations(EXACT, wide, TOKENS)['beliefs']
  assert beliefs.dtype == np.float64
  swapped = hj.with_activations(EXACT, HMM, TOKENS, {'beliefs': beliefs[::-1]})
  np.testing.assert_allclose(swapped, beliefs[::-1] @ wide.emission_matrix, atol=1e-6)
  prompt = np.float32([[1, 0, 0.5]])
  prompted = hj.activations(EXACT, HMM, TOKENS, prompt=prompt)['beliefs'] @ wide.emission_matrix
  np.testing.assert_allclose(prompted, EXACT.predict_prompted(HMM, prompt[None], TOKENS)[0], atol=1e-6)


def test_patches_of_bert(streams):
  """The identity changes no bit, another context's layer gives its prediction, and later layers read a patch."""
  expected = hj.token_probs(MODEL, PARAMS, TOKENS)
  patched = lambda replace, **options: hj.with_activations(MODEL, PARAMS, TOKENS, replace, **options)
  np.testing.assert_array_equal(patched(dict.fromkeys(streams, lambda x: x)), expected)
  swapped = patched({'layer_1': streams['layer_1'][::-1]}, positions=np.array([2]))
  np.testing.assert_allclose(swapped, expected[::-1, [2]], atol=1e-5)
  elsewhere = patched({'layer_1': lambda x: x.at[:, 0].set(0)}, positions=np.array([2]))
  assert np.abs(elsewhere - expected[:, [2]]).max() > 1e-3


def test_activations_and_exact_beliefs_are_written_for_numpy(tmp_path):
  """In float32, where numpy has no such type."""
  model = hj.BertModel(BERT.clone(dtype=jnp.bfloat16))
  hj.save_activations(tmp_path / 'some.npz', model, PARAMS, TOKENS, HMM)
  written = np.load(tmp_path / 'some.npz', allow_pickle=False)
  expected = hj.activations(model, PARAMS, TOKENS) | hj.activations(EXACT, HMM, TOKENS)
  assert list(written) == ['tokens', *expected]
  for name, rows in expected.items():
    np.testing.assert_array_equal(written[name], np.asarray(rows, np.float32))


def test_a_picture_shows_the_numbers():
  """Beliefs lie at their barycentric places."""
  matplotlib.use('agg')
  ax = hj.plots.simplex([[1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]], values=[0.0, 1.0])
  np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0.5, 0.75**0.5 / 3], [0.75, 0.75**0.5 / 2]])
