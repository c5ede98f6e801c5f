"""Several contenders in one case, measured by turns in one process; what cannot be measured is a line that says why."""

from collections.abc import Callable, Sequence
import ctypes
import importlib.metadata
import importlib.util
import math
import pathlib
import time
from typing import Any, NamedTuple

import jax

PEERS = ('dynamax', 'hmmlearn', 'numba', 'torch', 'transformers')
# The numbers of a record beside its seconds, None where a contender has no such number.
NUMBERS = ('error', 'memory_bytes', 'device_peak_bytes', 'flops', 'product_flops', 'tokens', 'compile_seconds')

_STATUS = pathlib.Path('/proc/self/status')
_CLEAR = pathlib.Path('/proc/self/clear_refs')


class NotHere(Exception):
  """Why a contender cannot be measured on this machine, in a few words."""


class Prepared(NamedTuple):
  """A contender that is ready to be called.

  Attributes:
    call: one measurement, which may return before its work is done.
    error: the largest error of what a call returned, against float64; None where nothing is compared.
    units: how many units of work, such as training steps, one call does.
    units_of_loop: how many of them one pass of the program's loop does.
    program: what XLA compiled for it, if it is one program.
    compile_seconds: what the compiler took.
    figures: more fields of the record.
  """

  call: Callable[[], Any]
  error: Callable[[Any], float] | None = None
  units: int = 1
  units_of_loop: int = 1
  program: jax.stages.Compiled | None = None
  compile_seconds: float | None = None
  figures: dict[str, Any] = {}


class Contender(NamedTuple):
  """One implementation; `prepare` does what is no part of the measurement."""

  name: str
  prepare: Callable[[], Prepared]
  needs: tuple[str, ...] = ()


class BenchmarkCase(NamedTuple):
  """One thing to measure; the first of its contenders is ours, which the others are compared with."""

  part: str
  name: str
  contenders: Sequence[Contender]


def versions() -> dict[str, str | None]:
  """The version of each peer, None where it is not installed."""
  return {name: importlib.metadata.version(name) if importlib.util.find_spec(name) else None for name in PEERS}


def compiled(function: Any, *arguments: Any, **fields: Any) -> Prepared:
  """The call of a jitted function, compiled for these arguments, which it does not donate."""
  program, seconds = compile_program(function, *arguments)
  return Prepared(lambda: program(*arguments), program=program, compile_seconds=seconds, **fields)


def compile_program(
  function: Any, *arguments: Any, options: dict[str, Any] | None = None
) -> tuple[jax.stages.Compiled, float]:
  """The program of a jitted function for such arguments, and the seconds that the compiler took."""
  lowered = function.lower(*arguments)
  begun = time.perf_counter()
  return lowered.compile(options), time.perf_counter() - begun


def alternate(case: BenchmarkCase, repeats: int, deadline: float = math.inf) -> list[dict[str, Any]]:
  """A record for each contender: `repeats` rounds in which each is called once, after a call of each to warm up.

  No contender is prepared once `time.monotonic()` is past the deadline.
  """
  ready: dict[str, Prepared] = {}
  rows: dict[str, dict[str, Any]] = {}
  for contender in case.contenders:
    named = {'part': case.part, 'work': case.name, 'way': contender.name}
    row = rows[contender.name] = {**named, 'seconds': [], **dict.fromkeys(NUMBERS), 'dtype': None, 'note': ''}
    try:
      ready[contender.name] = _warmed_up(contender, row, deadline)
    except Exception as error:
      # Compilers and peers fail in any way, each in its own.
      row['note'] = _in_one_line(error)
  for _ in range(repeats):
    for name, prepared in list(ready.items()):
      try:
        begun = time.perf_counter()
        jax.block_until_ready(prepared.call())
        rows[name]['seconds'].append((time.perf_counter() - begun) / prepared.units)
      except Exception as error:
        # Rounds are compared with rounds, so that those before it do not count either.
        rows[name] |= {'seconds': [], 'note': _in_one_line(error)}
        del ready[name]
  return list(rows.values())


def _warmed_up(contender: Contender, row: dict[str, Any], deadline: float) -> Prepared:
  if time.monotonic() > deadline:
    raise NotHere('not begun, for lack of time')
  missing = [name for name in contender.needs if not importlib.util.find_spec(name)]
  if missing:
    raise NotHere(f'{" and ".join(missing)} not installed')
  prepared = contender.prepare()
  result = jax.block_until_ready(prepared.call())
  error = prepared.error and prepared.error(result)
  if error is not None and not math.isfinite(error):
    raise ValueError('its result is not finite')
  del result
  # As XLA counts them: of a loop those of one pass, of branches those of the largest.
  flops = ((prepared.program and prepared.program.cost_analysis()) or {}).get('flops')
  row |= {
    'error': error,
    'memory_bytes': _memory(prepared),
    'device_peak_bytes': (jax.local_devices()[0].memory_stats() or {}).get('peak_bytes_in_use'),
    'flops': flops and flops / prepared.units_of_loop,
    'compile_seconds': prepared.compile_seconds,
    **prepared.figures,
  }
  return prepared


def _in_one_line(error: Exception) -> str:
  if isinstance(error, NotHere):
    return str(error)
  words = f'{type(error).__name__}: {error}'.split()
  return f'fails, {" ".join(words)[:100]}'


def _memory(prepared: Prepared) -> float | None:
  """Bytes of one call on top of its arguments: what XLA sets aside for results and temporaries of its program.

  Of what is no such program it is the most by which the process grew in a call, None where it runs on a device or the
  system cannot say.
  """
  if prepared.program:
    stats = prepared.program.memory_analysis()
    return stats and stats.output_size_in_bytes - stats.alias_size_in_bytes + stats.temp_size_in_bytes
  if jax.default_backend() != 'cpu':
    return None
  try:
    ctypes.CDLL(None).malloc_trim(0)  # What was freed and kept by the allocator would hide what a call takes.
    _CLEAR.write_text('5')  # Sets the peak back, see proc(5).
    before = _resident('VmRSS')
  except (OSError, AttributeError):
    return None
  jax.block_until_ready(prepared.call())
  return max(_resident('VmHWM') - before, 0.0)


def _resident(field: str) -> float:
  lines = dict(line.split(':', 1) for line in _STATUS.read_text().splitlines())
  return 1024.0 * int(lines[field].split()[0])
