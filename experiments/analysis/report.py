"""The tables of a grid of trials, only from records."""

from collections.abc import Callable, Collection, Iterator
import itertools
import json
import pathlib
import textwrap
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis import contrasts, statistics
from experiments.analysis.contrasts import LEVEL
from experiments.analysis.statistics import Fits, Interval, Place
from experiments.analysis.table import format_number, Row, Table, table
from experiments.settings.grid import Point
from experiments.settings.methods import MAIN, METHODS, MODEL_NAMES

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text('utf-8'))

# The records of each distribution at each point of values.
Places = dict[Place, pd.DataFrame]

_CONTROLS = ('untrained', 'other_bert')
# Lines of each panel of the paper's Figure 3: kind of text, method, name in the reference.
PAPER = {
  'left': (('vanilla', 'head', 'head'), ('vanilla', 'prompt', 'prompt')),
  'right': (('memory', 'attention', 'memory'), ('vanilla', 'head', 'vanilla')),
}

_TITLES = {
  'accuracy': 'Test accuracy in percent, mean [95% interval]',
  'differences': (
    'Differences in points, unit of analysis: {unit}; p of t tests, Holm correction over {tests}. Detectable: minimum '
    f'effect with 80% power at level {LEVEL} / number of {{tests}}'
  ),
  'contrasts': (
    'Differences in points from other fits and controls, unit of analysis: {unit}; p and detectable as above'
  ),
  'values': (
    'Differences in points from the first value of a field, paired by trial and task, unit of analysis: {unit}; '
    'p and detectable as above'
  ),
  'values_of_draws': (
    'Differences in points from the first value of a field that changes the process, unit of analysis: {trial}. Trials '
    'of one number are paired, those of given processes are not; p and detectable as above'
  ),
  'trends': (
    'Differences in points over the HMMs of all sizes, of each kind of text, intervals and p stratified by size, and '
    'their trend with the number of joint states, |H| without a memory: Spearman over HMMs, p of a permutation test; '
    f'Holm correction over contrasts. Detectable: minimum effect with 80% power at level {LEVEL} / number of contrasts'
  ),
  'beside_paper': (
    'Ours on BERT beside the digitised Figure 3. Apart: the means differ by more than the root of the sum of both '
    'squared half-widths, without correction for multiple tests'
  ),
  'controls': (
    'Controls, test accuracy in percent, mean [95% interval]: BERT before pretraining, BERT of another HMM, and a '
    'converged head behind a prompt that was trained for another task'
  ),
  'head_sizes': 'osc(b) / osc(mu) of linear heads, median over tasks; osc is the largest minus the smallest entry',
  'nearest_tokens': 'Test labels in percent that change if only the k tokens nearest the [MASK] are kept',
  'moved': (
    'Total variation in percent by which prompts move the prediction at the [MASK], mean [95% interval]; any: the most '
    'that any prompt before the text moves the exact one'
  ),
  'diagnostics': "Other fits and controls beyond the paper's protocol: test accuracy in percent, mean [95% interval]",
}


def paper(panel: str, name: str, scale: str, statistic: str = 'mean') -> dict[int, float]:
  """The 'mean' accuracy in percent by size, or half-widths 'ci95' of its 95% interval, as digitised from Figure 3.

  Sizes are |H| in the panel 'left' and |M||H| in the panel 'right'.
  """
  # `paper_v1` is compared with the first text's figure, every other scale with the later text's.
  shown = REFERENCE[f'{panel}_{"arxiv_v1" if scale == "paper_v1" else "later_version"}']
  sizes = shown['num_states' if panel == 'left' else 'memory_times_states']
  return dict(zip(sizes, shown[name][statistic] or ()))


class _Cells(NamedTuple):
  """The content of a row: the records of its place, and the accuracies of fits and of the majority in percent."""

  records: pd.DataFrame
  accuracies: dict[tuple[str, str], Interval]
  majority: Interval


def tables(records: pd.DataFrame, paper_overlay: bool) -> dict[str, Table]:
  """The tables that have rows, by name."""
  by, records = statistics.unit_of(records), statistics.with_unit(records)
  trial, has_controls = statistics.trial_noun(records), records['model'].isin(_CONTROLS).any()
  unit = trial if by == 'trial' else f'task of one {trial}'
  tests = 'comparisons' if statistics.varied(records) else 'sizes'
  # Contrasts on other models say so in their titles.
  heading = 'contrast, on BERT' if (records['model'] == 'bert').any() else 'contrast'
  run = set(records['method'])
  main, beyond = run.intersection(MAIN), run.difference(MAIN)
  places, fits = statistics.by_place(records), statistics.fits_by_place(records)
  shown, names = _cells(records, places, fits, by), _names(places)
  protocol, further = contrasts.of_protocol(fits, by), contrasts.further(fits, by)
  on_same, on_others = contrasts.between_values(fits, by)
  of_trials = {place: name | {'n': str(places[place]['trial'].nunique())} for place, name in names.items()}
  rows: dict[str, list[Row]] = {
    'differences': contrasts.rows(names, protocol, heading, tests),
    'contrasts': contrasts.rows(names, further, heading, tests),
    'values': contrasts.rows(names, on_same, 'between values', tests),
    'values_of_draws': contrasts.rows(of_trials, on_others, 'between values', tests),
    'trends': list(contrasts.trend_rows(protocol | further, fits, heading)) if by == 'trial' else [],
    'beside_paper': list(_beside_paper(shown, names)) if paper_overlay else [],
  }
  cells: dict[str, Callable[[_Cells], Row]] = {
    'accuracy': lambda at: _accuracy_cells(at, main),
    'controls': lambda at: _control_cells(at, main) if has_controls else {},
    'head_sizes': lambda at: _size_cells(at.records) if 'head_size' in records else {},
    'nearest_tokens': lambda at: _nearest_cells(at.records) if 'table' in run else {},
    'moved': lambda at: _moved_cells(at.records) if 'tv_moved' in records else {},
    'diagnostics': lambda at: _method_cells(at, beyond),
  }
  for name, cells_of in cells.items():
    rows[name] = [names[place] | row for place, at in shown.items() if (row := cells_of(at))]
  titles = {name: title.format(unit=unit, tests=tests, trial=trial) for name, title in _TITLES.items()}
  return {name: table(title, rows[name]) for name, title in titles.items() if rows[name]}


def _cells(records: pd.DataFrame, places: Places, fits: dict[Place, Fits], unit: str) -> dict[Place, _Cells]:
  """The content of the row of each place."""
  interval = lambda values: statistics.percent_interval(statistics.unit_percents(values, unit))
  majorities = statistics.fits_by_place(records, 'majority_accuracy')
  # All fits of a task have one majority.
  majority_of = lambda place: interval(dict(itertools.chain(*map(dict.items, majorities[place].values()))))
  return {
    place: _Cells(places[place], {fit: interval(values) for fit, values in of_place.items()}, majority_of(place))
    for place, of_place in fits.items()
  }


def _control_cells(at: _Cells, main: Collection[str]) -> Row:
  """The main methods on the controls, the distance of these from G, and a head behind another task's prompt."""
  cells = _method_cells(at, main, _CONTROLS)
  refits = statistics.select(at.records, model='bert', method='prompt_refit')
  cells['converged head behind\nprompt of another task'] = str(statistics.percent(refits, 'other_task_accuracy'))
  cells['majority'] = str(at.majority)
  for model in _CONTROLS:
    mean = statistics.select(at.records, model=model)['kl_at_mask'].mean()
    cells[f'KL at [MASK]\n{MODEL_NAMES[model]}'] = format_number(mean, '.3f')
  return cells


def _size_cells(rows: pd.DataFrame) -> Row:
  """The median size of each kind of head that has one, on each model."""
  medians = rows.dropna(subset='head_size').groupby(['model', 'method'])['head_size'].median()
  return {f'{METHODS[method].label}\n{MODEL_NAMES[model]}': f'{size:.1g}' for (model, method), size in medians.items()}


def changed_shares(records: pd.DataFrame) -> pd.DataFrame:
  """The mean share of labels in percent that change if only k tokens are kept.

  A row for each distribution and a column for each k; without the method `table` there are no rows.
  """
  tables = statistics.select(records, method='table')
  shares = pd.DataFrame(list(tables.get('changed_shares', ())), pd.MultiIndex.from_frame(tables[[*Point._fields]]))
  return 100 * shares.groupby(level=[*Point._fields]).mean()


def _nearest_cells(rows: pd.DataFrame) -> Row:
  """The shares of labels of one distribution that change, by the number of tokens kept."""
  shares = changed_shares(rows).mean()
  return {f'k = {count}': format_number(share, '.1f') for count, share in shares.items()}


def _moved_cells(rows: pd.DataFrame) -> Row:
  """Distances by which tuned, text and random prompts move each model, and by which any prefix moves the exact one."""
  if rows['tv_moved'].isna().all():
    return {}
  kinds = {'tuned': 'tv_moved', 'text': 'tv_moved_by_text', 'random': 'tv_moved_by_random'}
  cells = {
    f'{METHODS[method].label}\n{MODEL_NAMES[model]}\n{kind}': str(statistics.percent(group, field))
    for (method, model), group in rows.groupby(['method', 'model'], sort=False)
    for kind, field in kinds.items()
  }
  return cells | {'any': str(statistics.percent(rows, 'tv_movable'))}


def _names(places: Places) -> dict[Place, Row]:
  """Each distribution with the values of fields, and its number of units."""
  has_memory, names = any(place.point.memory_size for place in places), dict[Place, Row]()
  for place, rows in places.items():
    point = place.point
    values = {name: statistics.as_text(value) for name, value in place.values if name != 'distribution'}
    names[place] = {
      'process': statistics.process(rows),
      **values,
      'text': point.text if has_memory else '',
      '|M|': str(point.memory_size or ''),
      'N': str(point.num_cells or ''),
      '|H|': str(point.num_states),
      '|M|^N |H|': str(point.joint_states) if has_memory else '',
      'n': str(rows['unit'].nunique()),
    }
  return names


def _method_cells(at: _Cells, methods: Collection[str], models: Collection[str] = MODEL_NAMES) -> Row:
  """The accuracy of these methods on each of the models, in percent; '' without one."""
  return {
    f'{textwrap.fill(METHODS[method].label, 18)}\n{MODEL_NAMES[model]}': str(at.accuracies.get((model, method), ''))
    for model, method in itertools.product(models, sorted(methods))
  }


def _accuracy_cells(at: _Cells, main: Collection[str]) -> Row:
  """The accuracies of the main methods, the share of near ties, the majority and the Bayes gap."""
  cells = _method_cells(at, main, ('bert', 'exact', 'own', 'none'))
  cells['near\nties'] = f'{100 * at.records["near_tie_share"].mean():.1f}'
  cells['majority'] = str(at.majority)
  for title, model, field in (
    ('KL at\n[MASK]', 'bert', 'kl_at_mask'),
    ('excess\nMLM loss', 'bert', 'excess_mlm_loss'),
    ('KL at [MASK]\nown model', 'own', 'kl_at_mask'),
  ):
    cells[title] = format_number(statistics.select(at.records, model=model)[field].mean(skipna=False), '.3f')
  return cells


def _beside_paper(shown: dict[Place, _Cells], names: dict[Place, Row]) -> Iterator[Row]:
  """A row for each method that the paper draws on such text: ours on BERT, the paper's, and the difference, if known.

  The paper's half-width counts as 0 if it is unknown.
  """
  panel, nothing = 'right' if any(place.point.memory_size for place in shown) else 'left', statistics.mean_interval([])
  for (place, at), (text, method, name) in itertools.product(shown.items(), PAPER[panel]):
    ours = at.accuracies.get(('bert', method), nothing)
    by_size = (paper(panel, name, at.records['scale'].iloc[0], statistic) for statistic in ('mean', 'ci95'))
    mean, half_width = (values.get(place.point.joint_states, np.nan) for values in by_size)
    is_apart = abs(ours.mean - mean) > np.hypot(ours.half_width, np.nan_to_num(half_width))
    if text == place.point.text and not np.isnan(ours.mean - mean):
      yield {
        'method': METHODS[method].label,
        **names[place],
        'ours': str(ours),
        'paper': format_number(mean, ''),
        'difference': format_number(ours.mean - mean, '+.1f'),
        'apart': 'yes' if is_apart else 'no',
      }
