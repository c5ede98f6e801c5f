"""A trial that fails: what is kept of it, what becomes of the others, what the exit status and --mode=status say."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time

import jax
import pytest
from run_cases import add_record, exact_settings, lock_elsewhere, OTHER, QUIET

from experiments import main as main_lib
from experiments.pipeline import pretraining, queue, sweep
from experiments.records import failures, files, status
from experiments.runtime import distributed, exit_status, signals
from hmm_jax._support import nan_guard


@pytest.fixture
def grid(tmp_path):
  """Trials of 4, 6 and 8 states."""
  return sweep.folders([exact_settings()], tmp_path)


@pytest.fixture
def runs(monkeypatch):
  """Trials fail by the error of their size here, and are done otherwise; those that have begun, in order."""
  errors, begun = {}, []

  def run(folder, missing, reporter):
    size = folder.trial.point.num_states
    begun.append(size)
    if size in errors:
      raise errors[size]
    add_record(folder)

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return errors, begun


@pytest.mark.parametrize(
  ('error', 'sentence', 'code'),
  [
    (MemoryError('no room\n  at 0x1'), 'MemoryError: no room', exit_status.FAILED),
    (nan_guard.Diverged('the loss is inf'), 'the loss is inf', exit_status.DIVERGED),
  ],
  ids=['MemoryError', 'Diverged'],
)
def test_a_trial_that_fails_stops_no_other(grid, runs, tmp_path, error, sentence, code):
  """Whatever it raises. It is kept with its traceback, tried again by another run, and then forgotten."""
  errors, begun = runs
  errors[6] = error
  folder = grid[1]
  settings = folder.trial.settings
  with pytest.raises(queue.UnitsFailed, match=f'failed: {sentence};') as failed:
    sweep.run([settings], tmp_path, QUIET)
  assert failed.value.status == code and begun == [4, 6, 8]
  kept = failures.read(folder.directory)
  assert (kept['error'], kept['status']) == (sentence, code) and 'raise errors[' in kept['traceback']
  errors.clear()
  assert sweep.run([settings], tmp_path, QUIET) is None and begun == [4, 6, 8, 6]
  assert failures.read(folder.directory) is None


@pytest.mark.parametrize(('codes', 'status'), [((3, 3), 3), ((2, 2), 2), ((2, 3), 1)])
def test_the_exit_status_is_that_of_every_failure(codes, status):
  """The status that all failures share, or else that of any failure."""
  assert queue.UnitsFailed([failures.Failure('no', code) for code in codes], None).status == status


@pytest.mark.parametrize(
  ('error', 'processes'), [(signals.Stopped(15), 1), (pretraining.OutOfTime(), 1), (RuntimeError('alone'), 2)]
)
def test_a_stopped_run_starts_no_other_trial(grid, runs, tmp_path, monkeypatch, error, processes):
  """By a signal, the time budget, or an error that only one of several processes raises."""
  errors, begun = runs
  errors[6] = error
  monkeypatch.setattr(distributed, 'num_processes', lambda: processes)
  monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: look())
  with contextlib.suppress(type(error)):
    assert queue.fill(sweep.units(grid, range(3)), 0.0, QUIET) == []
  assert begun == [4, 6] and not list(tmp_path.glob('trials/*/failed.json'))


def test_a_process_of_this_host_that_is_gone_does_not_run(tmp_path):
  """Though it renewed its lock a moment ago; one that lives does."""
  (folder,) = sweep.folders([exact_settings(num_states=(4,))], tmp_path)
  path = lock_elsewhere(folder.directory)
  with subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE) as process:
    path.write_text(path.read_text().replace('pid=42', f'pid={process.pid}').replace('node7', socket.gethostname()))
    assert status.state(folder).startswith(f'running in process {process.pid} on ')
    process.communicate(b'\n')
  assert status.state(folder).startswith(f'stale since process {process.pid} on ')


def test_the_status_of_every_trial_is_printed(tmp_path, monkeypatch, capsys):
  """Done, running or stale and by whom, failed and why, or missing; no device is looked at, and nothing is written.

  The reason is shown as it is, and one that lacks its time or is of other types is unknown.
  """
  flags = ['--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', '--config.models=exact', '--config.methods=head']
  flags += ['--config.num_states=4,6,8,10,12,14', '--config.tasks_per_trial=1', '--config.fast_compilation']
  grid = sweep.folders([exact_settings(num_states=(4, 6, 8, 10, 12, 14))], tmp_path)
  done, runs, stale, failed, odd, _ = grid
  add_record(done)
  lock_elsewhere(runs.directory)
  os.utime(lock_elsewhere(stale.directory), (0, time.time() - 3670))
  for folder in (runs, failed):
    failures.write(folder.directory, ValueError('bad\x1b luck'))
  files.write_sealed(odd.directory / 'failed.json', {'error': ['x'], 'status': 1})
  before = files.tree(tmp_path).keys()
  monkeypatch.setattr(jax, 'devices', lambda *_: pytest.fail('looks at devices'))
  assert main_lib.main(['main', '--mode=status', *flags]) == 0
  words = ['done', f'running in {OTHER}', f'stale since {OTHER}.* 1:0[12]:', r'failed at .*: ValueError: bad\\x1b luck']
  words += ['failed at an unknown time: ']
  words += ['missing 1 of 1: exact head', '1 done, 1 running, 1 stale, 2 failed, 1 missing']
  lines = capsys.readouterr().out.splitlines()
  assert [word for word, line in zip(words, lines, strict=True) if not re.search(f' {word}', line)] == []
  assert files.tree(tmp_path).keys() == before
