"""The tables and figures of the facts about Figure 3 (left), from records alone."""

from collections.abc import Callable
import functools
import operator

import matplotlib.figure
import numpy as np

from experiments.analysis import figures, report, statistics
from experiments.analysis.statistics import Interval
from experiments.records.results import Record
from experiments.settings.groups import FigureSettings
from experiments.studies.theory.tables import briefly, range_of, Table

# osc(b) / osc(mu) up to which a head is called moderate.
MODERATE = 1e3
# Cells of the 2 x 2 table, by (linear, separable), and the words for them.
CELLS = {
  (True, True): 'linear, separable',
  (False, True): 'not linear, separable',
  (False, False): 'not linear, not separable',
  (True, False): 'linear, not separable',
}


def render(records: list[Record]) -> str:
  """All tables, as plain text."""
  return '\n'.join(report.as_text(table.rich()) for table in tables(records))


def tables(records: list[Record]) -> list[Table]:
  """Those of which there are records."""
  return [table for make in TABLES.values() if (table := make(records))]


def by_size(records: list[Record]) -> dict[int, list[Record]]:
  """The records of each |H|, in their order."""
  sizes = dict.fromkeys(record['num_states'] for record in records)
  return {size: statistics.select(records, num_states=size) for size in sizes}


def hmms(records: list[Record]) -> dict[tuple[int, int], list[Record]]:
  """The records of each HMM, the unit of every interval."""
  groups: dict[tuple[int, int], list[Record]] = {}
  for record in records:
    groups.setdefault((record['num_states'], record['trial']), []).append(record)
  return groups


def over_hmms(records: list[Record], value: Callable[[Record], float | bool | None]) -> Interval:
  """The mean over HMMs of the mean over its tasks, of those that have a value."""
  means = []
  for of_hmm in hmms(records).values():
    known = [found for record in of_hmm if (found := value(record)) is not None]
    means += [float(np.mean(known))] if known else []
  return statistics.mean_interval(means)


def percent(records: list[Record], value: Callable[[Record], float | bool | None]) -> Interval:
  """`over_hmms` in percent."""
  return statistics.mean_interval(100 * over_hmms(records, value).values)


def is_moderate(record: Record) -> bool:
  """Whether the score is linear in G by a head of moderate size."""
  return record['linear'] and record['head_size'] <= MODERATE


def part_records(records: list[Record], part: str) -> list[Record]:
  return [record for record in records if record['part'] == part]


def cell_table(records: list[Record], field: str = 'separable', inputs: str = 'all test inputs') -> Table | None:
  """Whether the score is linear, by whether labels are separable, by |H|."""
  rows = []
  for size, chosen in by_size(part_records(records, 'linearity')).items():
    counts = [sum((r['linear'], r[field]) == cell for r in chosen) for cell in CELLS]
    undecided = sum(record[field] is None for record in chosen)
    shares = [percent(chosen, operator.itemgetter(name)) for name in (field, 'near_tie_share', 'majority_accuracy')]
    rows.append([*map(str, (size, len(hmms(chosen)), len(chosen), *counts, undecided, *shares))])
  columns = [
    'H',
    'HMMs',
    'tasks',
    *CELLS.values(),
    'open',
    'separable, % of decided',
    'near ties, %',
    'majority class, %',
  ]
  title = f'Tasks by whether the score is exactly linear in G, and labels are separable: {inputs}'
  return Table(title, columns, rows, 0) if rows else None


def clear_cell_table(records: list[Record]) -> Table | None:
  """The same without near ties."""
  return cell_table(records, 'clear_separable', 'test inputs that are no near ties')


def distance_table(records: list[Record]) -> Table | None:
  """How far Assumptions 3.1 and 3.5 are, and linearity."""
  chosen = part_records(records, 'linearity')
  if not chosen:
    return None
  sizes, ranks, supports = by_size(chosen), list(chosen[0]['3.1']), list(chosen[0]['3.5'])
  each = lambda cell: [cell(rows) for rows in sizes.values()]
  firsts = lambda rows: [of_hmm[0] for of_hmm in hmms(rows).values()]
  counted = lambda rows, holds: f'{sum(map(holds, rows))}/{len(rows)}'
  known = lambda rows: [record['head_size'] for record in rows if record['head_size'] is not None]
  holding_3_1 = lambda rank, rows: briefly([record['3.1'][rank] for record in firsts(rows)])
  holding_3_5 = lambda level, rank, rows: counted(rows, lambda record: record['3.5'][level][rank])
  body = [
    ['least singular value of W', *each(lambda rows: range_of([r['smallest_singular_value'] for r in firsts(rows)]))],
    ['dimension of S', *each(lambda rows: ', '.join(map(str, sorted({r['reached_dimension'] for r in rows}))))],
    *([f'3.1, rank {rank}: HMMs', *each(functools.partial(holding_3_1, rank))] for rank in ranks),
    *(
      [f'3.5, epsilon {float(level):g}, rank {rank}: tasks', *each(functools.partial(holding_3_5, level, rank))]
      for level in supports
      for rank in ranks
    ),
    ['3.5, search cut off: tasks', *each(lambda rows: counted(rows, lambda r: not all(r['exhaustive'].values())))],
    [f'linear by a head of at most {MODERATE:g} mu: tasks', *each(lambda rows: counted(rows, is_moderate))],
    ['osc(b) / osc(mu) of the least exact head', *each(lambda rows: range_of(known(rows)))],
    ['left by least squares on G, % of SD', *each(lambda rows: str(percent(rows, lambda r: r['unexplained'])))],
  ]
  title = 'How far the assumptions are: counts [95% interval over HMMs, percent], median (range), mean ± 95% over HMMs'
  return Table(title, ['', *(f'H = {size}' for size in sizes)], body, 1)


def certificate_table(records: list[Record]) -> Table | None:
  """From KL to accuracy at each checkpoint."""
  rows = []
  for size, of_size in by_size(part_records(records, 'kl')).items():
    for step in dict.fromkeys(record['step'] for record in of_size):
      chosen = statistics.select(of_size, step=step)
      shares = [percent(chosen, operator.itemgetter(name)) for name in BOUNDS]
      distances = [over_hmms(chosen, operator.itemgetter(name)).mean for name in ('kl', 'total_variation')]
      row = [str(size), str(len(hmms(chosen))), str(step), *(f'{value:.2g}' for value in distances)]
      rows.append(row + [str(share) for share in shares])
  columns = ['H', 'HMMs', 'step', 'KL, nats', 'TV', *(label for label, _ in BOUNDS.values())]
  title = 'A head fixed on the exact G, put to BERT: percent of test inputs, mean ± 95% interval over HMMs'
  return Table(title, columns, rows, 0) if rows else None


# Each with its label and how its line is drawn; every one is at most the one before, but for the first.
BOUNDS = {
  'exact_accuracy': ('right on exact G', dict(color='0.45', marker='', linestyle='-.')),
  'accuracy': ('right on BERT', dict(color='#0072B2', marker='s', linestyle='-')),
  'certified': ('certified by TV of each input', dict(color='#E69F00', marker='o', linestyle='--')),
  'from_total_variation': ('certified by mean TV', dict(color='#009E73', marker='^', linestyle=':')),
  'from_kl': ('certified by mean KL', dict(color='#000000', marker='D', linestyle='-.')),
}

TABLES = {
  'cells': cell_table,
  'clear_cells': clear_cell_table,
  'distances': distance_table,
  'certificate': certificate_table,
}

# Lines of the first figure.
_FACTS: dict[str, tuple[Callable[[Record], float | bool | None], dict[str, str]]] = {
  'score exactly linear in G': (lambda r: r['linear'], dict(color='#0072B2', marker='s', linestyle='-')),
  f'... by a head of at most {MODERATE:g} mu': (is_moderate, dict(color='#56B4E9', marker='X', linestyle='--')),
  'labels separable, of decided tasks': (lambda r: r['separable'], dict(color='#E69F00', marker='o', linestyle='-')),
  'labels separable but for near ties': (
    lambda r: r['clear_separable'],
    dict(color='#D55E00', marker='D', linestyle='-.'),
  ),
  'Assumption 3.5, exact supports': (
    lambda r: r['3.5'][min(r['3.5'], key=float)][_strict(r)],
    dict(color='#000000', marker='^', linestyle=':'),
  ),
}


def _strict(record: Record) -> str:
  """The least share of the largest singular value that counts as 0."""
  return min(record['3.1'], key=float)


def drawn(records: list[Record], settings: FigureSettings) -> dict[str, matplotlib.figure.Figure]:
  """Figures by the names of their files, of the parts of which there are records."""
  makers = {'linearity': ('which_theorem', draw_facts), 'kl': ('kl', draw_certificates)}
  return {name: make(records, settings) for part, (name, make) in makers.items() if part_records(records, part)}


@figures.styled
def draw_facts(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """The share of tasks of which each fact holds, and the majority class, against |H|."""
  figure, (axes,) = figures.panels(settings)
  sizes = by_size(part_records(records, 'linearity'))
  for place, (label, (fact, style)) in enumerate(_FACTS.items()):
    samples = {float(size): percent(rows, fact).values for size, rows in sizes.items()}
    figures.draw_line(axes, samples, label, style, 3 * (place - 2))
  axes.set_xticks(list(sizes))
  axes.set_xlabel('number of hidden states |H|')
  axes.set_ylabel('share of tasks (%)')
  _finish(figure, axes, part_records(records, 'linearity'))
  return figure


@figures.styled
def draw_certificates(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """The accuracy of the fixed head and what is certified of it, along the pretraining of BERTs; a panel an |H|."""
  chosen = part_records(records, 'kl')
  sizes = by_size(chosen)
  figure, panels = figures.panels(settings, len(sizes))
  for axes, (size, rows) in zip(panels, sizes.items()):
    steps = list(dict.fromkeys(record['step'] for record in rows))
    for place, (name, (label, style)) in enumerate(BOUNDS.items()):
      values = [percent(statistics.select(rows, step=step), operator.itemgetter(name)).values for step in steps]
      figures.draw_line(axes, dict(enumerate(values)), label, style, 2 * (place - 2))
    means = [over_hmms(statistics.select(rows, step=step), lambda r: r['kl']).mean for step in steps]
    axes.set_xticks(range(len(steps)), [f'{step}\n{mean:.2g}' for step, mean in zip(steps, means)])
    axes.set_xlabel('steps of pretraining, not to scale\nmean KL(G || BERT) at the [MASK] (nats)')
    axes.set_title(f'|H| = {size}')
  panels[0].set_ylabel('test inputs (%)')
  _finish(figure, panels[0], chosen)
  return figure


def _finish(figure, axes, records: list[Record]) -> None:
  low, high = axes.get_ylim()
  axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= min(high, 100)])
  counts = [len(hmms(rows)) for rows in by_size(records).values()]
  figures.finish(figure, figures.caption(records, figures.counted(counts, 'HMMs')))
