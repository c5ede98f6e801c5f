"""Several contenders in one case, measured by turns in one process; a failure is noted with its reason."""

from collections.abc import Callable, Iterator
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import math
import pathlib
import re
import time
from typing import Any, NamedTuple

import jax

PEERS = ('dynamax', 'hmmlearn', 'torch', 'transformers')
# The numbers of a record beside its seconds, None where a contender has no such number.
NUMBERS = ('error', 'memory_bytes', 'flops', 'product_flops', 'tokens', 'compile_seconds')

_PROCESS = pathlib.Path('/proc/self')


class Prepared(NamedTuple):
  """A contender that is ready to be called.

  Attributes:
    call: one measurement, which may return before its work is done.
    error: the largest error of what a call returned, against float64; None where nothing is compared.
    units: how many units of work, such as training steps, one call does.
    fields: of its record, known beforehand.
  """

  call: Callable[[], Any]
  error: Callable[[Any], float] | None = None
  units: int = 1
  fields: dict[str, Any] = {}


# By name; ours, which the others are compared with, is first. Preparing, peers' imports included, is not measured.
Contenders = dict[str, Callable[[], Prepared]]
# A title and its contenders.
Case = tuple[str, Contenders]


def versions() -> dict[str, str | None]:
  """The version of each peer, None where it is not installed."""
  return {name: importlib.metadata.version(name) if importlib.util.find_spec(name) else None for name in PEERS}


def compiled(
  function: Callable[..., Any], *arguments: Any, error: Any = None, units: int = 1, **fields: Any
) -> Prepared:
  """The call of a function that is compiled for these arguments, which it does not donate."""
  program, of_program = compile_program(jax.jit(function), *arguments)
  return Prepared(lambda: program(*arguments), error, units, of_program | fields)


def compile_program(
  function: Any, *arguments: Any, options: dict[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
  """The program of a jitted function for such arguments, and what a record says of it.

  FLOPs are XLA's count, in which a loop counts one pass and branches the largest. Memory is XLA's allocation for
  results and temporaries, without arguments.
  """
  lowered = function.lower(*arguments)
  begun = time.perf_counter()
  program = lowered.compile(options)
  seconds, memory = time.perf_counter() - begun, program.memory_analysis()
  return program, {
    'compile_seconds': seconds,
    'memory_bytes': memory.output_size_in_bytes - memory.alias_size_in_bytes + memory.temp_size_in_bytes,
    # Absent if there is no product or sum, as in a lookup.
    'flops': program.cost_analysis().get('flops'),
  }


def alternate(contenders: Contenders, repeats: int, deadline: float = math.inf) -> list[dict[str, Any]]:
  """A record for each contender: `repeats` rounds in which each is called once, after a call of each to warm up.

  No contender is prepared once `time.monotonic()` is past the deadline.
  """
  rows, ready = list[dict[str, Any]](), list[tuple[dict[str, Any], Prepared]]()
  for name, prepare in contenders.items():
    late = 'skipped: `minutes` had passed' if time.monotonic() > deadline else ''
    row: dict[str, Any] = {'way': name, 'seconds': [], **dict.fromkeys(NUMBERS), 'dtype': None, 'note': late}
    rows.append(row)
    with _noted(row):
      if not late:
        ready.append((row, _warmed_up(prepare, row)))
  for _ in range(repeats):
    for row, prepared in ready:
      if not row['note']:
        with _noted(row):
          begun = time.perf_counter()
          jax.block_until_ready(prepared.call())
          row['seconds'].append((time.perf_counter() - begun) / prepared.units)
  return rows


@contextlib.contextmanager
def _noted(row: dict[str, Any]) -> Iterator[None]:
  """Record a failure as the row's note, so that the others are still measured."""
  try:
    yield
  except ModuleNotFoundError as error:
    row['note'] = f'{error.name} not installed'
  except Exception as error:
    # Compilers and peers raise anything. Ratios pair rounds, so earlier rounds are dropped too.
    words = f'{type(error).__name__}: {error}'.split()
    row |= {'seconds': [], 'note': f'failed: {" ".join(words)[:100]}'}


def _warmed_up(prepare: Callable[[], Prepared], row: dict[str, Any]) -> Prepared:
  prepared = prepare()
  result = jax.block_until_ready(prepared.call())
  error = prepared.error and prepared.error(result)
  if error is not None and not math.isfinite(error):
    raise ValueError('result is not finite')
  # Freed before memory is measured, so that the next call takes its own.
  del result
  row |= {'error': error, **prepared.fields}
  if row['memory_bytes'] is None and jax.default_backend() == 'cpu':
    row['memory_bytes'] = _growth(prepared.call)
  return prepared


def _growth(call: Callable[[], Any]) -> float | None:
  """The peak growth of the process in a call, in bytes; None where the system does not report it, as outside Linux."""
  try:
    ctypes.CDLL(None).malloc_trim(0)  # What was freed and kept by the allocator would hide what a call takes.
    (_PROCESS / 'clear_refs').write_text('5')  # Sets the peak back, see proc(5).
  except (OSError, AttributeError):
    return None
  before = _resident('VmRSS')
  jax.block_until_ready(call())
  return max(_resident('VmHWM') - before, 0.0)


def _resident(field: str) -> float:
  (kilobytes,) = re.findall(rf'{field}:\s*(\d+)', (_PROCESS / 'status').read_text())
  return 1024.0 * int(kilobytes)
