"""Differences between methods, models and values of a field, paired where they can be, only from records."""

from collections.abc import Callable, Iterator, Sequence
import itertools

import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Interval, Place
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

# The records of each distribution at each point of values, each with its unit.
Places = dict[Place, pd.DataFrame]
# Differences at each place, by title.
ByTitle = dict[str, dict[Place, Interval]]


def of_protocol(places: Places) -> ByTitle:
  """The contrasts that were run, by title: the difference at every distribution that has both sides.

  Methods are paired by task within an HMM, or on the exact model for methods defined only there. Memory and
  vanilla text have no HMM in common, so they are compared by Welch's test.
  """
  on_bert = 'bert', 'bert'
  with_memory = [place for place in places if place.point.memory_size]
  vanilla = {place: place._replace(point=Point(place.point.joint_states)) for place in with_memory}
  return (
    _differences(places, '{} - {}', on_bert, _PAIRED)
    | _differences(places, 'memory {} - vanilla {}', on_bert, _OF_TEXTS, vanilla, statistics.unpaired_difference)
    | _differences(places, '{} - {}, own model', ('own', 'own'), _PAIRED)
  )


def further(places: Places) -> ByTitle:
  """The paired contrasts with what lies beyond the protocol, with an untrained BERT, and on the exact model."""
  return (
    _differences(places, '{} - {}', ('bert', 'bert'), _PAIRED_BEYOND)
    | _differences(places, '{} - {}, untrained BERT', ('bert', 'untrained'), _PAIRED_WITH_UNTRAINED)
    | _differences(places, '{} - {}, exact G', ('exact', 'exact'), _PAIRED_ON_EXACT)
  )


def _differences(
  places: Places,
  title: str,
  models: tuple[str, str],
  pairs: Sequence[tuple[str, str]],
  beside: dict[Place, Place] | None = None,
  difference: Callable[[pd.DataFrame, pd.DataFrame], Interval] = statistics.paired_difference,
) -> ByTitle:
  """The difference of each pair of methods, each on its model, by its title, where both sides were run.

  The second method is at the place `beside` that of the first, by default at the same.
  """
  by_title = ByTitle()
  seconds = {place: place for place in places} if beside is None else beside
  for (minuend, subtrahend), (place, second) in itertools.product(pairs, seconds.items()):
    if second in places:
      both = _on(models[0], places[place], minuend), _on(models[1], places[second], subtrahend)
      if all(map(len, both)):
        name = title.format(METHODS[minuend].label, METHODS[subtrahend].label)
        by_title.setdefault(name, {})[place] = difference(*both)
  return by_title


def between_values(places: Places) -> ByTitle:
  """Differences of each method on each model from the first value of a field, paired by trial and task.

  A field that does not decide the records has none, nor have seeds and processes, which share no HMM.
  """
  by_title = ByTitle()
  for (column, first), model in itertools.product(next(iter(places)).values, MODEL_NAMES):
    if column not in ('seed', 'distribution'):
      beside = {place: other for place in places if (other := place.at(column, first)) != place}
      title = f'{{}}, {MODEL_NAMES[model]}, minus {column} = {first}'
      of_model = [(name, name) for name, method in METHODS.items() if model in method.models]
      by_title |= _differences(places, title, (model, model), of_model, beside)
  return {title: found for title, found in by_title.items() if any(one.values.any() for one in found.values())}


def _on(model: str, records: pd.DataFrame, method: str) -> pd.DataFrame:
  """The records of a method on a model, or on its own model for a method that is defined only there."""
  models = METHODS[method].models
  model = model if model in models else models[0]
  return statistics.select(records, model=model, method=method)


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
