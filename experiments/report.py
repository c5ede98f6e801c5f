"""The table that ends a run, made from records alone."""

from collections.abc import Callable
import io
import json
import pathlib

import numpy as np
import rich.box
import rich.console
import rich.table

from experiments import files, results
from experiments.methods import METHODS
from experiments.progress import Reporter
from experiments.results import Record
from experiments.settings import Point

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

MODEL_NAMES = {'bert': 'BERT', 'exact': 'exact G'}
# Which method stands for a kind of text where the two are compared: the first of these that was run.
_STANDING_FOR = {
  'memory': ('attention', 'prompt_attention', 'prompt', 'head', 'probe', 'finetune'),
  'vanilla': ('head', 'attention', 'prompt', 'prompt_attention', 'probe', 'finetune'),
}
# Pairs of methods whose difference on BERT, paired by task, has a column where both were run.
_CONTRASTS = (('prompt', 'head'), ('attention', 'head'), ('prompt_attention', 'attention'))

# The cells of a distribution, each with the title of its column.
Row = list[tuple[str, str]]


def _text_of_paper(scale: str) -> str:
  """Whose Figure 3 stands beside ours: the first text's at its own scale, the later text's at every other."""
  return 'arxiv_v1' if scale == 'paper_v1' else 'later_version'


def paper_left(method: str, scale: str) -> dict[int, float]:
  """Accuracy in percent by |H|, as digitised from Figure 3 (left)."""
  left = REFERENCE[f'left_{_text_of_paper(scale)}']
  return dict(zip(left['num_states'], left[method]['mean'])) if method in left else {}


def paper_right(text: str, scale: str) -> dict[int, float]:
  """Accuracy in percent by |M||H| of 'memory' or 'vanilla', as digitised from Figure 3 (right)."""
  right = REFERENCE[f'right_{_text_of_paper(scale)}']
  return dict(zip(right['memory_times_states'], right[text]['mean']))


def text_name(point: Point) -> str:
  """What the text of a point comes from."""
  return 'memory' if point.memory_size else 'vanilla'


def table(records: list[Record], paper_overlay: bool) -> rich.table.Table:
  """One row per distribution: accuracies in percent with 95% intervals, paired gains, and the Bayes gap."""
  rows, (memory, vanilla) = [], (_standing_for(text, records) for text in _STANDING_FOR)
  for point, of_point in results.by_point(records).items():
    bert = results.select(of_point, model='bert')
    row = _start_of_row(point, of_point, records, 'accuracy')
    for first, second in _CONTRASTS:
      pair = [results.select(bert, method=method) for method in (first, second)]
      row += _difference(f'{METHODS[first].label}\n- {second}, BERT', results.paired_difference, *pair)
    if any(record['near_tie_share'] for record in records):
      row.append(('near\nties', f'{100 * np.mean([record["near_tie_share"] for record in of_point]):.1f}'))
    if memory and vanilla:
      title = f'memory {METHODS[memory].label}\n- vanilla {METHODS[vanilla].label}, BERT'
      beside = results.select(records, **Point(point.joint_states)._asdict()) if point.memory_size else []
      pair = [results.select(bert, method=memory), results.select(beside, model='bert', method=vanilla)]
      row += _difference(title, results.unpaired_difference, *pair)
    row.append(('majority', str(results.percent(of_point, 'majority_accuracy'))))
    for title, field in (('KL at\n[MASK]', 'kl_at_mask'), ('excess\nMLM loss', 'excess_mlm_loss')):
      row.append((title, f'{np.mean([record[field] for record in bert]):.3f}' if bert else ''))
    rows.append(row + [_paper(point, _has_memory(records), records[0]['scale'])] * paper_overlay)
  return from_rows('Test accuracy in percent, mean ± half-width of the 95% interval', rows)


def clear_table(records: list[Record]) -> rich.table.Table:
  """The accuracies where labels are clear: on test inputs whose class scores differ by 1e-6 or more."""
  title = 'The same without near ties: test inputs whose class scores differ by 1e-6 or more'
  rows = [_start_of_row(point, rows, records, 'clear_accuracy') for point, rows in results.by_point(records).items()]
  return from_rows(title, rows)


def from_rows(title: str, rows: list[Row]) -> rich.table.Table:
  """The rows, whose titles are the same, without the columns that are empty in all of them."""
  columns = [column for column in zip(*rows) if any(cell for _, cell in column)]
  out = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for (name, _), *_ in columns:
    out.add_column(name, justify='right', no_wrap=True)
  for row in zip(*columns):
    out.add_row(*(cell for _, cell in row))
  return out


def _has_memory(records: list[Record]) -> bool:
  return any(record['memory_size'] for record in records)


def _start_of_row(point: Point, of_point: list[Record], records: list[Record], field: str) -> Row:
  """What the distribution is, of how many units, and the accuracy of each method on each model of the records."""
  has_memory = _has_memory(records)
  row = [
    ('text', text_name(point) if has_memory else ''),
    ('|M|', str(point.memory_size or '')),
    ('N', str(point.num_cells or '')),
    ('|H|', str(point.num_states)),
    ('|M|^N |H|', str(point.joint_states) if has_memory else ''),
    ('n', str(len(results.by_unit(of_point, field)))),
  ]
  for model, method in sorted({(record['model'], record['method']) for record in records}):
    chosen = results.select(of_point, model=model, method=method)
    row.append(
      (f'{METHODS[method].label}\n{MODEL_NAMES[model]}', str(results.percent(chosen, field)) if chosen else '')
    )
  return row


def _difference(title: str, difference: Callable[..., results.Difference], *pair: list[Record]) -> Row:
  if not all(pair):
    return [(title, ''), ('p', '')]
  interval, p_value = difference(*pair)
  return [(title, str(interval)), ('p', '' if np.isnan(p_value) else f'{p_value:.2g}')]


def _standing_for(text: str, records: list[Record]) -> str | None:
  """The method that stands for a kind of text, on BERT; None where there is none."""
  of_text = [r for r in results.select(records, model='bert') if text_name(results.point_of(r)) == text]
  found = {record['method'] for record in of_text}
  return next((method for method in _STANDING_FOR[text] if method in found), None)


def _paper(point: Point, right: bool, scale: str) -> tuple[str, str]:
  show = lambda value: '-' if value is None else f'{value}'
  if right:
    return "paper's", show(paper_right(text_name(point), scale).get(point.joint_states))
  pair = (paper_left(method, scale).get(point.num_states) for method in ('head', 'prompt'))
  return "paper's\nhead / prompt", ' / '.join(map(show, pair))


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
  files.write_whole(workdir / 'table.txt', text)
  for name, path in (('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')):
    reporter.say(f'{name}: {path}')
