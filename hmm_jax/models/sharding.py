"""Placement of arrays: the mesh, and every partition spec.

A mesh has the axes `data` and `tensor`. Each device of `data` takes its own rows of a batch. Over `tensor` each device
has, and computes with, its own heads and feed-forward columns (Shoeybi et al. 2019); the optimiser's state of a
parameter lies as the parameter. An array that a spec would split unequally is whole on every device.
"""

from collections.abc import Callable
import functools
import math
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ('data', 'tensor')
# The axis of a leaf that is split over `tensor`, by the end of its path. Other leaves are whole. One kernel has
# queries, keys and values side by side, so that a contiguous range of its columns is no set of heads: it is split by
# rows, and `by_heads` reshards it.
_SPLIT = {'qkv/kernel': 0, 'attention_out/kernel': 0, 'ffn_in/kernel': 1, 'ffn_in/bias': 0, 'ffn_out/kernel': 0}


@functools.cache
def make_mesh(data: int = 1, tensor: int = 1) -> Mesh:
  """A mesh of these sizes along AXES: all devices of all processes, or if fewer, the first of this process.

  The axes are automatic, since linen's Embed refuses explicit ones.
  """
  sizes = data, tensor
  of_all = math.prod(sizes) == jax.device_count()
  devices = jax.devices() if of_all else jax.local_devices()[: math.prod(sizes)]
  return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def replicated(mesh: Mesh | AbstractMesh) -> NamedSharding:
  """The whole array on every device: corpus, keys, losses."""
  return NamedSharding(mesh, PartitionSpec())


def state_shardings(mesh: Mesh | AbstractMesh, state: Any) -> Any:
  """The sharding of each leaf of a train state or a part of it, which may be abstract.

  Optimiser moments are sharded like their parameters: their paths end in the same names.
  """

  def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    axis = next((axis for end, axis in _SPLIT.items() if name.endswith(end)), None)
    if axis is None or mesh.shape['tensor'] == 1 or leaf.shape[axis] % mesh.shape['tensor']:
      return replicated(mesh)
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, 'tensor'))

  return jax.tree_util.tree_map_with_path(place, state)


def over(mesh: Mesh, function: Callable[..., Any]) -> Callable[..., Any]:
  """Wrap `function` so that the constraints below use this mesh; elsewhere, and on one device, they do nothing."""

  def on_mesh(*args: Any) -> Any:
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      return function(*args)

  return on_mesh


def _mesh() -> AbstractMesh | None:
  mesh = jax.sharding.get_abstract_mesh()
  return None if mesh.empty or mesh.size == 1 else mesh


def splits_heads() -> bool:
  """True if the heads of a layer are split over `tensor`."""
  mesh = _mesh()
  return mesh is not None and mesh.shape['tensor'] > 1


def by_rows(batch: Array) -> Array:
  """The leading axis split over the devices that take rows of a batch."""
  return batch if _mesh() is None else lax.with_sharding_constraint(batch, PartitionSpec('data'))


def by_heads(kernel: Array) -> Array:
  """Reshard projections [D, K, D] over `tensor` from rows to columns: each device has its heads of all K."""
  for spec in (PartitionSpec('tensor'), PartitionSpec(None, None, 'tensor')):
    kernel = lax.with_sharding_constraint(kernel, spec)
  return kernel


def as_parameters(tree: Any) -> Any:
  """A train state, a part of it, or gradients, sharded as parameters are."""
  mesh = _mesh()
  return tree if mesh is None else lax.with_sharding_constraint(tree, state_shardings(mesh, tree))


def whole(tree: Any) -> Any:
  """Every leaf on every device."""
  mesh = _mesh()
  return tree if mesh is None else lax.with_sharding_constraint(tree, replicated(mesh))


def float64_device() -> jax.Device:
  """The local device for the distribution and everything computed from it: texts, labels, exact models.

  Exact inference needs float64, which TPUs lack: there it is the host's CPU. No compiled program mixes the two, since
  exact predictions reach the measurement of another model as an array.
  """
  return jax.local_devices(backend='cpu' if jax.default_backend() == 'tpu' else None)[0]
