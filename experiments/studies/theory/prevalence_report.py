"""How often the paper's assumptions hold in its own draws: tables, and a section of a page."""

import functools
import itertools
import operator

import numpy as np

from experiments.analysis import statistics
from experiments.records.results import Record
from experiments.studies.theory.tables import briefly, counted, Table


def tables(records: list[Record]) -> list[Table]:
  """Of the chains by |H|, and of the memories by |M|; those of which there are records."""
  makers = {'chain': _chains, 'memory': _memories}
  chosen = {text: statistics.select(records, text=text) for text in makers}
  return [make(chosen[text]) for text, make in makers.items() if chosen[text]]


def prevalence_section(records: list[Record]) -> str:
  """Markdown: the tables and what follows from them, every number from the records of the part `prevalence`."""
  about = {'chain': _about_chains, 'memory': _about_memories}
  sentences = [tell(rows) for text, tell in about.items() if (rows := statistics.select(records, text=text))]
  return '\n\n'.join(f'{table.markdown()}\n\n{text}' for table, text in zip(tables(records), sentences))


def _by_size(records: list[Record]) -> dict[int, list[Record]]:
  return {size: statistics.select(records, size=size) for size in dict.fromkeys(record['size'] for record in records)}


def _levels(records: list[Record]) -> list[str]:
  """Shares of the largest singular value up to which one counts as 0, as the records have them."""
  return list(records[0]['3.1' if records[0]['text'] == 'chain' else '4.2'])


def _chains(records: list[Record]) -> Table:
  ranks, supports = _levels(records), list(records[0]['3.5'])
  sizes = _by_size(records)
  each = lambda cell: [cell(drawn) for drawn in sizes.values()]
  holds = lambda *path: each(lambda drawn: briefly([_at(record, path) for record in drawn]))
  rows = [
    ['zeros in A', *each(lambda drawn: f'{100 * np.mean([record["zeros"] for record in drawn]):.0f}%')],
    ['least singular value of W, median', *each(lambda drawn: f'{np.median(_least(drawn)):.1g}')],
    *([f'3.1, rank {rank}', *holds('3.1', rank)] for rank in ranks),
    ['3.2', *holds('3.2')],
    *(
      [f'3.5, epsilon {float(support):g}, rank {rank}', *holds('3.5', support, rank)]
      for support, rank in itertools.product(supports, ranks)
    ),
    ['searches for H* cut off', *each(lambda drawn: str(_cut_off(drawn)))],
  ]
  title = "Assumptions in the paper's draws of an HMM and of mu: how many satisfy each [95% interval, percent]"
  return Table(title, ['assumption', *(f'H = {size}' for size in sizes)], rows, 1)


def _at(record: Record, path: tuple[str, ...]) -> bool:
  return bool(functools.reduce(operator.getitem, path, record))


def _least(records: list[Record]) -> list[float]:
  return [record['smallest_singular_value'] for record in records]


def _cut_off(records: list[Record]) -> int:
  return sum(not all(record['exhaustive'].values()) for record in records)


def _memories(records: list[Record]) -> Table:
  ranks, rows = _levels(records), []
  for size, drawn in _by_size(records).items():
    cells = [briefly([record[name][rank] for record in drawn]) for name in ('4.2', '4.5') for rank in ranks]
    error = np.median([record['stationarity_error'] for record in drawn])
    rows.append([str(size), *cells, briefly([record['4.4'] for record in drawn]), f'{error:.1g}'])
  columns = ['M', *(f'{name}, rank {rank}' for name in ('4.2', '4.5') for rank in ranks)]
  title = "Assumptions in the paper's draws with a memory of one cell: how many satisfy each [95% interval, percent]"
  return Table(title, [*columns, '4.4', 'off the stationary law, median'], rows, 0)


def _about_chains(records: list[Record]) -> str:
  ranks, supports = _levels(records), list(records[0]['3.5'])
  holds = lambda support, rank: ', '.join(
    f'{counted([record["3.5"][support][rank] for record in drawn])} at H = {size}'
    for size, drawn in _by_size(records).items()
  )
  zeros = [100 * np.mean([record['zeros'] for record in drawn]) for drawn in _by_size(records).values()]
  lines = [
    f'- A mixture of H permutations is not dense: by size, {min(zeros):.0f} to {max(zeros):.0f}% of the transition '
    'matrix is exactly 0 on average. First laws and, in float64, emissions are dense.'
  ]
  for rank in ranks:
    applies = [record['3.2'] and record['3.5'][supports[0]][rank] for record in records]
    lines.append(
      f'- Where singular values up to {rank} of the largest count as 0, Assumption 3.5 holds exactly (epsilon 0) in '
      f'{holds(supports[0], rank)}; with 3.2 it holds, and Theorem 3.6 applies, in {sum(applies)} of all '
      f'{len(records)} draws.'
    )
  if len(supports) > 1:
    lines.append(
      f'- With probabilities up to {float(supports[-1]):g} taken for 0, and rank {ranks[-1]}, it holds in '
      f'{holds(supports[-1], ranks[-1])}: a diagnosis, since the theorem speaks of exact supports.'
    )
  cut_off, caution = _cut_off(records), '; a failure among them may be wrong'
  lines.append(
    f'- Searches for H* that were cut off before they were exhaustive: {cut_off} of {len(records)}'
    f'{caution if cut_off else ""}. Of all covers the search takes the one with the largest least singular value: at '
    f'rank {ranks[-1]} another one might pass.'
  )
  return '\n'.join(lines)


def _about_memories(records: list[Record]) -> str:
  ranks = _levels(records)
  by_size = lambda name: ', '.join(
    f'{counted([record[name][ranks[0]] for record in drawn])} at M = {size}'
    for size, drawn in _by_size(records).items()
  )
  return '\n'.join(
    [
      f'- Assumption 4.2 holds (singular values up to {ranks[0]} of the largest count as 0) in {by_size("4.2")}; '
      f'Assumption 4.5 in {by_size("4.5")}.',
      '- A larger threshold also ignores directions of the other columns, so that an assumption can hold more often.',
      f'- The first law is drawn and not stationary: Assumption 4.4, which Theorem 4.6 asks for as stated, holds in '
      f'{counted([record["4.4"] for record in records])}.',
    ]
  )
