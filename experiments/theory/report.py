"""The tables that end a theory run, and the tables of an examination, from records alone."""

from collections.abc import Callable
import math
import pathlib
from typing import Any

import numpy as np
import rich.box
import rich.table

from experiments import report, results
from experiments.progress import Reporter
from experiments.results import Record

Cells = Callable[[list[Record]], list[str]]

# Entries of a witness that are printed.
_SHOWN = 8


def show(tables: list[rich.table.Table], workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables, and keeps them in the workdir."""
  report.show('\n'.join(report.as_text(table) for table in tables), workdir, reporter)


def of_study(records: list[Record], seconds: dict[str, float], margin: float) -> list[rich.table.Table]:
  """Verification and impossibility; those of which there are records.

  `seconds` are those of each part, and `margin` is that of near ties.
  """
  # Each with a field that its records alone have.
  makers = {
    'assumptions': lambda rows: _verification(rows, seconds, margin),
    'kind': _impossibility,
  }
  chosen = {field: [record for record in records if field in record] for field in makers}
  return [make(chosen[field]) for field, make in makers.items() if chosen[field]]


def of_examination(records: list[Record]) -> list[rich.table.Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  is_assumption = lambda record: record['record'] == 'assumption'
  return [
    _assumptions([record for record in records if is_assumption(record)]),
    _constructions([record for record in records if not is_assumption(record)]),
  ]


def _grouped(title: str, records: list[Record], field: str, columns: list[str], cells: Cells) -> rich.table.Table:
  """A row for each value of `field`, and what `cells` says of its records."""
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for column in [field, *columns]:
    is_text = column in ('kind', 'assumed', 'also violated')
    table.add_column(column, justify='left' if is_text else 'right', no_wrap=True)
  for value in dict.fromkeys(record[field] for record in records):
    table.add_row(value, *cells(results.select(records, **{field: value})))
  return table


def _interval(records: list[Record], field: str) -> str:
  return str(results.mean_interval([100 * record[field] for record in records])) if records else ''


def _verification(records: list[Record], seconds: dict[str, float], margin: float) -> rich.table.Table:
  def cells(rows):
    both = lambda name: [row[f'{kind}_{name}'] for row in rows for kind in ('enumerated', 'sampled')]
    violated = [row['violates'] for row in rows if row['violates']]
    return [
      rows[0]['assumptions'],
      f'{violated[0]} in {len(violated)}' if violated else '',
      str(len(rows)),
      *(f'{sum(row[f"{kind}_in_region"] for row in rows):,}' for kind in ('enumerated', 'sampled')),
      *(f'{sum(both(name)):,}' for name in ('ties', 'disagreements', 'outside_margin')),
      f'{min(gap for gap in both("smallest_gap") if gap is not None):.1e}',
      f'{seconds.get(rows[0]["part"], np.nan):.0f}',
    ]

  title = f'Constructions beside exact labels; near ties: the two best exact scores differ by {margin:g} or less'
  columns = ['assumed', 'also violated', 'HMMs', 'every sequence', 'sampled', 'near ties', 'disagree', 'of them clear']
  return _grouped(title, records, 'theorem', [*columns, 'smallest gap', 'seconds'], cells)


def _impossibility(records: list[Record]) -> rich.table.Table:
  def cells(rows):
    built = [row for row in rows if row['construction_exists']]
    return [
      str(rows[0]['drawn']),
      str(len(rows)),
      f'{np.mean([row["sequences"] for row in rows]):.0f}',
      str(max(row['certificate_size'] for row in rows)),
      str(len(built)),
      str(sum(row['construction'] == 1 for row in built)),
      *(_interval(rows, field) for field in ('majority_accuracy', 'head', 'prompt')),
      str(sum(row['prompt'] == 1 for row in rows)),
    ]

  title = 'No linear head on G is right: certified HMMs with |H| > |X|, and what repairs them (accuracy in percent)'
  columns = ['drawn', 'certified', 'sequences', 'largest proof', '3.6 applies', 'and is right']
  columns += ['majority', 'trained head', 'trained prompt', 'prompt all right']
  return _grouped(title, records, 'kind', columns, cells)


def _assumptions(records: list[Record]) -> rich.table.Table:
  title = 'Assumptions of the paper, and how close each is to the other answer'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for title, width in (('assumption', 11), ('holds', 5), ('why', 31), ('witness', 30), ('closeness', 28)):
    table.add_column(title, max_width=width, overflow='fold')
  listed = lambda fields: '\n'.join(f'{name.replace("_", " ")}: {_brief(value)}' for name, value in fields.items())
  for record in records:
    name, holds = record['statement'].removeprefix('Assumption '), 'yes' if record['holds'] else 'no'
    table.add_row(name, holds, record['reason'], listed(record['witness']), listed(record['closeness']))
  return table


def _constructions(records: list[Record]) -> rich.table.Table:
  title = 'What each construction achieves: its agreement with the exact label, in percent'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  table.add_column('construction', no_wrap=True)
  table.add_column('exists')
  table.add_column('texts', max_width=26)
  for title in ('possible', 'majority', 'agree', 'in\nregion', 'agree', 'clearly\nwrong', 'near\nties'):
    table.add_column(title, justify='right', no_wrap=True)
  for record in records:
    exists = record['exists'] if 'exists' in record else record['built']
    name, answer = record['statement'], {True: 'yes', False: 'no', None: '?'}[exists]
    kinds = [kind for kind in ('enumerated', 'sampled') if kind in record]
    if not kinds:
      table.add_row(name, answer, *_reason_cells(record))
    for kind in kinds:
      table.add_row(name, answer, *_checked_cells(kind, record[kind]))
      name = answer = ''
  return table


def _reason_cells(record: Record) -> list[str]:
  """Of the linear program; or of a construction, the assumption that fails, which its own table explains."""
  if 'longest' not in record:
    return [record['reason'].partition(':')[0]]
  return [f'every one up to length {record["longest"]}: {record["reason"]}', f'{record["sequences"]:,}']


def _checked_cells(kind: str, checked: Record) -> list[str]:
  texts = 'every one up to' if kind == 'enumerated' else 'sampled, of'
  # Rounded down, so that 100.00 is all of them.
  percent = lambda share: '' if share is None else f'{math.floor(1e4 * share) / 100:.2f}'
  return [
    f'{texts} length {checked["longest"]}',
    f'{checked["sequences"]:,}',
    percent(checked['majority']),
    percent(checked['agreement']),
    f'{checked["in_region"]:,}',
    percent(checked['agreement_in_region']),
    f'{checked["outside_margin_in_region"]:,}',
    f'{checked["ties_in_region"]:,}',
  ]


def _brief(value: Any) -> str:
  """A number, or the first of many, for a reader."""
  if isinstance(value, dict):
    return ', '.join(f'{key}: {_brief(entry)}' for key, entry in value.items())
  if isinstance(value, list):
    shown = [_brief(entry) for entry in value[:_SHOWN]] + ['...'] * (len(value) > _SHOWN)
    is_vector = any(isinstance(entry, float) for entry in value)
    return f'({", ".join(shown)})' if is_vector else f'{{{", ".join(shown)}}}'
  if value is None:
    return 'infinite'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  return f'{value:.3g}' if isinstance(value, float) else str(value)
