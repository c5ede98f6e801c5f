"""The tables and the figure of the theorems verified, and their section of the page, from records alone."""

import matplotlib.figure
import numpy as np

from experiments.analysis import figures, statistics
from experiments.records.results import Record
from experiments.settings.groups import FigureSettings
from experiments.studies.theory.tables import Table
from experiments.studies.theory.verification import CONTROL

_STYLES = {
  '4.3': dict(color='#000000', marker='^', linestyle='-'),
  '4.6': figures.style_of('prompt'),
  'C.6': figures.style_of('head'),
}


def theorems(records: list[Record]) -> Table:
  """A row for each theorem: what was checked, and what was found wrong."""
  columns = ['theorem', 'assumed', 'violated besides', 'HMMs', '|H*| > 1', 'C = 3', 'sequences', 'commonest label']
  columns += ['no mass', 'decided exactly', 'exact ties', 'wrong', 'cosine error', 'vector error']
  rows = [_cells(theorem, found) for theorem, found in _by('theorem', _theorem_records(records)).items()]
  return Table('What the constructions recover beside the exact posterior', columns, rows, num_texts=3)


def _cells(theorem: str, found: list[Record]) -> list[str]:
  violated = [row['violates'] for row in found if row['violates']]
  return [
    theorem,
    found[0]['assumptions'],
    f'{violated[0]} in {len(violated)}' if violated else '',
    str(len(found)),
    str(sum(row['num_essential'] > 1 for row in found)),
    str(sum(row['num_classes'] > 2 for row in found)),
    f'{_total(found, "sequences"):,}',
    _range(found, 'majority'),
    *(f'{_total(found, field):,}' for field in ('no_mass', 'decided_exactly', 'exact_ties', 'wrong')),
    *(f'{_largest(found, field):.0e}' for field in ('largest_cosine_error', 'largest_vector_error')),
  ]


def mutants(records: list[Record]) -> Table:
  """A row for each wrong construction of a theorem: how many sequences see it."""
  columns = ['theorem', 'what is wrong', 'HMMs', 'sequences', 'by label', 'by direction', 'by any', 'HMMs that see it']
  rows = []
  for theorem, of_theorem in _by('theorem', _mutant_records(records)).items():
    for mutant, found in _by('mutant', of_theorem).items():
      counts = [sum(row[field] for row in found) for field in ('sequences', 'by_label', 'by_direction', 'by_factor')]
      seen = sum(_sees(row) for row in found)
      rows.append([theorem, mutant, str(len(found)), *(f'{count:,}' for count in counts), str(seen)])
  return Table('Wrong constructions, and the sequences that see them', columns, rows, num_texts=2)


def temperatures(records: list[Record]) -> Table:
  """A row for each theorem with attention and temperature of the softmax: accuracy over HMMs."""
  rows = []
  for theorem, of_theorem in _by('theorem', _temperature_records(records)).items():
    for temperature, found in sorted(_by('temperature', of_theorem).items()):
      lowest = f'{100 * min(row["accuracy"] for row in found):.1f}'
      intervals = _interval(found, 'majority'), _interval(found, 'accuracy')
      rows.append([theorem, f'{temperature:g}', str(len(found)), *intervals, lowest])
  columns = ['theorem', 'temperature', 'HMMs', 'majority', 'accuracy', 'least of any HMM']
  title = (
    'Constructions with a softmax in place of argmax: accuracy in percent, mean ± half of the 95% interval over HMMs'
  )
  return Table(title, columns, rows, num_texts=1)


def tables(records: list[Record]) -> list[Table]:
  """Those of which there are records."""
  makers = {theorems: _theorem_records, mutants: _mutant_records, temperatures: _temperature_records}
  return [make(records) for make, chosen in makers.items() if chosen(records)]


def verification_section(records: list[Record]) -> str:
  """What was verified, in Markdown: sentences with their numbers, and the tables."""
  checked, wrong = _theorem_records(records), list(_grouped_mutants(_mutant_records(records)).values())
  by_theorem, with_memory = _by('theorem', checked).values(), [row for row in checked if 'stationary' in row]
  count = lambda field, value: sum(row[field] == value for row in with_memory)
  seen, by_label = (sum(any(map(sees, rows)) for rows in wrong) for sees in (_sees, lambda row: row['by_label']))
  sentences = [
    f'Each theorem was put to {min(map(len, by_theorem))} HMMs and at least '
    f'{min(_total(found, "sequences") for found in by_theorem):,} different sequences of its region. In every HMM the '
    f'commonest label has at most {100 * _largest(checked, "majority"):.1f}% of them. Wrong: '
    f'{_total(checked, "wrong")}. Undecided: none, since what float64 does not settle, near ties among it, was decided '
    f'in exact fractions, {_total(checked, "decided_exactly"):,} sequences, of which {_total(checked, "exact_ties"):,} '
    f'are exact ties. {_total(checked, "no_mass"):,} sequences leave nothing that is recovered any probability; both '
    f'scores are 0 there, and the label is that of a tie by definition.',
    f'On all others the construction returns everything that its theorem recovers, times the factor r_x of the proof: '
    f'the largest cosine error is {_largest(checked, "largest_cosine_error"):.0e}, and the largest error of an entry, '
    f'relative to the largest entry, {_largest(checked, "largest_vector_error"):.0e}.',
    f'Of the {len(with_memory)} HMMs with a memory {sum(row["num_essential"] > 1 for row in with_memory)} have more '
    f'than one state in H*, {count("full_memory", False)} a prior without full support, '
    f'{count("dependent_cells", True)} dependent cells, and {count("stationary", False)} another start than the '
    f'stationary one.',
    f'Of {len(wrong)} wrong constructions {seen} were seen, {by_label} by a wrong label and the others only because '
    f'all that a theorem recovers is compared, with its factor.',
  ]
  return '\n\n'.join([*sentences, *(table.markdown() for table in tables(records))])


@figures.styled
def temperature(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy of the constructions with attention by the temperature of their softmax."""
  figure, (axes,) = figures.panels(settings)
  chosen = _temperature_records(records)
  temperatures = sorted({row['temperature'] for row in chosen})
  if len(temperatures) > 2:
    axes.set_xscale('symlog', linthresh=temperatures[1], linscale=0.6)
  samples = lambda rows, field: {
    value: 100 * np.array([row[field] for row in statistics.select(rows, temperature=value)]) for value in temperatures
  }
  for place, (theorem, rows) in enumerate(_by('theorem', chosen).items()):
    figures.draw_line(axes, samples(rows, 'accuracy'), f'Theorem {theorem}', _STYLES[theorem], 7 * (place - 1))
  figures.draw_majority(axes, samples(chosen, 'majority'))
  axes.set_xticks(temperatures, [f'{value:g}' for value in temperatures])
  axes.minorticks_off()
  axes.set_xlabel('temperature of the softmax; 0 is the argmax of the theorems')
  axes.set_ylabel('accuracy of the construction (%)')
  count = figures.counted([len({row['hmm'] for row in chosen})], 'HMMs')
  figures.finish(figure, figures.caption(records, f'{count} a theorem'))
  return figure


def _total(records: list[Record], field: str) -> int:
  return sum(record[field] for record in records)


def _largest(records: list[Record], field: str) -> float:
  return max(record[field] for record in records)


def _interval(records: list[Record], field: str) -> str:
  return str(statistics.mean_interval([100 * record[field] for record in records]))


def _theorem_records(records: list[Record]) -> list[Record]:
  return [record for record in records if 'largest_vector_error' in record]


def _mutant_records(records: list[Record]) -> list[Record]:
  return [record for record in records if 'mutant' in record]


def _temperature_records(records: list[Record]) -> list[Record]:
  return [record for record in records if 'temperature' in record]


def _grouped_mutants(records: list[Record]) -> dict[tuple[str, str], list[Record]]:
  keys = dict.fromkeys((row['theorem'], row['mutant']) for row in records if row['mutant'] != CONTROL)
  return {key: statistics.select(records, theorem=key[0], mutant=key[1]) for key in keys}


def _sees(row: Record) -> bool:
  return bool(row['by_label'] or row['by_direction'] or row['by_factor'])


def _by(field: str, records: list[Record]) -> dict:
  return {value: statistics.select(records, **{field: value}) for value in dict.fromkeys(row[field] for row in records)}


def _range(records: list[Record], field: str) -> str:
  values = [100 * record[field] for record in records]
  return f'{min(values):.0f} to {max(values):.1f}%'
