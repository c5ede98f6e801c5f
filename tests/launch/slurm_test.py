"""launch/slurm.sbatch on a real SLURM: one node, brought up for this module alone, all that it keeps in one folder."""

import contextlib
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from conftest import ROOT
import pytest
from run_cases import CHEAP, records_of

# Debian puts the daemons where a user does not look.
PATH = f'{os.environ["PATH"]}:/usr/sbin:/sbin'
LACKING = [name for name in ('slurmctld', 'slurmd', 'sbatch', 'scontrol') if not shutil.which(name, path=PATH)]
pytestmark = [
  pytest.mark.engines,
  pytest.mark.skipif(
    bool(LACKING) and not os.environ.get('REQUIRE_ENGINES'),
    reason=f'needs {", ".join(LACKING)}: apt-get install slurm-wlm',
  ),
]

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=2
SchedulerParameters=sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


def _wait(is_there, seconds, what):
  deadline = time.monotonic() + seconds
  while not (found := is_there()):
    assert time.monotonic() < deadline, what()
    time.sleep(0.1)
  return found


@pytest.fixture
def slurm():
  """The environment in which commands find it; the daemons are stopped by their ids."""
  with tempfile.TemporaryDirectory(prefix='slurm-') as name, contextlib.ExitStack() as daemons:
    folder = pathlib.Path(name)
    for directory in ('state', 'spool'):
      (folder / directory).mkdir()
    env = {**os.environ, 'PATH': PATH, 'SLURM_CONF': str(folder / 'slurm.conf')}
    (folder / 'slurm.conf').write_text(_conf(folder))
    log = lambda: '\n'.join(path.read_text(errors='replace') for path in sorted(folder.glob('*.log')))
    _start(daemons, folder, env, 'slurmctld', '-D')
    _start(daemons, folder, env, 'slurmd', '-D')
    _wait(lambda: 'idle' in _call(env, 'sinfo', '--noheader', '--format=%T', fails=True), 60, log)
    yield env


def _conf(folder):
  with contextlib.ExitStack() as held:
    ports = [held.enter_context(socket.create_server(('127.0.0.1', 0))).getsockname()[1] for _ in range(2)]
  return CONF.format(
    folder=folder,
    host=socket.gethostname().partition('.')[0],
    user=getpass.getuser(),
    cpus=os.cpu_count(),
    controller_port=ports[0],
    node_port=ports[1],
  )


def _start(daemons, folder, env, *command):
  with open(folder / f'{command[0]}.log', 'wb') as log:
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
  daemons.callback(process.wait)
  daemons.callback(process.kill)


def _call(env, *command, fails=False):
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  assert fails or done.returncode == 0, done.stderr
  return done.stdout.strip()


def test_an_array_with_requeued_tasks_ends_as_one_process_does(slurm, tmp_path):
  """A task for each trial, one told that its time ends and one requeued from outside, both in the middle of a trial.

  Both begin once more, and the merged records and their table are those of one process.
  """
  python = {'PATH': f'{sys.prefix}/bin:{slurm["PATH"]}', 'PYTHONPATH': str(ROOT), 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  env, local, workdir = slurm | python, tmp_path / 'local', tmp_path / 'array'
  # The shapes of main_test, so that nothing is compiled again after it.
  words = ['num_states=6', 'num_trials=2', 'models=bert', 'methods=head']
  flags = [*CHEAP, *(f'--config.{word}' for word in words)]
  printed = lambda: '\n'.join(path.read_text() for path in tmp_path.glob('*.log'))
  _call(env, 'python', '-m', 'experiments.main', '--config=prompt_vs_head:smoke', f'--workdir={local}', *flags)
  records = records_of(local)
  submit = 'sbatch', '--parsable', '--array=0-1', f'--output={workdir}-%a.log', ROOT / 'launch' / 'slurm.sbatch'
  array = _call(env, *submit, 'prompt_vs_head:smoke', workdir, *flags)
  for task, ends in ((0, ('scancel', '--batch', '--signal=USR1')), (1, ('scontrol', 'requeue'))):
    _wait((workdir / 'pretrained' / records[task]['pretraining_id'] / 'checkpoints' / '20').exists, 240, printed)
    _call(env, *ends, f'{array}_{task}')
  for task in range(2):
    state = 'squeue', '--noheader', f'--jobs={array}_{task}', '--format=%T'
    _wait(lambda: _call(env, *state) == 'PENDING', 60, printed)  # noqa: B023
    # Or SLURM waits for two minutes. Within the second in which it has revoked its credential a job cannot begin.
    _call(env, 'scontrol', 'update', f'JobId={array}_{task}', 'StartTime=now+2')
  _wait(lambda: not _call(env, 'squeue', '--noheader'), 300, printed)
  jobs = [_call(env, 'scontrol', 'show', 'job', '-o', f'{array}_{task}') for task in range(2)]
  assert all(' Restarts=1 ' in job and ' JobState=COMPLETED ' in job for job in jobs), printed()
  assert (workdir / 'table.txt').read_bytes() == (local / 'table.txt').read_bytes()
  assert records_of(workdir) == records
