"""A study as a value; running its parts, and showing its records."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
import pathlib
from typing import Any, NamedTuple

import jax
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.page import content, training
from experiments.analysis.tables import as_text, Table
from experiments.pipeline import queue
from experiments.records import environment, files, frame, results
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.settings import lists
from experiments.settings.fields import SettingsError
from hmm_jax.models.sharding import float64_device

# In the folder of a part: its records.
_FILE_NAME = 'records.json'

Row = dict[str, Any]
# (settings, its own key, reporter) -> its records.
Part = Callable[[Any, jax.Array, Reporter], list[Row]]


def _nothing(*_: Any) -> Any:
  return {}


class Study(NamedTuple):
  """An experiment of the suite, whose class of settings stands in the registry.

  Attributes:
    run: (several settings, workdir, reporter, numbers of trials, what the user gives) -> records in the workdir, and a
      sentence on what is left; `in_parts` makes one, of one settings without trials.
    tables: (records, settings) -> its nonempty tables by name.
    figures: (records, settings) -> its figures by name, likewise.
    check: (settings, what the user gives) -> raises SettingsError if this machine cannot run it.
  """

  run: Callable[..., str | None]
  tables: Callable[[pd.DataFrame, Any], dict[str, Table]]
  figures: Callable[[pd.DataFrame, Any], dict[str, matplotlib.figure.Figure]] = _nothing
  check: Callable[[Any, Any], Any] = _nothing

  def show(self, settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
    """Print the tables of a workdir's records, draw figures and the report, and print all paths, if it has any."""
    # The tables of a grid of trials show several settings side by side.
    rows = results.load(workdir) if lists.is_grid(settings) else results.asked_for(workdir, settings)
    records = frame(workdir, rows, environment=True)
    if records.empty:
      return
    settings = results.planned(workdir, settings)
    # Make everything before showing it: records that do not fit are refused, and leave no table.
    labelled = figures_lib.with_labels(records)
    tables = self.tables(records, settings)
    figures = {**self.figures(labelled, settings), **training.figures(labelled, settings, workdir)}
    text = '\n'.join(map(as_text, tables.values()))
    reporter.show(text)
    files.write_whole(workdir / 'table.txt', text)
    reporter.say(f'records: {workdir / results.FILE_NAME}', f'table: {workdir / "table.txt"}')
    for name, figure in figures.items():
      reporter.say(f'figure: {", ".join(map(str, figures_lib.save(figure, workdir / name)))}')
    report = content.report(workdir, settings, records, tables, list(figures))
    path = workdir / 'report.html'
    files.write_whole(path, content.page(report))
    reporter.say(f'report: {path}')

  def show_any(self, settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
    """Show records that anybody may have written; raise SettingsError if they do not fit."""
    try:
      self.show(settings, workdir, reporter)
    except SettingsError:
      raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
      valid = f'records written by {settings.experiment}'
      raise SettingsError(f'{workdir / results.FILE_NAME} cannot be shown ({error!r}); valid are {valid}') from error


def in_parts(parts: Callable[[Any], dict[str, Part]]) -> Callable[..., str | None]:
  """Make the `run` of a study of parts, `settings -> its parts by name`, each a unit of work.

  It makes the missing parts, each with a key of its own, and writes the records of all once none is missing. A corrupt
  part is renamed and made again.
  """

  def run(grid: Sequence[Any], workdir: pathlib.Path, reporter: Reporter, *_: Any) -> str | None:
    (settings,) = grid
    folder, key = workdir / 'parts' / lists.asking(settings), jax.random.key(settings.seed)
    units = [
      _unit(folder / name, functools.partial(part, settings, jax.random.fold_in(key, index)), workdir)
      for index, (name, part) in enumerate(parts(settings).items())
    ]

    def finished() -> tuple[results.Runs, None]:
      every = list[Row]()
      for unit in units:
        rows = _records(unit.directory)
        # A failed part has none.
        if rows is None:
          return [], None
        every += rows
      return [(settings, every)], None

    return queue.run(grid, workdir, units, finished, reporter)

  return run


def _records(directory: pathlib.Path, reporter: Reporter | None = None) -> list[Row] | None:
  """The records of a part, as `files.intact` reads them."""
  path = directory / _FILE_NAME
  return files.intact(lambda: files.read_sealed(path)['records'], reporter, path)


def _unit(directory: pathlib.Path, make: Callable[[Reporter], list[Row]], workdir: pathlib.Path) -> queue.Unit:
  """A part as a unit of work, which writes its records."""

  def missing(reporter: Reporter) -> list[str]:
    return [_FILE_NAME] if _records(directory, reporter) is None else []

  def made(_: list[str], reporter: Reporter) -> None:
    with _on_float64_device(), reporter.clock.phase(directory.name):
      rows = make(reporter)
    environment_id = environment.keep(workdir, environment.environment(float64_device()))
    of_all = {'part': directory.name, 'environment': environment_id}
    locks.check_held(directory)
    files.write_sealed(directory / _FILE_NAME, {'records': [{**of_all, **row} for row in rows]})

  return queue.Unit(directory, f'part {directory.name}', missing, made)


@contextlib.contextmanager
def _on_float64_device() -> Iterator[None]:
  """Run on `float64_device`, since all but a small BERT is exact; in every thread, unlike `jax.default_device`."""
  jax.config.update('jax_default_device', float64_device())
  try:
    yield
  finally:
    jax.config.update('jax_default_device', None)
