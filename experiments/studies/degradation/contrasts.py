"""Paired differences over HMMs, from records alone: between ways on one condition, and between conditions."""

from typing import NamedTuple

import numpy as np
import scipy.stats

from experiments.analysis import statistics
from experiments.analysis.statistics import Difference
from experiments.records.results import Record

# An order is claimed where the p-value is below this over the number of differences that are looked at.
LEVEL = 0.05

# Ways whose accuracies are compared on the same inputs of the same HMM, the first minus the second.
PAIRS = (
  ('weighted', 'construction'),
  ('converged_head', 'construction'),
  ('converged_built', 'construction'),
  ('converged_prompt', 'construction'),
  ('converged_prompt', 'converged_head'),
  ('converged_head', 'trained_head'),
  ('converged_prompt', 'trained_prompt'),
)

# Mean masses on H* that are compared, as `masses` names them, the first minus the second.
MASS_PAIRS = (('trained', 'without'), ('trained', 'start'), ('trained', 'control'), ('control', 'without'))


class Condition(NamedTuple):
  """What tells the records of one condition, an HMM each, from others; as their fields."""

  theorem: str
  damage: str
  degree: float
  error: str
  level: float


def conditions(records: list[Record]) -> list[Condition]:
  """Those of the records, in their order."""
  return list(dict.fromkeys(Condition(*(record[name] for name in Condition._fields)) for record in records))


def condition_records(records: list[Record], condition: Condition) -> list[Record]:
  """Its records of the theorem's own task, by HMM."""
  return sorted(statistics.select(records, kind='task', **condition._asdict()), key=lambda record: record['hmm'])


def accuracies(rows: list[Record], way: str) -> np.ndarray:
  """In percent, by HMM; none where the way does not exist."""
  return np.array([100 * row['accuracy'][way] for row in rows if way in row['accuracy']])


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
  """The mean of first - second over HMMs with its 95% t interval, and the p-value of the t test that it is zero."""
  values = np.asarray(first) - np.asarray(second)
  if len(values) < 3 or not np.ptp(values):
    return Difference(statistics.mean_interval(values), 1.0 if not values.any() else np.nan)
  return Difference(statistics.mean_interval(values), float(scipy.stats.ttest_1samp(values, 0.0).pvalue))


def between_ways(records: list[Record]) -> dict[tuple[Condition, str, str], Difference]:
  """Of every condition and every one of PAIRS that it has."""
  found = {}
  for condition in conditions(records):
    rows = condition_records(records, condition)
    for pair in PAIRS:
      first, second = (accuracies(rows, way) for way in pair)
      if len(first) and len(second):
        found[condition, *pair] = difference(first, second)
  return found


def reference(condition: Condition) -> Condition | None:
  """The condition that one is compared with: damage with none at the same noise, a short context with as much noise."""
  if condition.damage:
    return condition._replace(damage='', degree=0.0)
  return condition._replace(error='noise') if condition.error == 'short_context' else None


def between_conditions(records: list[Record], ways: tuple[str, ...]) -> dict[tuple[Condition, str], Difference]:
  """Of every condition that has a reference on record, and every way."""
  found, known = {}, conditions(records)
  for condition in known:
    other = reference(condition)
    if other in known:
      rows, others = condition_records(records, condition), condition_records(records, other)
      for way in ways:
        found[condition, way] = difference(accuracies(rows, way), accuracies(others, way))
  return found


def is_order(found: Difference, count: int) -> bool:
  """Whether a difference among `count` is told from none (Bonferroni)."""
  return found.p_value < LEVEL / count


def masses(records: list[Record], error: str, level: float) -> dict[str, np.ndarray]:
  """Mean masses on H* in percent by HMM, of undamaged HMMs: without a prompt, with an untrained one, trained on the
  theorem's own task, and on the control."""
  of = dict(theorem='3.6', damage='', error=error, level=level)
  by_hmm = lambda kind: sorted(statistics.select(records, kind=kind, **of), key=lambda record: record['hmm'])
  percent = lambda rows, name: np.array([100 * row['mass'][name] for row in rows])
  own, control = by_hmm('task'), by_hmm('control')
  return {name: percent(own, name) for name in ('without', 'start', 'trained')} | {
    'control': percent(control, 'trained')
  }


def between_masses(records: list[Record], error: str, level: float) -> dict[tuple[str, str], Difference]:
  """Of every one of MASS_PAIRS."""
  found = masses(records, error, level)
  return {(first, second): difference(found[first], found[second]) for first, second in MASS_PAIRS}
