"""SIGTERM and SIGINT: what stops, when, with which exit status, what is kept, and that nobody is left behind."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

from conftest import assert_same_bits
import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import main as main_lib
from experiments.pipeline import pretraining, tuning
from experiments.runtime import distributed, signals
from experiments.runtime.progress import Reporter
from experiments.settings import help_text
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]
QUIET = Reporter(rich.console.Console(quiet=True))
STOPS = pytest.mark.parametrize(('number', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])


def _tell(number=signal.SIGTERM):
  signal.raise_signal(number)


@STOPS
def test_a_signal_stops_what_is_under_way(number, status):
  """At once, by what no handler of failures catches; afterwards the signals mean what they did."""
  before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
  with pytest.raises(signals.Stopped) as stopped, signals.answered():
    assert not signals.is_stopping()
    try:
      _tell(number)
    except Exception:
      pytest.fail('a failure of a trial')
    pytest.fail('it went on')
  assert stopped.value.status == status and not isinstance(stopped.value, Exception)
  assert str(stopped.value) == f'stopped by {number.name}; the same command goes on'
  assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_stop_is_put_off(capfd):
  """Until what is being saved is saved, of several until the outermost is; an error on the way is that error."""
  done = []
  with pytest.raises(signals.Stopped), signals.answered(), signals.deferred():
    with signals.deferred():
      _tell()
      assert signals.is_stopping()
      signals.check()
      done.append('inner')
    done.append('outer')
  assert done == ['inner', 'outer']
  assert capfd.readouterr().err == 'SIGTERM: stops when its work is saved\n'
  with pytest.raises(ValueError, match='mine'), signals.answered(), signals.deferred():
    _tell()
    raise ValueError('mine')
  with pytest.raises(signals.Stopped), signals.answered():
    with pytest.raises(ValueError), signals.deferred():
      _tell()
      raise ValueError
    signals.check()


INSIDE = """
import jax, jax.numpy as jnp
from experiments.runtime import nan_guard, signals
endless = jax.jit(lambda x: jax.lax.fori_loop(0, 10**7, lambda _, y: jnp.tanh(y @ y), x))
with signals.answered(), signals.deferred():
  losses = endless(jnp.ones((100, 100)))
  print('inside', flush=True)
  nan_guard.check_each(losses, [], '')
"""


@STOPS
def test_a_second_signal_ends_at_once(number, status):
  """Whatever is put off, and while a compiled program runs."""
  command, env = [sys.executable, '-c', INSIDE], {**os.environ, 'PYTHONPATH': str(ROOT)}
  with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
      assert process.stdout.readline() == 'inside\n'
      process.terminate()
      assert process.stderr.readline() == 'SIGTERM: stops when its work is saved\n'
      assert process.poll() is None
      process.send_signal(number)
      assert process.wait() == -number == 128 - status
    finally:
      killer.cancel()
      process.kill()


def test_process_0_decides_for_all(monkeypatch):
  """One that it has told stops wherever all check, and goes on where it alone has got a signal."""
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  with signals.answered():
    monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: [])
    _tell()
    signals.check()
    with signals.deferred():
      pass
  with signals.answered():
    monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: [2])
    assert not signals.is_stopping()
    with pytest.raises(signals.Stopped) as stopped:
      signals.check()
    assert stopped.value.status == 130
    monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: [15, 2])
    with pytest.raises(signals.Stopped) as stopped:
      signals.check()
    assert stopped.value.status == 143


def test_who_stops_where_process_0_is_alone_tells_the_others(monkeypatch):
  """As where it waits for the claim on the records, and no other process looks: they hear of it where they wait."""
  told = {}
  client = type(
    'Client',
    (),
    {
      'key_value_set': lambda self, key, value: told.update({key: value}),
      'blocking_key_value_get': lambda self, key, _: told[key],
    },
  )()
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  monkeypatch.setattr(distributed, '_client', lambda: client)
  with pytest.raises(signals.Stopped) as stopped, signals.answered():
    _tell(signal.SIGINT)
    distributed.broadcast_from_process_0(signals.check)
  assert stopped.value.status == 130
  ((key, _),) = told.items()
  with pytest.raises(signals.Stopped, match='SIGINT'):
    distributed._heard(key)


@STOPS
def test_the_command_exits_with_the_status_of_the_signal(monkeypatch, capsys, number, status):
  """And with one sentence."""
  monkeypatch.setattr(help_text, 'listing', lambda _: _tell(number))
  assert main_lib.main(['main', '--list']) == status
  assert capsys.readouterr().err == f'error: stopped by {number.name}; the same command goes on\n'


def test_a_run_whose_reader_is_gone_stops_as_any_other(monkeypatch):
  """As where ssh has dropped, or what it was piped into has ended."""
  reader, writer = os.pipe()
  os.close(reader)
  monkeypatch.setattr(signals, '_STDERR', writer)

  def listing(_):
    with signals.deferred():
      _tell()

  monkeypatch.setattr(help_text, 'listing', listing)
  with os.fdopen(writer, 'w') as broken:
    monkeypatch.setattr(sys, 'stderr', broken)
    assert main_lib.main(['main', '--list']) == 143
    monkeypatch.undo()
    with contextlib.suppress(BrokenPipeError):
      broken.close()


def test_tuning_stops_between_epochs(monkeypatch):
  """In several processes, too, where no signal is answered elsewhere."""
  monkeypatch.setattr(distributed, 'num_processes', lambda: 2)
  monkeypatch.setattr(distributed, 'broadcast_from_process_0', lambda look: look())
  monkeypatch.setattr(distributed, 'posted', lambda: [])
  seen = []

  def epoch(state):
    _tell() if state == 1 else None
    return state + 1, np.zeros(1)

  with pytest.raises(signals.Stopped), signals.answered():
    for state, _ in tuning.epochs(epoch, 0, 5, 'head', ['task 0'], QUIET):
      seen.append(state)
  assert seen == [1, 2]


def _settings():
  """8 steps, two a call, of the smallest BERT, with a checkpoint after every fourth."""
  config = prompt_vs_head.get_config('smoke')
  config.corpus.update(num_documents=4, document_length=32, chunk_length=8)
  config.bert.update(width=8, ffn_width=8)
  config.pretrain.update(optimizer='adamw', num_steps=8, warmup_steps=2, steps_per_call=2)
  config.pretrain.update(checkpoint_every=4, measure_every=4)
  return registry.from_config(config)


@pytest.fixture
def pretrained(monkeypatch, without_optimisation):
  """Pretrains on any tokens in a directory, and is told to stop when it measures at the step `at`."""
  tokens = np.random.default_rng(0).integers(10, size=(16, 8), dtype=np.uint8)
  monkeypatch.setattr(pretraining, '_corpus', lambda *_: tokens)

  def run(directory, at=None):
    steps = []

    def measure(settings, model, params, ideals):
      steps.append(4 * len(steps))
      if steps[-1] == at:
        _tell()
      return {'kl_at_mask': float(np.sum(jax.tree.leaves(params)[0]))}

    monkeypatch.setattr(pretraining, 'measure', measure)
    return pretraining.pretrained_params(_settings(), None, (), jax.random.key(3), directory, QUIET)

  return run


def test_a_stopped_pretraining_goes_on_to_the_same_bits(pretrained, tmp_path):
  """Stopped where no checkpoint is due, it has one of the call under way, and ends with parameters and metrics of one
  that was never stopped, at whose next checkpoint nothing is other than it would be."""
  whole = pretrained(tmp_path / 'whole')
  with pytest.raises(signals.Stopped), signals.answered():
    pretrained(tmp_path / 'stopped', at=0)
  checkpoints = lambda name: {int(path.name) for path in (tmp_path / name / 'checkpoints').iterdir()}
  assert max(checkpoints('stopped')) == 2
  assert_same_bits(pretrained(tmp_path / 'stopped'), whole)
  files = [(tmp_path / name / 'metrics.jsonl').read_bytes() for name in ('whole', 'stopped')]
  assert files[0] == files[1] and [json.loads(line)['step'] for line in files[0].splitlines()] == [0, 4, 8]
  assert max(checkpoints('stopped')) == max(checkpoints('whole')) == 8
