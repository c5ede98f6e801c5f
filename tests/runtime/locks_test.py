"""Locks: mutual exclusion, takeover after a crash, work under a lock."""

import os
import socket
import subprocess
from unittest import mock

import jax
import pytest
from run_cases import add_record, exact_settings, lock_elsewhere, QUIET

from experiments.pipeline import pretraining, queue, sweep
from experiments.records import failures, files
from experiments.runtime import locks
from experiments.studies import study

HERE = f'process {os.getpid()} on '


def test_one_process_at_a_time_holds_a_lock(tmp_path):
  """Others know who; released it leaves no file."""
  directory = tmp_path / 'new'
  with locks.held(directory, 'it', QUIET) as is_held, locks.held(directory, 'it', QUIET, lambda: True) as is_other:
    assert is_held and not is_other and locks.holder(directory).startswith(HERE)
  assert locks.holder(directory) is None and not list(directory.iterdir())


def test_a_process_that_is_killed_is_taken_over_at_once(tmp_path):
  """If it was a process of this machine."""
  path, dead = lock_elsewhere(tmp_path), subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout
  path.write_text(path.read_text().replace('pid=42', f'pid={dead.strip()}').replace('node7', socket.gethostname()))
  with locks.held(tmp_path, 'it', QUIET, lambda: True) as is_held:
    assert is_held


def test_a_lease_of_another_machine_runs_out(tmp_path, monkeypatch):
  """By the clock of who waits, from the last renewal on; also one that died before it wrote its name."""
  path, clock = tmp_path / locks.NAME, [1000.0]
  path.touch()
  # Its clock is years off.
  os.utime(path, (1, 1))

  def sleep(_):
    clock[0] += 10
    assert clock[0] < 1300, 'it waits on'
    os.utime(path, (2, 2)) if clock[0] == 1050 else None

  monkeypatch.setattr(locks.time, 'monotonic', lambda: clock[0])
  monkeypatch.setattr(locks.time, 'sleep', sleep)
  with locks.held(tmp_path, 'it', QUIET) as is_held:
    assert is_held and 90 <= clock[0] - 1050 <= 120


@pytest.mark.parametrize('change', [lock_elsewhere, lambda directory: (directory / locks.NAME).unlink()])
def test_check_held_raises_lost_after_a_takeover(tmp_path, change):
  """Raises if the lock file is another process's or missing."""
  with locks.held(tmp_path, 'it', QUIET):
    locks.check_held(tmp_path)
    change(tmp_path)
    with pytest.raises(locks.Lost):
      locks.check_held(tmp_path)


def _record_elsewhere(folder):
  """Write the record of a trial as the process that has its lock would."""
  with mock.patch.multiple(locks, check_held=mock.DEFAULT, may_write=lambda path: True):
    add_record(folder)


@pytest.fixture
def grid(tmp_path):
  """Trials of 4, 6 and 8 states."""
  return sweep.folders([exact_settings()], tmp_path)


@pytest.mark.parametrize(
  ('ends', 'begun', 'sentences'),
  [
    (_record_elsewhere, [4, 8], []),
    (lambda folder: None, [4, 8, 6], []),
    (lambda folder: failures.write(folder.directory, ValueError('bad luck')), [4, 8], ['bad luck']),
  ],
  ids=['done', 'killed', 'failed'],
)
def test_trials_locked_by_another_process_come_last(grid, monkeypatch, ends, begun, sentences):
  """It is waited for, and done here only where the other one neither finished it nor failed in it."""
  seen = []

  def run(folder, missing, reporter):
    seen.append(folder.trial.point.num_states)
    add_record(folder)

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  other = grid[1]
  failures.write(other.directory, ValueError('of long ago'))
  path = lock_elsewhere(other.directory)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (ends(other), path.unlink()))
  failed = queue.fill(sweep.units(grid, range(3)), 0.0, QUIET)
  assert seen == begun and [failure.sentence.split(': ')[-1] for failure in failed] == sentences


def test_a_trial_that_was_taken_over_is_waited_for(grid, monkeypatch):
  """Its process slept, and another one has it: that one's records count, and it counts as no failure."""
  begun, folder = [], grid[0]

  def run(folder, missing, reporter):
    begun.append(lock_elsewhere(folder.directory))
    add_record(folder, accuracy=1.0)

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (_record_elsewhere(folder), begun[0].unlink()))
  assert queue.fill(sweep.units(grid, [0]), 0.0, QUIET) == [] and len(begun) == 1
  assert folder.records()[0]['accuracy'] == 0.5


def test_a_process_without_its_lock_changes_no_file(tmp_path):
  """`files` checks the lock, so callers need not."""
  path = tmp_path / 'kept'
  with locks.held(tmp_path, 'it', QUIET):
    files.write_json_lines(path, [{'a': 1}])
    lock_elsewhere(tmp_path)
    files.append_json_line(path, {'b': 2})
    files.remove(path)
    with pytest.raises(locks.Lost):
      files.rename_corrupt(path)
  assert files.read_json_lines(path) == [{'a': 1}]
  assert {path.name for path in tmp_path.iterdir()} == {locks.NAME, 'kept'}


def test_a_model_and_a_merge_are_locked_while_they_are_made(grid, tmp_path, monkeypatch):
  """A model in its own directory, which experiments share."""
  folder, seen = grid[0], []
  settings = folder.trial.settings
  add_record(folder)

  def opened(directory):
    seen.append(locks.holder(directory.parent))
    raise pretraining.OutOfTime

  monkeypatch.setattr(pretraining.checkpoints, 'open_checkpoints', opened)
  monkeypatch.setattr(sweep.results, 'write', lambda *_: seen.append(locks.holder(tmp_path)))
  with pytest.raises(pretraining.OutOfTime):
    planned = pretraining.planned(settings, None, jax.random.key(0), directory=folder.pretrained_directory)
    pretraining.pretrained_params(planned, QUIET)
  sweep.merge([settings], tmp_path, QUIET)
  assert [holder.startswith(HERE) for holder in seen] == [True, True]


def test_a_part_that_was_taken_over_is_read(tmp_path):
  """One of two processes on a workdir runs a part of a study, the other reads its records; the later run counts."""

  def part(*_):
    (folder,) = tmp_path.glob('parts/*/one')
    assert locks.holder(folder).startswith(HERE)
    files.write_sealed(folder / 'records.json', {'seconds': 1.0, 'records': [{'value': 'theirs'}]})
    (folder / locks.NAME).unlink()
    return [{'value': 'ours'}]

  study.in_parts(lambda _: {'one': part})(exact_settings(), tmp_path, QUIET)
  assert [row['value'] for row in files.read_json_lines(tmp_path / 'results.jsonl')] == ['theirs']


def test_a_process_takes_the_parts_that_no_other_works_on(tmp_path):
  """Then it waits for the rest; records keep the order of the parts."""
  made = []

  def first(*_):
    made.append('first')
    return [{'part': 'first'}]

  def second(*_):
    made.append('second')
    (folder / locks.NAME).unlink()
    return [{'part': 'second'}]

  settings = exact_settings()
  folder = tmp_path / 'parts' / study._id(settings) / 'first'
  folder.mkdir(parents=True)
  lock_elsewhere(folder)
  study.in_parts(lambda _: {'first': first, 'second': second})(settings, tmp_path, QUIET)
  assert made == ['second', 'first']
  assert [row['part'] for row in files.read_json_lines(tmp_path / 'results.jsonl')] == ['first', 'second']
