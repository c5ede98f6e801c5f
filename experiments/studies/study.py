"""A study as a value, and what every study needs: running its parts, and showing what is on record."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import Any, NamedTuple

import jax
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.tables import as_text, Table
from experiments.records import environment, files, frames, results
from experiments.runtime import locks, timing
from experiments.runtime.progress import Reporter
from experiments.settings.grid import digest
from hmm_jax.sharding import exact_device

# In the folder of a part: its records, and the seconds that it took.
_FILE_NAME = 'records.json'

Row = dict[str, Any]
# settings, a key of its own -> its records.
Part = Callable[[Any, jax.Array, Reporter], list[Row]]


def _nothing(*_: Any) -> Any:
  return {}


class Study(NamedTuple):
  """An experiment of the suite.

  Attributes:
    settings: the class of its settings.
    run: (settings, workdir, reporter) -> records in the workdir; `in_parts` makes one. That of a grid of trials takes
      the numbers of trials, too, and returns a sentence that says what is left.
    tables: (records, settings) -> its tables by name, of those that the records have something for.
    figures: (records, settings) -> its figures by name, likewise.
    check: (settings) -> raises SettingsError where this machine cannot run it.
    trials: of a grid, (settings, workdir) -> every trial by its name.
    merge: of a grid, (settings, workdir, reporter) -> records of the trials that are finished; what is left.
  """

  settings: Any
  run: Callable[..., str | None]
  tables: Callable[[pd.DataFrame, Any], dict[str, Table]]
  figures: Callable[[pd.DataFrame, Any], dict[str, matplotlib.figure.Figure]] = _nothing
  check: Callable[[Any], Any] = _nothing
  trials: Any = None
  merge: Any = None

  def show(self, settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
    """Prints the tables of the records of a workdir, draws their figures, and says where all are; nothing of none."""
    records = frames.load(workdir)
    if records.empty:
      return
    text = '\n'.join(as_text(table) for table in self.tables(records, settings).values())
    figures = self.figures(records, settings)
    reporter.show(text)
    files.write_whole(workdir / 'table.txt', text)
    for name, path in (('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')):
      reporter.say(f'{name}: {path}')
    for name, figure in figures.items():
      reporter.say(f'figure: {", ".join(map(str, figures_lib.save(figure, workdir / name)))}')


def in_parts(parts: Callable[[Any], dict[str, Part]]) -> Callable[[Any, pathlib.Path, Reporter], None]:
  """Make the `run` of a study of parts, `settings -> its parts by name`.

  It runs the parts that are missing, each on record as it ends, and writes the records of all. A part that another
  process works on is waited for; one that is corrupt is renamed and made again.
  """
  return functools.partial(_run, parts)


def _run(parts: Callable[[Any], dict[str, Part]], settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
  results.begin(workdir, settings)
  parts_of = workdir / 'parts' / _id(settings)
  key = jax.random.key(settings.seed)
  records: list[Row] = []
  spent: list[Row] = []
  for index, (name, part) in enumerate(parts(settings).items()):
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
  """The records of a part; None if it has not ended, or its file is corrupt.

  The holder of the part's lock passes `renames`, so that a corrupt file is renamed and reported.
  """
  path = folder / _FILE_NAME
  try:
    made = files.read_sealed(path)
    rows = made.get('records')
    if not isinstance(rows, list) or any(row['part'] != folder.name for row in rows):
      raise files.Corrupt(f'is not of part {folder.name}')
    return made
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
  """The id of settings: a digest of those that decide records, which the fields in `results.OF_RUNNING` do not."""
  fields = dataclasses.asdict(settings)
  return digest([{name: fields[name] for name in fields if name not in results.OF_RUNNING}])
