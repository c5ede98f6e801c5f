"""Methods along the pretraining of BERTs, which begins on a plateau: BERT predicts token frequencies."""

from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib, grid_tables, plans
from experiments.analysis.statistics import interval, percent
from experiments.analysis.tables import lead, means, proportion, select, Table, table, varied
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, NONE
from experiments.studies import grids

# A BERT has left the plateau if its KL at the [MASK] is below this share of the unigram gap.
LEFT = 0.5
_HMM = ['num_states', 'trial']
_HEADINGS = {name: method.label for name, method in METHODS.items()}
_HEADINGS |= {'num_states': '|H|', 'trial': 'HMM', 'kl_at_mask': 'KL', 'unigram_gap': 'unigram gap'}
_TITLES = {
  'left': 'BERTs whose KL at the [MASK] ends below half of the unigram gap, percent [95%]',
  'ends': 'After the last step: KL and unigram gap in nats, test accuracy in percent',
  'along': 'Along pretraining: test accuracy in percent, mean [95% interval over HMMs]',
  'lead': 'Lead over the best reader without a model in points, mean ± 95% over HMMs; KL as a share of the unigram gap',
}


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """All tables, only from records."""
  if not _are_along(records, settings):
    return grids.tables(records, settings)
  records = _of_grid(records)
  steps, readers = on_bert(records)
  last = pd.concat([select(steps, step=steps['step'].max()), readers])
  ends = last.groupby(_HMM)[['kl_at_mask', 'unigram_gap', 'gap_share']].first()
  has_left = ends.pop('gap_share') < LEFT
  in_percent = lambda values: f'{100 * values.mean():.1f}'
  at_end = means(_with_majority(last), _HMM, 'accuracy', [], in_percent, ['method'])
  at = ['num_states', 'step']
  shares = steps.groupby([*at, 'trial'])['gap_share'].first().groupby(level=at)
  kl = shares.agg(n='size').assign(**{'KL, % of gap': shares.agg(in_percent)})
  accuracies = means(_with_majority(steps), at, 'accuracy', ['trial'], percent, ['method'])
  frames = {
    'left': has_left.groupby(level='num_states').agg(proportion).to_frame('left the plateau'),
    'ends': ends.map('{:.3f}'.format).join(at_end),
    'along': kl.join(accuracies),
  }
  if len(readers):
    frames['lead'] = kl.join(means(steps, at, 'lead', ['trial'], interval, ['method']))
  made = {}
  for name, frame in frames.items():
    made[name] = table(_TITLES[name], frame.reset_index().rename(columns=_HEADINGS))
  return plans.tables(grids.plan_of(settings), grid_tables.prepared(records)) | made


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, Figure]:
  """The figure of accuracies, or of leads, only from records."""
  if not _are_along(records, settings):
    return grids.figures(records, settings)
  steps, _ = on_bert(_of_grid(records))
  if settings.experiment == 'hard_tasks':
    drawn = steps.assign(height=steps['lead'], level=0.0)
    return {'lead': _draw(drawn, settings, 'lead (points)', 'best reader without a model')}
  drawn = steps.assign(height=100 * steps['accuracy'], level=100 * steps['majority_accuracy'])
  return {'plateau': _draw(drawn, settings, 'test accuracy (%)', 'majority class')}


def _are_along(records: pd.DataFrame, settings: Settings) -> bool:
  """True for records along pretrainings on HMMs at one setting; all others are shown as those of any grid."""
  has_steps = 'step' in records and records['step'].notna().any()
  return has_steps and not varied(records) and not any(settings.memory.sizes)


def _of_grid(records: pd.DataFrame) -> pd.DataFrame:
  """The fits of records, with the columns that earlier versions of these experiments lack.

  Their models were BERTs, or none for tokens. Rows without a method, of KL alone, are dropped.
  """
  model = np.where(records['method'].isin(['table', 'tokens']), NONE, 'bert')
  columns = {'memory_size': 0, 'num_cells': 0, 'model': model, 'validation_accuracy': np.nan}
  absent = {name: values for name, values in columns.items() if name not in records}
  return records.assign(**absent).dropna(subset='method')


def on_bert(records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
  """The records of methods on BERT at a step, and those of readers without a model.

  `gap_share` is KL as a share of the unigram gap, `lead` the points above the best of the readers on the same task.
  """
  steps, readers = records.dropna(subset='step'), select(records, model=NONE)
  leads = 100 * lead(steps, readers, [*_HMM, 'task'])
  return steps.assign(gap_share=steps['kl_at_mask'] / steps['unigram_gap'], lead=leads), readers


def _with_majority(rows: pd.DataFrame) -> pd.DataFrame:
  """The records, and the majority class as a method more."""
  return pd.concat([rows, rows.assign(method='majority', accuracy=rows['majority_accuracy'])])


@figures_lib.styled
def _draw(steps: pd.DataFrame, settings: Settings, label: str, of_level: str) -> Figure:
  """The column `height` against KL, a panel for each |H| and a mark for each HMM at a step, beside the mean `level`."""
  counts = steps.groupby('num_states')['trial'].nunique()
  figure, panels = figures_lib.panels(settings.figure, len(counts), sharex=True)
  steps = steps.assign(share=100 * steps['gap_share'])
  hollow = {'linestyle': '', 'markersize': 4, 'markerfacecolor': 'none'}
  for axes, (size, of_size) in zip(panels, steps.groupby('num_states')):
    for method, rows in of_size.groupby('method'):
      marks = rows.groupby(['trial', 'step'])[['share', 'height']].mean()
      look = figures_lib.style_of(method) | hollow
      axes.plot('share', 'height', data=marks, label=METHODS[method].label, **look)
    axes.axhline(of_size['level'].mean(), color='0.45', linestyle='-.', label=of_level)
    axes.axvline(100 * LEFT, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    axes.set_title(f'|H| = {size}')
    axes.set_xlabel('KL at the [MASK], % of the unigram gap')
    axes.xaxis.set_inverted(True)
  panels[0].set_ylabel(label)
  title = f'{label.partition(" (")[0]} along pretraining'.capitalize()
  over = figures_lib.number_of(counts, 'HMMs')
  figures_lib.finish(figure, steps, title, over, 'a mark for each HMM and step')
  return figure


STUDY = grids.STUDY._replace(tables=tables, figures=figures)
