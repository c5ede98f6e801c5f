"""The tables that end a theory run, and the tables of an examination, from records alone."""

import math
import pathlib
from typing import Any

import rich.box
import rich.table

from experiments.analysis import report
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory import appendix_report, impossibility_report, prevalence_report, verification_report

# Entries of a witness that are printed.
_SHOWN = 8


def show(tables: list[rich.table.Table], workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables, and keeps them in the workdir."""
  report.show('\n'.join(report.as_text(table) for table in tables), workdir, reporter)


def study_tables(records: list[Record]) -> list[rich.table.Table]:
  """Verification, linear heads, prevalence, the claims of the proofs; those of which there are records."""
  # Each by what the name of its part begins with.
  makers = {
    'verification': verification_report.tables,
    'impossibility': impossibility_report.tables,
    'prevalence': prevalence_report.tables,
    'appendix': appendix_report.tables,
  }
  chosen = {name: [record for record in records if record['part'].startswith(name)] for name in makers}
  return [table.rich() for name, make in makers.items() if chosen[name] for table in make(chosen[name])]


def examination_tables(records: list[Record]) -> list[rich.table.Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  is_assumption = lambda record: record['record'] == 'assumption'
  return [
    _assumptions([record for record in records if is_assumption(record)]),
    _constructions([record for record in records if not is_assumption(record)]),
  ]


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
