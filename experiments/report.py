"""The table that ends a run, made from records alone."""

from collections.abc import Callable
import io
import json
import pathlib
from typing import NamedTuple

import numpy as np
import rich.box
import rich.console
import rich.table

from experiments import checkpoints
from experiments import results
from experiments.methods import METHODS
from experiments.progress import Reporter
from experiments.results import Record
from experiments.settings import Point

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

_MODEL_NAMES = {'bert': 'BERT', 'exact': 'exact G'}
# Which method stands for a kind of text where the two are compared: the first of these that was run.
_METHODS_OF_MEMORY = ('attention', 'prompt_attention', 'prompt', 'head', 'probe', 'finetune')
_METHODS_OF_VANILLA = ('head', 'attention', 'prompt', 'prompt_attention', 'probe', 'finetune')
# Pairs of methods whose difference on BERT, paired by task, has a column where both were run.
_CONTRASTS = (('prompt', 'head'), ('attention', 'head'), ('prompt_attention', 'attention'))


class _Column(NamedTuple):
  """A column: its title, and its cell for a point, given the records of that point."""

  title: str
  cell: Callable[[Point, list[Record]], str]


def paper_left(method: str) -> dict[int, float]:
  """Accuracy in percent by |H|, as digitised from Figure 3 (left) of the later text."""
  left = REFERENCE['left_later_version']
  return dict(zip(left['num_states'], left[method]['mean'])) if method in left else {}


def paper_right(text: str) -> dict[int, float]:
  """Accuracy in percent by |M||H| of 'memory' or 'vanilla', as digitised from Figure 3 (right) of the later text."""
  right = REFERENCE['right_later_version']
  return dict(zip(right['memory_times_states'], right[text]['mean']))


def text_name(point: Point) -> str:
  """What the text of a point comes from."""
  return 'memory' if point.memory_size else 'vanilla'


def beside(records: list[Record], point: Point) -> list[Record]:
  """The records of the vanilla HMM with as many states as `point` has joint states."""
  return [record for record in records if results.point_of(record) == Point(point.joint_states)]


def table(records: list[Record], paper_overlay: bool) -> rich.table.Table:
  """One row a distribution: accuracies in percent with 95% intervals, paired gains, and the Bayes gap."""
  title = 'Test accuracy in percent, mean ± half-width of the 95% interval'
  return _table(title, records, _columns(records, paper_overlay))


def clear_table(records: list[Record]) -> rich.table.Table:
  """The accuracies where labels are clear: on test inputs whose class scores differ by 1e-6 or more."""
  title = 'The same without near ties: test inputs whose class scores differ by 1e-6 or more'
  clear = [record for record in records if record['clear_accuracy'] is not None]
  methods = sorted({(record['model'], record['method']) for record in clear})
  columns = [_accuracy_column(*pair, 'clear_accuracy') for pair in methods]
  return _table(title, clear, _point_columns(clear) + columns)


def _table(title: str, records: list[Record], columns: list[_Column]) -> rich.table.Table:
  out = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for column in columns:
    out.add_column(column.title, justify='right', no_wrap=True)
  for point in results.points(records):
    of_point = [record for record in records if results.point_of(record) == point]
    out.add_row(*(column.cell(point, of_point) for column in columns))
  return out


def _point_columns(records: list[Record]) -> list[_Column]:
  has_memory = any(point.memory_size for point in results.points(records))
  columns = []
  if has_memory:
    columns += [
      _Column('text', lambda point, _: text_name(point)),
      _Column('|M|', lambda point, _: str(point.memory_size or '')),
      _Column('N', lambda point, _: str(point.num_cells or '')),
    ]
  columns.append(_Column('|H|', lambda point, _: str(point.num_states)))
  if has_memory:
    columns.append(_Column('|M|^N |H|', lambda point, _: str(point.joint_states)))
  columns.append(_Column('n', lambda _, rows: str(len(results.by_unit(rows, 'majority_accuracy')))))
  return columns


def _columns(records: list[Record], paper_overlay: bool) -> list[_Column]:
  points = results.points(records)
  has_memory = any(point.memory_size for point in points)
  has_vanilla = any(not point.memory_size for point in points)
  methods = {(record['model'], record['method']) for record in records}
  columns = _point_columns(records)
  columns += [_accuracy_column(*pair) for pair in sorted(methods)]
  for first, second in _CONTRASTS:
    if any({first, second} <= _bert_methods(records, point) for point in points):
      columns += _contrast_columns(first, second)
  if any(record['near_tie_share'] for record in records):
    columns.append(_Column('near\nties', lambda _, rows: f'{100 * np.mean([r["near_tie_share"] for r in rows]):.1f}'))
  if has_memory and has_vanilla:
    columns += _memory_columns(records)
  columns += [
    _Column('majority', lambda _, rows: str(results.percent(rows, 'majority_accuracy'))),
    _mean_column('KL at\n[MASK]', 'kl_at_mask'),
    _mean_column('excess\nMLM loss', 'excess_mlm_loss'),
  ]
  if paper_overlay:
    columns.append(_paper_column(has_memory))
  return columns


def _bert_methods(records: list[Record], point: Point) -> set[str]:
  chosen = results.select(records, model='bert')
  return {record['method'] for record in chosen if results.point_of(record) == point}


def _accuracy_column(model: str, method: str, field: str = 'accuracy') -> _Column:
  def cell(_, rows):
    chosen = results.select(rows, model=model, method=method)
    return str(results.percent(chosen, field)) if chosen else ''

  return _Column(f'{METHODS[method].label}\n{_MODEL_NAMES[model]}', cell)


def _difference_columns(title: str, difference: Callable[[Point, list[Record]], results.Difference | None]):
  def mean(point, rows):
    found = difference(point, rows)
    return str(found.interval) if found else ''

  def p_value(point, rows):
    found = difference(point, rows)
    return '' if not found or np.isnan(found.p_value) else f'{found.p_value:.2g}'

  return [_Column(title, mean), _Column('p', p_value)]


def _contrast_columns(first: str, second: str) -> list[_Column]:
  def difference(_, rows):
    pair = [results.select(rows, model='bert', method=method) for method in (first, second)]
    return results.paired_difference(*pair) if all(pair) else None

  return _difference_columns(f'{METHODS[first].label}\n- {second}, BERT', difference)


def _memory_columns(records: list[Record]) -> list[_Column]:
  """How far a memory is above the vanilla HMM of as many joint states, each with one method, on BERT."""
  methods = {}
  for text, order in (('memory', _METHODS_OF_MEMORY), ('vanilla', _METHODS_OF_VANILLA)):
    of_text = [r for r in results.select(records, model='bert') if text_name(results.point_of(r)) == text]
    met = {record['method'] for record in of_text}
    if not met:
      return []
    methods[text] = next(method for method in order if method in met)

  def difference(point, rows):
    if not point.memory_size:
      return None
    memory = results.select(rows, model='bert', method=methods['memory'])
    vanilla = results.select(beside(records, point), model='bert', method=methods['vanilla'])
    return results.unpaired_difference(memory, vanilla) if memory and vanilla else None

  names = {text: METHODS[method].label for text, method in methods.items()}
  return _difference_columns(f'memory {names["memory"]}\n- vanilla {names["vanilla"]}, BERT', difference)


def _mean_column(title: str, field: str) -> _Column:
  def cell(_, rows):
    bert = results.select(rows, model='bert')
    return f'{np.mean([record[field] for record in bert]):.3f}' if bert else ''

  return _Column(title, cell)


def _paper_column(right: bool) -> _Column:
  show = lambda value: '-' if value is None else f'{value}'
  if right:
    return _Column("paper's", lambda point, _: show(paper_right(text_name(point)).get(point.joint_states)))
  pair = lambda point: (paper_left(method).get(point.num_states) for method in ('head', 'prompt'))
  return _Column("paper's\nhead / prompt", lambda point, _: ' / '.join(map(show, pair(point))))


def render(records: list[Record], paper_overlay: bool) -> str:
  """`table` as plain text, and `clear_table` after it where there are near ties."""
  text = as_text(table(records, paper_overlay))
  if any(record['near_tie_share'] for record in records):
    text += as_text(clear_table(records))
  return text


def as_text(rich_table: rich.table.Table) -> str:
  """A table at its own width, without colour or trailing blanks."""
  console = rich.console.Console(width=240, no_color=True, file=io.StringIO(), record=True)
  console.print(rich_table)
  return '\n'.join(line.rstrip() for line in console.export_text().splitlines()) + '\n'


def show(text: str, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of a workdir, keeps them beside its records, and says where both are."""
  reporter.show(text)
  checkpoints.write_whole(workdir / 'table.txt', text)
  for name, path in (('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')):
    reporter.say(f'{name}: {path}')
