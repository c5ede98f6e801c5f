"""Masked-LM pretraining, and how far the pretrained model is from the ideal one.

Everything random at step s is a function of (key, s), so that resuming needs the step alone. The corpus stays on
the device as small integers, and many steps run in one call.
"""

from collections.abc import Callable, Iterator
import functools
from typing import Any, NamedTuple

from flax import linen as nn
import jax
from jax import Array, lax
import jax.numpy as jnp
from jax.sharding import Mesh
import numpy as np
import optax

from hmm_jax._support import compilation, nan_guard
from hmm_jax.models import masking, sharding


class TrainState(NamedTuple):
  """The state of pretraining, which a checkpoint holds.

  Attributes:
    step: [] int32, steps taken.
    params: the tree of the network, float32.
    opt_state: of the optimiser.
  """

  step: Array
  params: Any
  opt_state: Any


def make_programs(
  network: nn.Module,
  optimizer: optax.GradientTransformation,
  corruption: masking.Corruption,
  *,
  batch_size: int,
  steps_per_call: int,
  mesh: Mesh,
) -> tuple[Callable[[Array], TrainState], Callable[[TrainState, Array, Array], tuple[TrainState, Array]]]:
  """Compile `key -> state`, a fresh one, and `(state, corpus [S, T], key) -> (state, losses [steps_per_call])`.

  The network is a linen module, called with tokens [B, T] and positions [B, Q] or None, that returns the logits
  [B, Q, V] of tokens: a `Bert`, or what `flax_model.network` makes of another module.

  The batch and the state are split over the mesh as in `hmm_jax.models.sharding`; the second donates its state. One
  compilation serves every corpus of one shape; in one process also if the first state is not on the mesh.
  """
  fresh = lambda key: init_train_state(key, network, optimizer)
  train_steps = functools.partial(_train_steps, network, optimizer, corruption, batch_size, steps_per_call)
  whole = sharding.replicated(mesh)
  of_state = sharding.state_shardings(mesh, jax.eval_shape(fresh, jax.random.key(0)))
  where = of_state, whole, whole
  init = jax.jit(fresh, out_shardings=of_state, compiler_options=compilation.ONCE)
  steps = jax.jit(
    sharding.over(mesh, train_steps), donate_argnums=0, in_shardings=where, out_shardings=(of_state, whole)
  )

  if mesh.is_multi_process:  # Its arrays lie on all processes from the start.
    return init, steps

  @functools.wraps(steps)
  def placed_first(*arguments: Any) -> tuple[TrainState, Array]:
    # JAX would compile a second program for arguments of another sharding.
    return steps(*jax.device_put(arguments, where))

  vars(placed_first).update(lower=steps.lower)
  return init, placed_first


def training_calls(
  train_steps: Callable[[TrainState], tuple[TrainState, Array]],
  state: TrainState,
  steps_per_call: int,
  num_steps: int,
) -> Iterator[tuple[int, TrainState, float]]:
  """Call the compiled steps until there are `num_steps`; yield the steps so far, the state and a mean loss.

  A state is donated to the next call. Raises Diverged at the first loss that is not finite.
  """
  for step in range(int(state.step) + steps_per_call, num_steps + 1, steps_per_call):
    try:
      # Whatever the context has, pretraining multiplies at the accelerator's own precision.
      with jax.default_matmul_precision('default'):
        state, losses = train_steps(state)
    except FloatingPointError as error:
      # Raised by `debug_nans`.
      where = f'in steps {step - steps_per_call + 1} to {step}; their state is not saved'
      raise nan_guard.Diverged(f'pretraining: {error}, {where}') from error
    names = [f'step {number} of {num_steps}' for number in range(step - steps_per_call + 1, step + 1)]
    nan_guard.check_each(losses, names, 'pretraining: the loss of')
    yield step, state, float(np.asarray(losses).mean())


def params_here(state: TrainState) -> Any:
  """The parameters whole, on the first device of this host."""
  # The step is replicated over the mesh, so that its sharding gathers every array.
  whole = jax.device_put(state.params, state.step.sharding)
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), whole)


def init_train_state(key: Array, network: nn.Module, optimizer: optax.GradientTransformation) -> TrainState:
  """A fresh state; the init of `make_programs` creates it where it will live."""
  params = network.init(key, jnp.zeros((1, 1), jnp.int32))['params']
  return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def _train_steps(
  network: nn.Module,
  optimizer: optax.GradientTransformation,
  corruption: masking.Corruption,
  batch_size: int,
  num_steps: int,
  state: TrainState,
  corpus: Array,
  key: Array,
) -> tuple[TrainState, Array]:
  """The steps of one call. Each epoch visits a fresh permutation of all chunks and drops the last partial batch."""
  key_order, key_noise = jax.random.split(key)
  num_chunks = corpus.shape[0]
  steps_per_epoch = num_chunks // batch_size
  order_of = lambda epoch: jax.random.permutation(jax.random.fold_in(key_order, epoch), num_chunks)

  def step(carry: Any, _: None) -> Any:
    state, ordered_epoch, order = carry
    epoch = state.step // steps_per_epoch
    order = lax.cond(epoch != ordered_epoch, lambda: order_of(epoch), lambda: order)
    batch = lax.dynamic_slice(order, (state.step % steps_per_epoch * batch_size,), (batch_size,))
    chunks = sharding.by_rows(jnp.take(corpus, batch, axis=0))
    key = jax.random.fold_in(key_noise, state.step)
    state, loss = train_step(network, optimizer, corruption, state, chunks, key)
    return (state, epoch, order), loss

  unordered = jnp.int32(-1), jnp.arange(num_chunks)
  (state, _, _), losses = lax.scan(step, (state, *unordered), length=num_steps)
  return state, losses


def train_step(
  network: nn.Module,
  optimizer: optax.GradientTransformation,
  corruption: masking.Corruption,
  state: TrainState,
  chunks: Array,
  key: Array,
) -> tuple[TrainState, Array]:
  """One step on chunks [B, T]: the new state and the masked-LM loss before it. `key` decides the corruption.

  The model reads out no more positions of a sequence than `masking.num_slots`; all, in a batch that selects more.
  """
  key_corrupt, key_dropout = jax.random.split(key)
  inputs, selected = masking.corrupt(key_corrupt, corruption, chunks)
  targets, slots = chunks.astype(jnp.int32), masking.num_slots(corruption, *chunks.shape)

  def loss_at(params: Any, positions: Array | None) -> Array:
    logits: Any = network.apply({'params': params}, inputs, positions, rngs={'dropout': key_dropout})
    if positions is None:
      return masked_cross_entropy(logits, targets, selected)
    read = functools.partial(jnp.take_along_axis, indices=positions, axis=-1)
    return masked_cross_entropy(logits, read(targets), read(selected))

  def in_slots() -> tuple[Array, Any]:
    selected_first = jnp.argsort(~selected, axis=-1)
    return jax.value_and_grad(loss_at)(params, selected_first[:, :slots])

  params = state.params
  everywhere = lambda: jax.value_and_grad(loss_at)(params, None)
  loss, grads = lax.cond(selected.sum(-1).max() <= slots, in_slots, everywhere)
  updates, opt_state = optimizer.update(sharding.as_parameters(grads), state.opt_state, params)
  state = TrainState(state.step + 1, optax.apply_updates(params, updates), opt_state)
  return sharding.as_parameters(state), loss


def masked_cross_entropy(logits: Array, targets: Array, selected: Array) -> Array:
  """Mean over selected positions of -log softmax(logits)[target], in nats; 0 if none is selected."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  return jnp.where(selected, losses, 0).sum() / jnp.maximum(selected.sum(), 1)
