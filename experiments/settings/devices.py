"""The groups of fields that say on which devices and processes an experiment runs."""

import dataclasses
import math
import re

from experiments.settings.fields import Group, require, setting


class MeshSettings(Group):
  data: int = setting('devices that take different rows of a batch; -1: what is left of them', least=-1)
  fsdp: int = setting('devices that do so and split parameters and optimiser besides; -1: what is left', least=-1)
  tensor: int = setting('devices that split the heads and feed-forward columns of a layer; -1: what is left', least=-1)

  @property
  def asked(self) -> tuple[int, ...]:
    return self.data, self.fsdp, self.tensor

  def check(self) -> None:
    for name, size in dataclasses.asdict(self).items():
      require(size != 0, name, size, 'positive, or -1 for what is left of the devices')
      require(size > 0 or self.asked.count(-1) == 1, name, size, 'positive where another one is -1')

  def sizes(self, num_devices: int) -> tuple[int, ...]:
    """(data, fsdp, tensor) of so many devices."""
    left = num_devices // math.prod(size for size in self.asked if size > 0)
    return tuple(size if size > 0 else left for size in self.asked)


class DistributedSettings(Group):
  mode: str = setting(
    'whether several processes run it together; auto: where JAX finds the cluster that started them',
    choices=('auto', 'on', 'off'),
  )
  num_processes: int = setting('processes; 0: as many as the cluster says, which then says the next two', least=0)
  coordinator_address: str = setting('HOST:PORT at which process 0 is met')
  process_id: int = setting('number of this process', least=0)
  initialization_timeout: int = setting('seconds after which a process stops waiting for the others to start')
  heartbeat_timeout: int = setting('seconds of silence after which a process is taken for dead, and all end')

  def check(self) -> None:
    count, address = self.num_processes, self.coordinator_address
    require(self.mode == 'on' or not count, 'mode', self.mode, f"'on' where num_processes is {count}")
    valid = f'HOST:PORT where num_processes is {count}' if count else "'' where num_processes is 0"
    is_given = bool(re.fullmatch(r'([^\s:]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}', address))
    require(is_given if count else not address, 'coordinator_address', address, valid)
    valid = f'at most {max(count - 1, 0)}, for num_processes {count}'
    require(self.process_id < max(count, 1), 'process_id', self.process_id, valid)
