"""SIGTERM and SIGINT: what stops, when, with which exit status, what is kept, and that nobody is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

from conftest import ROOT
import pytest

from experiments import main as main_lib
from experiments.runtime import signals
from experiments.runtime.progress import Reporter
from experiments.settings.fields import Ended


@pytest.mark.parametrize('polls', [True, False])
def test_a_run_stops_at_its_next_poll(polls):
  """Or at the end of the block."""
  done = []
  with pytest.raises(signals.Stopped), signals.answered():
    signal.raise_signal(signal.SIGTERM)
    done.append(signals.is_stopping())
    if polls:
      signals.raise_if_stopped()
    done.append('end')
  assert done == [True, 'end'][: 2 - polls]


INSIDE = """
import jax, jax.numpy as jnp
from experiments.runtime import signals
from hmm_jax._support import nan_guard
# Several minutes: a signal that waits for its end comes too late.
long = jax.jit(lambda x: jax.lax.fori_loop(0, 10**7, lambda _, y: jnp.tanh(y @ y), x))
with signals.answered():
  losses = long(jnp.ones((100, 100)))
  print('inside', flush=True)
  nan_guard.check_each(losses, [], '')
"""


@pytest.mark.slow
def test_a_second_signal_ends_at_once():
  """While a compiled program runs; the first one says so."""
  how = dict(env={**os.environ, 'PYTHONPATH': str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  with subprocess.Popen([sys.executable, '-c', INSIDE], **how) as process:
    (too_late := threading.Timer(60, process.kill)).start()
    try:
      assert process.stdout.readline() == 'inside\n'
      time.sleep(0.5)  # Until it waits for the program.
      process.terminate()
      assert 'SIGTERM' in process.stderr.readline() and process.poll() is None
      process.send_signal(signal.SIGINT)
      assert process.wait() == -signal.SIGINT
    finally:
      too_late.cancel()
      process.kill()


def test_a_full_disk_ends_a_run(monkeypatch):
  """A message that cannot be written is no failure of the trial that prints it."""
  with open('/dev/full', 'w') as full:
    monkeypatch.setattr(sys, 'stdout', full)
    assert main_lib.main(['main', '--list']) == 1
  with open('/dev/full', 'w') as full, pytest.raises(Ended):
    monkeypatch.setattr(sys, 'stdout', full)
    Reporter().say('a line')
