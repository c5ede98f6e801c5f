"""Where compiled programs are kept between runs: each kind of host has a directory of its own."""

import contextlib
import os
import pathlib
import platform

import jax
import jaxlib

from experiments.runtime import machine
from experiments.settings.grid import digest


def keep_programs(setting: str) -> None:
  """Keeps every compiled program in the directory `setting`; 'auto' is that of this kind of host, '' is nowhere.

  A new directory is its owner's alone, since what lies in it is run. JAX warns, and compiles, where it cannot use it.
  """
  path = ''
  # pathlib raises it for a user without a home, whose programs are not kept.
  with contextlib.suppress(RuntimeError):
    path = str(directory()) if setting == 'auto' else setting
  # A bucket is JAX's to open.
  if path and '://' not in path:
    path = os.path.expanduser(path)
    with contextlib.suppress(OSError):
      pathlib.Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
  jax.config.update('jax_compilation_cache_dir', path or None)
  # JAX by default keeps only those that took a second to compile.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)


def directory() -> pathlib.Path:
  """A directory that hosts share only where jaxlib and the CPU, its flags included, are the same.

  A program compiled for another CPU can be refused, or can stop the process with an illegal instruction.
  """
  # 'Features' and 'CPU part' are what ARM has.
  cpu = sorted(set(machine.cpu_lines('model name', 'flags', 'Features', 'CPU part')))
  host = digest([platform.system(), platform.machine(), platform.processor(), *cpu])
  name = f'jaxlib-{jaxlib.__version__}-{host}'
  return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'hmm_jax' / name
