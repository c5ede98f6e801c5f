"""A folder of records verified: trials of its settings are run again elsewhere and compared with it, field by field.

In the environment that a record came from (`environment.differences`: platform, CPU, devices, libraries that compute)
all of it is made again bit by bit. In another one each field has a tolerance, which FIELDS declares.
"""

from collections.abc import Callable, Collection
import dataclasses
import json
import math
import pathlib
import tempfile
from typing import Any, NamedTuple

import jax

from experiments.analysis.tables import as_text, table
from experiments.pipeline import sweep
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime import exit_status
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.fields import require
from experiments.settings.grid import Point, Settings


class Tolerance(NamedTuple):
  """The largest difference that counts as none: `absolute`, or `relative` to the larger number if that is more."""

  name: str
  absolute: float = 0.0
  relative: float = 0.0


EQUAL, NOT_COMPARED = Tolerance('bit-equal'), Tolerance('not compared', math.inf)
# What is computed without training.
COMPUTED = Tolerance('computed', 1e-5, 1e-5)
# What training decides, whose rounding grows with every step. Losses and distances have a floor in nats: a quarter of
# next to nothing is less than such rounding.
ACCURACY, LOSS = Tolerance('accuracy', 0.1), Tolerance('loss', 0.02, 0.25)

# What follows from the model that was measured: trained, unless it is the exact one.
_OF_MODEL = ('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions', 'mlm_loss', 'excess_mlm_loss')
_FIELDS_OF = {
  # What a record is of, and what nothing but its settings decides.
  EQUAL: (
    *('schema_version', 'experiment', 'scale', 'seed', 'num_states', 'memory_size', 'num_cells', 'trial', 'task'),
    *('model', 'method', 'trial_id', 'pretraining_id', 'fit_id', 'attention_by', 'redraws', 'separable'),
  ),
  # What follows from the distribution alone, in float64, and what is 0 but for rounding.
  COMPUTED: (
    *('majority_accuracy', 'smallest_margin', 'near_tie_share', 'bayes_floor'),
    *('certificate_residual', 'gradient_norm'),
  ),
  ACCURACY: (
    *('accuracy', 'validation_accuracy', 'train_accuracy', 'clear_accuracy', 'accuracy_at_most'),
    'attention_rank_correlation',
  ),
  LOSS: (*_OF_MODEL, 'train_loss'),
  # What another environment may order otherwise.
  NOT_COMPARED: ('attention_profile', 'restart', 'restart_accuracies', 'environment'),
}
# The tolerance of each field in another environment, on BERT.
FIELDS = {field: tolerance for tolerance, fields in _FIELDS_OF.items() for field in fields}

# What names a trial, and a record of a folder.
_DRAW = (*Point._fields, 'trial')
_KEY = (*_DRAW, 'task', 'model', 'method')
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
  """Runs trials of a folder again, shows what became of each field, and raises Differs where it is not what it was.

  Args:
    workdir: with the files that `results.write` leaves; it is read and no more.
    text: numbers of the trials, as `sweep.chosen` reads them; '' for all on record.
    pretrained: directory of pretrained models that are used where they are found; '' to pretrain again.
    classes: the class of settings of each grid of trials, by its name.
    set_up: of JAX, for these settings.
    reporter: of progress and of the table.
  """
  settings = _settings(workdir, pretrained, classes)
  recorded = results.load(workdir)
  require(bool(recorded), '--workdir', str(workdir), 'one with records where --mode is verify')
  set_up(settings)
  sweep.check(settings)
  same_bits = _same_bits(workdir, recorded)
  with tempfile.TemporaryDirectory(prefix='verify-') as scratch:
    grid = sweep.trials(settings, pathlib.Path(scratch))
    trials = {_values({**trial.point._asdict(), 'trial': trial.trial}, _DRAW): trial for trial in grid.values()}
    numbers = _chosen(text, grid, list(trials), {_values(record, _DRAW) for record in recorded})
    if failed := sweep.fill(grid, numbers, 0.0, reporter):
      raise sweep.TrialsFailed(failed, None)
    chosen = {draw: trial for number, (draw, trial) in enumerate(trials.items()) if number in numbers}
    again = results.rows(settings, [record for trial in chosen.values() for record in trial.records()])
  rows = [record for record in recorded if _values(record, _DRAW) in chosen]
  found = compared(rows, again, same_bits)
  reporter.show(as_text(table('Made again and compared', found)))
  wrong = [f'{row["field"]} ({row["wrong"]})' for row in found if row['wrong']]
  if wrong:
    raise Differs(f'{workdir} is not what its settings make: {"; ".join(wrong)}')
  reporter.say(f'{len(rows)} records of {len(chosen)} trials of {workdir} were made again')


def _settings(workdir: pathlib.Path, pretrained: str, classes: config_lib.Classes) -> Settings:
  """The settings of the folder without its paths: no record decides where programs or models are. No time limit."""
  recorded = results.config(workdir)
  require(recorded is not None, '--workdir', str(workdir), 'one with records where --mode is verify')
  settings = config_lib.from_record(recorded or {}, classes)
  cache = settings.compilation_cache and 'auto'
  here = {'compilation_cache': cache, 'pretrained': pretrained}
  return dataclasses.replace(settings, **here, time_budget=0.0, tensorboard=False, debug_nans=False)


def _chosen(text: str, grid: sweep.Grid, draws: list[str], recorded: set[str]) -> list[int]:
  """The numbers of the trials; raises Differs for records that are of none, SettingsError for trials without any."""
  if others := recorded - set(draws):
    raise Differs(f'{len(others)} trials on record are none of its settings, such as {min(others)}')
  on_record = [number for number, draw in enumerate(draws) if draw in recorded]
  numbers = sweep.chosen(text, grid) if text else on_record
  require(set(numbers) <= set(on_record), '--trials', text, f'of trials on record: {", ".join(map(str, on_record))}')
  return numbers


def _same_bits(workdir: pathlib.Path, recorded: list[Record]) -> set[str]:
  """The environments of the records whose bits are those of this one; raises Differs where that of one is unknown."""
  here, made = environment.environment(jax.devices()), environment.load(workdir, recorded)
  for record in recorded:
    if record.get('environment') not in made:
      raise Differs(f'{workdir} does not say where the record of {_values(record, _KEY)} came from')
  return {name for name, there in made.items() if not environment.differences(there, here)}


def _values(record: Record, names: tuple[str, ...]) -> str:
  """The values of a record, which may come from anybody, under these names, as JSON."""
  return json.dumps([record.get(name) for name in names])


def compared(recorded: list[Record], again: list[Record], same_bits: Collection[str]) -> list[dict[str, str]]:
  """A row for each field and tolerance of the records, after one that says whether there are the same records.

  Those of an environment in `same_bits` have to be equal bit by bit.
  """
  ours, theirs = ({_values(record, _KEY): record for record in records} for records in (again, recorded))
  lost, new, doubled = len(ours.keys() - theirs), len(theirs.keys() - ours), len(recorded) - len(theirs)
  counts = {'missing': lost, 'too many': new, 'doubled': doubled}
  wrong = ', '.join(f'{count} {what}' for what, count in counts.items() if count)
  pairs: dict[tuple[str, Tolerance], list[tuple[Any, Any]]] = {}
  for record, other in [(theirs[key], ours[key]) for key in ours if key in theirs]:
    for field in dict.fromkeys([*other, *record]):
      elsewhere = COMPUTED if field in _OF_MODEL and record['model'] == 'exact' else FIELDS.get(field, EQUAL)
      # The environments themselves were compared above.
      is_here = record.get('environment') in same_bits and field != 'environment'
      tolerance = EQUAL if is_here else elsewhere
      pairs.setdefault((field, tolerance), []).append((record.get(field, _ABSENT), other.get(field, _ABSENT)))
  rows = [('records', EQUAL, len(again), '', wrong)]
  for (field, tolerance), both in pairs.items():
    gaps = [abs(other - one) for one, other in both if _are_numbers(one, other)]
    differ = sum(not _is_same(one, other, tolerance) for one, other in both)
    largest, wrong = f'{max(gaps):.2g}' if gaps else '', f'{differ} of {len(both)} differ' if differ else ''
    rows.append((field, tolerance, len(both), largest, wrong))
  titles = ('field', 'tolerance', 'compared', 'largest\ndifference', 'wrong')
  return [dict(zip(titles, (field, tolerance.name, str(number), *rest))) for field, tolerance, number, *rest in rows]


def _is_same(one: Any, other: Any, tolerance: Tolerance) -> bool:
  """True if the two are the same JSON, or numbers within the tolerance; NaN never is."""
  if tolerance == EQUAL or not _are_numbers(one, other):
    is_open = tolerance == NOT_COMPARED and _ABSENT not in (one, other)
    return is_open or json.dumps(one) == json.dumps(other)
  return math.isclose(one, other, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)


def _are_numbers(*values: Any) -> bool:
  """True if all are int or float; a bool is not, although Python counts it as an int."""
  return all(type(value) in (int, float) for value in values)
