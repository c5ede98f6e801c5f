"""This machine: its CPU, its memory, and the runs that `launch/local.sh` starts together and that share it."""

import contextlib
import functools
import os
import pathlib
import platform
import re

import jax


def available_memory() -> float | None:
  """Bytes for a run: of the accelerator, or its share of the host or control group; None if unknown."""
  # None on a CPU.
  if stats := jax.local_devices()[0].memory_stats():
    return stats.get('bytes_limit')
  sizes = list[int]()
  for path, number, unit in (
    # The limit of a control group, of version 2 or 1; 'max' is none.
    ('/sys/fs/cgroup/memory.max', r'(\d+)', 1),
    ('/sys/fs/cgroup/memory/memory.limit_in_bytes', r'(\d+)', 1),
    ('/proc/meminfo', r'MemAvailable: *(\d+)', 1024),
  ):
    with contextlib.suppress(OSError):
      sizes += [unit * int(size) for size in re.findall(number, pathlib.Path(path).read_text())]
  # Runs that were started together share it.
  return min(sizes) / int(os.environ.get('HMM_JAX_RUNS', '1')) if sizes else None


def cpu_lines(*fields: str) -> list[str]:
  """The lines of these fields in Linux's /proc/cpuinfo, for each core; none elsewhere."""
  info = pathlib.Path('/proc/cpuinfo')
  lines = info.read_text().splitlines() if info.exists() else []
  return [line for line in lines if line.startswith(fields)]


@functools.cache
def cpu() -> str:
  """The number of CPUs for this process and their name: both decide how sums are split, hence their last bits."""
  names = cpu_lines('model name')
  name = names[0].partition(':')[2].strip() if names else platform.processor()
  # macOS has no affinities.
  count = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
  return f'{count} x {name}'
