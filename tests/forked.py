"""Processes that are forked from one which has imported what they need, for that takes longer than what they do."""

import atexit
import functools
import multiprocessing
from multiprocessing import forkserver
import os
import pathlib
import sys
from unittest import mock

_MODULES = ('forked', 'jax', 'numpy', 'rich.console', 'experiments.config', 'experiments.trial')


@functools.cache
def _context():
  """Starts the process that forks. It must not use a device, or its children would share what runs there."""
  here = pathlib.Path(__file__).parent
  settings = {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(list(_MODULES))
  with mock.patch.dict(os.environ, settings, PYTHONPATH=f'{here.parent}{os.pathsep}{here}'):
    forkserver.ensure_running()
  return context


def start(program, *arguments, devices, errors):
  """A process that runs Python source with that many CPU devices; its name is a file of what it says if it fails."""
  process = _context().Process(target=_run, args=(program, arguments, devices, str(errors)), name=str(errors))
  process.start()
  return process


def _run(program, arguments, devices, errors):
  os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
  os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} --xla_force_host_platform_device_count={devices}'
  sys.argv = ['-c', *arguments]
  try:
    exec(program, {'__name__': '__main__'})
  finally:
    # As an interpreter does that ends, and a forked one does not: JAX takes leave of the other processes.
    atexit._run_exitfuncs()


def said(process):
  return pathlib.Path(process.name).read_text()


def is_stopped(process):
  """Whether a signal has stopped it, by what Linux says of it."""
  return pathlib.Path(f'/proc/{process.pid}/stat').read_text().rpartition(')')[2].split()[0] == 'T'


def end():
  """Ends the process that forks, if there is one."""
  forkserver._forkserver._stop()
  _context.cache_clear()
