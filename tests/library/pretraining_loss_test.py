"""Facts about the masked-LM loss, its Bayes optimum against sums over every original text, and the gap from it."""

import functools
import itertools

from conftest import path_probs
from hmm_cases import float32_hmm
import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest
import scipy.special

from hmm_jax.models import bayes_gap, pretraining
from hmm_jax.models.masking import corrupt, Corruption
from hmm_jax.models.model import ExactModel

H, V, T = 2, 3, 4
EXACT = ExactModel(V)
SOFT = float32_hmm(0, H, V)
DOCUMENTS = np.random.default_rng(2).integers(V, size=(60, T), dtype=np.uint8)
CORRUPTIONS = [Corruption(V, 0.4, 0.6, 0.3), Corruption(V, 0.4, 1.0, 0.0)]


@functools.partial(jax.jit, static_argnums=1)
def under_corruption(seed, corruption):
  """The ideal predictions on corrupted documents, and the corruption."""
  key = jax.random.key(seed)
  return bayes_gap.ideal_under_corruption(key, SOFT, corruption, DOCUMENTS), corrupt(key, corruption, DOCUMENTS)


def ideal_predictions(hmm, inputs):
  """P[X_i | X_-i] of inputs [n, T] with [MASK]s, in numpy."""
  return log_space_conditional(hmm, rows_of(hmm, inputs))


@pytest.mark.parametrize('corruption', [CORRUPTIONS[0], pytest.param(CORRUPTIONS[1], marks=pytest.mark.slow)])
def test_bayes_optimum_weighs_every_original_text(corruption):
  """At selected positions it is P[x_i | y, i selected]: all texts x weighed by P(x) P(y | x), as Bayes' rule says."""
  ideal, (inputs, selected) = jax.device_get(under_corruption(3, corruption))
  np.testing.assert_array_equal(ideal.inputs, inputs)
  np.testing.assert_allclose(ideal.weights, selected / selected.sum(), rtol=1e-6)
  assert np.isfinite(ideal.token_probs).all()

  hmm = jax.tree.map(np.float64, SOFT)
  texts = np.array(list(itertools.product(range(V), repeat=T)))
  probs = np.array([path_probs(hmm, rows).sum() for rows in hmm.emission_matrix.T[texts]])
  _, rate, mask_share, random_share = corruption
  seen = inputs[:, None]
  # P[y_i | x_i, i selected], from the words of Devlin et al.
  if_visible = random_share / V + (1 - mask_share - random_share) * (seen == texts)
  if_selected = np.where(seen == V, mask_share, if_visible)
  either_way = (1 - rate) * (seen == texts) + rate * if_selected
  for row, i in np.argwhere(selected):
    weights = probs * np.delete(either_way[row], i, axis=-1).prod(-1) * if_selected[row, :, i]
    expected = np.bincount(texts[:, i], weights) / weights.sum()
    np.testing.assert_allclose(ideal.token_probs[row, i], expected, atol=1e-5)


def test_ideal_one_at_a_time_masks_every_position_of_every_document():
  """Each document comes once for each position, that one masked and read, with G_i(x) for its answer.

  The first position of each is what a downstream input asks for.
  """
  ideal = bayes_gap.ideal_one_at_a_time(SOFT, DOCUMENTS, batch_size=64)
  every = np.arange(60 * T)
  number, masked = np.divmod(every, T)
  expected = DOCUMENTS[number].astype(np.int32)
  expected[every, masked] = V
  np.testing.assert_array_equal(ideal.inputs, expected)
  np.testing.assert_array_equal(ideal.positions, masked[:, None])
  np.testing.assert_allclose(ideal.weights, np.full((len(every), 1), 1 / len(every)), rtol=1e-6)
  probs = ideal_predictions(SOFT, expected)[every, masked]
  np.testing.assert_allclose(ideal.token_probs[:, 0], probs, atol=1e-5)
  at_mask = bayes_gap.ideal_at_mask(SOFT, expected[::T], batch_size=64)
  np.testing.assert_allclose(at_mask.token_probs[:, 0], probs[::T], atol=1e-5)


def test_gap_is_the_weighted_mean_of_its_formulas():
  """Loss, floor, KL and total variation are the textbook sums over counted positions, an uneven last batch included."""
  (ideal, _), other = jax.device_get(under_corruption(4, CORRUPTIONS[0])), float32_hmm(1, H, V)
  predicted, probs = ideal_predictions(other, ideal.inputs), np.float64(ideal.token_probs)
  mean = lambda values: (ideal.weights * values.sum(-1)).sum()
  loss, floor = mean(-probs * np.log(predicted)), mean(-probs * np.log(probs))
  total_variation = mean(np.abs(probs - predicted)) / 2
  gap = bayes_gap.measure_gap(EXACT, other, ideal, batch_size=7)
  np.testing.assert_allclose(gap, (loss, floor, loss - floor, total_variation), rtol=1e-4)
  assert gap.kl > 0.01


def test_loss_is_the_mean_over_selected_positions():
  """Unselected positions do not count, and a batch with none selected has loss 0."""
  draws = np.random.default_rng(0)
  logits, targets = draws.normal(size=(3, 5, V)).astype(np.float32), draws.integers(0, V, (3, 5))
  selected = draws.random((3, 5)) < 0.5
  losses = -np.take_along_axis(scipy.special.log_softmax(logits, axis=-1), targets[..., None], -1)[..., 0]
  np.testing.assert_allclose(
    pretraining.masked_cross_entropy(logits, targets, selected), losses[selected].mean(), rtol=1e-5
  )
  assert pretraining.masked_cross_entropy(logits, targets, np.zeros((3, 5), bool)) == 0
