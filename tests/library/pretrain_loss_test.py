"""Facts about the masked-LM loss, its Bayes optimum against sums over every original text, and the gap from it."""

import functools
import itertools

from conftest import path_probs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax import bayes_gap, pretrain
from hmm_jax.bert import Bert, BertModel
from hmm_jax.hmm import HMM
from hmm_jax.masking import corrupt, Corruption
from hmm_jax.model import ExactModel

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T = 2, 3, 4
EXACT = ExactModel(V)
SOFT = HMM(
  *map(np.float32, ([0.6, 0.4], [[0.7, 0.3], [0.25, 0.75]], [[0.6, 0.3, 0.1], [0.15, 0.25, 0.6]])),
)


def text_probs(hmm, length):
  """Every text of `length` tokens [V^T, T] and its probability, summed over hidden paths in float64."""
  hmm = HMM(*(np.asarray(x, np.float64) for x in hmm))
  texts = np.array(list(itertools.product(range(hmm.num_tokens), repeat=length)))
  return texts, np.array([path_probs(hmm, rows).sum() for rows in hmm.emission_matrix.T[texts]])


def conditionals(texts, weights, position):
  """The distribution of the token at `position` when texts weigh `weights` [..., V^T]."""
  totals = np.stack([weights[..., texts[:, position] == token].sum(-1) for token in range(V)], -1)
  return totals / totals.sum(-1, keepdims=True)


def shown_if_selected(corruption, shown, token):
  """P[shown | token, selected], from the words of Devlin et al."""
  keep_share = 1 - corruption.mask_share - corruption.random_share
  if_visible = corruption.random_share / corruption.num_tokens + keep_share * (shown == token)
  return np.where(shown == corruption.num_tokens, corruption.mask_share, if_visible)


@pytest.fixture(scope='module')
def documents():
  return np.random.default_rng(2).integers(V, size=(60, T), dtype=np.uint8)


ideal_at_mask = functools.partial(bayes_gap.ideal_at_mask, batch_size=64)
ideal_one_at_a_time = functools.partial(bayes_gap.ideal_one_at_a_time, batch_size=64)


def first_masked(documents):
  return np.where(np.arange(T) == 0, V, documents).astype(np.int32)


@pytest.mark.parametrize('corruption', [Corruption(V, 0.4, 0.6, 0.3), Corruption(V, 0.4, 1.0, 0.0)])
def test_bayes_optimum_weighs_every_original_text(corruption, documents):
  """At selected positions it is P[x_i | y, i selected]: all texts x weighed by P(x) P(y | x), as Bayes' rule says."""
  inputs, selected = jax.jit(corrupt, static_argnums=1)(jax.random.key(3), corruption, documents)
  ideal = bayes_gap.ideal_under_corruption(jax.random.key(3), SOFT, corruption, documents)
  np.testing.assert_array_equal(ideal.inputs, inputs)
  np.testing.assert_allclose(ideal.weights, selected / selected.sum(), rtol=1e-6)

  texts, probs = text_probs(SOFT, T)
  seen = np.asarray(inputs)[:, None]
  if_selected = shown_if_selected(corruption, seen, texts)
  either_way = (1 - corruption.mask_rate) * (seen == texts) + corruption.mask_rate * if_selected
  assert selected.any(0).all()
  for i in range(T):
    weights = probs * np.delete(either_way, i, axis=2).prod(-1) * if_selected[:, :, i]
    rows = np.asarray(selected)[:, i]
    np.testing.assert_allclose(ideal.token_probs[rows, i], conditionals(texts, weights[rows], i), atol=1e-5)
  assert np.isfinite(ideal.token_probs).all()


def test_ideal_at_the_mask_is_the_conditional_of_the_first_token(documents):
  """On a downstream input it is P[X_1 | x_2:T] at the first position, which alone counts."""
  inputs = first_masked(documents)
  ideal = ideal_at_mask(SOFT, inputs)
  texts, probs = text_probs(SOFT, T)
  weights = probs * (np.asarray(inputs)[:, None, 1:] == texts[:, 1:]).all(-1)
  np.testing.assert_array_equal(ideal.inputs, inputs)
  np.testing.assert_allclose(ideal.token_probs[:, 0], conditionals(texts, weights, 0), atol=1e-5)
  np.testing.assert_array_equal(ideal.positions, np.zeros((60, 1)))
  np.testing.assert_allclose(ideal.weights, np.full((60, 1), 1 / 60), rtol=1e-6)


def test_ideal_one_at_a_time_masks_every_position_of_every_document(documents):
  """Each document comes once for each position, that one masked and read, with G_i(x) for its answer."""
  documents = documents[:15]
  ideal = ideal_one_at_a_time(SOFT, documents)
  texts, probs = text_probs(SOFT, T)
  for number, (inputs, positions, weights, token_probs) in enumerate(zip(*map(np.asarray, ideal), strict=True)):
    document, i = divmod(number, T)
    others = np.arange(T) != i
    assert inputs[i] == V and positions == [i]
    np.testing.assert_array_equal(inputs[others], documents[document, others])
    np.testing.assert_allclose(weights, [1 / (15 * T)], rtol=1e-6)
    consistent = probs * (inputs[others] == texts[:, others]).all(-1)
    np.testing.assert_allclose(token_probs[0], conditionals(texts, consistent, i), atol=1e-5)
  assert number == 15 * T - 1


def test_exact_model_has_no_gap(documents):
  """The exact model attains the floor, with no divergence and no total variation from the ideal."""
  for ideal in (ideal_at_mask(SOFT, first_masked(documents)), ideal_one_at_a_time(SOFT, documents[:15])):
    gap = bayes_gap.measure_gap(EXACT, SOFT, ideal, batch_size=64)
    assert abs(gap.kl) < 1e-5 and gap.total_variation < 1e-5
    np.testing.assert_allclose(gap.loss, gap.floor, atol=1e-5)
    assert 0.1 < gap.floor < np.log(V)


def test_gap_is_the_weighted_mean_of_its_formulas(documents):
  """Loss, floor, KL and total variation are the textbook sums over counted positions, an uneven last batch included."""
  bert = Bert(num_tokens=V, num_layers=1, width=16, num_heads=2, ffn_width=16, max_positions=8, dropout_rate=0.0)
  tree = jax.eval_shape(bert.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  draws = np.random.default_rng(0)
  params = jax.tree.map(lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32), tree)
  lm = BertModel(bert)
  ideal = bayes_gap.ideal_under_corruption(jax.random.key(4), SOFT, Corruption(V, 0.4, 0.6, 0.3), documents)
  predicted = jax.jit(lambda params: lm.predict(params, lm.embed(params, ideal.inputs)))(params)
  log_model = np.log(np.asarray(predicted, np.float64))
  probs, weights = (np.asarray(x, np.float64) for x in (ideal.token_probs, ideal.weights))
  mean = lambda values: (weights * values.sum(-1)).sum()
  loss, floor = mean(-probs * log_model), mean(-probs * np.log(probs))
  total_variation = mean(np.abs(probs - np.exp(log_model))) / 2
  gap = bayes_gap.measure_gap(lm, params, ideal, batch_size=7)
  np.testing.assert_allclose(gap, (loss, floor, loss - floor, total_variation), rtol=1e-4)
  assert gap.kl > 0.01


def test_gap_of_a_model_that_rules_out_the_truth_is_finite():
  """Zero probabilities in the model or in the ideal give a large finite loss and no NaN."""
  inputs = np.tile(np.int32([[V, 1, 0, 1], [V, 0, 1, 0]]), (30, 1))
  alternating = HMM(*map(np.float32, ([0.5, 0.5], np.eye(2)[::-1], np.eye(2, V))))
  constant = alternating._replace(transition_matrix=np.eye(2, dtype=np.float32))
  gap = bayes_gap.measure_gap(EXACT, constant, ideal_at_mask(alternating, inputs), batch_size=64)
  assert np.isfinite(gap).all()
  np.testing.assert_allclose(gap.floor, 0, atol=1e-6)
  assert gap.kl > 10 and abs(gap.loss - gap.kl) < 1e-4
  # The constant chain allows no such text, so the model's answer is all zeros, half of the L1 distance from any.
  np.testing.assert_allclose(gap.total_variation, 0.5, atol=1e-6)


def test_loss_is_the_mean_over_selected_positions():
  """Unselected positions do not count, and a batch with none selected has loss 0 and gradient 0."""
  draws = np.random.default_rng(0)
  logits, targets = draws.normal(size=(3, 5, V)), draws.integers(0, V, (3, 5))
  selected = draws.random((3, 5)) < 0.5
  probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  losses = -np.log(np.take_along_axis(probs, targets[..., None], -1)[..., 0])
  loss_and_gradient = jax.jit(jax.value_and_grad(pretrain.masked_cross_entropy))
  loss, gradient = loss_and_gradient(jnp.float32(logits), targets, selected)
  np.testing.assert_allclose(loss, losses[selected].mean(), rtol=1e-5)
  np.testing.assert_array_equal(gradient.any(-1), selected)
  loss, gradient = loss_and_gradient(jnp.float32(logits), targets, np.zeros((3, 5), bool))
  assert loss == 0 and not gradient.any()
