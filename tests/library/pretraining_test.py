"""Facts about training steps: what they learn, visit and drop out, and that slots change nothing."""

import functools

from bert_cases import SMALLEST
from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hmm_jax.models import pretraining, sharding
from hmm_jax.models.masking import corrupt, Corruption

BERT = SMALLEST.clone(width=16, ffn_width=16, max_positions=8, init_stddev=0.2)
CORRUPTION = Corruption(num_tokens=4, mask_rate=0.2, mask_share=0.8, random_share=0.1)
# Without moments, which would magnify rounding where a gradient is zero.
SGD = optax.sgd(0.1)
# Thirteen batches an epoch and one chunk left over, so that calls of five steps straddle epochs.
NUM_CHUNKS, BATCH_SIZE = 105, 8


CHUNKS = np.random.default_rng(1).integers(4, size=(NUM_CHUNKS, 8), dtype=np.uint8)


def test_an_epoch_visits_each_chunk_at_most_once(monkeypatch):
  """Each epoch meets floor(N / B) B distinct chunks in an order of its own, and each step has a key of its own."""

  def report(bert, optimizer, corruption, state, chunks, key):
    return state._replace(step=state.step + 1), jnp.append(chunks[:, 0], jax.random.key_data(key))

  monkeypatch.setattr(pretraining, 'train_step', report)
  mesh, empty = sharding.make_mesh(), pretraining.TrainState(jnp.zeros((), jnp.int32), (), ())
  monkeypatch.setattr(pretraining, 'init_train_state', lambda *_: empty)
  state, numbered, key = jax.device_put(
    (empty, jnp.arange(NUM_CHUNKS, dtype=jnp.uint32)[:, None], jax.random.key(7)), sharding.replicated(mesh)
  )
  # Five steps a call, on the mesh where training keeps its arrays.
  sizes, reports = dict(batch_size=BATCH_SIZE, steps_per_call=5, mesh=mesh), []
  _, train_steps = pretraining.make_programs(BERT, SGD, CORRUPTION, **sizes)
  for _ in range(8):
    state, some = train_steps(state, numbered, key)
    reports.append(some)
  chunks, keys = np.split(np.concatenate(reports)[:39], [BATCH_SIZE], axis=1)
  assert len(np.unique(keys, axis=0)) == 39
  epochs = [set(epoch.ravel()) for epoch in np.split(chunks, 3)]
  # The one chunk left over is another in each epoch.
  assert all(len(epoch) == 13 * BATCH_SIZE for epoch in epochs) and epochs[0] != epochs[1]


def test_training_drops_out():
  """All four dropouts of the encoder are active in a training step, in slots and without."""
  is_active = []

  def record(next_fun, args, kwargs, context):
    if isinstance(context.module, nn.Dropout):
      is_active.append(not kwargs.get('deterministic', context.module.deterministic))
    return next_fun(*args, **kwargs)

  bert = BERT.clone(dropout_rate=0.5)
  state = jax.eval_shape(lambda: pretraining.init_train_state(jax.random.key(0), bert, SGD))
  step = functools.partial(pretraining.train_step, bert, SGD, CORRUPTION)
  with nn.intercept_methods(record):
    jax.eval_shape(step, state, jax.ShapeDtypeStruct((2, 8), np.uint8), jax.random.key(0))
  assert is_active == [True] * 8


@pytest.mark.slow
def test_slots_change_neither_loss_nor_step(monkeypatch):
  """With too few for the batch, all positions are read; with enough, the loss and the next state are the same."""
  key, chunks = jax.random.key(5), CHUNKS[:BATCH_SIZE]
  _, selected = corrupt(jax.random.split(key)[0], CORRUPTION, chunks)
  assert selected.sum(-1).max() == 4
  state = jax.jit(lambda key: pretraining.init_train_state(key, BERT, SGD))(key)

  def step_with(slots):
    monkeypatch.setattr(pretraining.masking, 'num_slots', lambda *_: slots)
    return jax.jit(functools.partial(pretraining.train_step, BERT, SGD, CORRUPTION))(state, chunks, key)

  (expected, expected_loss), (found, loss) = step_with(1), step_with(4)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), found, expected)
