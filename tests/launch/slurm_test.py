"""launch/slurm.sbatch as SLURM runs it, against an scontrol and an experiment that stand for the real ones."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

from . import stand_ins

SCRIPT = pathlib.Path(__file__).parents[2] / 'launch' / 'slurm.sbatch'
# Ends with a checkpoint when it is told to, or else with `STATUS` once there is a file `end`.
EXPERIMENT = """#!/bin/sh
trap 'echo checkpoint >> done; exit 143' TERM
echo "$*" > words
until [ -e end ]; do sleep 0.05; done
exit "$STATUS"
"""
SCONTROL = '#!/bin/sh\necho "$*" >> done\n'


@pytest.fixture
def started(tmp_path):
  """Task 7 of job 41, which has begun; it and what it started are gone afterwards."""
  stand_ins.put(tmp_path, {'python': EXPERIMENT, 'scontrol': SCONTROL})
  env = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'STATUS': '3'}
  env |= {'SLURM_ARRAY_TASK_ID': '7', 'SLURM_JOB_ID': '41'}
  command = ['bash', SCRIPT, 'theory:smoke', 'work', '--config.seed=1']
  with subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True) as process:
    try:
      _wait(tmp_path / 'words')
      yield process
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _wait(path, lines=1):
  deadline = time.monotonic() + 60
  while not path.exists() or len(path.read_text().splitlines()) < lines:
    assert time.monotonic() < deadline, f'{path} does not come'
    time.sleep(0.02)


def test_a_task_runs_its_trial_and_has_its_exit_status(started, tmp_path):
  (tmp_path / 'end').touch()
  assert started.wait(60) == 3 and not (tmp_path / 'done').exists()
  words = '-m experiments.main --config=theory:smoke --workdir=work --trials=7 --config.seed=1\n'
  assert (tmp_path / 'words').read_text() == words


def test_a_task_whose_time_ends_requeues_itself_after_its_checkpoint(started, tmp_path):
  """SLURM tells the script alone, and ends it; until then it stays."""
  started.send_signal(signal.SIGUSR1)
  _wait(tmp_path / 'done', lines=2)
  assert (tmp_path / 'done').read_text() == 'checkpoint\nrequeue 41\n'
  with pytest.raises(subprocess.TimeoutExpired):
    started.wait(0.5)
  assert '#SBATCH --signal=B:USR1@' in SCRIPT.read_text()
