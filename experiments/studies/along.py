"""Methods along the pretraining of BERTs, which begins on a plateau: BERT predicts token frequencies."""

from collections.abc import Callable

import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import Interval, lead, mean_interval, percent_interval, select, varied
from experiments.analysis.table import format_number, share, Table, table
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS
from experiments.studies import end_points, grids

# A BERT has left the plateau if its KL at the [MASK] is below this percentage of the unigram gap.
LEFT = 50
_HMM, _AT_STEP = ['num_states', 'trial'], ['num_states', 'trial', 'step']
_ROW = ['num_states', 'step']
_LABELS = {name: method.label for name, method in METHODS.items()}
_HEADINGS = _LABELS | {'num_states': '|H|', 'trial': 'HMM', 'kl_at_mask': 'KL', 'unigram_gap': 'unigram gap'}
_TITLES = {
  'left': 'BERTs whose KL at the [MASK] ends below half of the unigram gap, percent [95%]',
  'ends': 'After the last step: KL and unigram gap in nats, test accuracy in percent',
  'along': 'Along pretraining: test accuracy in percent, mean [95% interval over HMMs]',
  'lead': 'Lead over the best reader without a model in points, mean ± 95% over HMMs; KL as a share of the unigram gap',
  'end_points': end_points.TITLE,
}
# The end points of docs/findings/beyond.md that are of this method: 11 and 12 by |H|, after the last step, and 13,
# after the first; 14 is of the others.
_PRIMARY = 'masks_converged'
_POINTS = {(_PRIMARY, 10): '11', (_PRIMARY, 30): '12'}


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """All tables, only from records; those of any grid if no record has a step."""
  if not _have_steps(records):
    return grids.tables(records, settings)
  rows = means(records)
  steps = rows.dropna(subset='step')
  ends = rows.groupby(_HMM)[['kl_at_mask', 'unigram_gap', 'gap_share']].last()
  has_left = ends.pop('gap_share') < LEFT
  at_end = _with_majority(rows).pivot_table('accuracy', _HMM, 'method', 'last', sort=False)
  frames = {
    'left': has_left.groupby(level='num_states').agg(share).to_frame('left the plateau'),
    'ends': ends.map('{:.3f}'.format).join(at_end.map('{:.1f}'.format, na_action='ignore')),
    'along': _by_step(_with_majority(steps), 'accuracy', percent_interval),
  }
  if settings.experiment == 'hard_tasks':
    frames['lead'] = _by_step(steps, 'gain', mean_interval)
    # The plan is of another learning rate.
    if settings.scale != 'full_rate':
      frames['end_points'] = _end_points(steps)
  return {name: table(_TITLES[name], frame.reset_index().rename(columns=_HEADINGS)) for name, frame in frames.items()}


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, matplotlib.figure.Figure]:
  """The figure of accuracies, or of leads, only from records; those of any grid if no record has a step."""
  if not _have_steps(records):
    return grids.figures(records, settings)
  if settings.experiment == 'hard_tasks':
    return {'lead': _draw(records, settings, 'gain', 'Lead', 'lead (points)', 'no_gain', 'best reader without a model')}
  return {
    'plateau': _draw(
      records, settings, 'accuracy', 'Test accuracy', 'test accuracy (%)', 'majority_accuracy', 'majority class'
    )
  }


def _have_steps(records: pd.DataFrame) -> bool:
  """True if methods are tuned along a pretraining in some of the records."""
  return 'step' in records and records['step'].any()


def _side_by_side(records: pd.DataFrame) -> pd.DataFrame:
  """The records with all that differs between their distributions and settings in the place of |H|."""
  of_memory = [name for name in ('memory_size', 'num_cells') if name in records and records[name].nunique() > 1]
  names = ['num_states', *of_memory, *varied(records)]
  if len(names) == 1:
    return records
  return records.assign(num_states=records[names].astype(str).agg(', '.join, axis=1))


def means(records: pd.DataFrame) -> pd.DataFrame:
  """The means over tasks of each HMM in percent, of methods on BERT by step and of readers without a model.

  `gap_share` is KL in percent of the unigram gap, `gain` the accuracy minus that of the best reader on the same task,
  `clear_gain` that without near ties, NaN if records lack it.
  """
  records = _side_by_side(records)
  # Earlier versions also recorded KL alone, without a method.
  steps, readers = records.dropna(subset=['step', 'method']), records[records['method'].isin(['table', 'tokens'])]
  rows = pd.concat([steps, readers]).assign(no_gain=0.0, gap_share=lambda of: of['kl_at_mask'] / of['unigram_gap'])
  for gain, field in {'gain': 'accuracy', 'clear_gain': 'clear_accuracy'}.items():
    rows[gain] = lead(rows, readers, [*_HMM, 'task'], field) if field in rows else np.nan
  found = rows.groupby([*_AT_STEP, 'method'], sort=False, dropna=False).mean(numeric_only=True)
  found[['accuracy', 'majority_accuracy', 'gap_share', 'gain', 'clear_gain']] *= 100
  return found.reset_index().sort_values(_AT_STEP)


def _with_majority(rows: pd.DataFrame) -> pd.DataFrame:
  """The rows, and the majority class as a method more."""
  of_hmms = rows.drop_duplicates(_AT_STEP)
  return pd.concat([rows, of_hmms.assign(method='majority', accuracy=of_hmms['majority_accuracy'])])


def _by_step(rows: pd.DataFrame, field: str, interval: Callable[[pd.Series], Interval]) -> pd.DataFrame:
  """A row for each |H| and step: the number of HMMs, KL, and the interval of each method's field."""
  kl = rows.drop_duplicates(_AT_STEP).groupby(_ROW)['gap_share']
  cells = rows.pivot_table(field, _ROW, 'method', lambda values: str(interval(values)), sort=False)
  return pd.DataFrame({'n': kl.size(), 'KL, % of gap': kl.mean().map('{:.1f}'.format)}).join(cells)


def _end_points(steps: pd.DataFrame) -> pd.DataFrame:
  """A row for each method and |H| after the last step, and one for point 13."""
  early = select(steps, method=_PRIMARY, step=steps['step'].min())
  rows = [_row('13', early)] if len(early) else []
  for of, fit in steps.groupby(['method', 'num_states']):
    last = select(fit, step=steps['step'].max())
    rows.append(_row(_POINTS.get(of, '14'), last) | _crossings(fit))
  return pd.DataFrame(rows).set_index('end point').sort_index(kind='stable')


def _row(point: str, rows: pd.DataFrame) -> dict[str, str]:
  """The row of an end point, which is of one method and step."""
  method, step = rows[['method', 'step']].iloc[0]
  return end_points.row(point, f'lead of {_LABELS[method]}, step {step:g}', rows)


def _crossings(fit: pd.DataFrame) -> dict[str, str]:
  """The crossing of all HMMs, and its range with each HMM left out in turn; '' if there is none."""
  without_one = [crossing(fit[fit['trial'] != trial]) for trial in fit['trial'].unique()]
  ends = [format_number(end(without_one), '.1f') for end in (np.min, np.max)]
  return {
    'lead 0 at KL, % of gap': format_number(crossing(fit), '.1f'),
    'without one HMM': ' to '.join(filter(None, ends)),
  }


def crossing(fit: pd.DataFrame) -> float:
  """The KL, in percent of the unigram gap, at which the least-squares line of lead against KL is 0.

  The points of the line are HMMs at steps. NaN for fewer than three, if leads do not fall as KL grows, or if the line
  is below 0 at a KL of 0.
  """
  if len(fit) < 3:
    return np.nan
  slope, at_zero = np.polyfit(fit['gap_share'], fit['gain'], 1)
  return -at_zero / slope if slope < 0 <= at_zero else np.nan


@figures_lib.styled
def _draw(
  records: pd.DataFrame, settings: Settings, field: str, title: str, label: str, level: str, of_level: str
) -> matplotlib.figure.Figure:
  """A field against KL, a panel for each |H| and a mark for each HMM at a step, beside the mean of `level`."""
  steps = means(records).dropna(subset='step')
  counts = steps.groupby('num_states')['trial'].nunique()
  figure, panels = figures_lib.panels(settings.figure, len(counts), sharex=True)
  for axes, (size, of_size) in zip(panels, steps.groupby('num_states')):
    for method, rows in of_size.groupby('method'):
      style = figures_lib.style_of(method) | dict(linestyle='', markersize=4, markerfacecolor='none')
      axes.plot(rows['gap_share'], rows[field], label=_LABELS[method], **style)
    axes.axhline(of_size[level].mean(), color='0.45', linestyle='-.', label=of_level)
    axes.axvline(LEFT, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    axes.set(title=f'|H| = {size}', xlabel='KL at the [MASK], % of the unigram gap')
    axes.xaxis.set_inverted(True)
  panels[0].set_ylabel(label)
  counted = figures_lib.counted(counts, 'HMMs', spread=False)
  figures_lib.finish(figure, records, f'{title} along pretraining', counted, 'a mark for each HMM and step')
  return figure


STUDY = grids.STUDY._replace(tables=tables, figures=figures)
