"""A trial that fails: what is kept of it, what becomes of the others, what the exit status and --mode=status say."""

import contextlib
import io
import json
import os
import time

import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import main as main_lib
from experiments.pipeline import pretraining, sweep
from experiments.records import failures, files, status as status_lib, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import distributed, exit_status, locks, signals, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry

QUIET = Reporter(rich.console.Console(quiet=True))


class Diverged(Exception):
  """Stands for what a loss that is not finite raises."""

  status = exit_status.DIVERGED


@pytest.fixture
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6, 8), tasks_per_trial=1, models=('exact',), methods=('head',))
  return registry.from_config(config)


def _record(trial):
  trial_records.add(trial, 'exact', 'head', [Tuned(0, {'head': np.zeros(2)}, {'accuracy': 0.5})], {})


@pytest.fixture
def runs(monkeypatch):
  """Trials fail by the error of their size here, and are done otherwise; those that have begun, in order."""
  errors, begun = {}, []

  def run(trial, reporter):
    if not trial_records.plan(trial, reporter):
      return False
    begun.append(trial.point.num_states)
    if trial.point.num_states in errors:
      raise errors[trial.point.num_states]
    _record(trial)
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return errors, begun


@pytest.mark.parametrize(
  ('error', 'sentence', 'status'),
  [
    (MemoryError(), 'MemoryError: without a word', 1),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: 3 GB\n  at 0x1'), 'JaxRuntimeError: RESOURCE_EXHAUSTED: 3 GB', 1),
    (OSError(28, 'No space left on device'), 'OSError: [Errno 28] No space left on device', 1),
    (SettingsError('x is 1; valid is 2'), 'x is 1; valid is 2', 2),
    (Diverged('step 3: the loss is inf'), 'step 3: the loss is inf', 3),
  ],
  ids=lambda value: type(value).__name__,
)
def test_a_trial_that_fails_stops_no_other(settings, runs, tmp_path, error, sentence, status):
  """Whatever it raises. It is kept with its traceback, tried again by another run, and then forgotten."""
  errors, begun = runs
  errors[6] = error
  trial = sweep.trials(settings, tmp_path)['|H|=6 trial 0']
  with pytest.raises(sweep.TrialsFailed) as failed:
    sweep.run(settings, tmp_path, QUIET)
  left = '2 of 3 trials are finished'
  # JAX names its errors by the module that has them.
  assert str(failed.value).replace('XlaRuntimeError', 'JaxRuntimeError') == (
    f'trial 1 (|H|=6 trial 0) failed: {sentence}; {left}'
  )
  assert failed.value.status == status and begun == [4, 6, 8]
  kept = json.loads((trial.directory / 'failed.json').read_text())
  assert kept['error'] == failures.sentence(error) and kept['status'] == status
  assert 'in run\n    raise errors[' in kept['traceback'] and kept['when'].endswith('+00:00')
  errors.clear()
  assert sweep.run(settings, tmp_path, QUIET) is None and begun == [4, 6, 8, 6]
  assert not (trial.directory / 'failed.json').exists()


@pytest.mark.parametrize(('errors', 'status'), [((3, 3), 3), ((2, 2), 2), ((3, 1), 1), ((2, 3), 1), ((3,), 3)])
def test_the_exit_status_is_that_of_every_failure(errors, status):
  """Where they agree; or else that of any failure."""
  failed = [failures.Failure(f'no {index}', one) for index, one in enumerate(errors)]
  assert (
    sweep.TrialsFailed(failed, None).status == status == exit_status.error_status(sweep.TrialsFailed(failed, 'left'))
  )


@pytest.mark.parametrize('error', [signals.Stopped(15), KeyboardInterrupt(), pretraining.OutOfTime()])
def test_who_is_stopped_begins_no_other(settings, runs, tmp_path, error):
  """A signal, an interrupt and the end of the time are no failure of the trial that they meet."""
  errors, begun = runs
  errors[6] = error
  with contextlib.nullcontext() if isinstance(error, Exception) else pytest.raises(type(error)):
    assert sweep.fill(sweep.trials(settings, tmp_path), range(3), 0.0, QUIET) == []
  assert begun == [4, 6] and not list(tmp_path.glob('trials/*/failed.json'))
  assert not any(locks.holder(path) for path in tmp_path.glob('trials/*'))


def test_what_one_of_several_processes_meets_alone_ends_it(settings, runs, tmp_path, monkeypatch):
  """Since the others wait for it; what all of them meet stops no other trial."""
  errors, begun = runs
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: look())
  errors.update({4: Diverged('inf'), 6: RuntimeError('alone')})
  with pytest.raises(RuntimeError, match='alone'):
    sweep.fill(sweep.trials(settings, tmp_path), range(3), 0.0, QUIET)
  assert begun == [4, 6] and len(list(tmp_path.glob('trials/*/failed.json'))) == 1


def test_a_trial_that_cannot_be_locked_stops_no_other(settings, runs, tmp_path, monkeypatch):
  """It has failed like any other: both are named in the end."""
  errors, begun = runs
  errors[4] = ValueError('bad luck')
  trial = sweep.trials(settings, tmp_path)['|H|=6 trial 0']
  trial.directory.parent.mkdir()
  trial.directory.symlink_to(tmp_path / 'nowhere')
  with pytest.raises(sweep.TrialsFailed) as failed:
    sweep.run(settings, tmp_path, QUIET)
  assert begun == [4, 8] and failed.value.status == 1
  said = str(failed.value)
  assert said.startswith('trial 0 (|H|=4 trial 0) failed: ValueError: bad luck; trial 1 (|H|=6 trial 0) failed: ')
  assert f"failed: '{trial.directory}/.lock' was not written (File exists" in said
  assert said.endswith('; 1 of 3 trials are finished')


def test_what_is_corrupt_and_cannot_be_renamed_has_failed(settings, runs, tmp_path, monkeypatch):
  """And stops no other trial."""
  _, begun = runs
  trial = sweep.trials(settings, tmp_path)['|H|=4 trial 0']
  _record(trial)
  next(iter(trial.paths().values())).write_text('damaged')

  def full(directory):
    raise storage.StorageError('no space')

  monkeypatch.setattr(files, 'rename_corrupt', full)
  with pytest.raises(sweep.TrialsFailed, match=r'^trial 0 \(.*\) failed: no space; 2 of 3 trials are finished'):
    sweep.run(settings, tmp_path, QUIET)
  assert begun == [6, 8]


@pytest.mark.parametrize(
  'text',
  ['', '[1]', '{"error": 3, "status": 1, "when": "now"}', '{"error": "x", "when": "now"}', '[' * 100_000, None, 'long'],
  ids=['empty', 'no object', 'no sentence', 'no status', 'deep', 'a directory', 'too long'],
)
def test_a_failure_that_cannot_be_read_is_said_to_be_one(settings, tmp_path, monkeypatch, text):
  """Whatever stands in its place: the trial has failed, by what nobody knows."""
  trial = sweep.trials(settings, tmp_path)['|H|=6 trial 0']
  assert failures.read(trial.directory) is None
  failures.caught(trial.directory, ValueError('its own word'))
  assert failures.read(trial.directory)['error'] == 'ValueError: its own word'
  path = trial.directory / 'failed.json'
  if text == 'long':
    monkeypatch.setattr(files, 'MOST_JSON', 9)
  else:
    path.unlink()
    path.mkdir() if text is None else path.write_text(text)
  unknown = {'error': 'failed.json cannot be read', 'status': exit_status.FAILED, 'when': 'an unknown time'}
  assert failures.read(trial.directory) == unknown
  left = '1 of 1: exact head'
  assert status_lib.state(trial) == f'failed at an unknown time: failed.json cannot be read; missing {left}'


def test_a_long_error_is_cut():
  """Of any class, behind its name."""
  assert failures.sentence(ValueError('x' * 1000)) == f'ValueError: {"x" * 288}'
  assert failures.sentence(SettingsError('x' * 1000)) == 'x' * 300


@pytest.mark.parametrize(
  ('seconds', 'state'),
  [
    (-100, 'running by {}, its lock renewed 0:00:00 ago'),
    (50, 'running by {}, its lock renewed 0:00:50 ago'),
    (70, 'stale of {}: its lock was not renewed for 0:01:10, a run takes it over'),
    (200, 'stale of {}: its lock was not renewed for 0:03:20, a run takes it over'),
    (3 * 3600, 'stale of {}: its lock was not renewed for 3:00:00, a run takes it over'),
    (72 * 3600, 'stale of {}: its lock was not renewed for 3 days, 0:00:00, a run takes it over'),
  ],
)
def test_a_lock_has_the_age_of_its_renewal(settings, tmp_path, monkeypatch, seconds, state):
  """It is stale from the age on at which whoever waited would have taken it over."""
  trial, now = sweep.trials(settings, tmp_path)['|H|=6 trial 0'], time.time()
  trial.directory.mkdir(parents=True)
  _lock_elsewhere(trial.directory, now - seconds)
  monkeypatch.setattr(status_lib.time, 'time', lambda: now)
  assert status_lib.state(trial) == f'{state.format("process 42 on node7")}; missing 1 of 1: exact head'


def _lock_elsewhere(directory, renewed):
  path = directory / '.lock'
  path.write_text('filelock/2\npid=42\nhost=node7\nmode=lease\ntoken=theirs\nduration=60.0\n')
  os.utime(path, (renewed, renewed))


def test_a_failure_that_cannot_be_written_is_said(tmp_path):
  """As on a full disk, where it was no space that the trial lacked."""
  (tmp_path / 'failed.json').mkdir()
  failure = failures.caught(tmp_path, OSError(28, 'No space left on device'))
  assert failure.sentence.startswith('OSError: [Errno 28] No space left on device (')
  assert "failed.json' was not written (Is a directory" in failure.sentence


def test_the_status_of_every_trial_is_told(tmp_path, monkeypatch):
  """Done, running and by whom, failed and why, or missing; without a device, and without a change on disk."""
  flags = ['--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', "--config.models=('exact',)"]
  flags += ['--config.num_states=4,6,8,10', "--config.methods=('head',)", '--config.tasks_per_trial=1']
  _, config = main_lib.parse(['main', *flags])
  done, runs, failed, _ = sweep.trials(registry.from_config(config), tmp_path).values()
  _record(done)
  failures.caught(failed.directory, ValueError('bad luck'))
  failures.caught(runs.directory, ValueError('of before'))
  _lock_elsewhere(runs.directory, time.time() + 600)
  before = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
  monkeypatch.setattr(jax, 'devices', lambda *_: (_ for _ in ()).throw(AssertionError('looks at devices')))
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    assert main_lib.main(['main', '--mode=status', *flags]) == 0
  states = [line.split(maxsplit=5)[5:] for line in out.getvalue().splitlines()]
  left = '1 of 1: exact head'
  when = failures.read(failed.directory)['when']
  assert states[:4] == [
    ['done'],
    [f'running by process 42 on node7, its lock renewed 0:00:00 ago; missing {left}'],
    [f'failed at {when}: ValueError: bad luck; missing {left}'],
    [f'missing {left}'],
  ]
  assert out.getvalue().splitlines()[4:] == ['4 trials: 1 done, 1 running, 0 stale, 1 failed, 1 missing']
  assert {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()} == before
