"""The mesh and every partition spec: the batch is split over the axis `data`, all else is replicated."""

import functools

import jax
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec


@functools.cache
def data_mesh(num_devices: int | None = None) -> Mesh:
  """A mesh with one axis, `data`, over the first `num_devices` devices (all of them where None)."""
  devices = jax.devices()[:num_devices]
  return jax.make_mesh((len(devices),), ('data',), axis_types=(AxisType.Auto,), devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
  """The whole array on every device: parameters, optimiser state, corpus, keys."""
  return NamedSharding(mesh, PartitionSpec())


def batch_sharded(mesh: Mesh) -> NamedSharding:
  """The leading axis split over `data`."""
  return NamedSharding(mesh, PartitionSpec('data'))
