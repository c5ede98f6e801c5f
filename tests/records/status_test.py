"""A trial that fails: what is kept of it, what becomes of the others, what the exit status and --mode=status say."""

import contextlib
import os
import re

import jax
import pytest
from run_cases import add_record, exact_settings, lock_elsewhere, OTHER, QUIET

from experiments import main as main_lib
from experiments.pipeline import pretraining, sweep
from experiments.records import failures, files, status, trial_records
from experiments.runtime import distributed, exit_status, locks, nan_guard, signals
from experiments.settings.fields import SettingsError

# Seconds: the time at which the status is asked for.
NOW = 1e9


@pytest.fixture
def grid(tmp_path):
  """Trials of 4, 6 and 8 states."""
  return sweep.trials(exact_settings(), tmp_path)


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
    add_record(trial)
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return errors, begun


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (MemoryError('no room\n  at 0x1'), exit_status.FAILED),
    (SettingsError('x is 1; valid is 2'), exit_status.BAD_INPUT),
    (nan_guard.Diverged('step 3: the loss is inf'), exit_status.DIVERGED),
  ],
  ids=lambda value: type(value).__name__,
)
def test_a_trial_that_fails_stops_no_other(grid, runs, tmp_path, error, code):
  """Whatever it raises. It is kept with its traceback, tried again by another run, and then forgotten."""
  errors, begun = runs
  errors[6] = error
  trial = grid['|H|=6 trial 0']
  with pytest.raises(sweep.TrialsFailed) as failed:
    sweep.run(trial.settings, tmp_path, QUIET)
  sentence = 'MemoryError: no room' if code == exit_status.FAILED else str(error)
  assert f'{trial}) failed: {sentence};' in str(failed.value)
  assert failed.value.status == code and begun == [4, 6, 8]
  kept = failures.read(trial.directory)
  assert (kept['error'], kept['status']) == (sentence, code) and 'raise errors[' in kept['traceback']
  errors.clear()
  assert sweep.run(trial.settings, tmp_path, QUIET) is None and begun == [4, 6, 8, 6]
  assert failures.read(trial.directory) is None


@pytest.mark.parametrize(('codes', 'status'), [((3, 3), 3), ((2, 2), 2), ((2, 3), 1)])
def test_the_exit_status_is_that_of_every_failure(codes, status):
  """Where they agree; or else that of any failure."""
  assert sweep.TrialsFailed([failures.Failure('no', code) for code in codes], None).status == status


@pytest.mark.parametrize('error', [signals.Stopped(15), pretraining.OutOfTime()])
def test_who_is_stopped_begins_no_other(grid, runs, tmp_path, error):
  """A signal and the end of the time are no failure of the trial that they meet."""
  errors, begun = runs
  errors[6] = error
  with contextlib.nullcontext() if isinstance(error, Exception) else pytest.raises(type(error)):
    assert sweep.fill(grid, range(3), 0.0, QUIET) == []
  assert begun == [4, 6] and not list(tmp_path.glob('trials/*/failed.json'))
  assert not any(locks.holder(path) for path in tmp_path.glob('trials/*'))


def test_what_one_of_several_processes_meets_alone_ends_it(grid, runs, tmp_path, monkeypatch):
  """Since the others wait for it; what all of them meet stops no other trial."""
  errors, begun = runs
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: look())
  errors.update({4: nan_guard.Diverged('inf'), 6: RuntimeError('alone')})
  with pytest.raises(RuntimeError, match='alone'):
    sweep.fill(grid, range(3), 0.0, QUIET)
  assert begun == [4, 6] and len(list(tmp_path.glob('trials/*/failed.json'))) == 1


def test_a_trial_that_cannot_be_locked_stops_no_other(grid, runs, tmp_path):
  """It has failed like any other: both are named in the end."""
  errors, begun = runs
  errors[4] = ValueError('bad luck')
  trial = grid['|H|=6 trial 0']
  trial.directory.parent.mkdir()
  trial.directory.symlink_to(tmp_path / 'nowhere')
  with pytest.raises(sweep.TrialsFailed, match=f"ValueError: bad luck; .*'{trial.directory}/.lock' was not written"):
    sweep.run(trial.settings, tmp_path, QUIET)
  assert begun == [4, 8]


def test_the_status_of_every_trial_is_told(tmp_path, monkeypatch, capsys):
  """Done, running or stale and by whom, failed and why, or missing; no device is looked at, and nothing is written."""
  flags = ['--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', "--config.models=('exact',)"]
  flags += ['--config.num_states=4,6,8,10,12,14', "--config.methods=('head',)", '--config.tasks_per_trial=1']
  grid = sweep.trials(exact_settings(num_states=(4, 6, 8, 10, 12, 14)), tmp_path)
  done, runs, stale, failed, unknown, _ = grid.values()
  add_record(done)
  failures.caught(runs.directory, ValueError('of before'))
  for trial, age in ((runs, 50), (stale, 3670)):
    os.utime(lock_elsewhere(trial.directory), (0, NOW - age))
  failures.caught(failed.directory, ValueError('bad luck'))
  # Whatever stands in the place of its file.
  (unknown.directory / failures.FILE_NAME).mkdir(parents=True)
  before = files.tree(tmp_path).keys()
  monkeypatch.setattr(status.time, 'time', lambda: NOW)
  monkeypatch.setattr(jax, 'devices', lambda *_: pytest.fail('looks at devices'))
  assert main_lib.main(['main', '--mode=status', *flags]) == 0
  *lines, counts = capsys.readouterr().out.splitlines()
  words = ['done', f'running by {OTHER}.* 0:00:50', f'stale of {OTHER}.* 1:01:10']
  words += [r'failed at \d.*: ValueError: bad luck', 'failed at an unknown time', 'missing 1 of 1: exact head']
  assert [word for word, line in zip(words, lines, strict=True) if not re.search(f'  {word}', line)] == []
  assert counts == '6 trials: 1 done, 1 running, 1 stale, 2 failed, 1 missing'
  assert files.tree(tmp_path).keys() == before
