"""The lead of readers of BERT over readers without a model along pretraining, which is measured as in `plateau`."""

import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis.statistics import Interval, interval, LEVEL, stratified
from experiments.analysis.tables import by_unit, format_number, lead, select, Table, table
from experiments.settings.methods import METHODS
from experiments.studies import plateau
from experiments.studies.settings import PlateauSettings

# The plan is in docs/findings/beyond.md. Points 11 and 12 (by |H|, after the last step) and 13 (after the first) are of
# this method; 14 is of the others.
_PRIMARY = 'masks_converged'
_POINTS = {10: '11', 30: '12'}


def with_lead(records: pd.DataFrame) -> pd.DataFrame:
  """The records of methods on BERT with `lead`, their accuracy minus the best without a model on the same task.

  `clear_lead` is that of accuracies without near ties.
  """
  steps, without = plateau.on_bert(records), records[records['step'].isna()]
  of = lambda field: lead(steps, without, [*plateau.HMM, 'task'], field)
  return steps.assign(lead=of('accuracy'), clear_lead=of('clear_accuracy'), no_lead=0.0)


def crossing(leads: pd.DataFrame) -> float:
  """The KL, in percent of the unigram gap, at which the least-squares line of lead against KL is 0.

  The points of the line are HMMs at steps. NaN for fewer than three, if leads do not fall as KL grows, or if the line
  is below 0 at a KL of 0.
  """
  points = leads.groupby([*plateau.HMM, 'step'])[['gap_share', 'lead']].mean()
  if len(points) < 3:
    return np.nan
  slope, at_zero = np.polyfit(points['gap_share'], points['lead'], 1)
  return -100 * at_zero / slope if slope < 0 <= at_zero else np.nan


def _crossings(leads: pd.DataFrame) -> dict[str, str]:
  """The crossing of all HMMs, and its range with each HMM left out in turn; '' if there is none."""
  without_one = [crossing(leads[leads['trial'] != trial]) for trial in leads['trial'].unique()]
  ends = [format_number(end(without_one), '.1f') for end in (np.min, np.max)]
  return {
    'lead 0 at KL, % of gap': format_number(crossing(leads), '.1f'),
    'without one HMM': ' to '.join(filter(None, ends)),
  }


def _end_points(leads: pd.DataFrame) -> list[dict[str, str]]:
  """A row for each method and |H| after the last step, and one for point 13."""
  leads = leads.assign(gain=100 * leads['lead'], clear_gain=100 * leads['clear_lead'])
  rows, early = [], select(leads, method=_PRIMARY, step=leads['step'].min())
  for (method, size), fit in leads.groupby(['method', 'num_states']):
    point = _POINTS.get(size, '14') if method == _PRIMARY else '14'
    rows.append(_row(point, select(fit, step=leads['step'].max())) | _crossings(fit))
  if len(early):
    rows.append(_row('13', early))
  return sorted(rows, key=lambda row: row['end point'])


def _row(point: str, rows: pd.DataFrame) -> dict[str, str]:
  of = rows.iloc[0]
  return row(point, f'lead of {METHODS[of["method"]].label}, step {of["step"]:g}', rows)


def _leads(rows: pd.DataFrame) -> dict[str, str]:
  of_method = lambda name: interval(100 * by_unit(select(rows, method=name), [], 'lead', plateau.HMM))
  return {METHODS[name].label: str(of_method(name)) for name in rows['method'].unique()}


TITLE = (
  'End points of the plan in points, mean ± 95% over HMMs, stratified by size, and p of t tests, not corrected. '
  'Detectable: minimum effect with 80% power at level 0.05. A lead is over the better reader without a model on the '
  'same task'
)


def _over_hmms(rows: pd.DataFrame, gain: str = 'gain') -> Interval:
  """The mean gain, stratified by size; several records of one HMM count as one value."""
  # Neither seeds nor processes share an HMM.
  unit = [name for name in ('trial', 'seed', 'distribution') if name in rows]
  return stratified(of_size.groupby(unit)[gain].mean() for _, of_size in rows.groupby('num_states'))


def row(point: str, question: str, rows: pd.DataFrame) -> dict[str, str]:
  """The row of an end point: over HMMs, the mean of `gain` in points, of `clear_gain` likewise if it is a column."""
  found, sizes = _over_hmms(rows), ', '.join(map(str, sorted(rows['num_states'].unique())))
  numbers = {'difference': str(found), 'p': format_number(found.p_value, '.2g')}
  numbers['detectable'] = format_number(found.minimum_effect(LEVEL), '.1f')
  if 'clear_gain' in rows:
    numbers['without near ties'] = str(_over_hmms(rows, 'clear_gain'))
  return {'end point': point, 'difference of': question, '|H|': sizes, 'n': str(found.n), **numbers}


def _tables(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, Table]:
  title = 'Lead over the best reader without a model in points, mean ± 95% over HMMs; KL as a share of the unigram gap'
  leads = with_lead(records)
  own = {'lead': table(title, plateau.by_step(leads, _leads))}
  # The plan is of another learning rate.
  if settings.scale != 'full_rate':
    own['end_points'] = table(TITLE, _end_points(leads))
  return {**plateau.tables(records, settings), **own}


def _figures(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, matplotlib.figure.Figure]:
  return plateau.draw(with_lead(records), settings, 'lead', 'lead', 'no_lead')


STUDY = plateau.STUDY._replace(tables=_tables, figures=_figures)
