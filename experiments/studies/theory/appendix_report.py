"""The tables of the searched claims, printed and in Markdown, from records alone."""

from experiments.records.results import Record
from experiments.studies.theory.tables import Table

_COLUMNS = ('claim', 'says', 'assumed', 'random', 'searched', 'exactly', 'verdict', 'violated at')


def tables(records: list[Record]) -> list[Table]:
  """A row for each claim with the largest violation found, and the smallest gaps that an argmax tells apart."""
  searched, found = _searched(records), _gaps(records)
  gaps = 'Smallest 1 - q^T K(G_i) beside an attended position'
  return [
    Table(_title(searched), list(_COLUMNS), [_cells(record) for record in searched], num_texts=3),
    Table(gaps, ['denominator', 'random', 'searched'], [_gap_cells(record) for record in found], num_texts=0),
  ]


def appendix_section(records: list[Record]) -> str:
  """The audit in Markdown: what was tried, what was found, and the tables."""
  searched, found = _searched(records), _gaps(records)
  printed, ours = ([record for record in searched if record['printed'] == kind] for kind in (True, False))
  violated = lambda some: [record['claim'] for record in some if record['violated']]
  sentences = [
    f'{_title(searched)}. Of {len(printed)} statements of the paper {len(violated(printed))} were violated: '
    f'{_listed(violated(printed))}. The others were not, up to rounding, and their violation is exactly 0 in the last '
    f'case of each search. Of {len(ours)} others {len(violated(ours))} were violated: {_listed(violated(ours))}.',
    _edge_lines(searched),
    f'Of texts of {searched[0]["length"]} tokens the smallest 1 - q^T K(G_i) beside an attended position, which an '
    f'argmax sees and a softmax must resolve, was {found[0]["gap_adversarial"]:.1e} for probabilities of denominator '
    f'{found[0]["gap_denominator"]} and {found[-1]["gap_adversarial"]:.1e} for {found[-1]["gap_denominator"]}.',
  ]
  return '\n\n'.join([*sentences, *(table.markdown() for table in tables(records))])


def _searched(records: list[Record]) -> list[Record]:
  return [record for record in records if 'claim' in record]


def _gaps(records: list[Record]) -> list[Record]:
  return [record for record in records if 'gap_denominator' in record]


def _title(records: list[Record]) -> str:
  first = records[0]
  of_each = f'{first["num_random"]} random cases, {first["num_steps"]} steps of a search from the worst'
  return f'Largest violation found of each claim: {of_each}, {first["num_edge"]} cases at each edge'


def _edge_lines(records: list[Record]) -> str:
  """Which claims survive each edge of their assumptions."""
  edges = dict.fromkeys(edge for record in records for edge in record['edges'].split(', '))
  lines = []
  for edge in edges:
    here = [record for record in records if edge in record['edges'].split(', ') and not record['violated']]
    fail = [record['claim'] for record in here if edge in record['fails_at'].split(', ')]
    lines.append(f'- {edge}: {len(here) - len(fail)} of {len(here)}' + (f'; not {_listed(fail)}' if fail else ''))
  return '\n'.join(
    [
      'Of the claims that were not violated as assumed, so many were not at an edge either:',
      '',
      *lines,
    ]
  )


def _cells(record: Record) -> list[str]:
  verdict = 'violated' if record['violated'] else 'not violated'
  sizes = [f'{record[field]:.1e}' for field in ('largest_random', 'largest_adversarial')]
  exact = '0' if record['exact'] == 0 else f'{record["exact"]:.2g}'
  return [record['claim'], record['says'], record['assumed'], *sizes, exact, verdict, record['fails_at']]


def _gap_cells(record: Record) -> list[str]:
  return [str(record['gap_denominator']), *(f'{record[field]:.1e}' for field in ('gap_random', 'gap_adversarial'))]


def _listed(names: list[str]) -> str:
  return '; '.join(names) or 'none'
