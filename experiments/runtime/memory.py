"""The memory that this machine has for a run, and the most that the run has taken so far."""

import contextlib
import pathlib
import re
import resource
import sys

import jax

from experiments.runtime import local_runs


def available() -> float | None:
  """Bytes for a run: of the accelerator, or its share of the host or control group; None where nobody says."""
  device = jax.local_devices()[0]
  if device.platform != 'cpu':
    return (device.memory_stats() or {}).get('bytes_limit')
  sizes = []
  for path in ('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes'):
    with contextlib.suppress(OSError, ValueError):  # No such file, or the word max.
      sizes.append(int(pathlib.Path(path).read_text()))
  with contextlib.suppress(OSError):
    kibibytes = re.findall(r'MemAvailable: *(\d+)', pathlib.Path('/proc/meminfo').read_text())
    sizes += [1024 * int(size) for size in kibibytes]
  return min(sizes) / local_runs.num_runs() if sizes else None


def peak() -> int:
  """The most bytes that there have been at once so far: of the accelerator, or of this process."""
  device = jax.local_devices()[0]
  if device.platform != 'cpu':
    return (device.memory_stats() or {}).get('peak_bytes_in_use', 0)
  # In kibibytes, but for macOS.
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == 'darwin' else 1024)
