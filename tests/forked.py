"""Processes with devices of their own, forked from one that has imported JAX: that takes longer than what they do."""

import atexit
import os
import pathlib
import sys
import tempfile
from unittest import mock

from faults import processes

ROOT = pathlib.Path(__file__).parent.parent


def start(program, *arguments, devices, errors):
  """A process that runs Python source with that many CPU devices; its standard error goes to the file `errors`."""
  with mock.patch.dict(os.environ, JAX_PLATFORMS='cpu', PYTHONPATH=str(ROOT)):
    process = processes.forked(_run, program, arguments, devices, str(errors))
  process.name = str(errors)
  return process


def check_end(process, seconds=None):
  """Wait for the end, which is a good one; its traceback is the failure."""
  process.join(seconds)
  assert process.exitcode == 0, pathlib.Path(process.name).read_text()


def run_on_devices(count, program):
  """Run Python source in a process of its own that has `count` CPU devices."""
  with tempfile.NamedTemporaryFile() as errors:
    check_end(start(program, devices=count, errors=errors.name))


def _run(program, arguments, devices, errors):
  os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
  config = sys.modules['jax'].config
  config.update('jax_num_cpu_devices', devices)
  config.update('jax_disable_most_optimizations', True)
  sys.argv = ['-c', *arguments]
  try:
    exec(program, {'__name__': '__main__'})
  finally:
    # As an interpreter does that ends, and a forked one does not: JAX takes leave of the other processes.
    atexit._run_exitfuncs()
