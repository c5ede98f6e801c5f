"""Locks: mutual exclusion, and takeover after a crash."""

import os
import socket
import subprocess

import pytest
from run_cases import lock_elsewhere, QUIET

from experiments.runtime import locks


def test_one_process_at_a_time_holds_a_lock(tmp_path):
  """Others know who; released it leaves no file."""
  directory = tmp_path / 'new'
  with locks.held(directory, QUIET) as is_held, locks.held(directory, QUIET, lambda: True) as is_other:
    assert is_held and not is_other and locks.holder(directory).startswith(f'process {os.getpid()} on ')
    locks.check_held(directory)
  assert locks.holder(directory) is None and not list(directory.iterdir())


def test_a_process_that_is_killed_is_taken_over_at_once(tmp_path):
  """If it was a process of this machine."""
  dead = subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout
  lock_elsewhere(tmp_path, dead.strip(), socket.gethostname())
  with locks.held(tmp_path, QUIET, lambda: True) as is_held:
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
  with locks.held(tmp_path, QUIET) as is_held:
    assert is_held and 90 <= clock[0] - 1050 <= 120


@pytest.mark.parametrize('change', [lock_elsewhere, lambda directory: (directory / locks.NAME).unlink()])
def test_a_process_learns_that_it_was_taken_over(tmp_path, change):
  """The lock file is another process's, or missing."""
  with locks.held(tmp_path, QUIET):
    change(tmp_path)
    with pytest.raises(locks.Lost):
      locks.check_held(tmp_path)
