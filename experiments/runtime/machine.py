"""The CPU of this machine."""

import functools
import os
import pathlib
import platform


def cpu_lines(*fields: str) -> list[str]:
  """The lines of these fields in Linux's /proc/cpuinfo, for each core; none elsewhere."""
  info = pathlib.Path('/proc/cpuinfo')
  lines = info.read_text('utf-8').splitlines() if info.exists() else []
  return [line for line in lines if line.startswith(fields)]


@functools.cache
def cpu() -> str:
  """The number of CPUs for this process and their name: both decide how sums are split, hence their last bits."""
  names = cpu_lines('model name')
  name = names[0].partition(':')[2].strip() if names else platform.processor()
  # macOS has no affinities.
  count = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
  return f'{count} x {name}'
