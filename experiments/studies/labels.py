"""The labels that pretraining saves: readers of BERT and readers without a model, by the number of labels."""

from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib, grid_tables
from experiments.analysis.statistics import Interval, interval, LEVEL, outcome, percent
from experiments.analysis.tables import by_unit, format_number, geometric, means, Row, Table, table, tested
from experiments.settings.grid import Settings
from experiments.settings.methods import NONE
from experiments.studies import grids

# The column of the number of labels, as `--config.downstream.num_labels=10,20` makes it.
LABELS = 'downstream.num_labels'
# Labels of the reader of BERT whose accuracy readers without a model have to reach, and those of the leads.
_REACHED, _LEADS = 50, (20, 100)
_HMM = ['num_states', 'trial']
# Readers that the table alone shows, since others draw near them.
_NOT_DRAWN = ('probe_converged', 'masks_converged', 'window')
# The end point whose interval is of logarithms.
_RATIO = 'labels, ratio'
_TITLES = {
  'by_labels': 'Test accuracy in percent by the number of labels, mean [95% interval]; over HMMs',
  'saved': (
    'The reader of best validation accuracy (of ties the first) on BERT, and of those without a model: labels that the '
    'second needs for '
    f'the accuracy of the first at {_REACHED}, as a ratio (geometric mean [95%] over HMMs; ratios outside of the '
    'labels that were tried count as the nearest), and the lead of the first in points; Holm over the rows of this '
    f'table. Detectable: with 80% power at level {LEVEL} / rows, of a ratio as its logarithm'
  ),
}


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """The accuracies of each reader, and what is saved, only from records; of one number of labels as of any grid."""
  if LABELS not in records:
    return grids.tables(records, settings)
  named = records.assign(fit=_fits(records))
  accuracies = means(named, ['num_states', LABELS], 'accuracy', ['trial'], percent, ['fit'])
  accuracies = accuracies.sort_index().rename(columns=grid_tables.heading)
  frame = accuracies.reset_index().rename(columns={'num_states': '|H|', LABELS: 'labels'})
  made = {'by_labels': table(_TITLES['by_labels'], frame)}
  rows = saved(records)
  return made | {'saved': table(_TITLES['saved'], rows, num_texts=1)} if rows else made


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, Figure]:
  """Accuracy against the number of labels, a panel for each size; only from records."""
  if LABELS not in records:
    return grids.figures(records, settings)
  shown = records[~records['method'].isin(_NOT_DRAWN)]
  named = shown.assign(fit=_fits(shown), size=[f'|H| = {size}' for size in shown['num_states']])
  drawn = figures_lib.lines(
    named,
    settings.figure,
    'Accuracy by the number of labels',
    x=LABELS,
    by='fit',
    unit=_HMM,
    over='HMMs',
    style=_style,
    xlabel='labels',
    panel='size',
  )
  return {'labels': drawn} if drawn else {}


def _fits(records: pd.DataFrame) -> pd.Series:
  """The fit of each record, one of FITS."""
  return records['model'] + ' ' + records['method']


def _style(fit: str) -> figures_lib.Style:
  _, method = fit.split()
  return {'label': grid_tables.FITS[fit], **figures_lib.style_of(method)}


def chosen(records: pd.DataFrame, ties_averaged: bool = False) -> pd.DataFrame:
  """The accuracy of the reader of best validation accuracy, by size, HMM and labels; columns bert and none.

  It is the mean over tasks, each with its own reader. Of readers that tie it is the first, or the mean over all.
  """
  task = [*_HMM, LABELS, 'task', 'model']
  of_models = records[records['model'].isin(['bert', NONE])]
  validated = of_models.groupby(task, sort=False)['validation_accuracy']
  if ties_averaged:
    best = of_models[of_models['validation_accuracy'] == validated.transform('max')]
  else:
    best = of_models.loc[validated.idxmax()]
  by_task = by_unit(best, task, 'accuracy', [])
  by_hmm = by_task.groupby(level=[*_HMM, LABELS, 'model'], sort=False).mean()
  return by_hmm.unstack('model').reindex(columns=['bert', NONE])


def ratio(accuracies: pd.DataFrame) -> float:
  """The labels that readers without a model need, over those of BERT, for the accuracy of BERT at _REACHED labels.

  Accuracy counts as the most that so many labels or fewer had, and between two numbers of labels as linear in their
  logarithm. What is reached nowhere, or at once, counts as reached at the most or the fewest labels.

  Args:
    accuracies: columns bert and none, indexed by the number of labels, of one HMM.
  """
  accuracies = accuracies.sort_index()
  reached = accuracies[NONE].cummax().to_numpy()
  asked = accuracies['bert'][_REACHED]
  logs = np.log(accuracies.index)
  # Between the last number of labels below and the first that reaches it: several may have one accuracy.
  first = int(np.searchsorted(reached, asked).clip(1, len(logs) - 1))
  between = slice(first - 1, first + 1)
  return float(np.exp(np.interp(asked, reached[between], logs[between]))) / _REACHED


def saved(records: pd.DataFrame) -> list[Row]:
  """The rows of the table `saved`: for each size the ratio and the leads, with Holm over all."""
  found, averaged = _end_points(chosen(records)), _end_points(chosen(records, ties_averaged=True))
  corrected = tested(pd.Series(found, dtype=object))['p, Holm']
  level = LEVEL / max(1, len(found))
  return [
    {
      'end point': name,
      '|H|': size,
      'n': one.n,
      'found': _shown(name, one),
      'p, Holm': corrected[name, size],
      'detectable': format_number(one.minimum_effect(level), '.2g'),
      'expected': 'above 1' if name == _RATIO else 'above 0',
      'outcome': outcome(one, 0, np.inf),
      'ties averaged': _shown(name, averaged[name, size]),
    }
    for (name, size), one in found.items()
  ]


def _end_points(best: pd.DataFrame) -> dict[tuple[str, int], Interval]:
  """The interval of each end point at each size, of the accuracies of `chosen`; ratios as their logarithms."""
  found: dict[tuple[str, int], Interval] = {}
  for size, of_size in best.dropna().groupby(level='num_states'):
    by_hmm = [one.droplevel(_HMM) for _, one in of_size.groupby(level=_HMM)]
    ratios = [ratio(one) for one in by_hmm if _REACHED in one.index]
    if ratios:
      found[_RATIO, size] = interval(np.log(ratios))
    for labels in _LEADS:
      leads = [100 * (one['bert'] - one[NONE])[labels] for one in by_hmm if labels in one.index]
      if leads:
        found[f'lead at {labels} labels', size] = interval(leads)
  return found


def _shown(name: str, found: Interval) -> str:
  """An interval in words; of logarithms that of the ratio."""
  return geometric(found) if name == _RATIO else str(found)


STUDY = grids.STUDY._replace(tables=tables, figures=figures)
