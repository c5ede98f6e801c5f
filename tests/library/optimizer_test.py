"""Facts about AdamW, Muon, their clip and their schedules, from the updates that they make."""

from bert_cases import random_params
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.bert import Bert
from hmm_jax.optimizer import adamw, learning_rates, muon

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.parametrize(
  'decay, num_steps, knots',
  [
    ('linear', 20, {0: 0, 5: 1, 20: 0}),
    ('linear', 8, {0: 1, 8: 0}),
    # With as many warm-up steps as steps, the rate only rises.
    ('linear', 4, {0: 0, 4: 1}),
    ('wsd', 20, {0: 0, 5: 1, 16: 1, 20: 0}),
    ('wsd', 20, {0: 0, 18: 1, 20: 0}),
  ],
)
def test_rate_is_linear_between_its_knots(decay, num_steps, knots):
  """It rises to its peak at the end of the warm-up and falls to 0 at the last step, under `wsd` in the last fifth."""
  steps, warmup_steps = np.arange(num_steps + 3), min(step for step, height in knots.items() if height)
  expected = 0.1 * np.interp(steps, list(knots), list(knots.values()))
  np.testing.assert_allclose(learning_rates(0.1, warmup_steps, num_steps, decay)(steps), expected, atol=1e-7)


def test_rate_falls_along_half_a_cosine():
  """After the warm-up the rate is peak (1 + cos(pi t)) / 2, t the share of the decay that is done; then 0."""
  steps = np.arange(23)
  falling = 0.05 * (1 + np.cos(np.pi * np.clip((steps - 5) / 15, 0, 1)))
  expected = np.where(steps < 5, 0.02 * steps, falling)
  np.testing.assert_allclose(learning_rates(0.1, 5, 20, 'cosine')(steps), expected, atol=1e-7)


@pytest.mark.parametrize('weight_decay, clip_norm, b2', [(0.0, 1.0, 0.999), (0.1, 3.0, 0.95)])
def test_updates_are_those_of_clipped_adam_with_decoupled_decay(weight_decay, clip_norm, b2):
  """Updates follow Kingma and Ba (2015) with the decay of Loshchilov and Hutter (2019), on clipped gradients."""
  draws = np.random.default_rng(0)
  optimizer = adamw(0.1, 2, 6, weight_decay=weight_decay, clip_norm=clip_norm, b2=b2, decay='wsd')
  # The norm that is clipped is that of all leaves together.
  tree = lambda vector: {'a': jnp.float32(vector[:6]).reshape(2, 3), 'b': jnp.float32(vector[6:])}
  params, mean, square = draws.normal(size=10), 0.0, 0.0
  state = optimizer.init(tree(params))
  for step, size in enumerate([0.1, 20.0, 0.3, 2.0, 0.05, 1.0]):
    gradient = size * draws.normal(size=10)
    updates, state = jax.jit(optimizer.update)(tree(gradient), state, tree(params))
    clipped = gradient * min(1, clip_norm / np.linalg.norm(gradient))
    mean = 0.9 * mean + 0.1 * clipped
    square = b2 * square + (1 - b2) * clipped**2
    direction = mean / (1 - 0.9 ** (step + 1)) / (np.sqrt(square / (1 - b2 ** (step + 1))) + 1e-8)
    rate = np.interp(step, [0, 2, 5, 6], [0, 0.1, 0.1, 0])
    expected = -rate * (direction + weight_decay * params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), updates, tree(expected))
    params = params + expected


# Its parameters are of a layer, and of two that are stacked.
BERT = Bert(
  num_tokens=4, num_layers=3, width=8, num_heads=2, ffn_width=12, max_positions=6, dropout_rate=0.0, scan_layers=True
)
PARAMS, GRADIENTS = random_params(BERT), random_params(BERT, 1)


def muon_updates(weight_decay):
  """The updates of the first step, without warm-up."""
  optimizer = muon(0.1, 0, 10**6, muon_learning_rate=0.02, clip_norm=30.0, weight_decay=weight_decay)
  return jax.jit(lambda: optimizer.update(GRADIENTS, optimizer.init(PARAMS), PARAMS)[0])()


def matrices(tree):
  """Every matrix, with query, key and value apart and each layer by itself."""
  layers = [tree['last'], *(jax.tree.map(lambda x, number=number: x[number], tree['scanned']) for number in range(2))]
  found = [layer[part]['kernel'] for layer in layers for part in ('attention_out', 'ffn_in', 'ffn_out')]
  of_attention = [np.split(np.asarray(layer['qkv']['kernel']), 3, axis=1) for layer in layers]
  return [np.float64(matrix) for matrix in [tree['transform']['kernel'], *found, *sum(of_attention, [])]]


@pytest.fixture(scope='module')
def updates():
  return muon_updates(0.0)


def test_muon_orthogonalises_each_matrix_of_the_layers(updates):
  """An update is Jordan et al.'s iterate of a gradient, times sqrt(max(1, n / m)) and its rate.

  Query, key and value of each layer are matrices by themselves.
  """
  for gradient, update in zip(matrices(GRADIENTS), matrices(updates), strict=True):
    x = gradient / np.linalg.norm(gradient)
    for _ in range(5):
      square = x @ x.T
      x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    num_inputs, num_outputs = gradient.shape
    np.testing.assert_allclose(update, -0.02 * np.sqrt(max(1, num_outputs / num_inputs)) * x, rtol=1e-3, atol=1e-5)


def test_muon_leaves_embeddings_norms_and_biases_to_adam_and_decays_all(updates):
  """What is no matrix of a layer moves as by NAdam's first step; all lose rate x decay x parameter."""
  others = [update for path, update in jax.tree.leaves_with_path(updates) if path[-1].key != 'kernel']
  assert len(others) == 2 + 2 + 1 + 2 + 1 + 2 * 8
  for update in others:
    # The gradient counts 0.1 / 0.1 + 0.9 / 0.19 times 0.1.
    np.testing.assert_allclose(np.abs(update), 0.1 * (0.9 * 0.1 / 0.19 + 0.1 / 0.1), rtol=1e-3)
  rate = lambda path: 0.02 if path[-1].key == 'kernel' else 0.1
  lost = jax.tree.map_with_path(lambda path, x: 0.3 * rate(path) * x, PARAMS)
  jax.tree.map(lambda a, b, x: np.testing.assert_allclose(a - b, x, atol=1e-5), updates, muon_updates(0.3), lost)
