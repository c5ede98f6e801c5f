"""The settings of the campaign of faults."""

import re

from experiments.settings.fields import Group, require, setting
from experiments.settings.groups import Experiment, FigureSettings

# Each is a part of its own.
FAMILIES = ('inputs', 'kills', 'damage', 'full_disk', 'races', 'signals', 'not_finite', 'resuming', 'soak')


class SoakSettings(Group):
  minutes: float = setting('that one process runs trials, while others beside it are killed', most=1000)
  num_trials: int = setting('trials that there are for them, more than they do in that time', most=10**5)
  seconds_between_kills: float = setting('most seconds that a process beside it lives', most=3600)
  num_compared: int = setting('trials that are run again, in a workdir of their own, and compared')
  most_growth: float = setting('kB of memory that a trial may add on average', most=10**6)
  most_more: float = setting('open files and threads, each, that a trial may add on average', most=100)


class FaultsSettings(Experiment):
  """How often each fault is tried, and on what."""

  families: tuple[str, ...] = setting('families of faults that are tried', choices=FAMILIES)
  disturbed: tuple[str, ...] = setting('fields, as FIELD=VALUE, of the run of prompt_vs_head:smoke that is disturbed')
  num_kills: int = setting('runs killed once, half of them at a random time, half where a random phase begins')
  num_chains: int = setting('runs killed again and again', least=0)
  kills_of_chain: int = setting('kills of such a run')
  num_damaged: int = setting('damages of files at most, of all that there are')
  num_full: int = setting('runs whose disk fills up on the way')
  num_races: int = setting('pairs of processes on one workdir, and pairs on one folder of pretrained models')
  num_signals: int = setting('runs told to stop by each signal')
  most_seconds_to_stop: float = setting('from a signal to the end of the run', most=3600)
  num_divergences: int = setting('steps, and epochs of tuning, that return NaN')
  every_input: int = setting('of the bad values of fields, those that are this far apart')
  soak: SoakSettings
  most_seconds: float = setting('that any one run may take before it counts as lost', most=10**5)
  mutants: bool = setting('whether each family is tried with a protection taken away, too')
  figure: FigureSettings

  def check(self) -> None:
    valid = "FIELD=VALUE each, such as ('num_trials=2',)"
    require(all(re.match(r'[a-z_.]+=', field) for field in self.disturbed), 'disturbed', self.disturbed, valid)
