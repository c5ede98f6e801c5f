"""A step of pretraining, or an epoch of tuning, of one trial of several that returns NaN."""

import json
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from experiments.records import loading, results
from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings

_DIVERGED = 3
_DEBUG = '--config.debug_nans=True'


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each call of the compiled steps, and for each epoch, that is poisoned: random ones of the first trial."""
  with bench_lib.opened(settings) as bench, reporter.track('divergences', 3 * settings.num_divergences) as advance:
    rows, workdirs, config = list[Row](), bench.workdirs(), _config(bench.reference)
    pretrain, num_epochs = config['pretrain'], config['head']['num_epochs']
    num_calls = pretrain['num_steps'] // pretrain['steps_per_call']
    for in_steps, in_epochs in bench_lib.uniform(key, settings.num_divergences, 2).tolist():
      call, epoch = 1 + int(in_steps * num_calls), 1 + int(in_epochs * num_epochs)
      step, last = (call - 1) * pretrain['steps_per_call'] + 1, call * pretrain['steps_per_call']
      rows.append(_tried(bench, next(workdirs), f'steps@{call}', f'step {step} of {pretrain["num_steps"]}'))
      rows.append(_tried(bench, next(workdirs), f'steps@{call}', f'steps {step} to {last}', _DEBUG))
      rows.append(_tried(bench, next(workdirs), f'epoch@{epoch}', f'epoch {epoch}'))
      advance(len(rows), '')
    if settings.mutants:
      rows.append(_tried(bench, next(workdirs), f'steps@{num_calls}', 'step', without='checks of finiteness'))
  return rows


def _tried(bench: Bench, workdir: pathlib.Path, poison: str, named: str, *more: str, without: str = '') -> Row:
  """One trial ends, and what is said of it is why; the others are done, and the same command again does the rest."""
  ended = bench.run(workdir, *more, changed=[poison, without]).end(bench.settings.most_seconds)
  lost = _others(bench, workdir)
  if ended.status != _DIVERGED:
    lost = f'status {ended.status}: {ended.last_words}'
  elif named not in ended.said:
    lost = f'{named} is not named'
  lost = lost or _not_finite(workdir) or bench.again(workdir)[1]
  fault = f'NaN in {"pretraining" if poison.startswith("steps") else "tuning"}{", debug_nans" if more else ""}'
  return bench_lib.row(fault, lost, without=without, said=ended.last_words)


def _config(workdir: pathlib.Path) -> dict[str, Any]:
  return loading.json_value(workdir / results.CONFIG_NAME)


def _others(bench: Bench, workdir: pathlib.Path) -> str:
  """What is wrong with the records of the trials that did not diverge, in words."""
  expected = bench.left['results.jsonl'].splitlines()
  found = bench_lib.results(workdir).get('results.jsonl', b'').splitlines()
  first = json.loads(expected[0])['trial_id']
  others = [line for line in expected if json.loads(line)['trial_id'] != first]
  return '' if found == others else f'{len(found)} records of other trials, {len(others)} expected, or others'


def _not_finite(workdir: pathlib.Path) -> str:
  """The first checkpoint that has a number which is not finite, in words."""
  with ocp.StandardCheckpointer() as checkpointer:
    for path in sorted(workdir.glob('pretrained/*/checkpoints/*/state')):
      leaves = jax.tree.leaves(checkpointer.restore(path.absolute()))
      if not all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in leaves):
        return f'{path.parent.name} of {path.parents[2].name} is not finite'
  return ''
