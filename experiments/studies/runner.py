"""Runs a study of several parts and records each as it ends, so that an interrupted run goes on with the next."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import Any

import jax

from experiments.records import environment, files, results
from experiments.runtime import locks, timing
from experiments.runtime.progress import Reporter
from experiments.settings.grid import digest
from hmm_jax.sharding import exact_device

# In the folder of a part: its records, and the seconds that it took.
_FILE_NAME = 'records.json'

Row = dict[str, Any]
# settings, a key of its own -> its records.
Part = Callable[[Any, jax.Array, Reporter], list[Row]]


def run(settings: Any, parts: dict[str, Part], workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing, and writes the records of all; what an interrupted run finished is read back.

  A part that another process works on is waited for; one that is corrupt is renamed and made again.
  """
  results.begin(workdir, settings)
  parts_of = workdir / 'parts' / _id(settings)
  key = jax.random.key(settings.seed)
  records: list[Row] = []
  spent: list[Row] = []
  for index, (name, part) in enumerate(parts.items()):
    make = functools.partial(part, settings, jax.random.fold_in(key, index), reporter)
    while (made := _kept(parts_of / name)) is None:
      try:
        with locks.held(parts_of / name, f'part {name}', reporter):
          if _kept(parts_of / name, reporter) is None:
            _make(parts_of / name, name, make, workdir, reporter)
      except locks.Lost as lost:
        reporter.say(str(lost))
    records += made['records']
    spent.append({'part': name, 'seconds': made['seconds']})
  with locks.held(workdir, 'the merging of records', reporter):
    results.write(workdir, settings, records)
    files.write_json_lines(workdir / timing.FILE_NAME, spent)


def _make(
  folder: pathlib.Path, name: str, rows_of: Callable[[], list[Row]], workdir: pathlib.Path, reporter: Reporter
) -> None:
  """Runs a part whose lock this process has, and writes its records; raises Lost where another process has it now."""
  begun = time.monotonic()
  with _on_exact_device(), reporter.clock.phase(name):
    rows = rows_of()
  made = {'part': name, 'environment': environment.keep(workdir, environment.environment([exact_device()]))}
  locks.check(folder)
  records = [{'schema_version': results.SCHEMA_VERSION, **made, **row} for row in rows]
  files.write_sealed(folder / _FILE_NAME, {'seconds': time.monotonic() - begun, 'records': records})


def _kept(folder: pathlib.Path, renames: Reporter | None = None) -> Row | None:
  """What a part has left, None where it has not ended or is corrupt; whoever has its lock renames that, and says so."""
  path = folder / _FILE_NAME
  try:
    return files.read_sealed(path)
  except FileNotFoundError:
    return None
  except files.Corrupt as error:
    if renames:
      renames.say(f'{path} {error}: renamed to {files.rename_corrupt(path).name}, and made again')
    return None


@contextlib.contextmanager
def _on_exact_device() -> Iterator[None]:
  """All but a small BERT is exact. In every thread, as `jax.default_device` would not be."""
  jax.config.update('jax_default_device', exact_device())
  try:
    yield
  finally:
    jax.config.update('jax_default_device', None)


def _id(settings: Any) -> str:
  """Names what is run by all that decides its records: not how it is drawn, looked at, or where programs are kept."""
  fields = dataclasses.asdict(settings)
  return digest([{name: fields[name] for name in fields if name not in results.OF_RUNNING}])
