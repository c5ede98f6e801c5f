"""The tables of a grid of trials, only from records."""

from collections.abc import Callable, Collection, Iterator, Sequence
import itertools
import json
import pathlib
import textwrap

import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Interval, Place
from experiments.analysis.table import format_number, Table, table
from experiments.settings import lists
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

# The cells of a row by the headings of their columns.
Row = dict[str, str]
# The records of each distribution at each point of values, each with its unit.
Places = dict[Place, pd.DataFrame]
# Differences at each place, by title.
ByTitle = dict[str, dict[Place, Interval]]


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
  places, trial = statistics.by_place(records), statistics.trial_name(records)
  unit = trial if records['trial'].nunique() > 1 else f'task of one {trial}'
  tests = 'comparisons' if statistics.varied(records) else 'sizes'
  # Contrasts on other models say so in their titles.
  heading = 'contrast, on BERT' if (records['model'] == 'bert').any() else 'contrast'
  run, protocol, further = set(records['method']), contrasts(records), further_contrasts(records)
  main, beyond = run.intersection(MAIN), run.difference(MAIN)
  has_controls = records['model'].isin(_CONTROLS).any()
  names = {place: _name_of(place, places) for place in places}
  cells: dict[str, Callable[[pd.DataFrame], Row]] = {
    'accuracy': lambda rows: _accuracy_cells(rows, main),
    'controls': lambda rows: _control_cells(rows, main) if has_controls else {},
    'head_sizes': _size_cells,
    'nearest_tokens': _nearest_cells,
    'moved': _moved_cells,
    'diagnostics': lambda rows: _method_cells(rows, beyond),
  }
  rows: dict[str, list[Row]] = {
    'differences': _difference_rows(names, protocol, heading, tests),
    'contrasts': _difference_rows(names, further, heading, tests),
    'values': _difference_rows(names, between_values(places), 'between values', tests),
    'trends': list(_trend_rows(_by_kind_of_text(protocol | further, places), heading)) if unit == trial else [],
    'beside_paper': list(_beside_paper(places, names)) if paper_overlay else [],
  }
  for name, cells_of in cells.items():
    rows[name] = [names[place] | shown for place, of_place in places.items() if (shown := cells_of(of_place))]
  titles = {name: title.format(unit=unit, tests=tests) for name, title in _TITLES.items()}
  return {name: table(title, rows[name]) for name, title in titles.items() if rows[name]}


def contrasts(records: pd.DataFrame) -> ByTitle:
  """The contrasts that were run, by title: the difference at every distribution that has both sides.

  Methods are paired by task within an HMM, or on the exact model for methods defined only there. Memory and
  vanilla text have no HMM in common, so they are compared by Welch's test.
  """
  places, on_bert = statistics.by_place(records), ('bert', 'bert')
  with_memory = [place for place in places if place.point.memory_size]
  vanilla = {place: place._replace(point=Point(place.point.joint_states)) for place in with_memory}
  return (
    _differences(places, '{} - {}', on_bert, _PAIRED)
    | _differences(places, 'memory {} - vanilla {}', on_bert, _OF_TEXTS, vanilla, statistics.unpaired_difference)
    | _differences(places, '{} - {}, own model', ('own', 'own'), _PAIRED)
  )


def further_contrasts(records: pd.DataFrame) -> ByTitle:
  """The paired contrasts with what lies beyond the protocol, with an untrained BERT, and on the exact model."""
  places = statistics.by_place(records)
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


def _difference_rows(names: dict[Place, Row], by_title: ByTitle, heading: str, tests: str) -> list[Row]:
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
  kinds, apart = {text_name(place.point) for place in places}, ByTitle()
  for title, differences in by_title.items():
    for place, paired in sorted(differences.items(), key=lambda item: text_name(item[0].point)):
      kind = f'{text_name(place.point)} text' if len(kinds) > 1 else ''
      if len(paired.values):
        name = ', '.join(filter(None, [title, kind, lists.text(dict(place.values))]))
        apart.setdefault(name, {})[place] = paired
  return {name: of_kind for name, of_kind in apart.items() if len(of_kind) > 1}


def _trend_rows(by_title: ByTitle, heading: str) -> Iterator[Row]:
  """A row for each contrast: over all HMMs, and its rank correlation with the number of joint states."""
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


def _control_cells(rows: pd.DataFrame, main: Collection[str]) -> Row:
  """The main methods on the controls, the distance of these from G, and a head behind another task's prompt."""
  cells = _method_cells(rows, main, _CONTROLS)
  refits = statistics.select(rows, model='bert', method='prompt_refit')
  cells['converged head behind\nprompt of another task'] = str(statistics.percent(refits, 'other_task_accuracy'))
  cells['majority'] = str(statistics.percent(rows, 'majority_accuracy'))
  for model in _CONTROLS:
    mean = statistics.select(rows, model=model)['kl_at_mask'].mean()
    cells[f'KL at [MASK]\n{MODEL_NAMES[model]}'] = format_number(mean, '.3f')
  return cells


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


def _nearest_cells(rows: pd.DataFrame) -> Row:
  """The shares of labels of one distribution that change, by the number of tokens kept."""
  shares = changed_shares(rows).mean()
  return {f'k = {count}': format_number(share, '.1f') for count, share in shares.items()}


def _moved_cells(rows: pd.DataFrame) -> Row:
  """Distances by which tuned, text and random prompts move each model, and by which any prefix moves the exact one."""
  if 'tv_moved' not in rows:
    return {}
  kinds = {'tuned': 'tv_moved', 'text': 'tv_moved_by_text', 'random': 'tv_moved_by_random'}
  cells = {
    f'{METHODS[method].label}\n{MODEL_NAMES[model]}\n{kind}': str(statistics.percent(group, field))
    for (method, model), group in rows.groupby(['method', 'model'], sort=False)
    for kind, field in kinds.items()
  }
  return cells | {'any': str(statistics.percent(rows, 'tv_movable'))}


def _name_of(place: Place, places: Places) -> Row:
  """The distribution with the values of fields, and its number of units."""
  has_memory, point = any(other.point.memory_size for other in places), place.point
  values = {name: statistics.as_text(value) for name, value in place.values if name != 'distribution'}
  return {
    'process': statistics.process(places[place]),
    **values,
    'text': text_name(point) if has_memory else '',
    '|M|': str(point.memory_size or ''),
    'N': str(point.num_cells or ''),
    '|H|': str(point.num_states),
    '|M|^N |H|': str(point.joint_states) if has_memory else '',
    'n': str(places[place]['unit'].nunique()),
  }


def _method_cells(rows: pd.DataFrame, methods: Collection[str], models: Collection[str] = MODEL_NAMES) -> Row:
  """The accuracy of these methods on each of the models, in percent."""
  cells = {}
  for model, method in itertools.product(models, sorted(methods)):
    title = f'{textwrap.fill(METHODS[method].label, 18)}\n{MODEL_NAMES[model]}'
    cells[title] = str(statistics.percent(statistics.select(rows, model=model, method=method), 'accuracy'))
  return cells


def _accuracy_cells(rows: pd.DataFrame, main: Collection[str]) -> Row:
  """The accuracies of the main methods, the share of near ties, the majority and the Bayes gap."""
  cells = _method_cells(rows, main, ('bert', 'exact', 'own', 'none'))
  cells['near\nties'] = f'{100 * rows["near_tie_share"].mean():.1f}'
  cells['majority'] = str(statistics.percent(rows, 'majority_accuracy'))
  for title, model, field in (
    ('KL at\n[MASK]', 'bert', 'kl_at_mask'),
    ('excess\nMLM loss', 'bert', 'excess_mlm_loss'),
    ('KL at [MASK]\nown model', 'own', 'kl_at_mask'),
  ):
    cells[title] = format_number(statistics.select(rows, model=model)[field].mean(skipna=False), '.3f')
  return cells


def _beside_paper(places: Places, names: dict[Place, Row]) -> Iterator[Row]:
  """A row for each method that the paper draws on such text: ours on BERT, the paper's, and the difference, if known.

  The paper's half-width counts as 0 if it is unknown.
  """
  panel = 'right' if any(place.point.memory_size for place in places) else 'left'
  for (place, rows), (text, method, name) in itertools.product(places.items(), PAPER[panel]):
    ours = statistics.percent(statistics.select(rows, model='bert', method=method), 'accuracy')
    by_size = (paper(panel, name, rows['scale'].iloc[0], statistic) for statistic in ('mean', 'ci95'))
    mean, half_width = (values.get(place.point.joint_states, np.nan) for values in by_size)
    is_apart = abs(ours.mean - mean) > np.hypot(ours.half_width, np.nan_to_num(half_width))
    if text == text_name(place.point) and not np.isnan(ours.mean - mean):
      yield {
        'method': METHODS[method].label,
        **names[place],
        'ours': str(ours),
        'paper': format_number(mean, ''),
        'difference': format_number(ours.mean - mean, '+.1f'),
        'apart': 'yes' if is_apart else 'no',
      }
