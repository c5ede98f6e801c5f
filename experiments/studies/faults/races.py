"""Two processes at once, on one workdir and on one folder of pretrained models; and one of them killed."""

from collections.abc import Sequence
import json
import pathlib
import signal

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.processes import Ended
from experiments.studies.faults.settings import FaultsSettings

_OF_WORKDIR = 'two processes on one workdir'
_OF_MODELS = 'two processes on one folder of pretrained models'
_KILLED = 'two processes on one workdir, the first killed -9'


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each pair; the second begins up to a whole run after the first."""
  with bench_lib.opened(settings) as bench, reporter.track('races', settings.num_races) as advance:
    rows, workdirs = list[Row](), bench.workdirs()
    for done, (wait, kill) in enumerate(bench_lib.uniform(key, settings.num_races, 2).tolist()):
      rows.append(_on_one_workdir(bench, next(workdirs), wait, None))
      rows.append(_on_one_workdir(bench, next(workdirs), 0.5 * wait, kill))
      rows.append(_on_one_folder(bench, next(workdirs), wait))
      advance(done + 1, '')
    if settings.mutants:
      rows.append(_on_one_workdir(bench, next(workdirs), 0.0, None, without='claims'))
  return rows


def _on_one_workdir(bench: Bench, workdir: pathlib.Path, wait: float, kill: float | None, without: str = '') -> Row:
  """Of two of which the second begins after `wait`, and the first is killed after `kill`, in units of one run."""
  first = bench.run(workdir, changed=[without])
  first.waited(wait * bench.seconds)
  second = bench.run(workdir, changed=[without])
  if kill is not None:
    first.waited(kill * bench.seconds)
    first.send(signal.SIGKILL)
  ended = [running.end(bench.settings.most_seconds) for running in (first, second)]
  survivors = ended if kill is None else ended[1:]
  lost = _lost(bench, workdir, survivors) or ('' if kill is not None else _twice(workdir))
  return bench_lib.row(_OF_WORKDIR if kill is None else _KILLED, lost, without=without)


def _on_one_folder(bench: Bench, directory: pathlib.Path, wait: float) -> Row:
  """Of two with workdirs of their own."""
  shared, workdirs = f'--config.pretrained={directory / "models"}', [directory / 'first', directory / 'second']
  first = bench.run(workdirs[0], shared)
  first.waited(wait * bench.seconds)
  second = bench.run(workdirs[1], shared)
  ended = [running.end(bench.settings.most_seconds) for running in (first, second)]
  lost = [_lost(bench, workdir, [one]) for workdir, one in zip(workdirs, ended)]
  lost += [_twice_pretrained(directory / 'models')]
  return bench_lib.row(_OF_MODELS, next(filter(None, lost), ''))


def _lost(bench: Bench, workdir: pathlib.Path, ended: Sequence[Ended]) -> str:
  """Why the result of the last of several is lost."""
  found = [bench.lost(one, workdir) for one in ended]
  return next(filter(None, found), '')


def _twice(workdir: pathlib.Path) -> str:
  """What was done twice, or not at all, by the lines that each trial and each pretraining leaves."""
  for path in sorted(workdir.glob('trials/*')):
    environments = [(row['model'], row['method']) for row in _rows(path / 'environment.jsonl') if 'method' in row]
    timings = _rows(path / 'timing.jsonl')
    if len(timings) != 1 or len(set(environments)) != len(environments) or not environments:
      return f'{path.name} has {len(timings)} lines of timing, {len(environments)} of its environment'
  return _twice_pretrained(workdir / 'pretrained')


def _twice_pretrained(directory: pathlib.Path) -> str:
  for path in sorted(directory.glob('*')):
    lines = _rows(path / 'environment.jsonl')
    if len(lines) != 1:
      return f'{path.name} was pretrained in {len(lines)} runs'
  return ''


def _rows(path: pathlib.Path) -> list[dict]:
  return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
