"""Several processes for real on this machine's CPU: what they decide, compute and keep, and how they end."""

import dataclasses
import json
import os
import signal
import socket
import time

import forked
from jax._src import clusters
import numpy as np
import pytest

from configs import base, prompt_vs_head
from experiments.records import checkpoints
from experiments.runtime import distributed
from experiments.settings.devices import DistributedSettings
from experiments.settings.fields import SettingsError
from experiments.studies import registry

# Seconds: the default would make a long test.
HEARTBEAT = 4
# Those within which the others end when one dies: the time-out, one more beat, and room for a busy machine.
BOUND = 3 * HEARTBEAT

# Pretrains the smallest BERT for 8 steps, keeping every second, on any tokens, unmeasured. Before, what one
# process decides and what all agree on. A process dies at [process, step] `dying`, by the signal `how`.
PROGRAM = """
import json, os, pathlib, sys
recorded, out, devices, dying, how = json.loads(sys.argv[1])
import jax, numpy as np, rich.console
from experiments.pipeline import pretraining
from experiments.records import checkpoints, files
from experiments.records import checkpoints
from experiments.runtime import distributed, signals
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require, SettingsError
from experiments.studies import registry

settings = registry.from_record(recorded)
distributed.initialize(settings.distributed)
me, count = jax.process_index(), max(settings.distributed.num_processes, 1)
assert (jax.process_count(), jax.device_count(), distributed.is_writer()) == (count, count * devices, me == 0)

def refusal(call, check):
  try:
    call(check)
  except SettingsError as error:
    return str(error)

broadcast = distributed.broadcast_from_process_0
assert broadcast(lambda: [me, broadcast(lambda: {'a': None})]) == [0, {'a': None}]
assert refusal(broadcast, lambda: require(me, 'step', me, 'another')) == 'step is 0; valid is another'
last = f'host is {count - 1}; valid is another'
assert refusal(distributed.raise_everywhere, lambda: require(me < count - 1, 'host', me, 'another')) == last
assert refusal(distributed.raise_everywhere, lambda: None) is None
own = pathlib.Path(out, f'own-{me}')
files.write_whole(own / 'file', 'mine')
assert (own / 'file').exists() == (me == 0)
if count > 1:
  assert refusal(checkpoints._check_shared, own).startswith('the directory of checkpoints is ')

def save(self, step, state, metrics):
  whole_save(self, step, state, metrics)
  distributed.broadcast_from_process_0(lambda: None)
  if [me, step] == dying:
    os.kill(os.getpid(), how)

whole_save, checkpoints.Checkpoints.save = checkpoints.Checkpoints.save, save
pretraining.measure = lambda *_: {'kl_at_mask': 0.5}
pretraining._corpus = lambda *_: np.random.default_rng(0).integers(10, size=(16, 8), dtype=np.uint8)
out = pathlib.Path(out)
reporter = Reporter(rich.console.Console(quiet=True))
try:
  with signals.answered():
    params = pretraining.pretrained_params(settings, None, (), jax.random.key(3), out, reporter)
except pretraining.OutOfTime:
  sys.exit()
except signals.Stopped as stopped:
  sys.exit(stopped.status)
leaves = jax.tree.leaves(params)
assert {leaf.sharding.device_set == {jax.local_devices()[0]} for leaf in leaves} == {True}
np.savez(out / f'params-{me}.npz', *leaves)
"""


def _settings(**running):
  config = prompt_vs_head.get_config('smoke')
  config.corpus.update(num_documents=4, document_length=32, chunk_length=8)
  config.bert.update(width=8, ffn_width=8)
  config.pretrain.update(optimizer='adamw', num_steps=8, warmup_steps=2, steps_per_call=2)
  config.pretrain.update(checkpoint_every=2, measure_every=2)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in running.items()})
  return registry.from_config(config)


@pytest.fixture(scope='module')
def start(tmp_path_factory):
  """Starts `count` processes of `devices` each; what still runs or sleeps in the end is killed."""
  started, said = [], tmp_path_factory.mktemp('said')

  def start(directory, count, devices, dying=None, how=0, **running):
    with socket.socket() as free:
      free.bind(('localhost', 0))
      address = f'localhost:{free.getsockname()[1]}'
    for index in range(count):
      if count > 1:
        running |= dict(distributed__mode='on', distributed__coordinator_address=address)
        running |= dict(distributed__num_processes=count, distributed__process_id=index)
        running |= dict(distributed__heartbeat_timeout=HEARTBEAT)
      recorded = dataclasses.asdict(_settings(**running))
      words = json.dumps([recorded, str(directory), devices, dying, int(how)])
      started.append(forked.start(PROGRAM, words, devices=devices, errors=said / str(len(started))))
    return started[-count:]

  yield start
  for process in started:
    process.kill()
    process.join()


@pytest.fixture(scope='module')
def run(start):
  """Runs processes to the end, which is a good one in each."""

  def run(*arguments, **options):
    for process in start(*arguments, **options):
      forked.check_end(process, 120)

  return run


@pytest.fixture(scope='module')
def alone(run, tmp_path_factory):
  """What one process on two devices makes of it, never interrupted."""
  directory = tmp_path_factory.mktemp('alone')
  run(directory, 1, 2)
  return directory


def _seconds_to_end(process):
  begun = time.monotonic()
  process.join(10 * BOUND)
  return time.monotonic() - begun


@pytest.fixture(scope='module')
def interrupted(start, run, tmp_path_factory):
  """A pretraining on two devices that went on four times: its directory, how processes ended, and after how long.

  Two processes until one is killed after step 2; one process with both devices until its time is over after step 4; two
  until the other is stopped after step 6; two to the end.
  """
  directory, ends = tmp_path_factory.mktemp('interrupted'), []
  left, killed = start(directory, 2, 1, (1, 2), signal.SIGKILL)
  killed.join(120)
  assert killed.exitcode == -signal.SIGKILL
  ends.append((_seconds_to_end(left), left.exitcode))
  run(directory, 1, 2, time_budget=1e-9)
  stopped, left = start(directory, 2, 1, (0, 6), signal.SIGSTOP)
  while not forked.is_stopped(stopped):
    assert stopped.is_alive()
    time.sleep(0.01)
  ends.append((_seconds_to_end(left), left.exitcode))
  stopped.kill()
  run(directory, 2, 1)
  return directory, ends


def _lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def _params(directory, process):
  with np.load(directory / f'params-{process}.npz', allow_pickle=False) as arrays:
    return [arrays[name] for name in arrays]


def test_the_others_end_soon_after_one_is_killed_or_stopped(interrupted):
  """With a failure, and within the bound that the heartbeat sets."""
  for seconds, code in interrupted[1]:
    assert seconds < BOUND and code != 0


def test_on_other_numbers_of_processes_it_ends_as_if_never_interrupted(interrupted, alone):
  """Bit for bit what one process with the same two devices makes of it, in both processes; each start is noted once."""
  directory, _ = interrupted
  for process in range(2):
    for ours, theirs in zip(_params(directory, process), _params(alone, 0), strict=True):
      np.testing.assert_array_equal(ours, theirs)
  assert _lines(directory / 'metrics.jsonl') == _lines(alone / 'metrics.jsonl')
  assert [row['step'] for row in _lines(alone / 'metrics.jsonl')] == [0, 2, 4, 6, 8]
  starts = [
    (row['from_step'], row['processes'], len(row['devices'])) for row in _lines(directory / 'environment.jsonl')
  ]
  assert starts == [(0, 2, 2), (2, 1, 2), (4, 2, 2), (6, 2, 2)]


def test_two_processes_of_two_devices_equal_one_of_two(run, alone, tmp_path):
  """To what the order of summands makes in float32; losses are about 2.3, parameters below 1."""
  run(tmp_path, 2, 2)
  for ours, theirs in zip(_params(tmp_path, 1), _params(alone, 0), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
  losses = [[row.get('train_loss', 0) for row in _lines(path / 'metrics.jsonl')] for path in (tmp_path, alone)]
  np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize('told', [0, 1])
def test_a_signal_to_one_of_several_processes_ends_all(start, tmp_path, told):
  """Whichever it is: both stop with a checkpoint past that after which it came, and with the status of the signal."""
  both = start(tmp_path, 2, 1, (told, 2), signal.SIGTERM)
  for process in both:
    process.join(120)
  assert [process.exitcode for process in both] == [143, 143]
  assert checkpoints.steps(tmp_path / checkpoints.NAME)[0] in (4, 6)


SLURM_STEP = {
  'SLURM_JOB_ID': '7',
  'SLURM_STEP_NODELIST': 'node[03-04]',
  'SLURM_NTASKS': '2',
  'SLURM_PROCID': '1',
  'SLURM_LOCALID': '0',
}
OPEN_MPI = {
  'OMPI_MCA_orte_hnp_uri': '1531576320.0;tcp://10.96.0.1:34911',
  'OMPI_COMM_WORLD_SIZE': '4',
  'OMPI_COMM_WORLD_RANK': '2',
  'OMPI_COMM_WORLD_LOCAL_RANK': '2',
}


@pytest.fixture
def joined(monkeypatch):
  """What JAX is asked to join, by a function of settings and of the variables of an environment without a cluster."""
  for name in [name for name in os.environ if name.startswith(('SLURM_', 'OMPI_', 'KUBERNETES_', 'JAX_COORD'))]:
    monkeypatch.delenv(name)
  calls = []
  monkeypatch.setattr(distributed.jax.distributed, 'initialize', lambda *words, **_: calls.append(words))

  def joined(variables, **changes):
    for name, value in variables.items():
      monkeypatch.setenv(name, value)
    distributed.initialize(_said(**changes))
    return calls

  return joined


def _said(**changes):
  return DistributedSettings(**{**base.get_config().distributed.to_dict(), **changes})


@pytest.mark.parametrize(
  'variables',
  [
    {},
    {'SLURM_JOB_ID': '7', 'SLURM_NTASKS': '2', 'SLURM_PROCID': '0', 'SLURM_LOCALID': '0', 'SLURM_NODELIST': 'node3'},
    {**SLURM_STEP, 'SLURM_NTASKS': '1', 'SLURM_PROCID': '0'},
    {**OPEN_MPI, 'OMPI_COMM_WORLD_SIZE': '1', 'OMPI_COMM_WORLD_RANK': '0'},
  ],
  ids=['nothing', 'a batch script', 'one SLURM task', 'one rank'],
)
def test_where_no_other_process_was_started_nobody_is_waited_for(joined, variables):
  """By default: on a plain machine, in an sbatch script without srun, and in what is a cluster's but alone in it."""
  assert joined(variables) == []


def test_a_cluster_is_joined_as_it_says(joined, monkeypatch):
  """By default, under srun and mpirun: address, number, id and device are the cluster's; off joins nothing."""
  assert joined(SLURM_STEP) == [('node03:61447', 2, 1, [0])]
  assert joined({}, mode='off') == [('node03:61447', 2, 1, [0])]
  for name in SLURM_STEP:
    monkeypatch.delenv(name)
  assert joined(OPEN_MPI)[1:] == [(clusters.OmpiCluster.get_coordinator_address(None, None), 4, 2, [2])]


def test_what_is_said_outright_is_joined_as_said(joined):
  """Whatever the cluster says."""
  outright = dict(mode='on', coordinator_address='a:1', num_processes=3, process_id=0)
  assert joined(SLURM_STEP, **outright) == [('a:1', 3, 0, None)]


def test_what_cannot_be_joined_is_refused_in_a_sentence():
  """Nothing is found, a device has been looked at, or the fields do not fit each other."""
  with pytest.raises(SettingsError, match=r"distributed.mode is 'on', which fails \(.*\); valid is 'off', or"):
    distributed.initialize(_said(mode='on'))
  with pytest.raises(SettingsError, match="coordinator_address is ''; valid is HOST:PORT where num_processes is 2"):
    _said(mode='on', num_processes=2)
  with pytest.raises(SettingsError, match='process_id is 2; valid is below num_processes, 2'):
    _said(mode='on', num_processes=2, coordinator_address='a:1', process_id=2)


def test_one_process_decides_for_itself():
  """Without others nothing is sent, and what is decided comes back as it is."""
  marker = object()
  assert distributed.broadcast_from_process_0(lambda: marker) is marker
  with pytest.raises(SettingsError, match='no'):
    distributed.raise_everywhere(lambda: (_ for _ in ()).throw(SettingsError('no')))
