"""Facts about the mesh and the partition specs."""

from conftest import run_on_devices
import jax
from jax.sharding import AxisType, PartitionSpec
import numpy as np

from hmm_jax import sharding

ON_FOUR_DEVICES = """
import jax, numpy as np
from hmm_jax import sharding
mesh = sharding.data_mesh()
assert [d.id for d in mesh.devices] == [0, 1, 2, 3], mesh
assert [d.id for d in sharding.data_mesh(2).devices] == [0, 1]
batch = np.arange(24).reshape(8, 3)
split = jax.device_put(batch, sharding.batch_sharded(mesh))
for number, shard in enumerate(sorted(split.addressable_shards, key=lambda s: s.device.id)):
  np.testing.assert_array_equal(shard.data, batch[2 * number : 2 * number + 2])
whole = jax.device_put(batch, sharding.replicated(mesh))
assert len(whole.addressable_shards) == 4
for shard in whole.addressable_shards:
  np.testing.assert_array_equal(shard.data, batch)
"""


def test_mesh_has_one_automatic_axis_over_all_devices():
  """The mesh is one axis, `data`, of type Auto (linen's Embed refuses Explicit), over every device."""
  mesh = sharding.data_mesh()
  assert mesh.axis_names == ('data',)
  assert mesh.axis_types == (AxisType.Auto,)
  assert list(mesh.devices.ravel()) == jax.devices()
  assert sharding.data_mesh(1).devices.shape == (1,)


def test_specs_split_the_batch_and_nothing_else():
  """`batch_sharded` splits the leading axis over `data`; `replicated` splits nothing."""
  mesh = sharding.data_mesh(1)
  assert sharding.batch_sharded(mesh).spec == PartitionSpec('data')
  assert sharding.replicated(mesh).spec == PartitionSpec()
  assert sharding.replicated(mesh).is_fully_replicated
  x = jax.device_put(np.ones((2, 2)), sharding.batch_sharded(mesh))
  assert x.sharding.mesh == mesh


def test_each_device_holds_its_rows_of_the_batch():
  """On four devices each holds a quarter of a split batch in order, and the whole of a replicated array."""
  run_on_devices(4, ON_FOUR_DEVICES)
