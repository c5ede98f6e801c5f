"""Facts about the linear head."""

import jax
import numpy as np
import pytest
import scipy.stats

from hmm_jax.heads import Attention, init_linear_head, Linear, linear_scores, LinearHead, OfficialAttention


@pytest.mark.parametrize('batch', [(), (3,), (2, 3)])
def test_scores_are_affine_in_the_features(batch):
  """Scores are features times weights plus bias, computed in float64 by hand, under any leading axes."""
  draws = np.random.default_rng(0)
  weights, bias, features = (draws.normal(size=shape) for shape in ((5, 4), (4,), (*batch, 5)))
  scores = linear_scores(LinearHead(*(x.astype(np.float32) for x in (weights, bias))), features.astype(np.float32))
  assert scores.shape == (*batch, 4)
  expected = (features[..., :, None] * weights).sum(-2) + bias
  np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_heads_start_uniform_within_one_over_root_features():
  """Weights and biases are uniform in +-1 / sqrt(F), the weights and biases of a head drawn apart."""
  heads = jax.vmap(lambda key: init_linear_head(key, 9, 3))(jax.random.split(jax.random.key(0), 500))
  assert heads.weights.shape == (500, 9, 3) and heads.bias.shape == (500, 3)
  for leaf in heads:
    assert scipy.stats.kstest(np.ravel(leaf), scipy.stats.uniform(-1 / 3, 2 / 3).cdf).pvalue > 1e-4
  correlations = [scipy.stats.pearsonr(heads.weights[:, i, c], heads.bias[:, c])[0] for i in range(9) for c in range(3)]
  assert np.abs(correlations).max() < 0.3


def test_a_head_is_a_function_of_its_key():
  """The same key gives the same head and another key another."""
  first, again, second = (init_linear_head(jax.random.key(seed), 4, 2) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first.weights, again.weights)
  np.testing.assert_array_equal(first.bias, again.bias)
  assert (first.weights != second.weights).all()


@pytest.mark.parametrize('prompt_length', [0, 2])
def test_a_linear_head_reads_the_mask_behind_the_prompt(prompt_length):
  """Of the outputs at P + T positions it asks for position P alone, and it has no attention to show."""
  outputs = np.arange(2 * (prompt_length + 5) * 3).reshape(2, prompt_length + 5, 3)
  head = Linear(2)
  asked = outputs[:, head.positions(prompt_length)]
  np.testing.assert_array_equal(head.read(asked, np.zeros((2, 5), int)), outputs[:, prompt_length])
  with pytest.raises(ValueError, match='^a linear head has no attention weights; valid are'):
    head.attend(None, outputs)


def test_heads_of_equal_sizes_are_equal():
  """So that what is compiled for one is compiled for all."""
  assert Attention(2, 3, 4, 1.0) == Attention(2, 3, 4, 1.0) != Attention(2, 3, 4, 0.5)
  assert hash(Linear(2)) == hash(Linear(2)) and Linear(2) != Linear(3) != OfficialAttention(3)
