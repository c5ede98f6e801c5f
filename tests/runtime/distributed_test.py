"""Several processes for real on this machine's CPU: what they decide, compute and keep, and how they end."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import tempfile
import time

import forked
import numpy as np
import pytest
from run_cases import pretraining_settings

from configs import base
from experiments.records import files
from experiments.runtime import distributed
from experiments.settings.devices import DistributedSettings
from experiments.settings.fields import SettingsError

# Seconds: the default would make a long test where one dies; where none does a busy machine may be slow.
HEARTBEAT, PATIENT = 8, 120
# Those within which the others end when one dies: the time-out, one more beat, and room for a busy machine.
BOUND = 3 * HEARTBEAT

# Pretrains on any tokens, unmeasured. Before, what one process decides and what all agree on. A process gets the signal
# `how` at [process, step] `dying`.
PROGRAM = """
import json, os, pathlib, signal, sys
recorded, out, devices, dying, how = json.loads(sys.argv[1])
import jax, numpy as np
from experiments.pipeline import pretraining
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
  except (SettingsError, signals.Stopped) as error:
    return str(error)

broadcast = distributed.broadcast_from_process_0
assert broadcast(lambda: [me, broadcast(lambda: {'a': None})]) == [0, {'a': None}]
assert refusal(broadcast, lambda: require(me, 'step', me, 'another')) == 'step is 0; valid is another'
last = f'host is {count - 1}; valid is another'
assert refusal(distributed.raise_everywhere, lambda: require(me < count - 1, 'host', me, 'another')) == last
if count > 1:
  own = pathlib.Path(out, f'own-{me}')
  assert refusal(checkpoints.open_checkpoints(own).__enter__).startswith('the directory of checkpoints is ')
  with signals.answered():
    if me == 0:
      signal.raise_signal(signal.SIGINT)
    assert refusal(broadcast, signals.check).startswith('stopped by SIGINT')

def save(self, step, state, metrics):
  whole_save(self, step, state, metrics)
  distributed.broadcast_from_process_0(lambda: None)
  if [me, step] == dying:
    os.kill(os.getpid(), how)

whole_save, checkpoints.Checkpoints.save = checkpoints.Checkpoints.save, save
pretraining.measure = lambda *_: {'kl_at_mask': 0.5}
pretraining._corpus = any_tokens
out = pathlib.Path(out)
try:
  with signals.answered():
    params = pretraining.pretrained_params(settings, None, (), jax.random.key(3), out, QUIET)
except signals.Stopped as stopped:
  sys.exit(stopped.status)
leaves = jax.tree.leaves(params)
assert {leaf.sharding.device_set == {jax.local_devices()[0]} for leaf in leaves} == {True}
np.savez(out / f'params-{me}.npz', *leaves)
"""


@contextlib.contextmanager
def _started(directory, count, devices, dying=None, how=0):
  """`count` processes of `devices` each, of which none outlives the block."""
  heartbeat = HEARTBEAT if how in (signal.SIGKILL, signal.SIGSTOP) else PATIENT
  with socket.socket() as free:
    free.bind(('localhost', 0))
    address = f'localhost:{free.getsockname()[1]}'
  with contextlib.ExitStack() as ends:
    said, processes = pathlib.Path(ends.enter_context(tempfile.TemporaryDirectory())), []
    for index in range(count):
      joined = dict(mode='on', coordinator_address=address, num_processes=count, process_id=index)
      joined = {f'distributed__{name}': value for name, value in (joined if count > 1 else {}).items()}
      settings = pretraining_settings(pretrain__num_steps=12, distributed__heartbeat_timeout=heartbeat, **joined)
      words = json.dumps([dataclasses.asdict(settings), str(directory), devices, dying, int(how)])
      processes.append(forked.start(PROGRAM, words, devices=devices, errors=said / str(index)))
      ends.callback(processes[-1].join)
      ends.callback(processes[-1].kill)
    yield processes


def _run(*arguments):
  """Runs processes to the end, which is a good one in each."""
  with _started(*arguments) as processes:
    for process in processes:
      forked.check_end(process, 600)


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
  """What one process on two devices makes of it, never interrupted."""
  directory = tmp_path_factory.mktemp('alone')
  _run(directory, 1, 2)
  return directory


def _end(process):
  """After how many seconds it ends, and with which exit code."""
  begun = time.monotonic()
  process.join(600)
  return time.monotonic() - begun, process.exitcode


@pytest.fixture(scope='module')
def interrupted(tmp_path_factory):
  """A pretraining on two devices that went on three times: its directory, and by signal how processes ended.

  Two processes until one is killed after step 2; two until the other is stopped after step 4; two until one is told to
  end after step 6; one process with both devices to the end.
  """
  directory, ends = tmp_path_factory.mktemp('interrupted'), {}
  with _started(directory, 2, 1, (1, 2), signal.SIGKILL) as (left, killed):
    killed.join(600)
    assert killed.exitcode == -signal.SIGKILL
    ends['kill'] = _end(left)
  with _started(directory, 2, 1, (0, 4), signal.SIGSTOP) as (stopped, left):
    while not forked.is_stopped(stopped):
      assert stopped.is_alive()
      time.sleep(0.01)
    ends['stop'] = _end(left)
  with _started(directory, 2, 1, (1, 6), signal.SIGTERM) as both:
    ends['signal'] = [_end(process)[1] for process in both]
  _run(directory, 1, 2)
  return directory, ends


def _params(directory, process):
  with np.load(directory / f'params-{process}.npz', allow_pickle=False) as arrays:
    return [arrays[name] for name in arrays]


@pytest.mark.parametrize('how', ['kill', 'stop'])
def test_the_others_end_soon_after_one_is_killed_or_stopped(interrupted, how):
  """With a failure, and within the bound that the heartbeat sets."""
  seconds, code = interrupted[1][how]
  assert seconds < BOUND and code not in (0, None)


def test_a_signal_to_one_of_several_processes_ends_all(interrupted):
  """Both have the status of the signal."""
  assert interrupted[1]['signal'] == [143, 143]


def test_on_other_numbers_of_processes_it_ends_as_if_never_interrupted(interrupted, alone):
  """Bit for bit what one process with the same two devices makes of it; each start is noted once."""
  directory, _ = interrupted
  for ours, theirs in zip(_params(directory, 0), _params(alone, 0), strict=True):
    np.testing.assert_array_equal(ours, theirs)
  assert files.read_json_lines(directory / 'metrics.jsonl') == files.read_json_lines(alone / 'metrics.jsonl')
  rows = files.read_json_lines(directory / 'environment.jsonl')
  *firsts, (last, processes, devices) = [(row['from_step'], row['processes'], len(row['devices'])) for row in rows]
  assert firsts == [(0, 2, 2), (2, 2, 2), (4, 2, 2)]
  # The signal came after step 6, and is answered by both after a later call.
  assert last in (8, 10) and (processes, devices) == (1, 2)


def test_two_processes_of_two_devices_equal_one_of_two(alone, tmp_path):
  """To what the order of summands makes in float32; losses are about 2.3, parameters below 1."""
  _run(tmp_path, 2, 2)
  for ours, theirs in zip(_params(tmp_path, 1), _params(alone, 0), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
  of_both = [files.read_json_lines(path / 'metrics.jsonl') for path in (tmp_path, alone)]
  losses = [[row.get('train_loss', 0) for row in rows] for rows in of_both]
  np.testing.assert_allclose(*losses, rtol=1e-6)


SLURM_STEP = {
  'SLURM_JOB_ID': '7',
  'SLURM_STEP_NODELIST': 'node[03-04]',
  'SLURM_NTASKS': '2',
  'SLURM_PROCID': '1',
  'SLURM_LOCALID': '0',
}


def _asked(**changes):
  return DistributedSettings(**{**base.get_config().distributed.to_dict(), **changes})


OUTRIGHT = dict(mode='on', coordinator_address='a:1', num_processes=3, process_id=0)


@pytest.mark.parametrize(
  ('variables', 'changes', 'joined'),
  [
    ({}, {}, []),
    # A batch script without srun.
    ({name: SLURM_STEP[name] for name in SLURM_STEP if name != 'SLURM_STEP_NODELIST'}, {}, []),
    (SLURM_STEP, dict(mode='off'), []),
    (SLURM_STEP, {}, [('node03:61447', 2, 1, [0])]),
    (SLURM_STEP, OUTRIGHT, [('a:1', 3, 0, None)]),
  ],
  ids=['nothing', 'a batch script', 'off', 'srun', 'outright'],
)
def test_a_cluster_is_joined_as_it_says(monkeypatch, variables, changes, joined):
  """Where other processes were started, unless it is off or said otherwise; elsewhere nobody is waited for."""
  for name in [name for name in os.environ if name.startswith(('SLURM_', 'OMPI_', 'KUBERNETES_', 'JAX_COORD'))]:
    monkeypatch.delenv(name)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  calls = []
  monkeypatch.setattr(distributed.jax.distributed, 'initialize', lambda *words, **_: calls.append(words))
  distributed.initialize(_asked(**changes))
  assert calls == joined


def test_what_cannot_be_joined_is_refused():
  with pytest.raises(SettingsError, match="distributed.mode is 'on'"):
    distributed.initialize(_asked(mode='on'))
  with pytest.raises(SettingsError, match='process_id is 3'):
    _asked(**OUTRIGHT | {'process_id': 3})
