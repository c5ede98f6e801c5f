"""The optimisers and learning-rate schedules of pretraining and tuning."""

from typing import Any

import jax
import optax
from optax import contrib

from hmm_jax.models import sharding


def learning_rates(peak: float, warmup_steps: int, num_steps: int) -> optax.Schedule:
  """The rate at each step: linearly from 0 to `peak` over `warmup_steps`, then linearly to 0 at `num_steps`.

  The rate stays at its peak if no step is left to fall.
  """
  rising = optax.schedules.constant_schedule(peak)
  if warmup_steps:
    rising = optax.schedules.warmup_constant_schedule(0.0, peak, warmup_steps)
  if num_steps <= warmup_steps:
    return rising
  falling = optax.schedules.linear_schedule(peak, 0.0, num_steps - warmup_steps)
  return optax.schedules.join_schedules([rising, falling], [warmup_steps])


def scheduled(
  learning_rate: float,
  warmup_steps: int,
  num_steps: int,
  *,
  weight_decay: float,
  clip_norm: float,
  muon_learning_rate: float | None = None,
) -> optax.GradientTransformation:
  """AdamW (Loshchilov and Hutter 2019) with a global-norm clip, under `learning_rates`.

  With a `muon_learning_rate` it is Muon (Jordan et al. 2024) for the matrices of layers, and NAdamW for all else. The
  matrices are the leaves named `kernel`: optax's own rule, every leaf of two axes, would take embeddings too. Query,
  key and value are three matrices although they lie side by side in one kernel. An update [m, n] of a matrix, m inputs
  and n outputs, has singular values near sqrt(max(1, n / m)) times its rate, whose peak is `muon_learning_rate`.
  """
  rates = learning_rates(learning_rate, warmup_steps, num_steps)
  clip = optax.clip_by_global_norm(clip_norm)
  if muon_learning_rate is None:
    return optax.chain(clip, optax.adamw(rates, weight_decay=weight_decay))
  of_matrices = contrib.muon(
    learning_rates(muon_learning_rate, warmup_steps, num_steps),
    weight_decay=weight_decay,
    adam_learning_rate=rates,
    adam_weight_decay=weight_decay,
    muon_weight_dimension_numbers=_dimension_numbers,
  )
  return optax.chain(clip, _on_separate_matrices(of_matrices))


def _is_fused(path: tuple[Any, ...]) -> bool:
  """True for a leaf that is a kernel [D, 3 D] of query, key and value."""
  return [key.key for key in path[-2:]] == ['qkv', 'kernel']


def _dimension_numbers(params: Any) -> Any:
  """The input and output axes of each kernel, whose other axes count matrices; None for other leaves."""

  def axes(path: tuple[Any, ...], _: Any) -> contrib.MuonDimensionNumbers | None:
    return contrib.MuonDimensionNumbers(-3 if _is_fused(path) else -2, -1) if path[-1].key == 'kernel' else None

  return jax.tree_util.tree_map_with_path(axes, params)


def _separate(params: Any) -> Any:
  """The tree with each kernel [D, 3 D] of query, key and value as [D, 3, D]."""
  split = lambda path, leaf: leaf.reshape(*leaf.shape[:-1], 3, -1) if _is_fused(path) else leaf
  return jax.tree_util.tree_map_with_path(split, params)


def _on_separate_matrices(inner: optax.GradientTransformation) -> optax.GradientTransformation:
  """Apply `inner` to the tree of `_separate`, with updates in the shapes of the parameters.

  Every device updates whole matrices: an update takes fifteen products of a matrix, and a split one would be gathered
  for each.
  """

  def update(updates: Any, state: optax.OptState, params: Any) -> tuple[Any, optax.OptState]:
    updates = sharding.as_parameters(updates)  # Or what they were computed from is gathered, which may be more.
    separate, state = sharding.whole(inner.update(*sharding.whole((_separate(updates), state, _separate(params)))))
    return jax.tree.map(lambda new, old: new.reshape(old.shape), separate, updates), state

  return optax.GradientTransformation(lambda params: inner.init(_separate(params)), update)
