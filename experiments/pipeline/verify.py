"""Verification of a folder of records: rerun trials of its settings elsewhere and compare field by field.

In the environment that a record came from (`environment.differences`: platform, CPU, devices, libraries that compute)
all of it must be bit-equal. In another one each field has a tolerance, which FIELDS declares.
"""

from collections import Counter
from collections.abc import Callable, Collection
import dataclasses
import json
import math
import pathlib
import tempfile

import jax
import pandas as pd

from experiments.analysis.tables import as_text, number as format_number, Table
from experiments.pipeline import sweep
from experiments.records import environment, results, user_data
from experiments.records.results import Record
from experiments.runtime import exit_status
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings

EQUAL, NOT_COMPARED = 'bit-equal', 'not compared'
# The largest difference that counts as none: absolute, or relative to the larger number if that is more.
TOLERANCES = {
  # What is computed without training.
  'computed': (1e-5, 1e-5),
  # Results of training, whose rounding grows with every step. Losses and distances have an absolute floor in nats: near
  # 0 such rounding exceeds a quarter of the value.
  'accuracy': (0.1, 0.0),
  'loss': (0.02, 0.25),
}

# What follows from the model that was measured: trained, unless it is the exact one.
_OF_MODEL = ('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions', 'mlm_loss', 'excess_mlm_loss')
_FIELDS_OF = {
  # What follows from the distribution alone, in float64, and what is 0 but for rounding.
  'computed': (
    'majority_accuracy',
    'smallest_margin',
    'near_tie_share',
    'bayes_floor',
    'certificate_residual',
    'gradient_norm',
  ),
  'accuracy': (
    'accuracy',
    'validation_accuracy',
    'train_accuracy',
    'clear_accuracy',
    'other_task_accuracy',
    'accuracy_at_most',
    'attention_rank_correlation',
  ),
  'loss': (*_OF_MODEL, 'train_loss'),
  # What another environment may order otherwise.
  NOT_COMPARED: (
    'attention_profile',
    'restart',
    'restart_accuracies',
    'environment',
    'head_size',
    'ridge',
    'ridge_accuracies',
    'tokens_read',
    'tokens_read_accuracies',
    'changed_shares',
    'noise_accuracies',
  ),
}
# The tolerance of each field in another environment, on BERT. All others are equal: settings alone decide them.
FIELDS = {field: tolerance for tolerance, fields in _FIELDS_OF.items() for field in fields}

_ABSENT = 'no such field'


class Differs(exit_status.RunError):
  """A trial that was run again differs from its records, as the text says."""


def run(
  workdir: pathlib.Path,
  text: str,
  pretrained: str,
  classes: config_lib.Classes,
  set_up: Callable[[Settings], None],
  reporter: Reporter,
) -> None:
  """Rerun trials of a folder, show the comparison of each field, and raise Differs where one does not match.

  Args:
    workdir: with the files that `results.write` leaves; it is only read.
    text: numbers of the trials, as `sweep.chosen` reads them; '' for all on record.
    pretrained: directory of pretrained models that are used where they are found; '' to pretrain again.
    classes: the class of settings of each grid of trials, by its name.
    set_up: configures JAX for these settings.
    reporter: of progress and of the table.
  """
  config, recorded = (results.config(workdir), results.load(workdir)) if workdir.is_dir() else (None, [])
  if config is None or not recorded:
    raise SettingsError(f'--workdir is {str(workdir)!r}; valid is a folder of records')
  settings = recorded_settings(config, pretrained, classes)
  set_up(settings)
  sweep.check(settings)
  same_bits, trial_id = _same_bits(workdir, recorded), lambda record: str(record.get('trial_id'))
  ids, on_record = [trial.id for trial in sweep.trials(settings, workdir).values()], set(map(trial_id, recorded))
  numbers = [number for number in sweep.chosen(text, ids) if ids[number] in on_record]
  require(bool(numbers), '--trials', text, 'numbers of trials with records')
  with tempfile.TemporaryDirectory(prefix='verify-') as scratch:
    user_data.keep(pathlib.Path(scratch), {name: user_data.load(workdir, name) for name in settings.given.values()})
    sweep.run(settings, pathlib.Path(scratch), reporter, numbers)
    again = results.load(pathlib.Path(scratch))
  # Records of no trial of the settings are compared too, as records that are not made again.
  others = set(ids) - {ids[number] for number in numbers}
  rows = [record for record in recorded if trial_id(record) not in others]
  found = compared(rows, again, same_bits)
  shown = found.assign(largest=[format_number(gap, '.2g') for gap in found['largest']])
  reporter.show(as_text(Table('Rerun compared with the records', shown.astype(str), num_texts=2)))
  wrong = [f'{row.field} ({row.wrong} of {row.compared} differ)' for row in found.itertuples() if row.wrong]
  if wrong:
    raise Differs(f'{workdir} does not reproduce: {"; ".join(wrong)}')
  reporter.say(f'{len(rows)} records of {len(numbers)} trials of {workdir} reproduced')


def recorded_settings(config: Record, pretrained: str, classes: config_lib.Classes) -> Settings:
  """The settings on record without their paths: no record decides where programs or models are. No time limit."""
  settings = config_lib.from_record(config, classes)
  here = {'compilation_cache': settings.compilation_cache and 'auto', 'pretrained': pretrained}
  return dataclasses.replace(settings, **here, time_budget=0.0, debug_nans=False)


def _same_bits(workdir: pathlib.Path, recorded: list[Record]) -> set[str]:
  """The environments on record that compute the bits of this one; raises Differs for a record of an unknown one."""
  here, made = environment.environment(jax.devices()), environment.load(workdir, recorded)
  for record in recorded:
    if str(record.get('environment')) not in made:
      raise Differs(f'the record of {_name(record)} in {workdir} has no known environment')
  return {name for name, there in made.items() if not environment.differences(there, here)}


def _name(record: Record) -> str:
  """The trial, task, model and method of a record, as JSON: it may come from anybody, with any values."""
  return json.dumps([record.get(name) for name in ('trial_id', 'task', 'model', 'method')])


def compared(recorded: list[Record], again: list[Record], same_bits: Collection[str]) -> pd.DataFrame:
  """A row for each field and tolerance, after one that compares which records there are.

  The other columns: how many values were compared, their largest difference, and how many are wrong. Records of an
  environment in `same_bits` have to be bit-equal.
  """
  theirs, ours = ({_name(record): record for record in records} for records in (recorded, again))
  counts, pairs = Counter(map(_name, recorded)), list[tuple[str, str, float, bool]]()
  for name in {**ours, **theirs}:
    # On both sides, and on record only once.
    pairs.append(('records', EQUAL, math.nan, counts[name] != (name in ours)))
  for name in filter(theirs.get, ours):
    one, other = theirs[name], ours[name]
    for field in {**other, **one}:
      elsewhere = 'computed' if field in _OF_MODEL and one['model'] == 'exact' else FIELDS.get(field, EQUAL)
      # The environments themselves were compared above.
      is_here = one.get('environment') in same_bits and field != 'environment'
      tolerance, values = EQUAL if is_here else elsewhere, (one.get(field, _ABSENT), other.get(field, _ABSENT))
      if field in ('distribution', 'corpus_file'):
        # NAME-DIGEST, of which the digest counts.
        values = str(values[0]).rpartition('-')[2], str(values[1]).rpartition('-')[2]
      # A bool is no number here, although Python counts it as an int.
      are_numbers = all(type(value) in (int, float) for value in values)
      is_same = json.dumps(values[0]) == json.dumps(values[1])
      if tolerance == NOT_COMPARED:
        is_same = _ABSENT not in values
      elif are_numbers and tolerance != EQUAL:
        absolute, relative = TOLERANCES[tolerance]
        is_same = math.isclose(*values, abs_tol=absolute, rel_tol=relative)
      pairs.append((field, tolerance, abs(values[0] - values[1]) if are_numbers else math.nan, not is_same))
  columns = ['field', 'tolerance', 'gap', 'differs']
  groups = pd.DataFrame(pairs, columns=columns).groupby(columns[:2], sort=False, as_index=False)
  return groups.agg(compared=('gap', 'size'), largest=('gap', 'max'), wrong=('differs', 'sum'))
