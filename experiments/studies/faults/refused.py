"""Every bad input that is tried, in a process of its own, by kind."""

import pathlib
import tempfile

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults.bench import Row
from experiments.studies.faults.processes import answer
from experiments.studies.faults.settings import FaultsSettings

_MOST_REASONS = 5


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for the fields of each experiment, and one for each kind of what was written by hand."""
  del key
  rows = _rows(settings, '')
  if settings.mutants:
    rows += _rows(settings, 'ranges of fields')
  reporter.say(f'bad inputs: {sum(row["tried"] for row in rows)}')
  return rows


def _rows(settings: FaultsSettings, without: str) -> list[Row]:
  with tempfile.TemporaryDirectory(prefix='faults-') as directory:
    path = pathlib.Path(directory, 'answer.json')
    kinds = answer('experiments.studies.faults.every_input', settings.every_input, without, path=path)
  return [_row(kind, said, without) for kind, said in kinds.items()]


def _row(kind: str, said: list[str], without: str) -> Row:
  lost = list(filter(None, said))
  counts = {'tried': len(said), 'survived': len(said) - len(lost)}
  return {'fault': f'bad input: {kind}', 'without': without, **counts, 'lost': '; '.join(lost[:_MOST_REASONS])}
