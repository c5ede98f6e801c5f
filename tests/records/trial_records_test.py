"""Records of a trial: which count, which are corrupt, renamed and made again, and what a kill leaves."""

import ast
from collections import Counter
import json
import os
import pathlib

import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import main as main_lib
from experiments.pipeline import sweep
from experiments.records import environment, files, trial_records
from experiments.records.trial_records import Trial, Tuned
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]


class _Said(list):
  """What a reporter says."""

  say = list.append


def _planned(trial):
  """What is missing of a trial, and what was said of it."""
  said = _Said()
  return trial_records.plan(trial, said), said


def _trial(workdir, **changes):
  config = prompt_vs_head.get_config('smoke')
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return Trial(registry.from_config(config), Point(4), 0, workdir)


def _add(trial, model, method, tasks=(0,)):
  outcome = [Tuned(task, {'head': np.arange(3.0)}, {'accuracy': 0.5}) for task in tasks]
  trial_records.add(trial, model, method, outcome, {'kl_at_mask': 0.0})


def _names(records):
  return [(record['task'], record['model'], record['method']) for record in records]


@pytest.fixture
def trial(tmp_path):
  """With the records of two methods."""
  trial = _trial(tmp_path, num_states=(4,), models=('exact',), tasks_per_trial=1)
  for method in ('head', 'prompt'):
    _add(trial, 'exact', method)
  return trial


def test_records_are_those_that_are_asked_for(tmp_path):
  """A method, model or task that is no longer asked for stays on file, is not reported, and is not missing."""
  for model in ('bert', 'exact'):
    for method in ('head', 'prompt'):
      _add(_trial(tmp_path), model, method, (0, 1))
  assert len(_trial(tmp_path).records()) == 8
  fewer = _trial(tmp_path, models=('exact',), methods=('head', 'probe'), tasks_per_trial=1)
  assert _names(fewer.records()) == [(0, 'exact', 'head')]
  assert fewer.missing() == {(0, 'exact', 'probe')} == set(fewer.absent())
  assert len(_trial(tmp_path).records()) == 8 and not _trial(tmp_path).missing()


def test_methods_are_asked_for_on_the_models_that_they_are_of(tmp_path):
  """What is fitted to the exact G alone is not missing on BERT, nor fine-tuning on the exact model."""
  trial = _trial(tmp_path, methods=('head_best', 'oracle_prompt', 'finetune', 'head_converged'), tasks_per_trial=1)
  of_exact = {(0, 'exact', method) for method in ('head_best', 'oracle_prompt', 'head_converged')}
  assert trial.missing() == trial.paths().keys() == of_exact | {(0, 'bert', 'finetune'), (0, 'bert', 'head_converged')}


def test_another_fit_is_another_record(tmp_path):
  """Records of another ridge stay on file beside their arrays and are not reported; those of schedules stay."""
  asked = dict(models=('exact',), methods=('head', 'head_converged'), tasks_per_trial=1)
  one, other = (_trial(tmp_path, **asked, converged__ridge=ridge) for ridge in (1e-6, 1e-3))
  for method in one.methods:
    _add(one, 'exact', method)
  assert one.id == other.id and other.missing() == {(0, 'exact', 'head_converged')}
  _add(other, 'exact', 'head_converged')
  assert not one.missing() and not other.missing()
  assert {record['fit_id'] for record in other.records()} == {other.settings.fit_id(method) for method in other.methods}
  assert len(list(one.directory.glob('*.json'))) == len(list(one.directory.glob('*.npz'))) == 3


def test_what_two_runs_made_is_there_once(tmp_path):
  """As where the same trial was run twice."""
  for tasks in ((0, 1), (1,)):
    _add(_trial(tmp_path), 'bert', 'head', tasks)
  assert _names(_trial(tmp_path).records()) == [(0, 'bert', 'head'), (1, 'bert', 'head')]


def test_a_record_names_the_environment_that_made_it(tmp_path, monkeypatch):
  """What a later commit adds to a trial is of that commit; what was there stays of the one before."""
  trial = _trial(tmp_path)
  _add(trial, 'exact', 'head', (0, 1))
  here = environment.environment(jax.devices())
  monkeypatch.setattr(environment, '_process', lambda: {'commit': 'another', 'packages': here['packages']})
  _add(trial, 'exact', 'prompt')
  made = environment.load(tmp_path, trial.records())
  commits = {record['method']: made[record['environment']]['commit'] for record in trial.records()}
  assert commits == {'head': here['commit'], 'prompt': 'another'}
  assert len(list((tmp_path / environment.FOLDER).iterdir())) == 2 == len(made)


@pytest.mark.parametrize('dies_at', ['.npz', '.json'])
def test_a_kill_leaves_nothing_that_counts(tmp_path, monkeypatch, dies_at):
  """Neither before the arrays nor between them and the record; the next run writes both."""
  trial, write_whole = _trial(tmp_path, models=('exact',), methods=('head',), tasks_per_trial=1), files.write_whole

  def write(path, content):
    if path.suffix == dies_at and path.parent == trial.directory:
      raise KeyboardInterrupt
    write_whole(path, content)

  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(files, 'write_whole', write)
    _add(trial, 'exact', 'head')
  assert trial.records() == [] and trial.missing() == trial.paths().keys()
  _add(trial, 'exact', 'head')
  assert not trial.missing() and _planned(trial) == (set(), [])


def _digit(path):
  """Another number, in a file that is JSON still."""
  path.write_text(path.read_text().replace('0.5', '0.6', 1))


def _other(path):
  """A field less, in a file that is JSON still."""
  path.write_text(path.read_text().replace('"accuracy"', '"accurucy"', 1))


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def _cut(path):
  path.write_bytes(path.read_bytes()[:-9])


def _of_head(trial):
  """The record of the head on the exact model."""
  return trial.paths()[0, 'exact', 'head']


FAULTS = [
  ('json', _digit, 'failed its checksum'),
  ('json', _other, 'failed its checksum'),
  ('json', _cut, 'cannot be parsed'),
  ('json', lambda path: path.write_text('[' * 100_000), 'cannot be parsed'),
  ('json', lambda path: path.write_bytes(b''), 'cannot be parsed'),
  ('npz', _flip, '.npz, which is missing or failed its checksum'),
  ('npz', _cut, '.npz, which is missing or failed its checksum'),
  ('npz', lambda path: path.unlink(), '.npz, which is missing or'),
]


@pytest.mark.parametrize(('suffix', 'change', 'words'), FAULTS)
def test_a_corrupt_record_or_array_is_named_renamed_and_made_again(trial, suffix, change, words):
  """With what it is read with; all else stays, and nothing is renamed twice."""
  path = _of_head(trial).with_suffix(f'.{suffix}')
  change(path)
  found = {one.name: one.read_bytes() for one in trial.directory.glob(f'{path.stem}.*')}
  missing, (said,) = _planned(trial)
  assert missing == {(0, 'exact', 'head')} == trial.missing()
  assert words in said and f'renamed to {path.stem}.json.corrupt' in said and str(trial.directory) in said
  assert {f'{name}.corrupt': data for name, data in found.items()} == {
    one.name: one.read_bytes() for one in trial.directory.glob('*.corrupt')
  }
  assert _planned(trial) == (missing, [])
  _add(trial, 'exact', 'head')
  assert not trial.missing() and len(trial.records()) == 2


def test_a_directory_in_the_place_of_an_array_is_renamed(trial):
  arrays = _of_head(trial).with_suffix('.npz')
  arrays.unlink()
  arrays.mkdir()
  missing, (said,) = _planned(trial)
  assert missing == {(0, 'exact', 'head')} and f'{arrays.name}, which is missing or' in said and not arrays.exists()


def test_a_corrupt_record_is_never_counted(trial):
  """By nobody who looks, a merge among them, even where no run has renamed it."""
  _digit(_of_head(trial))
  assert _names(trial.records()) == [(0, 'exact', 'prompt')] and trial.missing() == {(0, 'exact', 'head')}
  assert sweep.write(trial.workdir, trial.settings, [trial], lambda _, rows: rows, _Said()) == []


def test_a_record_of_another_trial_is_made_again(trial):
  """Where its directory was copied over this one."""
  other = trial._replace(trial=1)
  other.directory.mkdir()
  for path in trial.directory.iterdir():
    (other.directory / path.name).write_bytes(path.read_bytes())
  assert other.records() == []
  missing, (first, _) = _planned(other)
  assert f"is of trial '{trial.id}'" in first and missing == other.missing() == other.paths().keys()


def test_a_second_corrupt_file_is_renamed_beside_the_first(trial):
  for count in (1, 2):
    _cut(_of_head(trial))
    _, (said,) = _planned(trial)
    _add(trial, 'exact', 'head')
    assert len(list(trial.directory.glob('*.json.corrupt*'))) == count
  assert f'renamed to {_of_head(trial).name}.corrupt-2' in said


def test_a_run_makes_what_is_corrupt_again_and_no_more(tmp_path):
  """Asking once a trial what is missing; what it makes again is what it was."""
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4,), models=('exact',), methods=('head',), num_trials=1)
  settings, reporter = registry.from_config(config), Reporter(rich.console.Console(quiet=True))
  sweep.run(settings, tmp_path, reporter)
  (trial,) = sweep.trials(settings, tmp_path).values()
  before = {path: (path.read_bytes(), os.stat(path).st_mtime_ns) for path in trial.paths().values()}
  first, second = before
  _cut(first.with_suffix('.npz'))
  sweep.run(settings, tmp_path, reporter)
  assert first.with_name(f'{first.name}.corrupt').exists() and os.stat(second).st_mtime_ns == before[second][1]
  again, was = (json.loads(text) for text in (first.read_bytes(), before[first][0]))
  assert {name: value for name, value in again.items() if name not in ('sha256', 'arrays_sha256')} == {
    name: value for name, value in was.items() if name not in ('sha256', 'arrays_sha256')
  }


def test_a_run_plans_each_trial_once_and_reads_its_records_once_more_to_merge_them(tmp_path, monkeypatch):
  """And results.jsonl once, for the table; so does a run that finds all of it done."""
  flags = ['--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', '--config.num_states=4,6', '--config.figures=()']
  flags += ["--config.models=('exact',)", "--config.methods=('head',)", '--config.tasks_per_trial=1']
  read, planned = Counter(), Counter()
  of_plan, of_file = trial_records.plan, files.read_bytes
  monkeypatch.setattr(trial_records, 'plan', lambda trial, said: planned.update([trial.id]) or of_plan(trial, said))

  def read_bytes(path):
    content = of_file(path)
    read.update([path.name if path.parent == tmp_path else path])
    return content

  monkeypatch.setattr(files, 'read_bytes', read_bytes)
  for times in (1, 2):
    read.clear()
    planned.clear()
    assert main_lib.main(['main', *flags]) == 0
    records = [count for path, count in read.items() if 'exact-head' in str(path)]
    assert records == [times] * 2 and read['results.jsonl'] == 1 and list(planned.values()) == [1, 1]


def test_only_the_lease_of_a_lock_has_a_thread():
  """No module of a run starts another; a study may have a pool that it waits for."""
  paths = [path for name in ('runtime', 'records', 'pipeline') for path in (ROOT / 'experiments' / name).glob('*.py')]
  for path in paths:
    for node in ast.walk(ast.parse(path.read_text())):
      names = [*getattr(node, 'names', []), getattr(node, 'attr', None), getattr(node, 'id', None)]
      starts = {getattr(name, 'name', name) for name in names} & {'Thread', 'Timer', 'ThreadPoolExecutor', '_thread'}
      assert not starts, f'{path} starts a thread'
