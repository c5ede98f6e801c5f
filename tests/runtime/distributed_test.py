"""Several processes for real on this machine's CPU: what they decide, compute and keep, and how they end."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time

from conftest import assert_same_bits, ROOT
from faults.processes import Run
import forked
import pytest
from run_cases import finished_command, pretraining_settings, records_of

from configs import base
from experiments.records import files
from experiments.runtime import distributed
from experiments.settings.devices import DistributedSettings

pytestmark = pytest.mark.slow

# Seconds. HEARTBEAT is short, so that a test with a killed process ends soon; PATIENT is long, for busy machines.
HEARTBEAT, PATIENT = 8, 120
# Seconds in which the other processes must end: the time-out, one more beat, and room for a busy machine.
BOUND = 3 * HEARTBEAT

# Pretrains on any tokens, unmeasured. Before, what one process decides for all. A process gets the signal
# `how` at [process, step] `dying`.
PROGRAM = """
import json, os, pathlib, sys
recorded, out, devices, dying, how = json.loads(sys.argv[1])
import jax, numpy as np
from experiments.pipeline import distance, pretraining
from experiments.records import checkpoints
from experiments.runtime import distributed, signals
from experiments.settings.fields import require, SettingsError
from experiments.studies import registry
from run_cases import any_tokens, QUIET

settings = registry.from_record(recorded)
distributed.initialize(settings.distributed)
me, count = jax.process_index(), max(settings.distributed.num_processes, 1)
assert (jax.process_count(), jax.device_count(), distributed.is_writer()) == (count, count * devices, me == 0)

def refusal(call, *words):
  try:
    call(*words)
  except SettingsError as error:
    return str(error)

first = distributed.in_process_0
assert first(lambda: [me, {'a': None}])() == [0, {'a': None}]
assert refusal(first(require), me, 'step', me, 'another') == 'step is 0; valid is another'
own = pathlib.Path(out, '.' if me == 0 else 'nowhere', 'none')
assert me == 0 or refusal(checkpoints.restore, own, None, QUIET).startswith('the directory of a pretrained model is ')
assert me or checkpoints.restore(own, None, QUIET) is None

def save(directory, step, state):
  whole_save(directory, step, state)
  first(lambda: None)()
  if [me, step] == dying:
    os.kill(os.getpid(), how)

whole_save, checkpoints.save = checkpoints.save, save
distance.measure = lambda *_: {'kl_at_mask': 0.5}
pretraining.chunked_corpus = any_tokens
out = pathlib.Path(out)
try:
  with signals.answered():
    planned = pretraining.planned(settings, None, jax.random.key(3))
    params = pretraining.pretrained_params(pretraining.home(settings, planned, out), QUIET)
except signals.Stopped as stopped:
  sys.exit(stopped.status)
leaves = jax.tree.leaves(params)
assert {leaf.sharding.device_set == {jax.local_devices()[0]} for leaf in leaves} == {True}
np.savez(out / 'params.npz', *leaves)
"""


def _free_port():
  with socket.socket() as free:
    free.bind(('localhost', 0))
    return free.getsockname()[1]


@contextlib.contextmanager
def _started(directory, count, devices, dying=None, how=0):
  """`count` processes of `devices` each, of which none outlives the block."""
  address, processes = f'localhost:{_free_port()}', []
  with contextlib.ExitStack() as ends:
    for index in range(count):
      joined = dict(mode='on', coordinator_address=address, num_processes=count, process_id=index)
      joined['heartbeat_timeout'] = HEARTBEAT if how == signal.SIGKILL else PATIENT
      joined = {f'distributed__{name}': value for name, value in joined.items() if count > 1}
      settings = dataclasses.asdict(pretraining_settings(pretrain__num_steps=12, **joined))
      words = json.dumps([settings, str(directory), devices, dying, int(how)])
      processes.append(forked.start(PROGRAM, words, devices=devices, errors=directory / f'errors-{index}'))
      ends.callback(processes[-1].join)
      ends.callback(processes[-1].kill)
    yield processes


def _run_alone(directory):
  """One process on two devices runs to the end, which is a good one."""
  with _started(directory, 1, 2) as (process,):
    forked.check_end(process, 600)


@pytest.fixture(scope='module')
def interrupted(tmp_path_factory):
  """The directory of a pretraining on two devices, and how processes of it ended.

  Two processes until one is killed after step 2; two until one is told to end after step 4; one with both devices.
  """
  directory = tmp_path_factory.mktemp('interrupted')
  with _started(directory, 2, 1, (1, 2), signal.SIGKILL) as (left, killed):
    killed.join(600)
    begun = time.monotonic()
    left.join(600)
    ends = [time.monotonic() - begun, killed.exitcode, left.exitcode]
  with _started(directory, 2, 1, (1, 4), signal.SIGTERM) as both:
    for process in both:
      process.join(600)
    ends += [process.exitcode for process in both]
  _run_alone(directory)
  return directory, ends


def test_all_processes_end_if_one_is_killed_or_signalled(interrupted):
  """After a kill within the bound that the heartbeat sets, and with a failure; after a signal with its status."""
  seconds, killed, left, *told = interrupted[1]
  assert seconds < BOUND and killed == -signal.SIGKILL and left not in (0, None)
  assert told == [143, 143]


def test_on_other_numbers_of_processes_it_ends_as_if_never_interrupted(interrupted, tmp_path):
  """Bit for bit what one process with the same two devices makes of it."""
  directory, _ = interrupted
  _run_alone(tmp_path)
  assert_same_bits(*(files.read_arrays(path / 'params.npz') for path in (directory, tmp_path)))
  assert files.read_json_lines(directory / 'metrics.jsonl') == files.read_json_lines(tmp_path / 'metrics.jsonl')


@pytest.mark.usefixtures('cheap_commands')
def test_two_processes_of_one_run_make_the_records_of_one(tmp_path, monkeypatch):
  """Bit for bit."""
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  command = ['--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head', '--config.num_states=4']
  command += ['--config.compilation_cache=']
  finished_command(*command, f'--workdir={tmp_path / "one"}')
  address = f'--config.distributed.coordinator_address=localhost:{_free_port()}'
  command += [f'--workdir={tmp_path / "two"}', address, '--config.distributed.num_processes=2']
  runs = [Run([*command, f'--config.distributed.process_id={index}'], tmp_path / 'logs') for index in (0, 1)]
  assert [run.end().status for run in runs] == [0, 0]
  one, two = (records_of(tmp_path / name) for name in ('one', 'two'))
  assert one == two != []


SRUN = dict(JOB_ID='7', STEP_NODELIST='node[03-04]', NTASKS='2', PROCID='1', LOCALID='0')
OUTRIGHT = dict(mode='on', coordinator_address='a:1', num_processes=3, process_id=0)


def _asked(**changes):
  return DistributedSettings(**{**base.get_config().distributed.to_dict(), **changes})


@pytest.mark.parametrize(
  ('variables', 'changes', 'joined'),
  [
    ({}, {}, []),
    (SRUN, {}, [('node03:61447', 2, 1, [0])]),
    (SRUN, OUTRIGHT, [('a:1', 3, 0, None)]),
  ],
  ids=['nothing', 'srun', 'outright'],
)
def test_a_cluster_is_joined_by_its_variables(monkeypatch, variables, changes, joined):
  """Processes are joined if others were started, unless it is off or set otherwise; else none is waited for."""
  for name in [name for name in os.environ if name.startswith(('SLURM_', 'OMPI_', 'KUBERNETES_', 'JAX_COORD'))]:
    monkeypatch.delenv(name)
  for name, value in variables.items():
    monkeypatch.setenv(f'SLURM_{name}', value)
  calls = []
  monkeypatch.setattr(distributed.jax.distributed, 'initialize', lambda *words, **_: calls.append(words))
  distributed.initialize(_asked(**changes))
  assert calls == joined
