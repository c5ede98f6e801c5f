"""Locks: one process at a time, whatever became of the one before; and what runs under a lock."""

import contextlib
import dataclasses
import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import filelock
import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, sweep
from experiments.records import checkpoints, failures, files, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import distributed, locks, signals, storage
from experiments.runtime.progress import Reporter
from experiments.studies import registry, study

ROOT = pathlib.Path(__file__).parents[2]
QUIET = Reporter(rich.console.Console(quiet=True))
HERE = f'process {os.getpid()} on '


def _spoken():
  """A reporter, and what it has said so far."""
  console = rich.console.Console(file=io.StringIO(), width=1000)
  return Reporter(console), console.file.getvalue


def _elsewhere(directory):
  """The lock of a process on another machine, which replaces whatever lock there was."""
  path = directory / '.lock'
  path.unlink(missing_ok=True)
  path.write_text(f'filelock/2\npid=42\nhost=node7\nmode=lease\ntoken=theirs\nduration={locks.LEASE}\n')
  return path


def test_one_process_at_a_time_holds_a_lock(tmp_path):
  """Others know who; released it leaves no file, thread or descriptor."""
  directory, threads, descriptors = tmp_path / 'new', threading.active_count(), os.listdir('/proc/self/fd')
  for _ in range(3):
    with locks.held(directory, 'it', QUIET) as is_held, locks.held(directory, 'it', QUIET, lambda: True) as is_other:
      assert is_held and not is_other and locks.holder(directory).startswith(HERE)
      locks.check(directory)
    assert locks.holder(directory) is None and not list(directory.iterdir())
  assert threading.active_count() == threads and os.listdir('/proc/self/fd') == descriptors


# Forks before JAX looks at a device, so that it imports JAX once.
PROCESSES = """
import io, os, pathlib, signal, sys, time, warnings
import rich.console
warnings.simplefilter('ignore')
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
root, said = pathlib.Path(sys.argv[1]), io.StringIO()
reporter = Reporter(rich.console.Console(file=said, width=1000))

def fork(work):
  pid = os.fork()
  if not pid:
    os._exit(work() or 0)
  return pid

def held(**options):
  return locks.held(directory, 'it', reporter, **options)

def hold_and(number):
  with held() as is_held:
    assert is_held
    os.kill(os.getpid(), number)
    try:
      locks.check(directory)
    except locks.Lost:
      return 5

def race():
  while not (directory / 'go').exists():
    pass
  with held(gives_up=lambda: True) as is_held:
    (directory / f'tried-{os.getpid()}').touch()
    while is_held and len(list(directory.glob('tried-*'))) < 4:
      time.sleep(0.001)
    return 3 if is_held else 4

# Killed and reaped: of four that race one has the lock at once.
for number in range(10):
  directory = root / str(number)
  os.waitpid(fork(lambda: hold_and(signal.SIGKILL)), 0)
  assert locks.holder(directory)
  racers = [fork(race) for _ in range(4)]
  (directory / 'go').touch()
  codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers)
  assert codes == [3, 4, 4, 4] and not locks.holder(directory), codes

# Killed and not reaped, and stopped: at the end of the lease. The one that goes on finds out.
locks.LEASE = 1.0
for number, code in ((signal.SIGKILL, -9), (signal.SIGSTOP, 5)):
  directory = root / number.name
  pid = fork(lambda: hold_and(number))
  while not locks.holder(directory):
    time.sleep(0.01)
  begun = time.monotonic()
  with held(gives_up=lambda: time.monotonic() - begun > 20) as is_held:
    assert is_held and time.monotonic() - begun > 0.9
    assert f'it is taken over: process {pid} on ' in said.getvalue()
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    locks.check(directory)
print('all is well')
"""


def test_a_process_that_is_killed_or_stopped_is_taken_over(tmp_path):
  """At once after kill -9, by one of several; at the end of its lease where it is not reaped, or sleeps, and a sleeper
  that wakes has lost the lock, which stays with the one that took it."""
  command = [sys.executable, '-c', PROCESSES, str(tmp_path)]
  done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': str(ROOT)})
  assert done.stdout == 'all is well\n', done.stderr


@pytest.mark.parametrize(('text', 'exchanges', 'seconds'), [(None, True, 60), (None, False, 90), ('', True, 90)])
def test_a_holder_elsewhere_is_taken_over_after_its_lease(tmp_path, monkeypatch, text, exchanges, seconds):
  """By the clock of who waits, from the last renewal on, where the file system exchanges names and where, as NFS, it
  does not; a process that died before it wrote its name, too."""
  path, clock = _elsewhere(tmp_path), [1000.0]
  path.write_text(path.read_text() if text is None else text)
  # Its clock is years off.
  os.utime(path, (1, 1))

  def sleep(_):
    clock[0] += 10
    assert clock[0] < 1300, 'it waits on'
    os.utime(path, (2, 2)) if clock[0] == 1050 else None

  monkeypatch.setattr(locks.time, 'monotonic', lambda: clock[0])
  monkeypatch.setattr(locks.time, 'sleep', sleep)
  if not exchanges:
    monkeypatch.setattr(filelock._soft, 'exchange_names', lambda *_: False)
  reporter, said = _spoken()
  with locks.held(tmp_path, 'it', reporter) as is_held:
    assert is_held and seconds <= clock[0] - 1050 <= seconds + 30
    locks.check(tmp_path)
  other = 'process 42 on node7' if text is None else 'an unknown process'
  assert said() == f'waits for it, which {other} works on\nit is taken over: {other} is gone\n'


def test_whose_lock_was_taken_has_lost_it(tmp_path):
  """Another's lock counts, whatever it says, and one that is gone; where nothing was locked nothing is lost."""
  locks.check(tmp_path)
  path = _elsewhere(tmp_path)
  locks.check(tmp_path)
  path.unlink()
  for change in (_elsewhere, lambda _: path.write_text('?'), lambda _: path.unlink()):
    with locks.held(tmp_path, 'it', QUIET):
      locks.check(tmp_path)
      change(tmp_path)
      with pytest.raises(locks.Lost, match='was taken over by (process 42 on node7|a process that has ended), which'):
        locks.check(tmp_path)
    # That of another process stays.
    assert path.exists() == (change is _elsewhere)
    path.unlink(missing_ok=True)


def test_a_lock_is_waited_for_or_not(tmp_path, monkeypatch):
  """It is said once for what and for whom; who gives up goes without it."""
  (reporter, said), looks, path = _spoken(), [], _elsewhere(tmp_path)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: looks.append(None) or (len(looks) == 3 and path.unlink()))
  with locks.held(tmp_path, 'trial 3', reporter, lambda: True) as is_held:
    assert not is_held and not looks and not said()
  with locks.held(tmp_path, 'trial 3', reporter) as is_held:
    assert is_held and len(looks) == 3 and locks.holder(tmp_path).startswith(HERE)
  assert said() == 'waits for trial 3, which process 42 on node7 works on\n'


def test_who_waits_for_a_lock_is_stopped_by_a_signal(tmp_path, monkeypatch):
  """Also where signals are answered at certain places alone, as by several processes."""
  _elsewhere(tmp_path)
  monkeypatch.setattr(locks.signals, '_received', [])

  def sleep(_):
    assert not locks.signals.is_stopping(), 'it waits on'
    locks.signals._received.append(15)

  monkeypatch.setattr(locks.time, 'sleep', sleep)
  with pytest.raises(locks.signals.Stopped), locks.held(tmp_path, 'it', QUIET):
    pytest.fail('it went on')


def test_process_0_locks_for_all(tmp_path, monkeypatch):
  """The others take its word and touch nothing."""
  for answer in (True, False):
    monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look, answer=answer: answer)
    monkeypatch.setattr(locks.signals, 'check', lambda: None)
    with locks.held(tmp_path, 'it', QUIET) as is_held:
      assert is_held == answer and not list(tmp_path.iterdir())


def test_nothing_is_locked_in_an_object_store():
  """Which has no exclusive creation here: nobody is kept out."""
  directory = storage.located('gs://bucket/trial')
  with locks.held(directory, 'it', QUIET) as is_held:
    assert is_held and locks.holder(directory) is None
    locks.check(directory)


def _full(*_):
  raise OSError(28, 'No space left on device')


@pytest.mark.parametrize('what', ['a link to nowhere', 'a file', 'no place for directories', 'a full disk'])
def test_what_cannot_be_locked_is_said(tmp_path, monkeypatch, what):
  """In a sentence with the file and the reason; nothing is left for others to wait for."""
  directory = pathlib.Path('/proc/none') if what == 'no place for directories' else tmp_path / 'it'
  if what == 'a link to nowhere':
    directory.symlink_to('nowhere')
  if what == 'a file':
    directory.touch()
  if what == 'a full disk':
    monkeypatch.setattr(filelock._marker, 'write_all', _full)
  sentence = r"/\.lock' was not written \(.*the same command goes on"
  with pytest.raises(storage.StorageError, match=sentence), locks.held(directory, 'it', QUIET):
    pytest.fail('it went on')
  assert locks.holder(directory) is None and not list(tmp_path.rglob('.lock*'))


@pytest.fixture
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6, 8), tasks_per_trial=1, models=('exact',), methods=('head',))
  return registry.from_config(config)


def _record(trial):
  """Writes the record of a trial, as whichever process has its lock would."""
  with mock.patch.multiple(locks, check=mock.DEFAULT, may_write=lambda path: True):
    trial_records.add(trial, 'exact', 'head', [Tuned(0, {'head': np.zeros(2)}, {'accuracy': 0.5})], {})


@pytest.mark.parametrize(
  ('ends', 'begun', 'sentence'),
  [
    (_record, [4, 8], None),
    (lambda trial: None, [4, 8, 6], None),
    (
      lambda trial: failures.caught(trial.directory, ValueError('bad luck')),
      [4, 8],
      'trial 1 (|H|=6 trial 0) failed in another process: ValueError: bad luck',
    ),
  ],
  ids=['done', 'killed', 'failed'],
)
def test_what_another_process_works_on_comes_last(settings, tmp_path, monkeypatch, ends, begun, sentence):
  """It is waited for, and done here only where the other one neither finished it nor failed in it."""
  seen = []

  def run(trial, reporter):
    assert locks.holder(trial.directory).startswith(HERE)
    if not trial.missing():
      return False
    seen.append(trial.point.num_states)
    _record(trial)
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  grid = sweep.trials(settings, tmp_path)
  other = grid['|H|=6 trial 0']
  failures.caught(other.directory, ValueError('of long ago'))
  path = _elsewhere(other.directory)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (ends(other), path.unlink()))
  failed = sweep.fill(grid, range(3), 0.0, QUIET)
  assert seen == begun and [failure.sentence for failure in failed] == ([sentence] if sentence else [])


@pytest.mark.parametrize('fails', [False, True])
@pytest.mark.parametrize('is_ended', [False, True])
def test_a_trial_that_was_taken_over_is_waited_for(settings, tmp_path, monkeypatch, is_ended, fails):
  """Its process slept, and another one has it or has had it: nothing of it is written here, its time neither, and it
  counts as no failure, also where it then fails here."""
  grid, begun = sweep.trials(settings, tmp_path), []
  trial = grid['|H|=4 trial 0']

  def run(trial, reporter):
    if not trial.missing():
      return False
    with trial_records.session(trial, reporter):
      begun.append(_elsewhere(trial.directory))
      end() if is_ended else None
      if fails:
        raise MemoryError
      trial_records.add(trial, 'exact', 'head', [Tuned(0, {'head': np.ones(2)}, {'accuracy': 1.0})], {})
    return True

  def end(_=None):
    _record(trial)
    begun[0].unlink()

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  monkeypatch.setattr(locks.time, 'sleep', end)
  assert sweep.fill(grid, [0], 0.0, QUIET) == [] and len(begun) == 1 and not trial.missing()
  assert not trial.timing_path.exists() and trial.records()[0]['accuracy'] == 0.5
  assert failures.read(trial.directory) is None


def test_who_has_lost_a_lock_writes_renames_and_removes_nothing_below_it(tmp_path):
  """Whatever it is: no caller has to ask."""
  kept = tmp_path / 'kept'
  kept.write_text('{"a": 1}\n')
  with locks.held(tmp_path, 'it', QUIET):
    _elsewhere(tmp_path)
    files.write_whole(tmp_path / 'below' / 'new', 'new')
    files.append_json_line(kept, {'b': 2})
    files.remove(kept)
    failures.caught(tmp_path, ValueError('bad luck'))
    with pytest.raises(locks.Lost):
      files.rename_corrupt(kept)
    files.write_whole(tmp_path.parent / f'{tmp_path.name}-beside', 'of another lock')
  assert kept.read_text() == '{"a": 1}\n' and sorted(path.name for path in tmp_path.iterdir()) == ['.lock', 'kept']
  assert (tmp_path.parent / f'{tmp_path.name}-beside').exists()


@pytest.mark.parametrize('number', [0, 1])
def test_a_run_that_wakes_inside_a_merge_writes_nothing_more(settings, tmp_path, monkeypatch, number):
  """Of config.json and results.jsonl those that come after its sleep."""
  grid, write_whole, written = sweep.trials(settings, tmp_path), files.write_whole, []
  trial = next(iter(grid.values()))
  _record(trial)

  def write(path, content):
    if len(written) == number:
      _elsewhere(tmp_path)
    written.append(path.name)
    write_whole(path, content)

  monkeypatch.setattr(files, 'write_whole', write)
  sweep.merge(settings, tmp_path, QUIET)
  assert written == ['config.json', 'results.jsonl']
  assert [name for name in written if (tmp_path / name).exists()] == written[:number]


def test_a_pretrained_model_is_locked_while_it_is_trained_or_read(settings, tmp_path, monkeypatch):
  """In its own directory, which experiments share; who waits past the time budget leaves it to another run."""
  directory, seen = next(iter(sweep.trials(settings, tmp_path).values())).pretrained_directory, []

  def opened(_):
    seen.append(locks.holder(directory))
    raise pretraining.OutOfTime

  monkeypatch.setattr(pretraining.checkpoints, 'open_checkpoints', opened)
  for budget in (0.0, 1e-9):
    with pytest.raises(pretraining.OutOfTime):
      limited = dataclasses.replace(settings, time_budget=budget)
      pretraining.pretrained_params(limited, None, (), jax.random.key(0), directory, QUIET)
    assert len(seen) == 1 and seen[0].startswith(HERE)
    _elsewhere(directory)


@pytest.mark.parametrize(('place', 'measured'), [('check_state', [0, 2, 4]), ('check_values', [0, 2])])
def test_a_pretraining_that_was_taken_over_writes_no_more(tmp_path, monkeypatch, without_optimisation, place, measured):
  """Neither a checkpoint nor a measurement, from step 4 on, where another process took its model over."""
  config = prompt_vs_head.get_config('smoke')
  config.corpus.update(num_documents=4, document_length=32, chunk_length=8)
  config.bert.update(width=8, ffn_width=8)
  config.pretrain.update(optimizer='adamw', num_steps=8, warmup_steps=2, steps_per_call=2)
  config.pretrain.update(checkpoint_every=2, measure_every=2)
  tokens = np.random.default_rng(0).integers(10, size=(16, 8), dtype=np.uint8)
  monkeypatch.setattr(pretraining, '_corpus', lambda *_: tokens)
  monkeypatch.setattr(pretraining, 'measure', lambda *_: {'kl_at_mask': 0.0})
  original = getattr(pretraining.nan_guard, place)

  def taken_over(*words):
    _elsewhere(tmp_path) if '4' in str(words) else None
    return original(*words)

  monkeypatch.setattr(pretraining.nan_guard, place, taken_over)
  with pytest.raises(locks.Lost):
    pretraining.pretrained_params(registry.from_config(config), None, (), jax.random.key(3), tmp_path, QUIET)
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [2]
  assert [row['step'] for row in files.read_json_lines(tmp_path / 'metrics.jsonl')] == measured


def test_records_are_merged_by_one_process_at_a_time(settings, tmp_path, monkeypatch):
  """So that config.json, environments and records are of one of them."""
  grid, seen = sweep.trials(settings, tmp_path), []
  _record(next(iter(grid.values())))
  monkeypatch.setattr(sweep.results, 'write', lambda workdir, *_: seen.append(locks.holder(workdir)))
  sweep.merge(settings, tmp_path, QUIET)
  assert len(seen) == 1 and seen[0].startswith(HERE)


@pytest.fixture
def parts(settings, tmp_path, monkeypatch):
  """Runs a study of one part, which calls what it is given with its folder."""
  monkeypatch.setattr(study, '_on_exact_device', contextlib.nullcontext)

  def run(part):
    folder = tmp_path / 'parts' / study._id(settings) / 'one'
    study.in_parts(lambda _: {'one': lambda *_: part(folder)})(settings, tmp_path, QUIET)
    return [row['value'] for row in files.read_json_lines(tmp_path / 'results.jsonl')]

  return run


def test_a_signal_that_a_part_swallows_stops_the_next(settings, tmp_path, monkeypatch):
  """JAX swallows what a handler raises inside its callbacks; what the part made is left."""
  monkeypatch.setattr(study, '_on_exact_device', contextlib.nullcontext)

  def first(*_):
    with contextlib.suppress(signals.Stopped):
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(60)
    return [{'value': 1}]

  parts = {'first': first, 'second': lambda *_: pytest.fail('it is run')}
  with pytest.raises(signals.Stopped), signals.answered():
    study.in_parts(lambda _: parts)(settings, tmp_path, QUIET)
  assert [path.parent.name for path in tmp_path.glob('parts/*/*/records.json')] == ['first']


def test_a_part_is_run_once(parts, tmp_path, monkeypatch):
  """Of two processes on one workdir one runs a part of a study, and the other reads what it left."""
  assert parts(lambda folder: [{'value': locks.holder(folder).startswith(HERE)}]) == [True]
  (path,) = tmp_path.glob('parts/*/one/records.json')
  text = path.read_text()
  path.unlink()
  lock = _elsewhere(path.parent)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (path.write_text(text), lock.unlink()))
  assert parts(lambda _: pytest.fail('it is run again')) == [True]


def test_a_part_that_was_taken_over_is_read(parts, tmp_path):
  """What the process wrote that took it over stands."""
  begun = []

  def part(folder):
    begun.append('one')
    records = [{'schema_version': 2, 'part': 'one', 'value': 'theirs'}]
    files.write_sealed(folder / 'records.json', {'seconds': 1.0, 'records': records})
    (folder / '.lock').unlink()
    return [{'value': 'ours'}]

  assert parts(part) == ['theirs'] and begun == ['one']


def test_a_corrupt_part_is_renamed_and_made_again(parts, tmp_path):
  assert parts(lambda _: [{'value': 1}]) == [1]
  (path,) = tmp_path.glob('parts/*/one/records.json')
  path.write_text(path.read_text().replace('"value": 1', '"value": 2'))
  assert parts(lambda _: [{'value': 3}]) == [3]
  assert path.with_name('records.json.corrupt').exists()
