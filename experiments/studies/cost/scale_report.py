"""A plan of Figure 3 at the paper's scale: the tables of docs/scale.md.

`python -m experiments.studies.cost.scale_report` writes them there. All of it is predicted, from the settings
(`experiments/pipeline/cost.py`) and from what is assumed of machines here.
"""

import itertools
import math
from typing import NamedTuple

from experiments.analysis import pages
from experiments.pipeline import cost, memory_needs
from experiments.records import checkpoints, files
from experiments.settings import config as config_lib
from experiments.settings.grid import Point, Settings
from experiments.studies import registry
from experiments.studies.cost import cost_report
from experiments.studies.cost.cost_report import in_bytes, in_seconds, table

PAGE = pages.DOCS / 'scale.md'
_EXPERIMENTS = ('prompt_vs_head', 'memory_vs_vanilla')
# Of the peak, what an accelerator reaches: an assumption, which nothing has measured.
_SHARE = 0.4


class Place(NamedTuple):
  """Where trials run, one on each device at a time.

  Attributes:
    name: what it is.
    devices: how many trials run at once.
    meshed: devices that one mesh would be over.
    half: FLOP/s of a device in the dtype of pretraining.
    single: FLOP/s in float32, in which models are tuned and measured.
    reached: the share of these that is reached.
    memory: bytes of a device.
    link: bytes a second that a device sends in a ring.
    price: dollars an hour of a device.
  """

  name: str
  devices: int
  meshed: int
  half: float
  single: float
  reached: float
  memory: float
  link: float
  price: float


# Peaks: cloud.google.com/tpu/docs/v5e (bfloat16; float32 as six passes of it; the 400 GB/s of a chip count both ways of
# its four links, and a ring uses two of them, those of one dimension of the torus: 100 GB/s one way) and NVIDIA's data
# sheet of the H100 SXM (dense; NVLink's 900 GB/s counts both ways). A spot machine is a c3-highcpu-44: 44 vCPUs, which
# are the threads of 22 cores, and 88 GiB. A core has half the rate of the two that docs/cost.md measured, which is no
# peak; 10 Gbps is assumed. Prices are assumptions of 2026-11-22, not quotations: $1.20 a chip-hour, $3 a GPU-hour, and
# $0.00575 a vCPU-hour and $0.00077 a GiB-hour, which a copy of cloud.google.com/spot-vms/pricing has for C3.
PLACES = (
  Place('v5e-64 pod', 64, 8, 197e12, 197e12 / 6, _SHARE, 16e9, 100e9, 1.20),
  Place('8 H100', 8, 8, 989e12, 67e12, _SHARE, 80e9, 450e9, 3.00),
  Place('100 spot c3-highcpu-44', 100, 8, 1.21e12, 1.21e12, 1.0, 88 * 2**30, 1.25e9, 44 * 0.00575 + 88 * 0.00077),
)


class Trial(NamedTuple):
  """A trial in FLOPs: in the dtype of pretraining, in float32 on BERT, and of exact inference in float64."""

  half: float
  single: float
  exact: float

  def seconds(self, place: Place) -> float:
    return (self.half / place.half + self.single / place.single) / place.reached


def sweep() -> tuple[Settings, ...]:
  configs = [config_lib.shipped(name)['get_config']('paper') for name in _EXPERIMENTS]
  for config in configs:
    config.mesh.data = 1
  return tuple(map(registry.from_config, configs))


def trial(s: Settings, point: Point, methods: tuple[str, ...], pretrains: bool) -> Trial:
  """One at a point of the grid, with its pretraining or without; exact inference is that of the tasks' inputs alone."""
  d = s.downstream
  measured = 1 + pretrains * cost.measurements(s)
  single = measured * cost.measuring(s) + sum(cost.tuning(s, method) for method in methods)
  exact = (d.num_train + d.num_validation + d.num_test) * cost.inference(point, d.length)
  return Trial(pretrains * cost.pretraining(s), single, exact)


def trials() -> list[Trial]:
  """Each of both experiments; a pretraining that they share is the first one's, and the second one finds it."""
  found, planned = set[str](), []
  for s in sweep():
    for point, number in s.draws():
      pretraining = s.pretraining_id(point, number)
      planned.append(trial(s, point, s.grid()[point], pretraining not in found))
      found.add(pretraining)
  return planned


def filled(page: str) -> str:
  return cost_report.put(page, [whole(), by_place(), meshed()])


def whole() -> str:
  """What there is to do, wherever."""
  everything, settings = trials(), sweep()
  pretrainings = sum(one.half > 0 for one in everything)
  counts = ' + '.join(str(len(s.draws())) for s in settings)
  kept = cost.state_bytes(settings[0])
  every = settings[0].pretrain.num_steps // settings[0].pretrain.checkpoint_every
  rows = [
    ['trials', counts],
    ['different pretrainings', f'{pretrainings:,}'],
    ['all these pretrainings, bfloat16', cost_report.in_flops(sum(one.half for one in everything))],
    ['measuring and tuning on BERT, float32', cost_report.in_flops(sum(one.single for one in everything))],
    ['exact inference of inputs, float64', cost_report.in_flops(sum(one.exact for one in everything))],
    ['a checkpoint', in_bytes(kept)],
    ['checkpoints written', in_bytes(kept * every * pretrainings)],
    [f'checkpoints kept, {checkpoints.KEPT} of each', in_bytes(checkpoints.KEPT * kept * pretrainings)],
  ]
  return table(['predicted', 'both experiments'], rows)


def by_place() -> str:
  """Each trial alone on a device: no two of them have anything to tell each other."""
  everything, s = trials(), sweep()[0]
  rows = []
  for place in PLACES:
    seconds = [one.seconds(place) for one in everything]
    # Longest first, each to the device that is free.
    rounds = [sum(chunk) for chunk in _dealt(seconds, place.devices)]
    most = max(rounds)
    between = s.pretrain.checkpoint_every / s.pretrain.num_steps * everything[0].half / place.half / place.reached
    rows.append(
      [
        place.name,
        in_seconds(max(seconds)),
        in_seconds(most),
        f'{sum(rounds) / (most * place.devices):.0%}',
        f'${most / 3600 * place.devices * place.price:,.0f}',
        f'{in_bytes(memory_needs.total(s))} of {in_bytes(place.memory)}',
        in_seconds(between),
      ]
    )
  header = ['predicted', 'longest trial', 'all', 'devices busy', 'price', 'memory, all told', 'between checkpoints']
  return table(header, rows)


def _dealt(seconds: list[float], devices: int) -> list[list[float]]:
  given: list[list[float]] = [[] for _ in range(devices)]
  for one in sorted(seconds, reverse=True):
    min(given, key=math.fsum).append(one)
  return given


def meshed() -> str:
  """One pretraining over eight devices: what a step computes, and what it waits for."""
  s, rows = sweep()[0], []
  flops = sum(cost.pretraining_step(s).values())
  for place, axis in itertools.product(PLACES, ('data', 'fsdp')):
    sizes = {'data': 1, 'fsdp': 1, 'tensor': 1, axis: place.meshed}
    sent, alone = sum(cost.communication(s, **sizes).values()), flops / place.half / place.reached
    computing, sending = alone / place.meshed, sent / place.link
    times = [f'{1e3 * seconds:,.2f} ms' for seconds in (alone, computing, sending)]
    rows.append([place.name, f'{axis}={place.meshed}', in_bytes(sent), *times, f'{alone / (computing + sending):.1f}'])
  header = ['predicted', 'mesh', 'sent a step', 'a step on one', 'its products', 'what it sends', 'times as fast']
  return table(header, rows)


if __name__ == '__main__':
  files.write_whole(PAGE, filled(PAGE.read_text()))
