"""Facts about AdamW, Muon, their clip and their schedules, from the updates that they make."""

from bert_cases import random_params, SMALLEST
import jax
import numpy as np
import optax
import pytest

from hmm_jax.models.optimizer import learning_rates, scheduled


@pytest.mark.parametrize(
  ('num_steps', 'falls'),
  [
    (20, lambda left: left),
    # With as many warm-up steps as steps, the rate only rises.
    (5, lambda left: 1),
  ],
)
def test_rate_rises_to_its_peak_and_falls_to_0_at_the_last_step(num_steps, falls):
  """Warm-up takes five steps; `left` is the share of the steps behind it that is left."""
  steps = np.arange(num_steps + 1)
  expected = 0.1 * np.where(steps < 5, steps / 5, falls((num_steps - steps) / 15))
  np.testing.assert_allclose(learning_rates(0.1, 5, num_steps)(steps), expected, atol=1e-7)


def test_adamw_is_optaxs_on_clipped_gradients():
  """A gradient of norm 10 is cut to 5. Without warm-up the rate begins at its peak."""
  params, gradient = np.ones(2, np.float32), np.float32([6, 8])
  ours = scheduled(0.1, 0, 10, weight_decay=0.3, clip_norm=5.0)
  theirs = optax.adamw(0.1, weight_decay=0.3)
  updates, _ = ours.update(gradient, ours.init(params), params)
  expected, _ = theirs.update(gradient / 2, theirs.init(params), params)
  np.testing.assert_allclose(updates, expected, rtol=1e-4)


BERT = SMALLEST.clone(num_layers=2, ffn_width=12)
PARAMS, GRADIENTS = random_params(BERT), random_params(BERT, 1)


def separated(tree):
  """The matrices of layers, query, key and value apart, and all else as vectors, which optax leaves to Adam."""
  parts = []
  for path, leaf in jax.tree.leaves_with_path(tree):
    if path[-1].key == 'kernel':
      parts += np.split(leaf, 3 if path[-2].key == 'qkv' else 1, axis=-1)
    else:
      parts.append(np.ravel(leaf))
  return parts


def test_muon_is_optaxs_for_every_matrix_of_a_layer():
  """Query, key and value are matrices by themselves. Embeddings, norms and biases move as by NAdam; all decay."""
  ours = scheduled(0.1, 0, 10**6, muon_learning_rate=0.02, clip_norm=30.0, weight_decay=0.3)
  theirs = optax.contrib.muon(0.02, weight_decay=0.3, adam_learning_rate=0.1, adam_weight_decay=0.3)
  updates = jax.jit(lambda: ours.update(GRADIENTS, ours.init(PARAMS), PARAMS)[0])()
  gradients, params = separated(GRADIENTS), separated(PARAMS)
  expected = jax.jit(lambda: theirs.update(gradients, theirs.init(params), params)[0])()
  for update, moved in zip(separated(updates), expected, strict=True):
    np.testing.assert_allclose(update, moved, rtol=1e-3, atol=1e-5)
