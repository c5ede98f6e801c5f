"""Verification of a folder of records: rerun trials of its settings elsewhere and compare every field, bit by bit."""

from collections import Counter
from collections.abc import Sequence
import dataclasses
import json
import math
import pathlib
import tempfile
from typing import Any

import pandas as pd

from experiments.analysis.tables import as_text, table
from experiments.own import data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import pretraining, sweep
from experiments.records import results
from experiments.records.results import Record
from experiments.runtime.exit_status import RunError
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib, lists
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from experiments.settings.trial import trial_numbers, trials


def run(grid: Sequence[Settings], workdir: pathlib.Path, text: str, reporter: Reporter, own: Own = NOTHING) -> None:
  """Rerun trials of a folder, show the comparison of each field, and raise RunError if one differs.

  Args:
    grid: `recorded_settings`, for which JAX is configured.
    workdir: with the files that `results.write` leaves; it is only read.
    text: numbers of the trials, as `trial_numbers` reads them; '' for all on record.
    reporter: of progress and of the table.
    own: the functions that the settings name.
  """
  own = {**own, **data.kept(grid, workdir)}
  recorded, columns = results.load(workdir), lists.points(grid)[0]
  # The id of its trial, and what tells the settings from others.
  trial_of = lambda record: f'{record.get("trial_id")} {lists.text({name: record.get(name) for name in columns})}'
  on_record = set(map(trial_of, recorded))
  names = [f'{trial.id} {trial.label}' for trial in trials(*grid, own=data.given(own))]
  numbers = [number for number in trial_numbers(text, len(names)) if names[number] in on_record]
  valid = 'a folder with records of these trials, made by this version and by functions and files as they are now'
  require(numbers, '--workdir', str(workdir), valid)
  for settings in grid:
    pretraining.check_machine(settings)
  with tempfile.TemporaryDirectory(prefix='verify-') as scratch:
    sweep.run(grid, pathlib.Path(scratch), reporter, numbers, own)
    again = results.load(pathlib.Path(scratch))
  # Records of no trial of the settings are compared too, as records that are not made again.
  others = set(names) - {names[number] for number in numbers}
  rows = [record for record in recorded if trial_of(record) not in others]
  comparison = compared(rows, again)
  reporter.show(as_text(table('Rerun compared with the records', comparison, num_texts=1)))
  different = comparison[comparison['differ'] > 0]['field']
  if len(different):
    reporter.say('another CPU, device or version may round otherwise; report.html has those of the records')
    raise RunError(f'{workdir} does not reproduce: {", ".join(different)} differ')
  reporter.say(f'{len(rows)} records of {len(numbers)} trials of {workdir} reproduced')


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
    for field in known:
      first: Any = theirs[name].get(field)
      second: Any = ours[name].get(field)
      # A bool is no number here, although Python counts it as an int.
      are_numbers = {type(first), type(second)} <= {int, float}
      gap = abs(first - second) if are_numbers else math.nan
      rows.append((field, json.dumps(first) != json.dumps(second), gap))
  groups = pd.DataFrame(rows, columns=['field', 'differs', 'gap']).groupby('field', as_index=False)
  return groups.agg(compared=('gap', 'size'), differ=('differs', 'sum'), largest=('gap', 'max'))
