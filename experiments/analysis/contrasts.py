"""Differences between methods, models and values of a field, paired where they can be, only from records."""

from collections.abc import Callable, Iterator, Sequence
import itertools
from typing import Any

import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Fits, Interval, Place
from experiments.analysis.table import format_number, Row
from experiments.settings import lists
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS, MODEL_NAMES

# Pairs of methods whose difference on BERT, paired by task, is tested where both were run.
_PAIRED = (
  ('prompt', 'head'),
  ('attention', 'head'),
  ('prompt_attention', 'attention'),
  ('attention', 'attention_blind'),
  ('attention', 'attention_constant'),
)
# Further pairs: beyond the protocol, with an untrained BERT, and on the exact model.
_PAIRED_BEYOND = (
  ('prompt', 'head_whitened'),
  ('prompt', 'probe'),
  ('prompt', 'probe_converged'),
  ('prompt', 'oracle_prompt'),
  ('shift', 'prompt'),
  ('prompt_refit', 'prompt'),
  ('table', 'prompt'),
  ('table', 'probe'),
  ('table', 'probe_converged'),
)
_PAIRED_WITH_UNTRAINED = (('probe', 'probe'), ('probe_converged', 'probe_converged'))
_PAIRED_ON_EXACT = (
  ('oracle_prompt', 'head_whitened'),
  ('oracle_prompt', 'head_best'),
  ('oracle_refit', 'head_best'),
)
# Methods on text with a memory and on vanilla text of as many joint states; the first pair is the paper's.
_OF_TEXTS = (('attention', 'head'), ('attention', 'attention'), ('head', 'head'), ('prompt', 'prompt'))

# Level of a test, before correction.
LEVEL = 0.05

# Accuracies at each distribution and point of values.
Places = dict[Place, Fits]
# Differences at each place, by title.
ByTitle = dict[str, dict[Place, Interval]]
# Fields that change the HMM that a trial draws from its key.
_OF_DRAWS = ('hmm.', 'memory.joint_')


def of_protocol(places: Places, unit: str) -> ByTitle:
  """The contrasts that were run, by title: the difference at every distribution that has both sides.

  Methods are paired by task within an HMM, or on the exact model for methods defined only there. Memory and
  vanilla text have no HMM in common, so they are compared by Welch's test. The `unit`, 'trial' or 'task', is that of
  all intervals.
  """
  on_bert = 'bert', 'bert'
  with_memory = [place for place in places if place.point.memory_size]
  vanilla = {place: place._replace(point=Point(place.point.joint_states)) for place in with_memory}
  return (
    _differences(places, '{} - {}', on_bert, _PAIRED, unit)
    | _differences(places, 'memory {} - vanilla {}', on_bert, _OF_TEXTS, unit, vanilla, statistics.unpaired_difference)
    | _differences(places, '{} - {}, own model', ('own', 'own'), _PAIRED, unit)
  )


def further(places: Places, unit: str) -> ByTitle:
  """The paired contrasts with what lies beyond the protocol, with an untrained BERT, and on the exact model."""
  return (
    _differences(places, '{} - {}', ('bert', 'bert'), _PAIRED_BEYOND, unit)
    | _differences(places, '{} - {}, untrained BERT', ('bert', 'untrained'), _PAIRED_WITH_UNTRAINED, unit)
    | _differences(places, '{} - {}, exact G', ('exact', 'exact'), _PAIRED_ON_EXACT, unit)
  )


def _differences(
  places: Places,
  title: str,
  models: tuple[str, str],
  pairs: Sequence[tuple[str, str]],
  unit: str,
  beside: dict[Place, Place] | None = None,
  difference: Callable[..., Interval] = statistics.paired_difference,
) -> ByTitle:
  """The difference of each pair of methods, each on its model, by its title, where both sides were run.

  The second method is at the place `beside` that of the first, by default at the same.
  """
  by_title = ByTitle()
  seconds = {place: place for place in places} if beside is None else beside
  for minuend, subtrahend in pairs:
    first, second = (_fit(model, method) for model, method in zip(models, (minuend, subtrahend)))
    name = title.format(METHODS[minuend].label, METHODS[subtrahend].label)
    for place, other in seconds.items():
      if first in places[place] and second in places.get(other, ()):
        found = difference(places[place][first], places[other][second], unit)
        by_title.setdefault(name, {})[place] = found
  return by_title


def between_values(places: Places, unit: str) -> tuple[ByTitle, ByTitle]:
  """Differences of each method on each model from the first value of a field.

  First of fields that leave the HMM as it is, paired by trial and task, in this `unit`; then of fields that change it,
  whose unit is always the trial. There trials of one number draw their HMMs from the same key and are paired; those
  of given processes are compared by Welch's test. A field that does not decide the records has no difference,
  nor have seeds, whose HMMs are draws of one population.
  """
  on_same, on_others = ByTitle(), ByTitle()
  for column, first in next(iter(places)).values:
    beside = {place: other for place in places if (other := place.at(column, first)) != place}
    is_drawn, is_given = column.startswith(_OF_DRAWS), column == 'distribution'
    difference = statistics.unpaired_difference if is_given else statistics.paired_difference
    is_other = is_drawn or is_given
    if column != 'seed':
      found = _from_first(places, column, first, beside, 'trial' if is_other else unit, difference)
      (on_others if is_other else on_same).update(found)
  return on_same, on_others


def _from_first(
  places: Places, column: str, first: Any, beside: dict[Place, Place], unit: str, difference: Callable[..., Interval]
) -> ByTitle:
  """The differences of all fits from a first value, by title, without those that are 0 everywhere."""
  by_title, run = ByTitle(), set(itertools.chain(*places.values()))
  for model, (name, method) in itertools.product(MODEL_NAMES, METHODS.items()):
    if (model, name) in run:
      title = f'{method.label}, {MODEL_NAMES[model]}, minus {column} = {statistics.as_text(first)}'
      by_title |= _differences(places, title, (model, model), [(name, name)], unit, beside, difference)
  is_zero = lambda found: not found.mean and not found.values.any()
  return {title: found for title, found in by_title.items() if not all(map(is_zero, found.values()))}


def _fit(model: str, method: str) -> tuple[str, str]:
  """A method on a model, or on its own model for a method that is defined only there."""
  models = METHODS[method].models
  return model if model in models else models[0], method


def rows(names: dict[Place, Row], by_title: ByTitle, heading: str, tests: str) -> list[Row]:
  """A row for each contrast and place: p-value, Holm over places, and minimum detectable effect."""
  rows = []
  for title, differences in by_title.items():
    corrected = statistics.holm([difference.p_value for difference in differences.values()])
    for (place, difference), p_value in zip(differences.items(), corrected):
      numbers = {
        'difference': str(difference),
        'p, Holm': format_number(p_value, '.2g'),
        tests: str(len(differences)),
        'detectable': format_number(difference.minimum_effect(LEVEL / len(differences)), '.1f'),
      }
      rows.append({heading: title, **names[place], **numbers})
      title = ''
  return rows


def _by_kind_of_text(by_title: ByTitle, places: Places) -> ByTitle:
  """The paired contrasts with at least two sizes, each kind of text and each point of values apart."""
  kinds, apart = {place.point.text for place in places}, ByTitle()
  for title, differences in by_title.items():
    for place, paired in sorted(differences.items(), key=lambda item: item[0].point.text):
      kind = f'{place.point.text} text' if len(kinds) > 1 else ''
      if len(paired.values):
        name = ', '.join(filter(None, [title, kind, lists.text(dict(place.values))]))
        apart.setdefault(name, {})[place] = paired
  return {name: of_kind for name, of_kind in apart.items() if len(of_kind) > 1}


def trend_rows(by_title: ByTitle, places: Places, heading: str) -> Iterator[Row]:
  """A row for each contrast: over all HMMs, and its rank correlation with the number of joint states."""
  by_title = _by_kind_of_text(by_title, places)
  pooled = [
    statistics.stratified(interval.values for interval in differences.values()) for differences in by_title.values()
  ]
  trends = []
  for differences in by_title.values():
    of_units = [
      {**place.point._asdict(), 'joint_states': place.point.joint_states, 'unit': unit, 'difference': value}
      for place, interval in differences.items()
      for unit, value in enumerate(interval.values)
    ]
    trends.append(statistics.trend(pd.DataFrame(of_units), 'joint_states', 'difference'))
  corrected = [
    statistics.holm(p) for p in ([interval.p_value for interval in pooled], [p_value for _, p_value in trends])
  ]
  for title, difference, (correlation, _), *p_values in zip(by_title, pooled, trends, *corrected):
    yield {
      heading: title,
      'n': str(len(difference.values)),
      'difference': str(difference),
      'p, Holm': format_number(p_values[0], '.2g'),
      'detectable': format_number(difference.minimum_effect(LEVEL / len(by_title)), '.1f'),
      'Spearman': format_number(correlation, '.2f'),
      'p of the trend, Holm': format_number(p_values[1], '.2g'),
    }
