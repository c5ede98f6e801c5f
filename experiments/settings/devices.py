"""The groups of fields that say on which devices and processes an experiment runs."""

import math
import re

from experiments.settings.fields import Group, setting


class MeshSettings(Group):
  data: int = setting('devices that take different rows of a batch; -1: what is left of them', least=-1)
  fsdp: int = setting('devices that do so and split parameters and optimiser besides; -1: what is left', least=-1)
  tensor: int = setting('devices that split heads and feed-forward columns of a layer; -1: what is left', least=-1)

  @property
  def asked(self) -> tuple[int, ...]:
    return self.data, self.fsdp, self.tensor

  def sizes(self, num_devices: int) -> tuple[int, ...]:
    """The sizes (data, fsdp, tensor) of the mesh on this many devices."""
    left = num_devices // math.prod(size for size in self.asked if size > 0)
    return tuple(size if size > 0 else left for size in self.asked)


class DistributedSettings(Group):
  mode: str = setting(
    'whether several processes run it together; auto: where JAX finds their cluster',
    choices=('auto', 'on', 'off'),
  )
  num_processes: int = setting('processes; 0: as many as the cluster says, which then says the next two', least=0)
  coordinator_address: str = setting('HOST:PORT at which process 0 is met')
  process_id: int = setting('number of this process', least=0)
  initialization_timeout: int = setting('seconds after which a process stops waiting for the others to start')
  heartbeat_timeout: int = setting('seconds of silence after which a process is taken for dead, and all end')

  def check(self) -> None:
    count = self.num_processes
    # If 0, the cluster decides, and the other two fields are not read.
    if count:
      # A name or IPv4 address, or an IPv6 address in brackets.
      is_address = re.fullmatch(r'([^\s:]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}', self.coordinator_address)
      self.require('coordinator_address', is_address, f'HOST:PORT where num_processes is {count}')
      self.require('process_id', self.process_id < count, f'below num_processes, {count}')
