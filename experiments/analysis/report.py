"""The tables of a grid of trials, from records alone."""

from collections.abc import Iterable
import json
import pathlib
import textwrap

import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Difference, Unit
from experiments.analysis.tables import number, Table, table
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS, PROTOCOL

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

MODEL_NAMES = {'bert': 'BERT', 'exact': 'exact G'}
# Which method represents a kind of text where the two are compared: the first of these that was run.
_REPRESENTATIVES = {
  'memory': ('attention', 'prompt_attention', 'prompt', 'head', 'probe', 'finetune'),
  'vanilla': ('head', 'attention', 'prompt', 'prompt_attention', 'probe', 'finetune'),
}
# Pairs of methods whose difference on BERT, paired by task, is tested where both were run.
_CONTRASTS = (
  ('prompt', 'head'),
  ('attention', 'head'),
  ('prompt_attention', 'attention'),
  ('attention', 'attention_blind'),
  ('attention', 'attention_constant'),
)

# Units from which a test says anything of their spread.
_LEAST_UNITS = 3
# Of a test, before it is corrected.
LEVEL = 0.05

# The cells of a distribution by the headings of their columns.
Row = dict[str, str]


def _text_of_paper(scale: str) -> str:
  """Whose Figure 3 stands beside ours: the first text's at its own scale, the later text's at every other."""
  return 'arxiv_v1' if scale == 'paper_v1' else 'later_version'


def paper_left(method: str, scale: str, what: str = 'mean') -> dict[int, float]:
  """Accuracy in percent by |H|, or half-widths 'ci95' of its 95% interval, as digitised from Figure 3 (left)."""
  left = REFERENCE[f'left_{_text_of_paper(scale)}']
  return dict(zip(left['num_states'], left[method][what] or ())) if method in left else {}


def paper_right(text: str, scale: str, what: str = 'mean') -> dict[int, float]:
  """Accuracy by |M||H| of 'memory' or 'vanilla', or half-widths, as `paper_left`, of Figure 3 (right)."""
  right = REFERENCE[f'right_{_text_of_paper(scale)}']
  return dict(zip(right['memory_times_states'], right[text][what] or ()))


def text_name(point: Point) -> str:
  """The kind of text that a distribution gives."""
  return 'memory' if point.memory_size else 'vanilla'


def text_records(records: pd.DataFrame, text: str) -> pd.DataFrame:
  """The records of one kind of text."""
  return records[(records['memory_size'] > 0) == (text == 'memory')]


def tables(records: pd.DataFrame, paper_overlay: bool) -> dict[str, Table]:
  """The tables that the records have something for, by name."""
  beyond = [method for method in METHODS if method not in PROTOCOL]
  has_ties = bool((records['near_tie_share'] > 0).any())
  rows: dict[str, tuple[str, list[Row]]] = {
    'accuracy': (
      'Test accuracy in percent, mean ± half-width of the 95% interval',
      [_accuracy_row(*pair, records, has_ties, paper_overlay) for pair in statistics.by_point(records).items()],
    ),
    'differences': (
      f'Differences in points, the unit the {_unit_name(records)}; p of t tests, corrected for the number of sizes '
      f'(Holm). Detectable: the minimum effect that 80% of such runs find at {LEVEL} over the number of sizes',
      _difference_rows(records),
    ),
    'beside_paper': (
      'Ours on BERT beside the digitised Figure 3. Apart: the means differ by more than the root of the sum of both '
      'squared half-widths, uncorrected for number',
      _beside_paper(records) if paper_overlay else [],
    ),
    'diagnostics': (
      "Beyond the paper's protocol: what other fits and controls reach",
      _method_rows(records, 'accuracy', beyond) if records['method'].isin(beyond).any() else [],
    ),
    'clear': (
      'The same without near ties: test inputs whose class scores differ by 1e-6 or more',
      _method_rows(records, 'clear_accuracy', PROTOCOL) if has_ties else [],
    ),
  }
  return {name: table(title, of_table) for name, (title, of_table) in rows.items() if of_table}


def contrasts(records: pd.DataFrame) -> dict[str, dict[Point, Difference]]:
  """The contrasts that were run on BERT, by title: the difference at every distribution that has both sides.

  Methods are paired by task within an HMM, on the exact model where the second is of that one alone; memory and
  vanilla text have no HMM in common, and are compared by Welch's test.
  """
  unit, points = statistics.unit_of(records), statistics.by_point(records)
  found: dict[str, dict[Point, Difference]] = {}
  for one, other in _CONTRASTS:
    title = f'{METHODS[one].label} - {METHODS[other].label}'
    for point, rows in points.items():
      both = _on_bert(rows, one), _on_bert(rows, other)
      if all(map(len, both)):
        found.setdefault(title, {})[point] = statistics.paired_difference(*both, unit)
  memory, vanilla = (representative_method(text, records) for text in _REPRESENTATIVES)
  of_texts = [(memory, vanilla)] if memory and vanilla else []
  for one, other in dict.fromkeys([*of_texts, ('attention', 'attention'), ('head', 'head')]):
    for point in (point for point in points if point.memory_size):
      beside = statistics.select(records, **Point(point.joint_states)._asdict())
      both = _on_bert(points[point], one), _on_bert(beside, other)
      if all(map(len, both)):
        title = f'memory {METHODS[one].label} - vanilla {METHODS[other].label}'
        found.setdefault(title, {})[point] = statistics.unpaired_difference(*both, unit)
  return found


def _on_bert(records: pd.DataFrame, method: str) -> pd.DataFrame:
  """The records of a method on BERT, or on the exact model if it makes sense on that one alone."""
  model = 'bert' if 'bert' in METHODS[method].models else 'exact'
  return statistics.select(records, model=model, method=method)


def _difference_rows(records: pd.DataFrame) -> list[Row]:
  """Each contrast by size, with its p-value corrected for the number of sizes, and what so many units could detect."""
  rows, points, unit = list[Row](), statistics.by_point(records), statistics.unit_of(records)
  if max(len(statistics.by_unit(of_point, 'accuracy', unit)) for of_point in points.values()) < _LEAST_UNITS:
    return []
  for title, differences in contrasts(records).items():
    corrected = statistics.holm([one.p_value for one in differences.values()])
    for (point, difference), p_value in zip(differences.items(), corrected):
      row = {'contrast, on BERT': title if point == next(iter(differences)) else ''}
      row |= _name_of(point, points[point], records)
      row |= {'difference': str(difference.interval), 'p, Holm': number(p_value, '.2g')}
      row |= {'sizes': str(len(differences))}
      row |= {'detectable': number(difference.detectable(LEVEL / len(differences)), '.1f')}
      rows.append(row)
  return rows


def _unit_name(records: pd.DataFrame) -> str:
  return 'HMM' if statistics.unit_of(records) == ('trial',) else 'task of one HMM'


def _name_of(point: Point, of_point: pd.DataFrame, records: pd.DataFrame, field: str = 'accuracy') -> Row:
  """The distribution, and its number of units."""
  has_memory = (records['memory_size'] > 0).any()
  return {
    'text': text_name(point) if has_memory else '',
    '|M|': str(point.memory_size or ''),
    'N': str(point.num_cells or ''),
    '|H|': str(point.num_states),
    '|M|^N |H|': str(point.joint_states) if has_memory else '',
    'n': str(len(statistics.by_unit(of_point, field, statistics.unit_of(records)))),
  }


def _method_rows(records: pd.DataFrame, field: str, methods: Iterable[str]) -> list[Row]:
  """A row for each distribution: the number of units, and in percent a field of these methods on each model."""
  points, unit = statistics.by_point(records), statistics.unit_of(records)
  return [
    _name_of(point, rows, records, field) | _method_cells(rows, records, field, methods, unit)
    for point, rows in points.items()
  ]


def _method_cells(rows: pd.DataFrame, records: pd.DataFrame, field: str, methods: Iterable[str], unit: Unit) -> Row:
  cells = {}
  for model, method in sorted(set(zip(records['model'], records['method']))):
    if method in methods:
      chosen = statistics.select(rows, model=model, method=method)
      title = f'{textwrap.fill(METHODS[method].label, 18)}\n{MODEL_NAMES[model]}'
      cells[title] = str(statistics.percent(chosen, field, unit)) if len(chosen) else ''
  return cells


def _accuracy_row(point: Point, rows: pd.DataFrame, records: pd.DataFrame, has_ties: bool, paper_overlay: bool) -> Row:
  """The accuracies of the paper's protocol, the majority, the Bayes gap, and the paper's accuracies."""
  bert, unit = statistics.select(rows, model='bert'), statistics.unit_of(records)
  row = _name_of(point, rows, records) | _method_cells(rows, records, 'accuracy', PROTOCOL, unit)
  if has_ties:
    row['near\nties'] = f'{100 * rows["near_tie_share"].mean():.1f}'
  row['majority'] = str(statistics.percent(rows, 'majority_accuracy', unit))
  for title, field in (('KL at\n[MASK]', 'kl_at_mask'), ('excess\nMLM loss', 'excess_mlm_loss')):
    row[title] = f'{bert[field].mean(skipna=False):.3f}' if len(bert) else ''
  return row | (_paper_cells(point, bert, records) if paper_overlay else {})


def representative_method(text: str, records: pd.DataFrame) -> str | None:
  """The method that represents a kind of text, on BERT; None where there is none."""
  found = set(statistics.select(text_records(records, text), model='bert')['method'])
  return next((method for method in _REPRESENTATIVES[text] if method in found), None)


def _paper_values(point: Point, records: pd.DataFrame, what: str = 'mean') -> dict[str, float | None]:
  """The paper's accuracy of each method that it draws at this distribution, None where it draws no such point."""
  scale, text = records['scale'].iloc[0], text_name(point)
  if (records['memory_size'] > 0).any():
    method = representative_method(text, records)
    return {method: paper_right(text, scale, what).get(point.joint_states)} if method else {}
  return {method: paper_left(method, scale, what).get(point.num_states) for method in ('head', 'prompt')}


def _paper_cells(point: Point, bert: pd.DataFrame, records: pd.DataFrame) -> Row:
  """The paper's accuracies, and ours on BERT less them."""
  values, papers, less = _paper_values(point, records), [], []
  for method, value in values.items():
    ours = 100 * statistics.select(bert, method=method)['accuracy'].mean()
    papers.append('-' if value is None else f'{value}')
    less.append('-' if value is None or np.isnan(ours) else f'{ours - value:+.1f}')
  of = f'\n{" / ".join(values)}' if len(values) > 1 else ''
  return {f"paper's{of}": ' / '.join(papers), "ours\n- paper's": ' / '.join(less)}


def _beside_paper(records: pd.DataFrame) -> list[Row]:
  """A row for each point of the paper that we have on BERT; the paper's half-width counts as 0 if it is unknown."""
  rows, unit = list[Row](), statistics.unit_of(records)
  for point, of_point in statistics.by_point(records).items():
    half_widths = _paper_values(point, records, 'ci95')
    for method, value in _paper_values(point, records).items():
      chosen = statistics.select(of_point, model='bert', method=method)
      if value is not None and len(chosen):
        ours = statistics.percent(chosen, 'accuracy', unit)
        is_apart = abs(ours.mean - value) > np.hypot(ours.half_width, half_widths[method] or 0)
        row = {'method': METHODS[method].label, **_name_of(point, chosen, records), 'ours': str(ours)}
        row |= {'paper': f'{value}', 'difference': f'{ours.mean - value:+.1f}', 'apart': 'yes' if is_apart else 'no'}
        rows.append(row)
  return rows
