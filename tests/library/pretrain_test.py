"""Facts about training steps: what they learn, repeat, resume, visit, compile, move and give up."""

import functools

from conftest import assert_same_bits
from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hmm_jax import pretrain, sharding
from hmm_jax.bert import Bert, BertModel
from hmm_jax.masking import corrupt, Corruption
from hmm_jax.optimizer import adamw

pytestmark = pytest.mark.usefixtures('without_optimisation')

BERT = Bert(
  num_tokens=4, num_layers=1, width=16, num_heads=2, ffn_width=16, max_positions=8, dropout_rate=0.0, init_stddev=0.2
)
CORRUPTION = Corruption(num_tokens=4, mask_rate=0.2, mask_share=0.8, random_share=0.1)
OPTIMIZER = adamw(1e-2, 5, 200, weight_decay=0.0, clip_norm=1.0)
# Without moments, which would magnify rounding where a gradient is zero.
SGD = optax.sgd(0.1)
# Thirteen batches an epoch and one chunk left over, so that calls of five steps straddle epochs.
NUM_CHUNKS, BATCH_SIZE = 105, 8


@pytest.fixture(scope='module')
def train_steps():
  """Five steps a call on one device."""
  return compiled(steps_per_call=5)


def compiled(steps_per_call, bert=BERT, optimizer=OPTIMIZER):
  return pretrain.make_train_steps(
    bert, optimizer, CORRUPTION, batch_size=BATCH_SIZE, steps_per_call=steps_per_call, mesh=sharding.make_mesh()
  )


def placed(tree):
  """The tree on the mesh, where training keeps its arrays."""
  return jax.device_put(tree, sharding.replicated(sharding.make_mesh()))


@pytest.fixture(scope='module')
def start():
  """The first state, on the host."""
  init = jax.jit(lambda key: pretrain.init_train_state(key, BERT, OPTIMIZER))
  return jax.tree.map(np.array, init(jax.random.key(0)))


def cycles(seed):
  """Chunks of the text 0 1 2 3 0 1 ... from random starts: any token tells all the others."""
  starts = np.random.default_rng(seed).integers(4, size=(NUM_CHUNKS, 1))
  return placed(np.uint8((starts + np.arange(8)) % 4))


@pytest.fixture(scope='module')
def corpus():
  return cycles(1)


def run(train_steps, state, corpus, *, calls, seed=7):
  """The state after `calls` calls from a state on the host, and all losses."""
  state, key = placed((jax.tree.map(np.array, state), jax.random.key(seed)))
  losses = []
  for _ in range(calls):
    state, some = train_steps(state, corpus, key)
    losses.append(some)
  return jax.tree.map(np.array, state), np.concatenate(losses)


def test_training_learns_the_cycle(train_steps, start, corpus):
  """The loss falls from above the entropy of a token alone, log 4, to below half of it, and masked tokens are known."""
  state, losses = run(train_steps, start, corpus, calls=40)
  assert state.step == 200
  assert losses[:5].mean() > np.log(4) > np.log(4) / 2 > losses[-50:].mean()
  model, documents = BertModel(BERT), np.asarray(corpus)[:8]
  inputs = np.where(np.eye(8, dtype=bool), model.num_tokens, documents)
  predicted = jax.jit(lambda params: model.predict(params, model.embed(params, inputs)))(state.params).argmax(-1)
  assert (np.diagonal(predicted) == np.diagonal(documents)).mean() >= 0.75


def test_training_is_a_function_of_state_corpus_and_key(train_steps, start, corpus):
  """The same start and key give the same bits; another key gives another order and corruption."""
  first, losses = run(train_steps, start, corpus, calls=2)
  again, losses_again = run(train_steps, start, corpus, calls=2)
  _, other_losses = run(train_steps, start, corpus, calls=2, seed=8)
  assert_same_bits(first, again)
  np.testing.assert_array_equal(losses, losses_again)
  assert (losses != other_losses).all()


def test_a_resumed_run_equals_one_that_never_stopped(train_steps, start, corpus):
  """From a copy of the state in the middle of an epoch, training goes on to the same bits, into the next epoch."""
  middle, _ = run(train_steps, start, corpus, calls=2)
  resumed, losses = run(train_steps, middle, corpus, calls=2)
  straight, all_losses = run(train_steps, start, corpus, calls=4)
  assert straight.step == 20
  assert_same_bits(resumed, straight)
  np.testing.assert_array_equal(losses, all_losses[10:])


def test_an_epoch_visits_each_chunk_at_most_once(monkeypatch):
  """Each epoch meets floor(N / B) B distinct chunks in an order of its own, and each step has a key of its own, however
  many steps run in a call."""

  def report_chunks(bert, optimizer, corruption, state, chunks, key):
    return state._replace(step=state.step + 1), (chunks[:, 0], jax.random.key_data(key))

  monkeypatch.setattr(pretrain, 'train_step', report_chunks)
  start = pretrain.TrainState(jnp.zeros((), jnp.int32), (), ())
  monkeypatch.setattr(pretrain, 'init_train_state', lambda *_: start)
  numbered, seen = jnp.arange(NUM_CHUNKS)[:, None], []
  for steps_per_call in (5, 13, 39):
    steps, state, visited = compiled(steps_per_call=steps_per_call), jax.tree.map(jnp.array, start), []
    while state.step < 39:
      state, some = steps(state, numbered, jax.random.key(0))
      visited.append(some)
    seen.append([np.concatenate(leaves)[:39] for leaves in zip(*visited, strict=True)])
    assert_same_bits(seen[-1], seen[0])
  epochs, keys = seen[0][0].reshape(3, -1), seen[0][1]
  assert len(np.unique(keys, axis=0)) == 39
  for epoch in epochs:
    assert len(set(epoch)) == 13 * BATCH_SIZE
  assert len({tuple(epoch) for epoch in epochs}) == 3
  # The one chunk left over is another in each epoch.
  assert len({tuple(set(range(NUM_CHUNKS)) - set(epoch)) for epoch in epochs}) > 1


def test_one_compilation_serves_every_corpus_of_one_shape(train_steps, start, corpus):
  """Whatever ran before, a second corpus and a second key of the same shapes compile nothing."""
  run(train_steps, start, corpus, calls=2)
  run(train_steps, start, cycles(9), calls=2, seed=5)
  assert train_steps._cache_size() == 1


def test_training_moves_nothing_between_host_and_device(train_steps, start, corpus):
  """With its inputs in place a call transfers nothing, under a guard that a host array does trip."""
  state, key = placed((start, jax.random.key(0)))
  with jax.transfer_guard('disallow'):
    state, losses = train_steps(state, corpus, key)
    state, losses = train_steps(state, corpus, key)
    with pytest.raises(Exception, match='Disallowed host-to-device transfer'):
      jax.jit(jnp.sum)(np.ones(3))
  assert np.isfinite(losses).all()


def test_the_state_is_donated(train_steps, start, corpus):
  """The state passed in is given up, so that parameters and moments exist once; the corpus is not."""
  state, key = placed((start, jax.random.key(0)))
  train_steps(state, corpus, key)
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
  assert not corpus.is_deleted()


@pytest.mark.parametrize('rate', [0.0, 0.5])
def test_training_drops_out_where_the_model_has_a_rate(rate):
  """Every dropout of the encoder is active in a training step, in slots and without, unless the rate is 0."""
  is_active = []

  def record(next_fun, args, kwargs, context):
    if isinstance(context.module, nn.Dropout):
      is_active.append(not kwargs.get('deterministic', context.module.deterministic))
    return next_fun(*args, **kwargs)

  bert = BERT.clone(dropout_rate=rate)
  state = jax.eval_shape(lambda: pretrain.init_train_state(jax.random.key(0), bert, OPTIMIZER))
  chunks = jax.ShapeDtypeStruct((2, 8), jnp.uint8)
  step = functools.partial(pretrain.train_step, bert, OPTIMIZER, CORRUPTION)
  with nn.intercept_methods(record):
    jax.eval_shape(step, state, chunks, jax.random.key(0))
  assert is_active == [rate > 0] * 8


@pytest.mark.parametrize('slots', [7, 4, 1])
def test_slots_change_neither_loss_nor_step(slots, start, corpus, monkeypatch):
  """Enough slots, or too few for the batch, and the loss and the next state are those of all eight positions."""
  key = jax.random.key(5)
  _, selected = corrupt(jax.random.split(key)[0], CORRUPTION, corpus[:BATCH_SIZE])
  assert selected.sum(-1).max() == 4

  def step_with(slots):
    monkeypatch.setattr(pretrain.masking, 'num_slots', lambda *_: slots)
    return jax.jit(functools.partial(pretrain.train_step, BERT, SGD, CORRUPTION))(state, corpus[:BATCH_SIZE], key)

  state = pretrain.TrainState(start.step, start.params, SGD.init(start.params))
  (state_then, loss), (expected_state, expected_loss) = step_with(slots), step_with(8)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
  for leaf, expected, before in zip(*map(jax.tree.leaves, (state_then.params, expected_state.params, start.params))):
    np.testing.assert_allclose(leaf, expected, atol=1e-7)
    assert np.shape(before) == () or (np.asarray(expected) != before).any()
