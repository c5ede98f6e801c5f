"""Compiled programs: the cache between runs, with a directory for each kind of host, and how many a process holds."""

import contextlib
import os
import pathlib
import platform

import jax
import jaxlib

from experiments.runtime import machine
from experiments.settings.fields import digest

# Share of the memory maps of a process after which programs are dropped; those of a trial fit into the rest.
_MAPS_SHARE = 0.75


def keep_programs(setting: str) -> None:
  """Cache every compiled program in the directory `setting`; 'auto' is that of this kind of host, '' is no cache.

  A new directory is private, since its content is executed. JAX warns, and compiles, if it cannot use the directory.
  """
  path = ''
  # pathlib raises it for a user without a home, who gets no cache.
  with contextlib.suppress(RuntimeError):
    path = str(directory()) if setting == 'auto' else setting
  # JAX opens buckets itself.
  if path and '://' not in path:
    path = os.path.expanduser(path)
    with contextlib.suppress(OSError):
      pathlib.Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
  jax.config.update('jax_compilation_cache_dir', path or None)
  # JAX by default keeps only those that took a second to compile.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)


def drop_programs_near_limit() -> None:
  """Drop the compiled programs of this process if their memory maps come near the most that Linux allows it.

  On a CPU a program has about a hundred. Past the limit, by default 65,530, the next program ends the process with a
  segmentation fault. Programs stay in the cache on disk.
  """
  # Other systems have neither file.
  with contextlib.suppress(OSError):
    most = int(pathlib.Path('/proc/sys/vm/max_map_count').read_text('utf-8'))
    if pathlib.Path('/proc/self/maps').read_bytes().count(b'\n') > _MAPS_SHARE * most:
      jax.clear_caches()


def directory() -> pathlib.Path:
  """The directory of hosts with the same jaxlib and the same CPU, its flags included.

  A program compiled for another CPU can be refused, or can stop the process with an illegal instruction.
  """
  # ARM has 'Features' and 'CPU part'.
  cpu = sorted(set(machine.cpu_lines('model name', 'flags', 'Features', 'CPU part')))
  host = digest([platform.system(), platform.machine(), *cpu])
  name = f'jaxlib-{jaxlib.__version__}-{host}'
  return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'hmm_jax' / name
