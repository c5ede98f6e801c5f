"""Facts about AdamW, its clip and its schedule, from the updates that it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.optimizer import adamw


def rates(learning_rate, warmup_steps, num_steps, count):
  """The learning rate of each step: under a constant gradient Adam's update is minus the rate."""
  optimizer = adamw(learning_rate, warmup_steps, num_steps, weight_decay=0.0, clip_norm=1.0)

  def step(state, _):
    updates, state = optimizer.update(jnp.float32(0.5), state, jnp.float32(0))
    return state, -updates

  _, values = jax.lax.scan(step, optimizer.init(jnp.float32(0)), None, length=count)
  return np.asarray(values)


@pytest.mark.parametrize('warmup_steps, num_steps', [(5, 20), (1, 4), (0, 8), (3, 5)])
def test_rate_rises_linearly_to_its_peak_and_falls_linearly_to_zero(warmup_steps, num_steps):
  """The rate is 0 at step 0, the peak at `warmup_steps`, 0 from `num_steps` on, and linear between."""
  steps = np.arange(num_steps + 3)
  knots = ([0] if warmup_steps else []) + [warmup_steps, num_steps]
  values = ([0.0] if warmup_steps else []) + [0.1, 0.0]
  expected = np.interp(steps, knots, values)
  np.testing.assert_allclose(rates(0.1, warmup_steps, num_steps, len(steps)), expected, atol=1e-5)


def test_rate_stays_at_its_peak_where_no_steps_are_left_to_decay():
  """With as many warm-up steps as steps, the rate only rises."""
  np.testing.assert_allclose(rates(0.1, 4, 4, 6), [0, 0.025, 0.05, 0.075, 0.1, 0.1], atol=1e-5)


@pytest.mark.parametrize('weight_decay, clip_norm', [(0.0, 1.0), (0.1, 1.0), (0.1, 3.0)])
def test_updates_are_those_of_clipped_adam_with_decoupled_decay(weight_decay, clip_norm):
  """Updates follow Kingma and Ba (2015) with the decay of Loshchilov and Hutter (2019), on clipped gradients."""
  learning_rate, warmup_steps, num_steps = 0.1, 2, 6
  draws = np.random.default_rng(0)
  params = {'a': draws.normal(size=(2, 3)), 'b': draws.normal(size=4)}
  # Norms on both sides of the clip; the norm is that of all leaves together.
  sizes = [0.1, 20.0, 0.3, 2.0, 0.05, 1.0]
  gradients = [jax.tree.map(lambda x, s=s: s * draws.normal(size=x.shape), params) for s in sizes]
  optimizer = adamw(learning_rate, warmup_steps, num_steps, weight_decay=weight_decay, clip_norm=clip_norm)
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
      square[name] = 0.999 * square[name] + 0.001 * clipped**2
      direction = mean[name] / (1 - 0.9 ** (step + 1)) / (np.sqrt(square[name] / (1 - 0.999 ** (step + 1))) + 1e-8)
      expected = -rate * (direction + weight_decay * params[name])
      np.testing.assert_allclose(updates[name], expected, rtol=1e-4, atol=1e-6)
      params[name] = params[name] + expected
