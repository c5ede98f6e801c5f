"""Locks: one process at a time, whatever became of the one before; and what runs under a lock."""

import dataclasses
import os
import signal
import socket
import subprocess
from unittest import mock

import jax
import pytest
from run_cases import add_record, any_tokens, exact_settings, lock_elsewhere, pretraining_settings, QUIET

from experiments.pipeline import pretraining, sweep
from experiments.records import checkpoints, failures, files, trial_records
from experiments.runtime import distributed, locks, signals
from experiments.studies import study

HERE = f'process {os.getpid()} on '


def test_one_process_at_a_time_holds_a_lock(tmp_path):
  """Others know who; released it leaves no file."""
  directory = tmp_path / 'new'
  with locks.held(directory, 'it', QUIET) as is_held, locks.held(directory, 'it', QUIET, lambda: True) as is_other:
    assert is_held and not is_other and locks.holder(directory).startswith(HERE)
  assert locks.holder(directory) is None and not list(directory.iterdir())


def test_a_process_that_is_killed_is_taken_over_at_once(tmp_path):
  """Where it was one of this machine."""
  path, dead = lock_elsewhere(tmp_path), subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout
  path.write_text(path.read_text().replace('pid=42', f'pid={dead.strip()}').replace('node7', socket.gethostname()))
  with locks.held(tmp_path, 'it', QUIET, lambda: True) as is_held:
    assert is_held


@pytest.mark.parametrize(('text', 'seconds'), [(None, 60), ('', 90)])
def test_a_holder_elsewhere_is_taken_over_after_its_lease(tmp_path, monkeypatch, text, seconds):
  """By the clock of who waits, from the last renewal on; a process that died before it wrote its name, too."""
  path, clock = lock_elsewhere(tmp_path), [1000.0]
  path.write_text(path.read_text() if text is None else text)
  # Its clock is years off.
  os.utime(path, (1, 1))

  def sleep(_):
    clock[0] += 10
    assert clock[0] < 1300, 'it waits on'
    os.utime(path, (2, 2)) if clock[0] == 1050 else None

  monkeypatch.setattr(locks.time, 'monotonic', lambda: clock[0])
  monkeypatch.setattr(locks.time, 'sleep', sleep)
  with locks.held(tmp_path, 'it', QUIET) as is_held:
    assert is_held and seconds <= clock[0] - 1050 <= seconds + 30
    locks.check(tmp_path)


def test_whose_lock_was_taken_has_lost_it(tmp_path):
  """Another's lock counts, whatever it says, and one that is gone; where nothing was locked nothing is lost."""
  path = lock_elsewhere(tmp_path)
  locks.check(tmp_path)
  path.unlink()
  for change in (lock_elsewhere, lambda _: path.write_text('?'), lambda _: path.unlink()):
    with locks.held(tmp_path, 'it', QUIET):
      locks.check(tmp_path)
      change(tmp_path)
      with pytest.raises(locks.Lost):
        locks.check(tmp_path)
    # That of another process stays.
    assert path.exists() == (change is lock_elsewhere)
    path.unlink(missing_ok=True)


def test_a_lock_is_waited_for_or_not(tmp_path, monkeypatch):
  """Who gives up goes without it."""
  looks, path = [], lock_elsewhere(tmp_path)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: looks.append(None) or (len(looks) == 3 and path.unlink()))
  with locks.held(tmp_path, 'it', QUIET, lambda: True) as is_held:
    assert not is_held and not looks
  with locks.held(tmp_path, 'it', QUIET) as is_held:
    assert is_held and len(looks) == 3


def test_who_waits_for_a_lock_is_stopped_by_a_signal(tmp_path, monkeypatch):
  """Also where signals are answered at certain places alone, as by several processes."""
  lock_elsewhere(tmp_path)
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: look())
  monkeypatch.setattr(locks.time, 'sleep', lambda _: signal.raise_signal(signal.SIGTERM))
  with pytest.raises(signals.Stopped), signals.answered(), locks.held(tmp_path, 'it', QUIET):
    pytest.fail('it went on')


def _record_elsewhere(trial):
  """Writes the record of a trial as the process that has its lock would."""
  with mock.patch.multiple(locks, check=mock.DEFAULT, may_write=lambda path: True):
    add_record(trial)


@pytest.fixture
def grid(tmp_path):
  """Trials of 4, 6 and 8 states."""
  return sweep.trials(exact_settings(), tmp_path)


ENDS = {
  'done': (_record_elsewhere, [4, 8], None),
  'killed': (lambda trial: None, [4, 8, 6], None),
  'failed': (lambda trial: failures.caught(trial.directory, ValueError('bad luck')), [4, 8], 'ValueError: bad luck'),
}


@pytest.mark.parametrize(('ends', 'begun', 'sentence'), ENDS.values(), ids=ENDS)
def test_what_another_process_works_on_comes_last(grid, monkeypatch, ends, begun, sentence):
  """It is waited for, and done here only where the other one neither finished it nor failed in it."""
  seen = []

  def run(trial, reporter):
    assert locks.holder(trial.directory).startswith(HERE)
    if not trial.missing():
      return False
    seen.append(trial.point.num_states)
    add_record(trial)
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  other = grid['|H|=6 trial 0']
  failures.caught(other.directory, ValueError('of long ago'))
  path = lock_elsewhere(other.directory)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (ends(other), path.unlink()))
  failed = sweep.fill(grid, range(3), 0.0, QUIET)
  assert seen == begun and [failure.sentence.endswith(str(sentence)) for failure in failed] == [True] * bool(sentence)


@pytest.mark.parametrize('fails', [False, True])
@pytest.mark.parametrize('is_ended', [False, True])
def test_a_trial_that_was_taken_over_is_waited_for(grid, monkeypatch, is_ended, fails):
  """Its process slept, and another one has it or has had it: nothing of it is written here, its time neither, and it
  counts as no failure, also where it then fails here."""
  begun, trial = [], grid['|H|=4 trial 0']

  def end(_=None):
    _record_elsewhere(trial)
    begun[0].unlink()

  def run(trial, reporter):
    if not trial.missing():
      return False
    with trial_records.session(trial, reporter):
      begun.append(lock_elsewhere(trial.directory))
      end() if is_ended else None
      if fails:
        raise MemoryError
      add_record(trial, accuracy=1.0)
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  monkeypatch.setattr(locks.time, 'sleep', end)
  assert sweep.fill(grid, [0], 0.0, QUIET) == [] and len(begun) == 1
  assert not trial.timing_path.exists() and trial.records()[0]['accuracy'] == 0.5
  assert failures.read(trial.directory) is None


def test_who_has_lost_a_lock_writes_renames_and_removes_nothing_below_it(tmp_path):
  """Whatever it is: no caller has to ask."""
  below, beside = tmp_path / 'below', tmp_path / 'beside'
  with locks.held(below, 'it', QUIET):
    files.write_json_lines(below / 'kept', [{'a': 1}])
    lock_elsewhere(below)
    files.write_whole(below / 'further' / 'new', 'new')
    files.append_json_line(below / 'kept', {'b': 2})
    files.remove(below / 'kept')
    failures.caught(below, ValueError('bad luck'))
    with pytest.raises(locks.Lost):
      files.rename_corrupt(below / 'kept')
    files.write_whole(beside, 'of another lock')
  assert files.read_json_lines(below / 'kept') == [{'a': 1}] and beside.exists()
  assert {path.name for path in below.iterdir()} == {locks.NAME, 'kept'}


@pytest.mark.parametrize('number', [0, 1])
def test_a_run_that_wakes_inside_a_merge_writes_nothing_more(grid, tmp_path, monkeypatch, number):
  """Of config.json and results.jsonl those that come after its sleep; before, it alone had the lock."""
  write_whole, written, trial = files.write_whole, [], grid['|H|=4 trial 0']
  add_record(trial)

  def write(path, content):
    assert written or locks.holder(tmp_path).startswith(HERE)
    if len(written) == number:
      lock_elsewhere(tmp_path)
    written.append(path.name)
    write_whole(path, content)

  monkeypatch.setattr(files, 'write_whole', write)
  sweep.merge(trial.settings, tmp_path, QUIET)
  assert written == ['config.json', 'results.jsonl']
  assert [name for name in written if (tmp_path / name).exists()] == written[:number]


def test_a_pretrained_model_is_locked_while_it_is_trained_or_read(grid, monkeypatch):
  """In its own directory, which experiments share; who waits past the time budget leaves it to another run."""
  trial, seen = grid['|H|=4 trial 0'], []

  def opened(directory):
    seen.append(locks.holder(directory.parent))
    raise pretraining.OutOfTime

  monkeypatch.setattr(pretraining.checkpoints, 'open_checkpoints', opened)
  for budget in (0.0, 1e-9):
    limited = dataclasses.replace(trial.settings, time_budget=budget)
    with pytest.raises(pretraining.OutOfTime):
      pretraining.pretrained_params(limited, None, (), jax.random.key(0), trial.pretrained_directory, QUIET)
    assert len(seen) == 1 and seen[0].startswith(HERE)
    lock_elsewhere(trial.pretrained_directory)


def test_a_pretraining_that_was_taken_over_writes_no_more(tmp_path, monkeypatch, without_optimisation):
  """Neither a checkpoint nor a measurement, from step 4 on, where another process took its model over."""
  monkeypatch.setattr(pretraining, '_corpus', any_tokens)
  monkeypatch.setattr(pretraining, 'measure', lambda *_: {'kl_at_mask': 0.0})
  original = pretraining.nan_guard.check_values

  def taken_over(*words):
    lock_elsewhere(tmp_path) if '4' in str(words) else None
    return original(*words)

  monkeypatch.setattr(pretraining.nan_guard, 'check_values', taken_over)
  with pytest.raises(locks.Lost):
    pretraining.pretrained_params(pretraining_settings(), None, (), jax.random.key(3), tmp_path, QUIET)
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [2]
  assert [row['step'] for row in files.read_json_lines(tmp_path / 'metrics.jsonl')] == [0, 2]


def test_a_part_is_run_once_unless_it_is_corrupt(tmp_path):
  """Of two processes on one workdir one runs a part of a study, the other reads what it left; the later one counts."""

  def run(part):
    study.in_parts(lambda _: {'one': lambda *_: [{'value': part()}]})(exact_settings(), tmp_path, QUIET)
    return [row['value'] for row in files.read_json_lines(tmp_path / 'results.jsonl')]

  def taken_over():
    (folder,) = tmp_path.glob('parts/*/one')
    assert locks.holder(folder).startswith(HERE)
    records = [{'schema_version': 2, 'part': 'one', 'value': 'theirs'}]
    files.write_sealed(folder / 'records.json', {'seconds': 1.0, 'records': records})
    (folder / locks.NAME).unlink()
    return 'ours'

  assert run(taken_over) == ['theirs']
  assert run(lambda: pytest.fail('it is run again')) == ['theirs']
  (path,) = tmp_path.glob('parts/*/one/records.json')
  path.write_text(path.read_text().replace('theirs', 'thears'))
  assert run(lambda: 3) == [3] and path.with_name('records.json.corrupt').exists()
