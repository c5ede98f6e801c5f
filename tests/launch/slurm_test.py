"""launch/slurm.sbatch on a real SLURM: one node, brought up for this module alone, all that it keeps in one folder."""

import contextlib
import getpass
import json
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

from experiments.records.files import read_json_lines

# Debian puts the daemons where a user does not look.
PATH = f'{os.environ["PATH"]}:/usr/sbin:/sbin'
LACKING = [
  name for name in ('munged', 'slurmctld', 'slurmd', 'sbatch', 'scontrol') if not shutil.which(name, path=PATH)
]
pytestmark = [
  pytest.mark.engines,
  pytest.mark.skipif(
    bool(LACKING) and not os.environ.get('REQUIRE_ENGINES'),
    reason=f'needs {", ".join(LACKING)}: apt-get install slurm-wlm munge',
  ),
]

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
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


@pytest.fixture(scope='module')
def slurm():
  """The environment in which commands find it; the daemons are stopped by their ids."""
  with tempfile.TemporaryDirectory(prefix='slurm-') as name, contextlib.ExitStack() as daemons:
    folder = pathlib.Path(name)
    for directory in ('state', 'spool'):
      (folder / directory).mkdir()
    (folder / 'key').write_bytes(os.urandom(1024))
    (folder / 'key').chmod(0o400)
    env = {**os.environ, 'PATH': PATH, 'SLURM_CONF': str(folder / 'slurm.conf')}
    (folder / 'slurm.conf').write_text(_conf(folder))
    paths = {
      'socket': 'munge.socket',
      'key-file': 'key',
      'pid-file': 'pid',
      'seed-file': 'seed',
      'log-file': 'munge.log',
    }
    options = [f'--{option}={folder / path}' for option, path in paths.items()]
    _start(daemons, folder, env, 'munged', '--foreground', '--force', *options)
    log = lambda: '\n'.join(path.read_text(errors='replace') for path in sorted(folder.glob('*.log')))
    _wait((folder / 'munge.socket').exists, 20, log)
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


# Of the shapes of main_test, so that nothing is compiled again where that has run.
TINY = (
  '--config.num_states=6',
  '--config.num_trials=2',
  '--config.models=bert',
  '--config.methods=head',
  '--config.downstream.num_train=64',
  '--config.head.num_epochs=1',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)


@pytest.fixture(scope='module')
def environment(slurm):
  """That of both runs: `python` is this one, and compiles fast."""
  settings = {'PYTHONPATH': str(ROOT), 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  return {**slurm, 'PATH': f'{sys.prefix}/bin:{slurm["PATH"]}', **settings}


def _submit(env, workdir, array, *flags):
  """The id of the array."""
  command = ['sbatch', '--parsable', f'--array={array}', f'--output={workdir}-%a.log', ROOT / 'launch' / 'slurm.sbatch']
  return _call(env, *command, 'prompt_vs_head:smoke', str(workdir), *flags)


def _printed(workdir):
  return '\n'.join(path.read_text() for path in sorted(workdir.parent.glob('*.log')))


def _job(env, task):
  """What SLURM knows of a task of an array."""
  return dict(word.split('=', 1) for word in _call(env, 'scontrol', 'show', 'job', '-o', task).split() if '=' in word)


def _is_pending(env, task):
  """Whether it waits to begin again, and nothing of it is left."""
  return _call(env, 'squeue', '--noheader', f'--jobs={task}', '--format=%T') == 'PENDING'


def test_an_array_with_requeued_tasks_ends_as_one_process_does(environment, tmp_path):
  """A task for each trial, one told that its time ends and one requeued from outside, both in the middle of a trial.

  Both begin once more, and the merged records, their table and what they came from are those of one process.
  """
  env, local, workdir = environment, tmp_path / 'local', tmp_path / 'array'
  # Which keeps its logs in the folder of temporary files.
  _call(
    {**env, 'TMPDIR': str(tmp_path)},
    ROOT / 'launch' / 'local.sh',
    '1',
    'prompt_vs_head:smoke',
    f'--workdir={local}',
    *TINY,
  )
  records = read_json_lines(local / 'results.jsonl')
  array = _submit(env, workdir, '0-1', *TINY)
  for task, ends in ((0, ('scancel', '--batch', '--signal=USR1')), (1, ('scontrol', 'requeue'))):
    begun = workdir / 'pretrained' / records[task]['pretraining_id'] / 'checkpoints' / '20'
    _wait(begun.exists, 240, lambda: _printed(workdir))
    _call(env, *ends, f'{array}_{task}')
  for task in range(2):
    _wait(lambda: _is_pending(env, f'{array}_{task}'), 60, lambda: _printed(workdir))  # noqa: B023
    # Or SLURM waits for two minutes. Within the second in which it has revoked its credential a job cannot begin.
    _call(env, 'scontrol', 'update', f'JobId={array}_{task}', 'StartTime=now+2')
  _wait(lambda: not _call(env, 'squeue', '--noheader'), 300, lambda: _printed(workdir))
  jobs = [_job(env, f'{array}_{task}') for task in range(2)]
  assert [(job['Restarts'], job['JobState']) for job in jobs] == [('1', 'COMPLETED')] * 2, _printed(workdir)
  assert (workdir / 'table.txt').read_bytes() == (local / 'table.txt').read_bytes()
  assert _without_environment(workdir) == _without_environment(local)
  assert {record['trial_id'] for record in records} == {path.name for path in (workdir / 'trials').iterdir()}


def _without_environment(workdir):
  """The records of a run, whatever machine they came from."""
  return [
    {name: value for name, value in record.items() if name != 'environment'}
    for record in read_json_lines(workdir / 'results.jsonl')
  ]


def test_two_processes_of_a_step_end_as_one_with_two_devices(environment, tmp_path):
  """`srun -n2`: found by JAX without a word of ours, on one trial together, and only one of them writes."""
  env, together, alone = environment, tmp_path / 'together', tmp_path / 'alone'
  python = ('python', '-m', 'experiments.main', '--config=prompt_vs_head:smoke', *TINY, '--config.num_trials=1')
  cpus = lambda count: {**env, 'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(count)}
  _call(cpus(2), *python, f'--workdir={alone}')
  printed = _call(cpus(1), 'srun', '--ntasks=2', '--overcommit', '--label', *python, f'--workdir={together}')
  (here,) = (json.loads(path.read_text()) for path in (together / 'environments').iterdir())
  assert here['processes'] == 2 == len(here['devices'])
  assert _without_environment(together) == _without_environment(alone)
  said = [line for line in printed.splitlines() if '[Gloo]' not in line]
  assert f'0: records: {together / "results.jsonl"}' in said and not any(line.startswith('1: ') for line in said)
