"""The benchmark: every part in turn, on record as it goes; then the tables, from the record alone."""

from collections.abc import Iterator
import os
import pathlib
import time
from typing import Any

import jax

from experiments.analysis import report as report_lib
from experiments.records import environment, results
from experiments.runtime import machine
from experiments.runtime.progress import Reporter
from experiments.studies.benchmark import accelerator, inference, measure, report, sampling, training
from experiments.studies.benchmark.settings import BenchmarkSettings

_PARTS: dict[str, Any] = {'gpu': accelerator, 'inference': inference, 'sampling': sampling, 'training': training}


def check(settings: BenchmarkSettings) -> None:
  """Whatever a machine lacks is a line of the table."""


def run(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Measures anew on every call, since what is measured is this machine now; a kill leaves what was measured."""
  begun, rows = time.monotonic(), list[dict[str, Any]]()
  results.write(workdir, settings, rows)
  made = {'environment': environment.keep(workdir, here())}
  for case in _cases(settings):
    rows += [row | made for row in measure.alternate(case, settings.repeats, begun + 60 * settings.minutes)]
    results.write(workdir, settings, rows)
    reporter.say(f'{time.monotonic() - begun:.0f} s: {case.part}, {case.name}')


def _cases(settings: BenchmarkSettings) -> Iterator[measure.BenchmarkCase]:
  for index, name in enumerate(settings.parts):
    key = jax.random.fold_in(jax.random.key(settings.seed), index)
    yield from _PARTS[name].cases(getattr(settings, name), key)


def here() -> dict[str, Any]:
  """What the numbers came from: the host too, with what else it was busy with, and the peers."""
  host = {'cpu': machine.cpu_name(), 'cores': os.cpu_count(), 'load': os.getloadavg()[0]}
  return {**environment.environment(jax.devices()), **host, 'peers': measure.versions()}


def show(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the record, and keeps them beside it."""
  report_lib.show(report.workdir_tables(workdir), workdir, reporter)
