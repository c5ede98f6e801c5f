"""Claims: one process at a time, whatever became of the one before; and what runs under a claim."""

import contextlib
import dataclasses
import functools
import io
import json
import pathlib
import subprocess
import sys
import threading
import time

import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, sweep
from experiments.records import failures, files, trial_records
from experiments.runtime import distributed, locks, storage
from experiments.runtime.progress import Reporter
from experiments.studies import registry, runner

ROOT = pathlib.Path(__file__).parents[2]
QUIET = Reporter(rich.console.Console(quiet=True))


def _spoken():
  """A reporter, and what it has said so far."""
  console = rich.console.Console(file=io.StringIO(), width=1000)
  return Reporter(console), console.file.getvalue


def _names(directory):
  return sorted(path.name for path in directory.glob('claim-*'))


def _elsewhere(directory, number, **changes):
  """A claim of a process of another machine."""
  holder = locks.Holder('node7', 42, '2026-01-01 00:00:00 UTC', 'theirs', 'another kernel')._replace(**changes)
  path = directory / f'claim-{number}.json'
  path.write_text(json.dumps(holder._asdict()))
  return path


def test_one_process_at_a_time_has_a_claim(tmp_path):
  """Who has it is known to others; released it is free, and of all that were made the newest file is left."""
  directory = tmp_path / 'new'
  for number in (1, 2, 3):
    claim, other = locks.Watch(directory).take()
    assert claim and other is None and _names(directory) == [f'claim-{number}.json']
    refused, holder = locks.Watch(directory).take()
    assert refused is None and holder == locks.holder(directory)
    assert (holder.pid, holder.released) == (locks.os.getpid(), False)
    claim.release()
    assert locks.holder(directory) is None


# Forks before JAX looks at a device. A round leaves a claim of a process that was killed; 6 race for it, and the one
# that has it keeps it until all have tried. Then a process is stopped.
RACES = """
import contextlib, os, pathlib, signal, sys, time, warnings
warnings.simplefilter('ignore')
from experiments.runtime import locks
root = pathlib.Path(sys.argv[1])

def fork(work):
  pid = os.fork()
  if not pid:
    locks._NONCE = str(os.getpid())
    os._exit(work() or 0)
  return pid

def take_and_die():
  assert locks.Watch(directory).take()[0]
  os.kill(os.getpid(), signal.SIGKILL)

def race():
  while not (directory / 'go').exists():
    pass
  won = locks.Watch(directory).take()[0] is not None
  (directory / f'tried-{os.getpid()}').touch()
  while won and len(list(directory.glob('tried-*'))) < 6:
    time.sleep(0.001)
  return 3 if won else 4

for number in range(15):
  directory = root / str(number)
  _, status = os.waitpid(fork(take_and_die), 0)
  assert os.WTERMSIG(status) == signal.SIGKILL
  racers = [fork(race) for _ in range(6)]
  (directory / 'go').touch()
  codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers)
  assert codes == [3, 4, 4, 4, 4, 4], codes
  assert len(list(directory.glob('claim-*'))) == 1

directory = root / 'stopped'

def take_and_stop():
  assert locks.Watch(directory).take()[0]
  os.kill(os.getpid(), signal.SIGSTOP)

pid = fork(take_and_stop)
os.waitpid(pid, os.WUNTRACED)
assert locks.Watch(directory).take() == (None, locks.holder(directory)) and locks.holder(directory).pid == pid
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
claim, gone = locks.Watch(directory).take()
assert claim and gone.pid == pid
print('all is well')
"""


def test_of_many_that_take_over_from_a_killed_process_one_wins(tmp_path):
  """At once after kill -9, in every one of 15 rounds; a process that is stopped and not dead is not taken over."""
  command = [sys.executable, '-c', RACES, str(tmp_path)]
  done = subprocess.run(command, capture_output=True, text=True, env={**locks.os.environ, 'PYTHONPATH': str(ROOT)})
  assert done.stdout == 'all is well\n', done.stderr


@pytest.fixture
def clock(monkeypatch):
  """The seconds of this process's clock, which a test sets."""
  now = [1000.0]
  monkeypatch.setattr(locks.time, 'monotonic', lambda: now[0])
  return now


def test_a_process_elsewhere_is_gone_after_so_many_missed_heartbeats(tmp_path, clock):
  """Looked at by the clock of who waits, for as long as that one has looked; each heartbeat begins the count again."""
  path, watch = _elsewhere(tmp_path, 7), locks.Watch(tmp_path)
  limit = locks.BEAT * locks.MISSED
  # Its clock is years off.
  locks.os.utime(path, (1, 1))
  assert watch.take()[0] is None
  clock[0] += limit
  assert watch.take()[0] is None
  locks.os.utime(path, (2, 2))
  clock[0] += 1
  assert watch.take()[0] is None
  clock[0] += limit
  assert watch.take() == (None, watch.holder()) and str(watch.holder()).startswith('process 42 on node7 since 2026')
  clock[0] += 1
  claim, gone = watch.take()
  assert gone.host == 'node7' and _names(tmp_path) == ['claim-8.json']
  claim.release()


@pytest.mark.parametrize('text', ['', '{"host": "x"', '[]', '{"unknown": 1}', '[' * 500, '[' * 100_000, None], ids=repr)
def test_a_claim_that_says_nothing_is_waited_for(tmp_path, clock, text):
  """As between its making and its writing, or where a process died there, or where it is none."""
  path = tmp_path / 'claim-1.json'
  path.mkdir() if text is None else path.write_text(text)
  watch = locks.Watch(tmp_path)
  assert watch.take() == (None, locks.Holder())
  clock[0] += locks.BEAT * locks.MISSED + 1
  claim, _ = watch.take()
  claim.release()


def test_where_there_are_no_locks_heartbeats_decide(tmp_path, monkeypatch, clock):
  """A claim then names no machine, so that nobody takes its missing lock for a death."""
  monkeypatch.setattr(locks.fcntl, 'flock', lambda *_: (_ for _ in ()).throw(OSError('no locks available')))
  claim, _ = locks.Watch(tmp_path).take()
  watch = locks.Watch(tmp_path)
  assert watch.take()[0] is None and watch.holder().machine == ''
  claim.release()
  assert watch.holder() is None


def test_a_process_of_a_machine_without_a_name_is_known_by_its_heartbeats(tmp_path, monkeypatch):
  """Two such machines are not one, and a lock of the other is not seen here."""
  monkeypatch.setattr(locks, '_machine', lambda: '')
  _elsewhere(tmp_path, 1, machine='')
  assert locks.Watch(tmp_path).take()[0] is None and locks.silence(tmp_path) is not None


def test_a_claim_leaves_no_descriptor(tmp_path, monkeypatch):
  """Released, withdrawn, or never written: the next file that is opened has the number that it had before."""

  def number():
    file = locks.os.open(tmp_path, locks.os.O_RDONLY)
    locks.os.close(file)
    return file

  first = number()
  for _ in range(3):
    claim, _ = locks.Watch(tmp_path).take()
    locks.check(tmp_path)
    claim.release()
  assert locks._make(tmp_path, 1) is None and number() == first
  monkeypatch.setattr(locks, '_write', lambda *_: (_ for _ in ()).throw(OSError(28, 'No space left on device')))
  with pytest.raises(storage.StorageError):
    locks.Watch(tmp_path).take()
  assert number() == first and _names(tmp_path) == ['claim-3.json']


def test_who_withdraws_may_find_it_done(tmp_path, monkeypatch):
  """Whoever made a newer claim has removed the one that could not be written."""

  def taken_over(file, holder):
    (tmp_path / 'claim-1.json').unlink()
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(locks, '_write', taken_over)
  with pytest.raises(storage.StorageError, match='No space left'):
    locks.Watch(tmp_path).take()
  monkeypatch.setattr(locks, '_write', lambda *_: _elsewhere(tmp_path, 2) and (tmp_path / 'claim-1.json').unlink())
  assert locks._make(tmp_path, 1) is None and _names(tmp_path) == ['claim-2.json']


@pytest.mark.parametrize('is_link', [True, False])
def test_where_no_directory_can_be_made_nothing_is_claimed(tmp_path, is_link):
  """Of a link to nowhere, or a file: a sentence, and no endless attempt."""
  directory = tmp_path / 'it'
  directory.symlink_to('nowhere') if is_link else directory.touch()
  with pytest.raises(storage.StorageError, match="it' is no directory, and none can be made there"):
    locks._make(directory, 1)
  assert locks.holder(directory) is None


def test_the_number_of_a_claim_has_no_end(tmp_path):
  """Whoever left a large one is followed by the next."""
  _elsewhere(tmp_path, 10**18 - 1, released=True)
  claim, _ = locks.Watch(tmp_path).take()
  assert _names(tmp_path) == [f'claim-{10**18}.json']
  claim.release()


def test_who_waits_for_a_claim_is_stopped_by_a_signal(tmp_path, monkeypatch):
  """Also where signals are answered at certain places alone, as by several processes."""
  looks = []

  def sleep(_):
    assert not looks, 'it waits on'
    looks.append(locks.signals._received.append(15))

  monkeypatch.setattr(locks.time, 'sleep', sleep)
  monkeypatch.setattr(locks.signals, '_received', [])
  claim, _ = locks.Watch(tmp_path).take()
  with pytest.raises(locks.signals.Stopped), locks.held(tmp_path, 'it', QUIET):
    pytest.fail('it went on')
  claim.release()


def test_a_heart_beats(tmp_path, monkeypatch):
  """Its claim is touched again and again, by a thread that ends with the claim."""
  monkeypatch.setattr(locks, 'BEAT', 0.01)
  before = threading.active_count()
  claim, _ = locks.Watch(tmp_path).take()
  path = tmp_path / 'claim-1.json'
  for _ in range(2):
    locks.os.utime(path, (1, 1))
    deadline = time.monotonic() + 30
    while path.stat().st_mtime == 1:
      assert time.monotonic() < deadline
      time.sleep(0.005)
  claim.release()
  assert threading.active_count() == before


def test_who_is_late_withdraws(tmp_path):
  """Number 3 was free when it looked, and 5 is the newest by the time it has made it."""
  path = _elsewhere(tmp_path, 5)
  assert locks._make(tmp_path, 3) is None and _names(tmp_path) == [path.name]
  assert locks._make(tmp_path, 5) is None and _names(tmp_path) == [path.name]


def test_who_was_taken_for_dead_finds_out(tmp_path):
  """By the newest claim, also where whoever made that has ended since, whatever its process id; where nothing was
  claimed there is nothing to lose."""
  locks.check(tmp_path)
  with locks.held(tmp_path, 'it', QUIET):
    locks.check(tmp_path)
    for changes in ({}, {'released': True}, {'pid': locks.os.getpid()}):
      path = _elsewhere(tmp_path, 2, **changes)
      sentence = 'was claimed by process [0-9]* on node7 since 2026.*, which took this process'
      with pytest.raises(locks.Lost, match=sentence):
        locks.check(tmp_path)
    path.write_text('[' * 100_000)
    with pytest.raises(locks.Lost, match='by process 0 on an unknown host'):
      locks.check(tmp_path)
  with locks.held(tmp_path, 'it', QUIET, gives_up=lambda: True) as is_held:
    assert not is_held
  path.unlink()
  with locks.held(tmp_path, 'it', QUIET):
    locks.check(tmp_path)


def test_a_claim_is_waited_for_or_not(tmp_path, monkeypatch):
  """It is said once for what and for whom; who gives up, or does not wait, goes without it."""
  reporter, said = _spoken()
  monkeypatch.setattr(locks.time, 'sleep', lambda _: looks.append(None) or (len(looks) == 3 and claim.release()))
  claim, _ = locks.Watch(tmp_path).take()
  looks, holder = [], locks.holder(tmp_path)
  for options in (dict(waits=False), dict(gives_up=lambda: True)):
    with locks.held(tmp_path, 'trial 3', reporter, **options) as is_held:
      assert not is_held and not looks and not said()
  with locks.held(tmp_path, 'trial 3', reporter) as is_held:
    assert is_held and len(looks) == 3 and locks.holder(tmp_path).nonce == locks._NONCE
  assert said() == f'waits for trial 3, which {holder} works on\n' and locks.holder(tmp_path) is None
  _elsewhere(tmp_path, 9, machine=locks._machine())
  with locks.held(tmp_path, 'trial 3', reporter):
    pass
  assert said().splitlines()[1] == 'trial 3 is taken over: process 42 on node7 since 2026-01-01 00:00:00 UTC is gone'


def test_process_0_claims_for_all(tmp_path, monkeypatch):
  """The others take its word and touch nothing."""
  for answer in (True, False):
    monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look, answer=answer: answer)
    monkeypatch.setattr(locks.signals, 'check', lambda: None)
    with locks.held(tmp_path, 'it', QUIET) as is_held:
      assert is_held == answer and not _names(tmp_path)


def test_nothing_is_claimed_in_an_object_store():
  """Which has no exclusive creation here: nobody is kept out."""
  directory = storage.located('gs://bucket/trial')
  with locks.held(directory, 'it', QUIET) as is_held:
    assert is_held and locks.holder(directory) is None
    locks.check(directory)


@pytest.fixture
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6, 8), tasks_per_trial=1, models=('exact',), methods=('head',))
  return registry.from_config(config)


def _record(trial):
  row = {**trial.point._asdict(), 'trial': trial.trial, 'task': 0, 'model': 'exact', 'method': 'head'}
  files.write_json_lines(trial.environment_path, [{'model': 'exact', 'method': 'head', 'tasks': [0]}])
  files.write_json_lines(trial.records_path, [row])


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
    assert locks.holder(trial.directory).nonce == locks._NONCE
    seen.append(trial.point.num_states)
    _record(trial)

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  grid = sweep.trials(settings, tmp_path)
  other = grid['|H|=6 trial 0']
  failures.caught(other.directory, ValueError('of long ago'))
  claim, _ = locks.Watch(other.directory).take()
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (ends(other), claim.release()))
  failed = sweep.fill(grid, range(3), 0.0, QUIET)
  assert seen == begun and [failure.sentence for failure in failed] == ([sentence] if sentence else [])


@pytest.mark.parametrize('is_ended', [False, True])
def test_a_trial_that_was_taken_over_is_waited_for(settings, tmp_path, monkeypatch, is_ended):
  """Its process slept, and another one has it or has had it: nothing of it is written here, its time neither, and it
  counts as no failure."""
  grid = sweep.trials(settings, tmp_path)
  trial, path = grid['|H|=4 trial 0'], []

  def run(trial, reporter):
    with trial_records.session(trial, reporter):
      path.append(_elsewhere(trial.directory, 2, released=is_ended))
      _record(trial) if is_ended else None
      trial_records.add(trial, 'exact', 'head', [], {})

  def end(_):
    _record(trial)
    _elsewhere(trial.directory, 2, released=True)

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  monkeypatch.setattr(locks.time, 'sleep', end)
  assert sweep.fill(grid, [0], 0.0, QUIET) == [] and len(path) == 1 and not trial.missing()
  assert not trial.timing_path.exists()
  assert failures.read(trial.directory) is None


def test_a_pretrained_model_is_claimed_while_it_is_trained_or_read(settings, tmp_path, monkeypatch):
  """In its own directory, which experiments share; who waits past the time budget leaves it to another run."""
  trial = next(iter(sweep.trials(settings, tmp_path).values()))
  seen = lambda *words: locks.holder(words[4])
  monkeypatch.setattr(pretraining, 'pretrained_params', seen)
  where = dict(hmm=None, ideals=(), key=None, directory=trial.pretrained_directory, reporter=QUIET)
  params = functools.partial(pretraining.shared_params, **where)
  assert params(settings).nonce == locks._NONCE
  assert locks.holder(trial.pretrained_directory) is None and _names(trial.pretrained_directory)
  _elsewhere(trial.pretrained_directory, 2)
  with pytest.raises(pretraining.OutOfTime):
    params(dataclasses.replace(settings, time_budget=1e-9))


def test_records_are_merged_by_one_process_at_a_time(settings, tmp_path, monkeypatch):
  """So that config.json, environments and records are of one of them."""
  grid, seen = sweep.trials(settings, tmp_path), []
  _record(next(iter(grid.values())))
  monkeypatch.setattr(sweep.results, 'write', lambda workdir, *_: seen.append(locks.holder(workdir)))
  sweep.merge(settings, tmp_path, QUIET)
  assert [holder.nonce for holder in seen] == [locks._NONCE]


def test_a_part_is_run_once(settings, tmp_path, monkeypatch):
  """Of two processes on one workdir one runs a part of a study, and the other reads what it left."""
  begun = []
  monkeypatch.setattr(runner, '_on_exact_device', contextlib.nullcontext)
  monkeypatch.setattr(runner, 'environment', lambda devices: {})

  def part(settings, key, reporter):
    (held,) = tmp_path.glob('parts/*/one')
    begun.append(locks.holder(held).nonce)
    return [{'value': 1}]

  runner.run(settings, {'one': part}, tmp_path, QUIET)
  first = (tmp_path / 'results.jsonl').read_bytes()
  (path,) = tmp_path.glob('parts/*/one/records.jsonl')
  text = path.read_text()
  path.unlink()
  claim, _ = locks.Watch(path.parent).take()
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (path.write_text(text), claim.release()))
  runner.run(settings, {'one': part}, tmp_path, QUIET)
  assert begun == [locks._NONCE] and (tmp_path / 'results.jsonl').read_bytes() == first


def test_a_part_that_was_taken_over_is_read(settings, tmp_path, monkeypatch):
  """What the process wrote that took it over stands."""
  monkeypatch.setattr(runner, '_on_exact_device', contextlib.nullcontext)
  monkeypatch.setattr(runner, 'environment', lambda devices: {})
  theirs, begun = [{'part': 'one', 'value': 'theirs'}], []

  def part(settings, key, reporter):
    begun.append('one')
    (folder,) = tmp_path.glob('parts/*/one')
    files.write_json_lines(folder / 'environment.jsonl', theirs)
    runner.folders.write(folder, theirs, {})
    _elsewhere(folder, 2, released=True)
    return [{'value': 'ours'}]

  runner.run(settings, {'one': part}, tmp_path, QUIET)
  assert begun == ['one'] and [row['value'] for row in files.read_json_lines(tmp_path / 'results.jsonl')] == ['theirs']
  assert files.read_json_lines(tmp_path / 'environment.jsonl') == theirs


def test_a_claim_that_cannot_be_written_is_none(tmp_path, monkeypatch):
  """As on a full disk: a sentence with the file, and no claim that says nothing is left for others to wait for."""

  def full(file, holder):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as patched:
    patched.setattr(locks, '_write', full)
    with pytest.raises(storage.StorageError, match=r'claim-1\.json. was not written \(No space left on device'):
      locks.Watch(tmp_path).take()
  assert not _names(tmp_path)
  claim, _ = locks.Watch(tmp_path).take()
  claim.release()
