"""The table that ends a run, made from records alone."""

import io
import json
import pathlib
import textwrap

import numpy as np
import rich.box
import rich.console
import rich.table

from experiments.analysis import statistics
from experiments.records import files, results
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS, PROTOCOL

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

MODEL_NAMES = {'bert': 'BERT', 'exact': 'exact G'}
# Which method stands for a kind of text where the two are compared: the first of these that was run.
_STANDING_FOR = {
  'memory': ('attention', 'prompt_attention', 'prompt', 'head', 'probe', 'finetune'),
  'vanilla': ('head', 'attention', 'prompt', 'prompt_attention', 'probe', 'finetune'),
}
# Pairs of methods whose difference on BERT, paired by task, is told where both were run.
_CONTRASTS = (
  ('prompt', 'head'),
  ('attention', 'head'),
  ('prompt_attention', 'attention'),
  ('attention', 'attention_blind'),
  ('attention', 'attention_constant'),
)

# Of a test, before it is corrected.
LEVEL = 0.05

# The cells of a distribution, each with the title of its column.
Row = list[tuple[str, str]]


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
  """What the text of a point comes from."""
  return 'memory' if point.memory_size else 'vanilla'


def table(records: list[Record], paper_overlay: bool) -> rich.table.Table:
  """One row per distribution: accuracies in percent of the paper's protocol with 95% intervals, and the Bayes gap."""
  rows = []
  for point, of_point in statistics.by_point(records).items():
    bert = statistics.select(of_point, model='bert')
    row = _start_of_row(point, of_point, records, 'accuracy', PROTOCOL)
    if any(record['near_tie_share'] for record in records):
      row.append(('near\nties', f'{100 * np.mean([record["near_tie_share"] for record in of_point]):.1f}'))
    row.append(('majority', str(statistics.percent(of_point, 'majority_accuracy', statistics.unit_of(records)))))
    for title, field in (('KL at\n[MASK]', 'kl_at_mask'), ('excess\nMLM loss', 'excess_mlm_loss')):
      row.append((title, f'{np.mean([record[field] for record in bert]):.3f}' if bert else ''))
    rows.append(row + (_paper(point, bert, records) if paper_overlay else []))
  return from_rows('Test accuracy in percent, mean ± half-width of the 95% interval', rows)


def contrasts(records: list[Record]) -> dict[str, dict[Point, statistics.Difference]]:
  """By the title of each contrast that was run on BERT, its difference at every distribution that has both sides.

  Methods are paired by task within an HMM, on the exact model where the second is of that one alone; memory and
  vanilla text have no HMM in common, and are compared by Welch's test.
  """
  unit, memory, vanilla = statistics.unit_of(records), *(representative_method(text, records) for text in _STANDING_FOR)
  found: dict[str, dict[Point, statistics.Difference]] = {}
  of_texts = dict.fromkeys([(memory, vanilla), *((method, method) for method in ('attention', 'head'))])
  for point, rows in statistics.by_point(records).items():
    beside = statistics.select(records, **Point(point.joint_states)._asdict()) if point.memory_size else []
    compared = [
      (f'{METHODS[one].label} - {METHODS[other].label}', one, other, rows, statistics.paired_difference)
      for one, other in _CONTRASTS
    ]
    compared += [
      (
        f'memory {METHODS[one].label} - vanilla {METHODS[other].label}',
        one,
        other,
        beside,
        statistics.unpaired_difference,
      )
      for one, other in of_texts
      if one and other
    ]
    for title, one, other, others, difference in compared:
      model = 'bert' if 'bert' in METHODS[other].models else 'exact'
      both = statistics.select(rows, model='bert', method=one), statistics.select(others, model=model, method=other)
      if all(both):
        found.setdefault(title, {})[point] = difference(*both, unit)
  return dict(sorted(found.items(), key=lambda item: item[0].startswith('memory ')))


def contrast_table(records: list[Record]) -> rich.table.Table:
  """Each contrast by size, with its p-value corrected for the number of sizes, and what so many units could detect."""
  rows, points = [], statistics.by_point(records)
  for title, differences in contrasts(records).items():
    corrected = statistics.holm([one.p_value for one in differences.values()])
    for (point, difference), p_value in zip(differences.items(), corrected):
      detectable = difference.detectable(LEVEL / len(differences))
      cells = [
        ('difference', str(difference.interval)),
        ('p, Holm', _shown(p_value, '.2g')),
        ('sizes', str(len(differences))),
        ('detectable', _shown(detectable, '.1f')),
      ]
      first = point == next(iter(differences))
      rows.append([('contrast, on BERT', title if first else ''), *_name_of(point, points[point], records), *cells])
  unit = 'HMM' if statistics.unit_of(records) == ('trial',) else 'task of one HMM'
  title = (
    f'Differences in points, the unit the {unit}; p of t tests, corrected for the number of sizes (Holm). Detectable: '
    f'what is found in 80% of such runs at {LEVEL} over the number of sizes, with the spread seen'
  )
  return from_rows(title, rows)


def diagnostics_table(records: list[Record]) -> rich.table.Table:
  """The accuracies of controls and of what is fitted otherwise than by the paper's protocol."""
  beyond = tuple(method for method in METHODS if method not in PROTOCOL)
  rows = [_start_of_row(*pair, records, 'accuracy', beyond) for pair in statistics.by_point(records).items()]
  return from_rows("Beyond the paper's protocol: what other fits and controls reach", rows)


def clear_table(records: list[Record]) -> rich.table.Table:
  """The accuracies where labels are clear: on test inputs whose class scores differ by 1e-6 or more."""
  title = 'The same without near ties: test inputs whose class scores differ by 1e-6 or more'
  rows = [_start_of_row(*pair, records, 'clear_accuracy', PROTOCOL) for pair in statistics.by_point(records).items()]
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


def _shown(number: float, form: str) -> str:
  return '' if np.isnan(number) else f'{number:{form}}'


def _name_of(point: Point, of_point: list[Record], records: list[Record], field: str = 'accuracy') -> Row:
  """What the distribution is, and of how many units."""
  has_memory = _has_memory(records)
  return [
    ('text', text_name(point) if has_memory else ''),
    ('|M|', str(point.memory_size or '')),
    ('N', str(point.num_cells or '')),
    ('|H|', str(point.num_states)),
    ('|M|^N |H|', str(point.joint_states) if has_memory else ''),
    ('n', str(len(statistics.by_unit(of_point, field, statistics.unit_of(records))))),
  ]


def _start_of_row(
  point: Point, of_point: list[Record], records: list[Record], field: str, methods: tuple[str, ...]
) -> Row:
  """What the distribution is, of how many units, and the accuracy of each of these methods on each model."""
  row, unit = _name_of(point, of_point, records, field), statistics.unit_of(records)
  for model, method in sorted({(record['model'], record['method']) for record in records}):
    if method in methods:
      chosen = statistics.select(of_point, model=model, method=method)
      title = f'{textwrap.fill(METHODS[method].label, 18)}\n{MODEL_NAMES[model]}'
      row.append((title, str(statistics.percent(chosen, field, unit)) if chosen else ''))
  return row


def representative_method(text: str, records: list[Record]) -> str | None:
  """The method that stands for a kind of text, on BERT; None where there is none."""
  of_text = [r for r in statistics.select(records, model='bert') if text_name(results.point_of(r)) == text]
  found = {record['method'] for record in of_text}
  return next((method for method in _STANDING_FOR[text] if method in found), None)


def _paper(point: Point, bert: list[Record], records: list[Record]) -> Row:
  """The paper's accuracies, and ours on BERT less them."""
  scale, text, names = records[0]['scale'], text_name(point), ('head', 'prompt')
  values = {name: paper_left(name, scale).get(point.num_states) for name in names}
  if _has_memory(records):
    method = representative_method(text, records)
    values = {method: paper_right(text, scale).get(point.joint_states)} if method else {}
  cells = []
  for method, value in values.items():
    ours = [100 * record['accuracy'] for record in statistics.select(bert, method=method)]
    cells.append(('-' if value is None else f'{value}', f'{np.mean(ours) - value:+.1f}' if ours and value else '-'))
  of = '' if _has_memory(records) else f'\n{" / ".join(names)}'
  paper, less = (' / '.join(column) for column in zip(*cells)) if cells else ('', '')
  return [(f"paper's{of}", paper), ("ours\n- paper's", less)]


def render(records: list[Record], paper_overlay: bool) -> str:
  """The tables that the records have something for, as plain text."""
  found = [table(records, paper_overlay)]
  if contrasts(records):
    found.append(contrast_table(records))
  if any(record['method'] not in PROTOCOL for record in records):
    found.append(diagnostics_table(records))
  if any(record['near_tie_share'] for record in records):
    found.append(clear_table(records))
  return ''.join(map(as_text, found))


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
