"""The groups of fields that say on which devices and processes an experiment runs."""

import math
import re

from experiments.settings.fields import Group, setting


class MeshSettings(Group):
  data: int = setting('devices on the data-parallel axis; -1: all remaining devices', least=-1)
  fsdp: int = setting('devices on the FSDP axis, which shards the train state; -1: all remaining devices', least=-1)
  tensor: int = setting('devices on the tensor-parallel axis of each layer; -1: all remaining devices', least=-1)

  @property
  def asked(self) -> tuple[int, ...]:
    return self.data, self.fsdp, self.tensor

  def sizes(self, num_devices: int) -> tuple[int, ...]:
    """The sizes (data, fsdp, tensor) of the mesh on this many devices."""
    left = num_devices // math.prod(size for size in self.asked if size > 0)
    return tuple(size if size > 0 else left for size in self.asked)


class DistributedSettings(Group):
  mode: str = setting(
    'run one trial with several processes; auto: if JAX detects a cluster',
    choices=('auto', 'on', 'off'),
  )
  num_processes: int = setting('number of processes; 0: the cluster sets this field and the next two', least=0)
  coordinator_address: str = setting('HOST:PORT of process 0')
  process_id: int = setting('index of this process', least=0)
  initialization_timeout: int = setting('seconds to wait for the other processes to start')
  heartbeat_timeout: int = setting('seconds without a heartbeat after which a process counts as dead and all exit')

  def check_fields(self) -> None:
    count = self.num_processes
    # If 0, the cluster decides, and the other two fields are not read.
    if count:
      # A name or IPv4 address, or an IPv6 address in brackets.
      is_address = re.fullmatch(r'([^\s:]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}', self.coordinator_address)
      self.require('coordinator_address', is_address, f'HOST:PORT if num_processes is {count}')
      self.require('process_id', self.process_id < count, f'below num_processes, {count}')
