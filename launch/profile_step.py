"""python launch/profile_step.py SCALE FOLDER: the kernels of one call of pretraining steps, by time.

SCALE is one of `benchmark`, such as gpu, the paper's step. FOLDER gets the trace, for TensorBoard or Perfetto, and
kernels.txt: the longest, with milliseconds and calls.
"""

import collections
from collections.abc import Iterator
import pathlib
import sys
from typing import Any

import jax

from experiments.pipeline import pretraining, trial
from experiments.settings import config as config_lib
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax.models.pretraining import training_calls

_SHOWN = 20
# Lines of a trace that have kernels: of a GPU, a TPU and a CPU.
_LINES = 'Stream', 'XLA Ops', 'tf_XLA'


def main(scale: str, folder: pathlib.Path) -> None:
  settings = registry.from_config(config_lib.at_scale(config_lib.shipped('benchmark'), scale))
  key_hmm, key = jax.random.split(jax.random.key(settings.seed))
  hmm = trial.draw_distribution(settings, Point(settings.num_states[-1]), key_hmm)
  init, key_params, on_corpus = pretraining.program(pretraining.planned(settings, hmm, key))
  steps = settings.pretrain.steps_per_call
  calls = training_calls(on_corpus(), init(key_params), steps, num_steps=2**31)
  jax.block_until_ready(next(calls))  # Compiles.
  with jax.profiler.trace(str(folder)):
    jax.block_until_ready(next(calls))
  milliseconds, counts = collections.Counter[str](), collections.Counter[str]()
  for event in _kernels(folder):
    milliseconds[event.name] += event.duration_ns / 1e6
    counts[event.name] += 1
  lines = [f'{steps} steps of benchmark:{scale} on one {jax.devices()[0].device_kind}: ms, calls, kernel']
  lines += [f'{time:10.2f} {counts[name]:7} {name}' for name, time in milliseconds.most_common(_SHOWN)]
  (folder / 'kernels.txt').write_text('\n'.join(lines) + '\n')
  print(*lines, sep='\n')


def _kernels(folder: pathlib.Path) -> Iterator[Any]:
  for path in folder.rglob('*.xplane.pb'):
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
      for line in plane.lines:
        if line.name.startswith(_LINES):
          yield from line.events


if __name__ == '__main__':
  main(sys.argv[1], pathlib.Path(sys.argv[2]))
