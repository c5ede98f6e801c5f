"""Where arrays live. Pretraining: the batch is split over the mesh axis `data`, all else is replicated."""

import functools

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


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


def exact_device() -> jax.Device:
  """The device of this host for the distribution, and so for whatever is computed from it: texts, labels, exact models.

  Exact inference is done in float64, which TPUs do not have: there it is the host's CPU. No compiled program mixes the
  two, since what the exact model says reaches the measurement of another model as an array.
  """
  return jax.local_devices(backend='cpu' if jax.default_backend() == 'tpu' else None)[0]
