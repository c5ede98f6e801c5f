"""Verification of a folder of records: rerun trials of its settings elsewhere and compare every field, bit by bit."""

from collections import Counter
from collections.abc import Sequence
import dataclasses
import json
import math
import pathlib
import tempfile

import pandas as pd

from experiments.analysis.tables import as_text, table
from experiments.own import data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import pretraining, sweep
from experiments.records import results
from experiments.records.results import Record
from experiments.runtime import exit_status
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib, lists
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from experiments.settings.trial import trial_numbers, trials

_ABSENT = 'no such field'


class Differs(exit_status.RunError):
  """A rerun differs from the records; the message lists the fields."""


def run(grid: Sequence[Settings], workdir: pathlib.Path, text: str, reporter: Reporter, own: Own = NOTHING) -> None:
  """Rerun trials of a folder, show the comparison of each field, and raise Differs if one does not match.

  Args:
    grid: `recorded_settings`, for which JAX is configured.
    workdir: with the files that `results.write` leaves; it is only read.
    text: numbers of the trials, as `trial_numbers` reads them; '' for all on record.
    reporter: of progress and of the table.
    own: the functions that the settings name.
  """
  for settings in grid:
    pretraining.check_machine(settings)
  own = own._replace(arrays=data.kept(grid, workdir))
  recorded, names = results.load(workdir), [f'{trial.id} {trial.label}' for trial in trials(*grid, own=own.of)]
  trial_of = _trial_names(recorded, grid)
  numbers = [number for number in trial_numbers(text, len(names)) if names[number] in trial_of]
  asked = ('--trials', text) if text else ('--workdir', str(workdir))
  valid = 'trials with records, made by this version and by functions and files as they are now'
  require(numbers, *asked, valid)
  with tempfile.TemporaryDirectory(prefix='verify-') as scratch:
    sweep.run(grid, pathlib.Path(scratch), reporter, numbers, own)
    again = results.load(pathlib.Path(scratch))
  # Records of no trial of the settings are compared too, as records that are not made again.
  others = set(names) - {names[number] for number in numbers}
  rows = [record for record, name in zip(recorded, trial_of) if name not in others]
  different = _show(compared(rows, again), reporter)
  if different:
    reporter.say('another CPU, device or version may round otherwise; report.html has those of the records')
    raise Differs(f'{workdir} does not reproduce: {"; ".join(different)}')
  reporter.say(f'{len(rows)} records of {len(numbers)} trials of {workdir} reproduced')


def _trial_names(records: Sequence[Record], grid: Sequence[Settings]) -> list[str]:
  """The trial of each record: its id, and what tells its settings from others."""
  columns, *_ = lists.points(grid)
  point_of = lambda record: lists.text({name: record.get(name) for name in columns})
  return [f'{record.get("trial_id")} {point_of(record)}' for record in records]


def _show(comparison: pd.DataFrame, reporter: Reporter) -> list[str]:
  """Show a comparison; return the fields that differ, in words."""
  reporter.show(as_text(table('Rerun compared with the records', comparison, num_texts=1)))
  different = comparison[comparison['differ'] > 0]
  return [f'{row.field} ({row.differ} of {row.compared} differ)' for row in different.itertuples()]


def recorded_settings(workdir: pathlib.Path, pretrained: str, classes: config_lib.Classes) -> list[Settings]:
  """The settings on record without their paths: no record decides where programs or models are.

  Args:
    workdir: a folder of records.
    pretrained: directory of pretrained models to reuse; '' to pretrain again.
    classes: the class of settings of each grid of trials, by its name.
  """
  grid = results.read(workdir, classes) if workdir.is_dir() and results.load(workdir) else []
  require(grid, '--workdir', str(workdir), 'a folder of records')
  here = {'compilation_cache': grid[0].compilation_cache and 'auto', 'pretrained': pretrained}
  return [dataclasses.replace(settings, **here) for settings in grid]


def _name(record: Record) -> str:
  """The fields that tell a record from others, as JSON: it may come from anybody, with any values."""
  fields = filter(lambda name: '.' in name, record)
  names = 'trial_id', 'task', 'model', 'method', 'step', 'own_head', 'label'
  return json.dumps([record.get(name) for name in (*names, *sorted(fields))])


def compared(recorded: list[Record], again: list[Record]) -> pd.DataFrame:
  """A row for each field, and one for which records there are: values compared, how many differ, and by how much.

  Fields that no record on file has, which came later, and `environment` are left out.
  """
  theirs, ours = ({_name(record): record for record in records} for records in (recorded, again))
  known, counts = set[str]().union(*recorded) - {'environment'}, Counter(map(_name, recorded))
  # On both sides, and on record only once.
  rows = [('records', counts[name] != (name in ours), math.nan) for name in {**ours, **theirs}]
  for name in theirs.keys() & ours.keys():
    for field in known.intersection(theirs[name] | ours[name]):
      first, second = (records[name].get(field, _ABSENT) for records in (theirs, ours))
      # A bool is no number here, although Python counts it as an int.
      are_numbers = {type(first), type(second)} <= {int, float}
      gap = abs(first - second) if are_numbers else math.nan
      rows.append((field, json.dumps(first) != json.dumps(second), gap))
  groups = pd.DataFrame(rows, columns=['field', 'differs', 'gap']).groupby('field', as_index=False)
  return groups.agg(compared=('gap', 'size'), differ=('differs', 'sum'), largest=('gap', 'max'))
