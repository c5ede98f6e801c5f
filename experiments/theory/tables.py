"""The tables that end a theory run, from records alone."""

from typing import Any

import numpy as np
import rich.box
import rich.table

from experiments import results

Record = dict[str, Any]


def of_study(records: list[Record], seconds: dict[str, float], margin: float) -> list[rich.table.Table]:
  """Verification, impossibility, degradation, concentration; those of which there are records."""
  makers = (
    ('theorem', lambda rows: _verification(rows, seconds, margin)),
    ('kind', _impossibility),
    ('method', _degradation),
    ('epoch', _concentration),
  )
  tables = []
  for field, make in makers:
    mine = [record for record in records if _kind(record) == field]
    tables += [make(mine)] if mine else []
  return tables


def _kind(record: Record) -> str:
  """The field that tells a record's part."""
  return next(field for field in ('epoch', 'method', 'kind', 'theorem') if field in record)


def new(title: str, columns: list[str], left: tuple[str, ...] = ()) -> rich.table.Table:
  """An empty table, its columns aligned right but those in `left`."""
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for column in columns:
    table.add_column(column, justify='left' if column in left else 'right', no_wrap=True)
  return table


def _verification(records: list[Record], seconds: dict[str, float], margin: float) -> rich.table.Table:
  title = f'Constructions beside exact labels; near ties: the two best exact scores differ by {margin:g} or less'
  columns = ['theorem', 'assumed', 'also violated', 'HMMs', 'every sequence', 'sampled', 'near ties', 'disagree']
  table = new(title, [*columns, 'of them clear', 'smallest gap', 'seconds'], left=('assumed', 'also violated'))
  for theorem in dict.fromkeys(record['theorem'] for record in records):
    rows = results.select(records, theorem=theorem)
    both = lambda name, rows=rows: sum(row[f'{kind}_{name}'] for row in rows for kind in ('enumerated', 'sampled'))
    gaps = [row[f'{kind}_smallest_gap'] for row in rows for kind in ('enumerated', 'sampled')]
    violated = [row['violates'] for row in rows if row['violates']]
    table.add_row(
      theorem,
      rows[0]['assumptions'],
      f'{violated[0]} in {len(violated)}' if violated else '',
      str(len(rows)),
      f'{sum(row["enumerated_in_region"] for row in rows):,}',
      f'{sum(row["sampled_in_region"] for row in rows):,}',
      f'{both("ties"):,}',
      f'{both("disagreements"):,}',
      f'{both("outside_margin"):,}',
      f'{min(gap for gap in gaps if gap is not None):.1e}',
      f'{seconds.get(rows[0]["part"], np.nan):.0f}',
    )
  return table


def _impossibility(records: list[Record]) -> rich.table.Table:
  title = 'No linear head on G is right: certified HMMs with |H| > |X|, and what repairs them (accuracy in percent)'
  columns = ['draws', 'drawn', 'certified', 'sequences', 'largest proof', '3.6 applies', 'and is right']
  table = new(title, [*columns, 'majority', 'trained head', 'trained prompt', 'prompt all right'], left=('draws',))
  for kind in dict.fromkeys(record['kind'] for record in records):
    rows = results.select(records, kind=kind)
    built = [row for row in rows if row['construction_exists']]
    of = lambda field, rows=rows: str(results.mean_interval([100 * row[field] for row in rows]))
    table.add_row(
      kind,
      str(rows[0]['drawn']),
      str(len(rows)),
      f'{np.mean([row["sequences"] for row in rows]):.0f}',
      str(max(row['certificate_size'] for row in rows)),
      str(len(built)),
      str(sum(row['construction'] == 1 for row in built)),
      of('majority_accuracy'),
      of('head'),
      of('prompt'),
      str(sum(row['prompt'] == 1 for row in rows)),
    )
  return table


_STUDIES = {
  ('noise', '3.3'): 'noisy G (KL), 3.3',
  ('noise', '3.6'): 'noisy G (KL), 3.6',
  ('singular_value', '3.3'): 'smallest singular value of W, 3.3',
  ('leak', '3.6'): 'leak out of H*, 3.6',
  ('bert', '3.3'): 'BERT (steps), 3.3',
  ('bert', '3.6'): 'BERT (steps), 3.6',
}


def _degradation(records: list[Record]) -> rich.table.Table:
  title = 'Where the theorems say nothing: test accuracy in percent, mean ± half-width of the 95% interval over HMMs'
  table = new(title, ['what is imperfect', 'level', 'KL', 'construction', 'trained head', 'trained prompt'])
  for study, name in _STUDIES.items():
    chosen = results.select(records, study=study[0], theorem=study[1])
    beside = lambda row: row['kl'] if row['study'] == 'bert' else round(row['kl'], 5)
    for level, with_noise in dict.fromkeys((row['level'], row['kl'] > 0) for row in chosen):
      rows = [row for row in chosen if row['level'] == level and (row['kl'] > 0) == with_noise]
      cells = []
      for method in ('construction', 'head', 'prompt'):
        values = [100 * row['accuracy'] for row in results.select(rows, method=method)]
        cells.append(str(results.mean_interval(values)) if values else '')
      table.add_row(name, f'{level:g}', f'{np.mean([beside(row) for row in rows]):.2g}', *cells)
  return table


def _concentration(records: list[Record]) -> rich.table.Table:
  title = 'Mean posterior mass on H* at the [MASK], read off the predictions, after training a prompt'
  table = new(
    title, ['model', 'KL', 'without prompt', 'untrained prompt', 'trained prompt', 'accuracy'], left=('model',)
  )
  last = max(record['epoch'] for record in records)
  for model in dict.fromkeys(record['model'] for record in records):
    rows = results.select(records, model=model, epoch=last)
    of = lambda rows, field: str(results.mean_interval([100 * row[field] for row in rows]))
    first = results.select(records, model=model, epoch=0)
    cells = of(rows, 'mass_without'), of(first, 'mass_with'), of(rows, 'mass_with'), of(rows, 'accuracy')
    # The KL of the exact model to itself is zero but for float32.
    table.add_row(model, f'{abs(round(np.mean([row["kl"] for row in rows]), 6)):.2g}', *cells)
  return table
