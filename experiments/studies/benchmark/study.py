"""The benchmark: each part in turn, recorded case by case; then the tables, from the record alone."""

import os
import pathlib
import time
from typing import Any

import jax

from experiments.records import environment, results
from experiments.runtime.progress import Reporter
from experiments.studies.benchmark import accelerator, inference, measure, sampling, training
from experiments.studies.benchmark.settings import BenchmarkSettings
from experiments.studies.benchmark.tables import tables
from experiments.studies.study import Study

_PARTS: dict[str, Any] = {'gpu': accelerator, 'inference': inference, 'sampling': sampling, 'training': training}


def _run(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Measure this machine anew on every call; a kill leaves the cases measured so far."""
  begun, rows = time.monotonic(), list[dict[str, Any]]()
  # Earlier records go at once: a kill before the first case must not leave another machine's.
  results.write(workdir, settings, rows)
  here = environment.environment(jax.devices()) | {'load': os.getloadavg()[0], 'peers': measure.versions()}
  made = environment.keep(workdir, here)
  for index, part in enumerate(settings.parts):
    key = jax.random.fold_in(jax.random.key(settings.seed), index)
    for case, contenders in _PARTS[part].cases(getattr(settings, part), key):
      named = {'part': part, 'work': case, 'environment': made}
      rows += [named | row for row in measure.alternate(contenders, settings.repeats, begun + 60 * settings.minutes)]
      results.write(workdir, settings, rows)
      reporter.say(f'{time.monotonic() - begun:.0f} s: {part}, {case}')


STUDY = Study(_run, tables)
