"""An experiment of several parts, each kept as it ends, so that an interrupted run goes on with the next."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import Any

import jax

from experiments.records import files, folders, results
from experiments.records.environment import environment
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.settings.grid import digest
from hmm_jax.sharding import exact_device

# What decides no record.
_UNNAMED = ('compilation_cache', 'debug_nans', 'figure')

Row = dict[str, Any]
# settings, a key of its own -> its records.
Part = Callable[[Any, jax.Array, Reporter], list[Row]]


def run(settings: Any, parts: dict[str, Part], workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing, and writes the records of all; what an interrupted run finished is read back.

  A part that another process works on is waited for; one that is not as it was written is set aside.
  """
  results.begin(workdir, settings, reporter)
  parts_of = workdir / 'parts' / _id(settings)
  key = jax.random.key(settings.seed)
  records: list[Row] = []
  environments: list[Row] = []
  for index, (name, part) in enumerate(parts.items()):
    folder = parts_of / name
    while not _is_kept(folder):
      try:
        with locks.held(folder, f'part {name}', reporter):
          for sentence in folders.set_aside_bad(folder):
            reporter.say(sentence)
          if not _is_kept(folder):
            _make(folder, name, functools.partial(part, settings, jax.random.fold_in(key, index), reporter), reporter)
        break
      except locks.Lost as lost:
        reporter.say(str(lost))
    records += folders.read(folder)
    environments += files.read_json_lines(folder / results.ENVIRONMENT_NAME)
  with locks.held(workdir, 'the merging of records', reporter):
    results.write(workdir, settings, records, environments)


def _make(folder: pathlib.Path, name: str, rows_of: Callable[[], list[Row]], reporter: Reporter) -> None:
  """Runs a part that is locked, and writes its records; raises Lost where another process has taken it over."""
  begun = time.monotonic()
  with _on_exact_device(), reporter.clock.phase(name):
    rows = rows_of()
  made = {'part': name, 'seconds': time.monotonic() - begun, **environment([exact_device()])}
  locks.check(folder)
  files.write_json_lines(folder / results.ENVIRONMENT_NAME, [made])
  folders.write(folder, [{'schema_version': results.SCHEMA_VERSION, 'part': name, **row} for row in rows], {})


def _is_kept(folder: pathlib.Path) -> bool:
  return (folder / folders.RECORDS_NAME).exists() and folders.fault(folder) is None


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
  return digest([{name: fields[name] for name in fields if name not in _UNNAMED}])
