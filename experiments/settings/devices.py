"""The groups of fields that say on which devices and processes an experiment runs."""

from experiments.settings.fields import Group, setting


class MeshSettings(Group):
  data: int = setting('devices on the data-parallel axis; -1: all remaining devices', least=-1)
  tensor: int = setting('devices on the tensor-parallel axis of each layer')

  def sizes(self, num_devices: int) -> tuple[int, int]:
    """The sizes (data, tensor) of the mesh on this many devices."""
    return self.data if self.data > 0 else num_devices // self.tensor, self.tensor


class DistributedSettings(Group):
  mode: str = setting(
    'run one trial with several processes; auto: if JAX detects a cluster',
    choices=('auto', 'on', 'off'),
  )
  num_processes: int = setting('number of processes; 0: the cluster sets this field and the next two', least=0)
  coordinator_address: str = setting('HOST:PORT of process 0')
  process_id: int = setting('index of this process', least=0)
  heartbeat_timeout: int = setting('seconds without a heartbeat after which a process counts as dead and all exit')
