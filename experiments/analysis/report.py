"""The tables of a grid of trials, only from records."""

from collections.abc import Collection, Iterator, Sequence
import itertools
import json
import pathlib
import textwrap

import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Interval
from experiments.analysis.table import format_number, Table, table
from experiments.settings.grid import Point
from experiments.settings.methods import MAIN, METHODS

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

MODEL_NAMES = {
  'bert': 'BERT',
  'exact': 'exact G',
  'untrained': 'untrained BERT',
  'other_bert': 'BERT of another HMM',
  'own': 'own model',
  'none': 'no model',
}
_CONTROLS = ('untrained', 'other_bert')
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

# Lines of each panel of the paper's Figure 3: kind of text, method, name in the reference.
PAPER = {
  'left': (('vanilla', 'head', 'head'), ('vanilla', 'prompt', 'prompt')),
  'right': (('memory', 'attention', 'memory'), ('vanilla', 'head', 'vanilla')),
}

# Level of a test, before correction.
LEVEL = 0.05

_TITLES = {
  'accuracy': 'Test accuracy in percent, mean [95% interval]',
  'differences': (
    'Differences in points, unit of analysis: {unit}; p of t tests, Holm correction over sizes. Detectable: minimum '
    f'effect with 80% power at level {LEVEL} / number of sizes'
  ),
  'contrasts': (
    'Differences in points from other fits and controls, unit of analysis: {unit}; p and detectable as above'
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
  'diagnostics': "Other fits and controls beyond the paper's protocol: test accuracy in percent, mean [95% interval]",
}

# The cells of a row by the headings of their columns.
Row = dict[str, str]
# The records of each distribution, each with its unit.
Points = dict[Point, pd.DataFrame]


def paper(panel: str, name: str, scale: str, statistic: str = 'mean') -> dict[int, float]:
  """The 'mean' accuracy in percent by size, or half-widths 'ci95' of its 95% interval, as digitised from Figure 3.

  Sizes are |H| in the panel 'left' and |M||H| in the panel 'right'.
  """
  # `paper_v1` is compared with the first text's figure, every other scale with the later text's.
  shown = REFERENCE[f'{panel}_{"arxiv_v1" if scale == "paper_v1" else "later_version"}']
  sizes = shown['num_states' if panel == 'left' else 'memory_times_states']
  return dict(zip(sizes, shown[name][statistic] or ()))


def text_name(point: Point) -> str:
  """The kind of text of a distribution."""
  return 'memory' if point.memory_size else 'vanilla'


def tables(records: pd.DataFrame, paper_overlay: bool) -> dict[str, Table]:
  """The tables that have rows, by name."""
  records = statistics.with_unit(records)
  points = statistics.by_point(records)
  trial = statistics.trial_name(records)
  unit = trial if records['trial'].nunique() > 1 else f'task of one {trial}'
  # Contrasts on other models say so in their titles.
  heading = 'contrast, on BERT' if (records['model'] == 'bert').any() else 'contrast'
  run, protocol, further = set(records['method']), contrasts(records), further_contrasts(records)
  main, beyond = run.intersection(MAIN), run.difference(MAIN)
  rows: dict[str, list[Row]] = {
    'accuracy': [_accuracy_row(point, points, main) for point in points],
    'differences': list(_difference_rows(points, protocol, heading)),
    'contrasts': list(_difference_rows(points, further, heading)),
    'trends': list(_trend_rows(_by_kind_of_text(protocol | further, points), heading)) if unit == trial else [],
    'beside_paper': [
      row for point in points for row in _beside_paper(point, points) if paper_overlay and row['difference']
    ],
    'controls': [_control_row(point, points, main) for point in points if records['model'].isin(_CONTROLS).any()],
    'head_sizes': [_name_of(point, points) | cells for point, rows in points.items() if (cells := _size_cells(rows))],
    'nearest_tokens': [
      _name_of(Point(*point), points) | {f'k = {count}': format_number(share, '.1f') for count, share in shares.items()}
      for point, shares in changed_shares(records).iterrows()
    ],
    'diagnostics': [_name_of(point, points) | _method_cells(rows, beyond) for point, rows in points.items() if beyond],
  }
  return {name: table(_TITLES[name].format(unit=unit), of_table) for name, of_table in rows.items() if of_table}


def contrasts(records: pd.DataFrame) -> dict[str, dict[Point, Interval]]:
  """The contrasts that were run, by title: the difference at every distribution that has both sides.

  Methods are paired by task within an HMM, or on the exact model for methods defined only there. Memory and
  vanilla text have no HMM in common, so they are compared by Welch's test.
  """
  vanilla = {point: Point(point.joint_states) for point in statistics.by_point(records) if point.memory_size}
  return (
    _differences(records, '{} - {}', ('bert', 'bert'), _PAIRED)
    | _differences(records, 'memory {} - vanilla {}', ('bert', 'bert'), _OF_TEXTS, vanilla)
    | _differences(records, '{} - {}, own model', ('own', 'own'), _PAIRED)
  )


def further_contrasts(records: pd.DataFrame) -> dict[str, dict[Point, Interval]]:
  """The paired contrasts with what lies beyond the protocol, with an untrained BERT, and on the exact model."""
  return (
    _differences(records, '{} - {}', ('bert', 'bert'), _PAIRED_BEYOND)
    | _differences(records, '{} - {}, untrained BERT', ('bert', 'untrained'), _PAIRED_WITH_UNTRAINED)
    | _differences(records, '{} - {}, exact G', ('exact', 'exact'), _PAIRED_ON_EXACT)
  )


def _differences(
  records: pd.DataFrame,
  title: str,
  models: tuple[str, str],
  pairs: Sequence[tuple[str, str]],
  beside: dict[Point, Point] | None = None,
) -> dict[str, dict[Point, Interval]]:
  """The difference of each pair of methods, each on its model, by its title, where both sides were run.

  It is paired by task, unless the second method has distributions of its own, `beside` those of the first.
  """
  by_title: dict[str, dict[Point, Interval]] = {}
  difference = statistics.unpaired_difference if beside else statistics.paired_difference
  seconds = {point: point for point in statistics.by_point(records)} if beside is None else beside
  for (minuend, subtrahend), (point, second) in itertools.product(pairs, seconds.items()):
    both = _on(models[0], records, point, minuend), _on(models[1], records, second, subtrahend)
    if all(map(len, both)):
      name = title.format(METHODS[minuend].label, METHODS[subtrahend].label)
      by_title.setdefault(name, {})[point] = difference(*both)
  return by_title


def _on(model: str, records: pd.DataFrame, point: Point, method: str) -> pd.DataFrame:
  """The records of a method on a model, or on its own model for a method that is defined only there."""
  models = METHODS[method].models
  model = model if model in models else models[0]
  return statistics.select(records, **point._asdict(), model=model, method=method)


def _difference_rows(points: Points, by_title: dict[str, dict[Point, Interval]], heading: str) -> Iterator[Row]:
  """A row for each contrast and size: p-value, Holm over sizes, and minimum detectable effect."""
  for title, differences in by_title.items():
    corrected = statistics.holm([difference.p_value for difference in differences.values()])
    for (point, difference), p_value in zip(differences.items(), corrected):
      yield {
        heading: title if point == next(iter(differences)) else '',
        **_name_of(point, points),
        'difference': str(difference),
        'p, Holm': format_number(p_value, '.2g'),
        'sizes': str(len(differences)),
        'detectable': format_number(difference.minimum_effect(LEVEL / len(differences)), '.1f'),
      }


def _by_kind_of_text(by_title: dict[str, dict[Point, Interval]], points: Points) -> dict[str, dict[Point, Interval]]:
  """The paired contrasts with at least two sizes, each kind of text apart."""
  kinds, apart = {text_name(point) for point in points}, dict[str, dict[Point, Interval]]()
  for (title, differences), kind in itertools.product(by_title.items(), sorted(kinds)):
    of_kind = {
      point: paired for point, paired in differences.items() if text_name(point) == kind and len(paired.values)
    }
    if len(of_kind) > 1:
      apart[title if len(kinds) == 1 else f'{title}, {kind} text'] = of_kind
  return apart


def _trend_rows(by_title: dict[str, dict[Point, Interval]], heading: str) -> Iterator[Row]:
  """A row for each contrast: over all HMMs, and its rank correlation with the number of joint states."""
  pooled = [
    statistics.stratified(interval.values for interval in differences.values()) for differences in by_title.values()
  ]
  trends = []
  for differences in by_title.values():
    of_units = [
      {**point._asdict(), 'joint_states': point.joint_states, 'unit': unit, 'difference': value}
      for point, interval in differences.items()
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


def _control_row(point: Point, points: Points, main: Collection[str]) -> Row:
  """The main methods on the controls, the distance of these from G, and a head behind another task's prompt."""
  rows = points[point]
  row = _name_of(point, points) | _method_cells(rows, main, _CONTROLS)
  refits = statistics.select(rows, model='bert', method='prompt_refit')
  row['converged head behind\nprompt of another task'] = str(statistics.percent(refits, 'other_task_accuracy'))
  row['majority'] = str(statistics.percent(rows, 'majority_accuracy'))
  for model in _CONTROLS:
    mean = statistics.select(rows, model=model)['kl_at_mask'].mean()
    row[f'KL at [MASK]\n{MODEL_NAMES[model]}'] = format_number(mean, '.3f')
  return row


def _size_cells(rows: pd.DataFrame) -> Row:
  """The median size of each kind of head that has one, on each model."""
  sizes = rows.reindex(columns=['model', 'method', 'head_size']).dropna()
  medians = sizes.groupby(['model', 'method'])['head_size'].median()
  return {f'{METHODS[method].label}\n{MODEL_NAMES[model]}': f'{size:.1g}' for (model, method), size in medians.items()}


def changed_shares(records: pd.DataFrame) -> pd.DataFrame:
  """The mean share of labels in percent that change if only k tokens are kept.

  A row for each distribution and a column for each k; without the method `table` there are no rows.
  """
  tables = statistics.select(records, method='table')
  shares = pd.DataFrame(list(tables.get('changed_shares', ())), pd.MultiIndex.from_frame(tables[[*Point._fields]]))
  return 100 * shares.groupby(level=[*Point._fields]).mean()


def _name_of(point: Point, points: Points) -> Row:
  """The distribution, and its number of units."""
  has_memory = any(other.memory_size for other in points)
  return {
    'process': statistics.process(points[point]),
    'text': text_name(point) if has_memory else '',
    '|M|': str(point.memory_size or ''),
    'N': str(point.num_cells or ''),
    '|H|': str(point.num_states),
    '|M|^N |H|': str(point.joint_states) if has_memory else '',
    'n': str(points[point]['unit'].nunique()),
  }


def _method_cells(rows: pd.DataFrame, methods: Collection[str], models: Collection[str] = MODEL_NAMES) -> Row:
  """The accuracy of these methods on each of the models, in percent."""
  cells = {}
  for model, method in itertools.product(models, sorted(methods)):
    title = f'{textwrap.fill(METHODS[method].label, 18)}\n{MODEL_NAMES[model]}'
    cells[title] = str(statistics.percent(statistics.select(rows, model=model, method=method), 'accuracy'))
  return cells


def _accuracy_row(point: Point, points: Points, main: Collection[str]) -> Row:
  """The accuracies of the main methods, the share of near ties, the majority and the Bayes gap."""
  rows = points[point]
  row = _name_of(point, points) | _method_cells(rows, main, ('bert', 'exact', 'own', 'none'))
  row['near\nties'] = f'{100 * rows["near_tie_share"].mean():.1f}'
  row['majority'] = str(statistics.percent(rows, 'majority_accuracy'))
  for title, model, field in (
    ('KL at\n[MASK]', 'bert', 'kl_at_mask'),
    ('excess\nMLM loss', 'bert', 'excess_mlm_loss'),
    ('KL at [MASK]\nown model', 'own', 'kl_at_mask'),
  ):
    row[title] = format_number(statistics.select(rows, model=model)[field].mean(skipna=False), '.3f')
  return row


def _beside_paper(point: Point, points: Points) -> Iterator[Row]:
  """A row for each method that the paper draws on such text: ours on BERT, the paper's, and the difference if known.

  The paper's half-width counts as 0 if it is unknown.
  """
  panel = 'right' if any(other.memory_size for other in points) else 'left'
  rows = points[point]
  for method, name in (names for text, *names in PAPER[panel] if text == text_name(point)):
    ours = statistics.percent(statistics.select(rows, model='bert', method=method), 'accuracy')
    by_size = (paper(panel, name, rows['scale'].iloc[0], statistic) for statistic in ('mean', 'ci95'))
    mean, half_width = (values.get(point.joint_states, np.nan) for values in by_size)
    is_apart = abs(ours.mean - mean) > np.hypot(ours.half_width, np.nan_to_num(half_width))
    yield {
      'method': METHODS[method].label,
      **_name_of(point, points),
      'ours': str(ours),
      'paper': format_number(mean, ''),
      'difference': format_number(ours.mean - mean, '+.1f'),
      'apart': 'yes' if is_apart else 'no',
    }
