"""A folder of records verified: trials of its settings are run again elsewhere and compared with it, field by field.

In the environment that a record came from (`environment.differences`: platform, CPU, devices, libraries that compute)
all of it is made again bit by bit. In another one its class decides, which FIELDS declares of every field, once.
"""

from collections.abc import Callable, Iterable
import dataclasses
import itertools
import json
import math
import pathlib
import tempfile
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.stats

from experiments.analysis import report
from experiments.pipeline import sweep
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.fields import require
from experiments.settings.grid import Point, Settings

# The classes. Within TOLERANCE of 1, or of the recorded number where that is larger.
EQUAL, TOLERANT, STATISTICAL, LOCAL = 'bit-equal', 'within tolerance', 'statistical', 'here alone'
TOLERANCE = 1e-5
# Of all tests of statistical fields together: what is there to be found where nothing differs.
LEVEL = 0.01
_FEWEST = 3

# What a record is of, and what nothing but its settings decides.
_DECLARED = (
  *('schema_version', 'experiment', 'scale', 'seed', 'num_states', 'memory_size', 'num_cells', 'trial', 'task'),
  *('model', 'method', 'trial_id', 'pretraining_id', 'fit_id', 'attention_by', 'redraws', 'separable'),
)
# What follows from the distribution alone, in float64, and what is 0 but for rounding.
_EXACT = (
  *('majority_accuracy', 'smallest_margin', 'near_tie_share', 'bayes_floor'),
  *('certificate_residual', 'gradient_norm'),
)
# What follows from the model that was measured, which training made unless it is the exact one.
_OF_MODEL = (*('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions', 'mlm_loss', 'excess_mlm_loss'),)
_TRAINED = (
  *('accuracy', 'validation_accuracy', 'train_accuracy', 'clear_accuracy', 'train_loss'),
  *('attention_rank_correlation', 'accuracy_at_most', 'restart_accuracies'),
)
# What another environment may order otherwise, and no mean speaks of.
_LOCAL = ('attention_profile', 'restart', 'environment')
# The class of each field in another environment, by the model that it is of.
FIELDS: dict[str, dict[str, str]] = {
  **dict.fromkeys(_DECLARED, {'bert': EQUAL, 'exact': EQUAL}),
  **dict.fromkeys(_EXACT, {'bert': TOLERANT, 'exact': TOLERANT}),
  **dict.fromkeys(_OF_MODEL, {'bert': STATISTICAL, 'exact': TOLERANT}),
  **dict.fromkeys(_TRAINED, {'bert': STATISTICAL, 'exact': STATISTICAL}),
  **dict.fromkeys(_LOCAL, {'bert': LOCAL, 'exact': LOCAL}),
}

# What names a record of a folder.
_KEY = ('num_states', 'memory_size', 'num_cells', 'trial', 'task', 'model', 'method')
_ABSENT = object()


class Differs(Exception):
  """What was made again is not what is on record, as its text says."""


class Compared(NamedTuple):
  """A field in one class.

  Attributes:
    field: its name.
    kind: the class.
    number: of records that were compared.
    largest: the largest difference of numbers; None where there are none, or where they are not numbers on both sides.
    verdict: 'same', or what is wrong, or why nothing is said.
    is_same: whether nothing is wrong.
  """

  field: str
  kind: str
  number: int
  largest: float | None
  verdict: str
  is_same: bool


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
  results.check(workdir, '--workdir')
  recorded = results.load(workdir)
  require(bool(recorded), '--workdir', str(workdir), 'one with records where --mode is verify')
  _check_names(workdir, recorded)
  settings = _settings(workdir, pretrained, classes)
  set_up(settings)
  sweep.check(settings)
  is_here = _is_here(workdir, recorded)
  with tempfile.TemporaryDirectory(prefix='verify-') as scratch:
    grid = sweep.trials(settings, pathlib.Path(scratch))
    chosen = _chosen(text, grid, recorded)
    failed = sweep.fill(grid, chosen, 0.0, reporter)
    if failed:
      raise sweep.TrialsFailed(failed, None)
    trials = [list(grid.values())[number] for number in chosen]
    again = results.rows(settings, [record for trial in trials for record in trial.records()])
  names = {_draw(trial.point, trial.trial) for trial in trials}
  rows = [record for record in recorded if _draw(results.point_of(record), record['trial']) in names]
  found = compared(rows, again, is_here)
  reporter.show(table(found))
  wrong = [f'{one.field} ({one.verdict})' for one in found if not one.is_same]
  if wrong:
    raise Differs(f'{workdir} is not what its settings make: {"; ".join(wrong)}')
  reporter.say(f'{len(rows)} records of {len(trials)} trials of {workdir} were made again')


def _check_names(workdir: pathlib.Path, recorded: list[Record]) -> None:
  """Raises SettingsError where a record does not say what it is of."""
  kinds: dict[str, type] = {**dict.fromkeys((*Point._fields, 'trial', 'task'), int), 'model': str, 'method': str}
  for (name, kind), record in itertools.product(kinds.items(), recorded):
    value = record.get(name)
    valid = 'a whole number' if kind is int else 'a name'
    require(isinstance(value, kind), f'{name} of a record in {workdir}', value, valid)


def _settings(workdir: pathlib.Path, pretrained: str, classes: config_lib.Classes) -> Settings:
  """Those of the folder, with no path of it: nothing that is read says where programs or models are; no time limit."""
  path = workdir / results.CONFIG_NAME
  recorded = results.check(workdir, '--workdir') or {}
  experiment = recorded.get('experiment')
  require(experiment in list(classes), f'experiment of {path}', experiment, f'one of {", ".join(classes)}')
  settings = config_lib.from_record(recorded, classes)
  cache = settings.compilation_cache and 'auto'
  here = {'compilation_cache': cache, 'pretrained': pretrained}
  return dataclasses.replace(settings, **here, time_budget=0.0, tensorboard=False, debug_nans=False)


def _draw(point: Any, trial: int) -> tuple[Any, ...]:
  return (*point, trial)


def _chosen(text: str, grid: sweep.Grid, recorded: list[Record]) -> list[int]:
  """The numbers of the trials; raises Differs for records that are of none, SettingsError for trials without any."""
  number_of = {_draw(trial.point, trial.trial): number for number, trial in enumerate(grid.values())}
  found = {_draw(results.point_of(record), record['trial']) for record in recorded}
  others = sorted(found - set(number_of))
  if others:
    raise Differs(f'{len(others)} trials on record are none of its settings, such as (|H|, |M|, N, trial) {others[0]}')
  on_record = sorted(number_of[draw] for draw in found)
  numbers = sweep.chosen(text, grid) if text else on_record
  valid = f'of trials on record: {", ".join(map(str, on_record))}'
  require(set(numbers) <= set(on_record), '--trials', text, valid)
  return numbers


def _is_here(workdir: pathlib.Path, recorded: list[Record]) -> Callable[[Record], bool]:
  """Whether a record came from an environment whose bits are those of this one; raises Differs where none is known."""
  here, made = environment.environment(jax.devices()), environment.load(workdir, recorded)

  def is_here(record: Record) -> bool:
    if record.get('environment') not in made:
      raise Differs(f'{workdir} does not say where the record of {_key(record)} came from')
    return not environment.differences(made[record['environment']], here)

  return is_here


def compared(recorded: list[Record], again: list[Record], is_here: Callable[[Record], bool]) -> list[Compared]:
  """Every field of the records in each class that it has among them, after whether there are the same records."""
  ours = {_key(record): record for record in again}
  theirs = {_key(record): record for record in recorded}
  lost, new, doubled = len(ours.keys() - theirs), len(theirs.keys() - ours), len(recorded) - len(theirs)
  counts = ((lost, 'missing'), (new, 'too many'), (doubled, 'doubled'))
  verdict = ', '.join(f'{count} {what}' for count, what in counts if count) or 'same'
  found = [Compared('records', EQUAL, len(again), None, verdict, verdict == 'same')]
  both = [(theirs[key], ours[key], is_here(theirs[key])) for key in ours if key in theirs]
  groups: dict[tuple[str, str], list[tuple[Record, Any, Any]]] = {}
  for record, other, here in both:
    for field in dict.fromkeys([*FIELDS, *other, *record]):
      kind = EQUAL if here else FIELDS.get(field, {}).get(record['model'], EQUAL)
      pair = record.get(field, _ABSENT), other.get(field, _ABSENT)
      if pair != (_ABSENT, _ABSENT):
        groups.setdefault((field, kind), []).append((record, *pair))
  tests = sum(kind == STATISTICAL for _, kind in groups)
  return found + [_compared(field, kind, rows, tests) for (field, kind), rows in groups.items()]


def _key(record: Record) -> tuple[Any, ...]:
  return tuple(record.get(name) for name in _KEY)


def _compared(field: str, kind: str, rows: list[tuple[Record, Any, Any]], tests: int) -> Compared:
  absent = [one is _ABSENT or other is _ABSENT for _, one, other in rows]
  if any(absent):
    return Compared(field, kind, len(rows), None, f'on one side alone in {sum(absent)} records', False)
  gaps = [_gap(one, other) for _, one, other in rows]
  comparable = [gap for gap in gaps if gap is not None]
  largest = max((abs(value) for gap in comparable for value in gap), default=None)
  what = _verdict(kind, rows, gaps, tests)
  return Compared(field, kind, len(rows), largest, *what)


def _verdict(
  kind: str, rows: list[tuple[Record, Any, Any]], gaps: list[list[float] | None], tests: int
) -> tuple[str, bool]:
  if kind == LOCAL:
    return 'made in another environment, not compared', True
  unlike = sum(json.dumps(one) != json.dumps(other) for _, one, other in rows)
  if kind == EQUAL or not unlike:
    return ('same', True) if not unlike else (f'{unlike} of {len(rows)} differ', False)
  mixed = sum(gap is None for gap in gaps)
  if mixed:
    return f'{mixed} of {len(rows)} are of another form', False
  if kind == TOLERANT:
    scale = lambda one: max([1.0, *(abs(value) for value in _leaves(one) if isinstance(value, (int, float)))])
    far = sum(max(map(abs, gap or [0.0])) > TOLERANCE * scale(one) for gap, (_, one, _) in zip(gaps, rows))
    return (f'{far} of {len(rows)} are further apart', False) if far else ('same', True)
  return _tested([(record, float(np.mean(gap))) for (record, *_), gap in zip(rows, gaps) if gap], tests)


def _tested(differences: list[tuple[Record, float]], tests: int) -> tuple[str, bool]:
  """Two-sided t test that the mean difference is 0, at LEVEL over `tests`.

  The unit is the trial, mean over its records first; with fewer than three trials the record, whose tasks share a
  model, so that the test then finds too much rather than too little.
  """
  by_trial: dict[tuple[Any, ...], list[float]] = {}
  for record, value in differences:
    by_trial.setdefault(_draw(results.point_of(record), record['trial']), []).append(value)
  values = [float(np.mean(each)) for each in by_trial.values()]
  unit = 'trials'
  if len(values) < _FEWEST:
    values, unit = [value for _, value in differences], 'records'
  if len(values) < _FEWEST:
    return f'{len(values)} {unit}, too few to test', True
  if np.ptp(values) == 0:
    return (f'all {len(values)} {unit} moved alike', False) if values[0] else ('same', True)
  p_value = float(scipy.stats.ttest_1samp(values, 0.0).pvalue)
  if math.isnan(p_value) or p_value < LEVEL / tests:
    return f'mean over {len(values)} {unit} moved by {np.mean(values):+.2g}, p = {p_value:.1g}', False
  return f'same in the mean of {len(values)} {unit}, p = {p_value:.2g}', True


def _gap(one: Any, other: Any) -> list[float] | None:
  """The differences of all numbers, the second minus the first; None where the two are not of one form."""
  if _form(one) != _form(other):
    return None
  pairs = zip(_leaves(one), _leaves(other))
  return [float(b) - float(a) for a, b in pairs if isinstance(a, (int, float))]


def _form(value: Any) -> Any:
  """What is left of a value when its numbers are taken out."""
  if isinstance(value, list):
    return [_form(entry) for entry in value]
  if isinstance(value, dict):
    return {name: _form(entry) for name, entry in value.items()}
  return 'a number' if isinstance(value, (int, float)) and not isinstance(value, bool) else [value]


def _leaves(value: Any) -> Iterable[Any]:
  entries = value.values() if isinstance(value, dict) else value
  if isinstance(value, (list, dict)):
    return [leaf for entry in entries for leaf in _leaves(entry)]
  return [value]


def table(rows: list[Compared]) -> str:
  """A row for each field and class."""
  cells = [
    [
      ('field', one.field),
      ('class', one.kind),
      ('compared', str(one.number)),
      ('largest\ndifference', '' if one.largest is None else f'{one.largest:.2g}'),
      ('verdict', one.verdict),
    ]
    for one in rows
  ]
  title = f'Made again and compared; tolerance {TOLERANCE:g}, tests at {LEVEL} over their number'
  return report.as_text(report.from_rows(title, cells))
