"""The compilation cache between runs, with a directory for each kind of host."""

import contextlib
import os
import pathlib
import platform

import jax
import jaxlib

from experiments.runtime import machine
from experiments.settings.fields import digest


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


def directory() -> pathlib.Path:
  """The directory of hosts with the same jaxlib and the same CPU, its flags included.

  A program compiled for another CPU can be refused, or can stop the process with an illegal instruction.
  """
  # ARM has 'Features' and 'CPU part'.
  cpu = sorted(set(machine.cpu_lines('model name', 'flags', 'Features', 'CPU part')))
  host = digest([platform.system(), platform.machine(), platform.processor(), *cpu])
  name = f'jaxlib-{jaxlib.__version__}-{host}'
  return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'hmm_jax' / name
