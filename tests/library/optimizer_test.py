"""Facts about AdamW, Muon, their clip and their schedules, from the updates that they make."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.bert import Bert
from hmm_jax.optimizer import adamw, muon


def rates(learning_rate, warmup_steps, num_steps, count, **decay):
  """The learning rate of each step: under a constant gradient Adam's update is minus the rate."""
  optimizer = adamw(learning_rate, warmup_steps, num_steps, weight_decay=0.0, clip_norm=1.0, **decay)

  def step(state, _):
    updates, state = optimizer.update(jnp.float32(0.5), state, jnp.float32(0))
    return state, -updates

  _, values = jax.lax.scan(step, optimizer.init(jnp.float32(0)), None, length=count)
  return np.asarray(values)


@pytest.mark.parametrize(
  'decay, num_steps, knots',
  [
    ('linear', 20, {0: 0, 5: 1, 20: 0}),
    ('linear', 4, {0: 0, 1: 1, 4: 0}),
    ('linear', 8, {0: 1, 8: 0}),
    # With as many warm-up steps as steps, the rate only rises.
    ('linear', 4, {0: 0, 4: 1}),
    ('wsd', 20, {0: 0, 5: 1, 16: 1, 20: 0}),
    ('wsd', 10, {0: 1, 8: 1, 10: 0}),
    ('wsd', 20, {0: 0, 18: 1, 20: 0}),
  ],
)
def test_rate_is_linear_between_its_knots(decay, num_steps, knots):
  """It rises to its peak at the end of the warm-up and falls to 0 at the last step, under `wsd` in the last fifth."""
  steps, warmup_steps = np.arange(num_steps + 3), min(step for step, height in knots.items() if height)
  expected = 0.1 * np.interp(steps, list(knots), list(knots.values()))
  np.testing.assert_allclose(rates(0.1, warmup_steps, num_steps, len(steps), decay=decay), expected, atol=1e-5)


@pytest.mark.parametrize('warmup_steps, num_steps', [(5, 20), (0, 10)])
def test_rate_falls_along_half_a_cosine(warmup_steps, num_steps):
  """After the warm-up the rate is peak (1 + cos(pi t)) / 2, t the share of the decay that is done; then 0."""
  steps = np.arange(num_steps + 3)
  done = np.clip((steps - warmup_steps) / (num_steps - warmup_steps), 0, 1)
  expected = np.where(steps < warmup_steps, 0.1 * steps / max(warmup_steps, 1), 0.05 * (1 + np.cos(np.pi * done)))
  np.testing.assert_allclose(rates(0.1, warmup_steps, num_steps, len(steps), decay='cosine'), expected, atol=1e-5)


@pytest.mark.parametrize('weight_decay, clip_norm, b2', [(0.0, 1.0, 0.999), (0.1, 1.0, 0.999), (0.1, 3.0, 0.95)])
def test_updates_are_those_of_clipped_adam_with_decoupled_decay(weight_decay, clip_norm, b2):
  """Updates follow Kingma and Ba (2015) with the decay of Loshchilov and Hutter (2019), on clipped gradients."""
  learning_rate, warmup_steps, num_steps = 0.1, 2, 6
  draws = np.random.default_rng(0)
  params = {'a': draws.normal(size=(2, 3)), 'b': draws.normal(size=4)}
  # Norms on both sides of the clip; the norm is that of all leaves together.
  sizes = [0.1, 20.0, 0.3, 2.0, 0.05, 1.0]
  gradients = [jax.tree.map(lambda x, s=s: s * draws.normal(size=x.shape), params) for s in sizes]
  optimizer = adamw(learning_rate, warmup_steps, num_steps, weight_decay=weight_decay, clip_norm=clip_norm, b2=b2)
  single = lambda tree: jax.tree.map(jnp.float32, tree)
  update = jax.jit(optimizer.update)

  state = optimizer.init(single(params))
  mean, square = (jax.tree.map(np.zeros_like, params) for _ in range(2))
  for step, gradient in enumerate(gradients):
    updates, state = update(single(gradient), state, single(params))
    norm = np.sqrt(sum((leaf**2).sum() for leaf in gradient.values()))
    rate = np.interp(step, [0, warmup_steps, num_steps], [0, learning_rate, 0])
    for name in params:
      clipped = gradient[name] * min(1, clip_norm / norm)
      mean[name] = 0.9 * mean[name] + 0.1 * clipped
      square[name] = b2 * square[name] + (1 - b2) * clipped**2
      direction = mean[name] / (1 - 0.9 ** (step + 1)) / (np.sqrt(square[name] / (1 - b2 ** (step + 1))) + 1e-8)
      expected = -rate * (direction + weight_decay * params[name])
      np.testing.assert_allclose(updates[name], expected, rtol=1e-4, atol=1e-6)
      params[name] = params[name] + expected


BERT = Bert(
  num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=12, max_positions=6, dropout_rate=0.0, init_stddev=0.2
)


cheaply = pytest.mark.usefixtures('without_optimisation')


def muon_updates(params, gradients, **options):
  """The updates of BERT's parameters at each step, without warm-up and at a rate that hardly falls."""
  optimizer = muon(0.1, 0, 10**6, muon_learning_rate=0.02, **{'weight_decay': 0.0, 'clip_norm': 1e9, **options})
  state, update, found = optimizer.init(params), jax.jit(optimizer.update), []
  for gradient in gradients:
    updates, state = update(gradient, state, params)
    found.append(updates)
  return found


def gradients_of_bert(count):
  """BERT's parameters, and normal gradients for them."""
  draws = np.random.default_rng(0)
  params = jax.jit(BERT.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  return params, [jax.tree.map(lambda x: jnp.float32(draws.normal(size=x.shape)), params) for _ in range(count)]


def newton_schulz(matrix):
  """Five steps of Jordan et al.'s quintic iteration, in float64."""
  x = matrix / np.linalg.norm(matrix)
  for _ in range(5):
    square = x @ x.T
    x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
  return x


def matrices(params):
  """Every matrix by its name, with query, key and value apart."""
  named = {'transform': params['transform']['kernel']}
  layer = params['layers_0']
  named |= {part: layer[part]['kernel'] for part in ('attention_out', 'ffn_in', 'ffn_out')}
  return named | dict(zip('qkv', np.split(np.asarray(layer['qkv']['kernel']), 3, axis=1)))


@cheaply
def test_muon_orthogonalises_each_matrix_of_the_layers():
  """An update is the Newton-Schulz iterate of Nesterov's momentum, with singular values near sqrt(max(1, n / m)): of
  query, key and value each by itself, of the rest as they are."""
  params, gradients = gradients_of_bert(3)
  momentum = {name: 0.0 for name in matrices(params)}
  for step, (gradient, updates) in enumerate(zip(gradients, muon_updates(params, gradients)), start=1):
    updates = matrices(updates)
    for name, of_matrix in matrices(gradient).items():
      of_matrix = np.float64(of_matrix)
      momentum[name] = 0.95 * momentum[name] + 0.05 * of_matrix
      ahead = 0.95 * momentum[name] / (1 - 0.95 ** (step + 1)) + 0.05 * of_matrix / (1 - 0.95**step)
      num_inputs, num_outputs = of_matrix.shape
      scale = 0.02 * np.sqrt(max(1, num_outputs / num_inputs))
      expected = -scale * newton_schulz(ahead)
      np.testing.assert_allclose(updates[name], expected, rtol=1e-3, atol=1e-5)
      singular_values = np.linalg.svd(updates[name], compute_uv=False)
      assert np.median(singular_values) == pytest.approx(scale, rel=0.35)


@cheaply
def test_muon_leaves_embeddings_norms_and_biases_to_adam():
  """All that is no matrix of a layer moves by the rate at the first step, as Adam does, whatever its gradient."""
  params, gradients = gradients_of_bert(1)
  (updates,) = muon_updates(params, gradients)
  others = [(path, x) for path, x in jax.tree_util.tree_leaves_with_path(updates) if path[-1].key != 'kernel']
  assert len(others) == len(jax.tree.leaves(updates)) - 4 - 1
  names = jax.tree_util.keystr(tuple(key for path, _ in others for key in path))
  assert 'word_embedding' in names and 'position_embedding' in names
  for _, update in others:
    # NAdam's first step: its gradient counts 0.1 / 0.1 + 0.9 / 0.19 times 0.1.
    np.testing.assert_allclose(np.abs(update), 0.1 * (0.9 * 0.1 / 0.19 + 0.1 / 0.1), rtol=1e-4)


@cheaply
def test_muon_decays_every_parameter_and_clips():
  """Updates with decay are those without, less rate x decay x parameter; a clip turns no gradient."""
  params, gradients = gradients_of_bert(1)
  (plain,), (decayed,) = muon_updates(params, gradients), muon_updates(params, gradients, weight_decay=0.3)
  rate = lambda path: 0.02 if path[-1].key == 'kernel' else 0.1
  lost = jax.tree_util.tree_map_with_path(lambda path, x: 0.3 * rate(path) * x, params)
  jax.tree.map(lambda a, b, x: np.testing.assert_allclose(a - b, x, atol=1e-5), plain, decayed, lost)
  (clipped,) = muon_updates(params, gradients, clip_norm=0.5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4), plain, clipped)


@cheaply
def test_muon_takes_stacked_layers_one_by_one():
  """Kernels with a leading axis, as of scanned layers, get the updates that each layer would get alone."""
  draws = np.random.default_rng(1)
  shapes = {'qkv': (3, 8, 24), 'ffn_in': (3, 8, 12), 'ffn_out': (3, 12, 8)}
  stacked = {name: {'kernel': jnp.float32(draws.normal(size=shape))} for name, shape in shapes.items()}
  (together,) = muon_updates(stacked, [stacked])
  for layer in range(3):
    one = jax.tree.map(lambda x, layer=layer: x[layer], stacked)
    (alone,) = muon_updates(one, [one])
    jax.tree.map(lambda a, b, layer=layer: np.testing.assert_allclose(a[layer], b, atol=1e-5), together, alone)
