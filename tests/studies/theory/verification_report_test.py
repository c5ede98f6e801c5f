"""Tables, sentences and the figure of the verification: every number is one of the records."""

import re

import numpy as np
import pytest

from experiments.settings.groups import FigureSettings
from experiments.studies.theory import verification_report

FIGURE = FigureSettings(width=6.4, height=4.2, dpi=60, paper_overlay=False)
OF = dict(experiment='theory', scale='small', seed=0)
TEMPERATURES = (0.0, 0.01, 1.0)


def row_of(theorem, hmm, **changes):
  """A row of one HMM, whose counts differ by theorem and number."""
  number = 10 * ('3.3', '4.6').index(theorem) + hmm
  row = dict(OF, part=f'verification-{theorem}', theorem=theorem, hmm=hmm, assumptions='3.2, 4.5', draws=1, rejected=0)
  row |= dict(num_states=4, num_tokens=6, num_classes=2 + hmm % 2, violates='4.2' if hmm else '', num_essential=1 + hmm)
  row |= dict(recovered=2, sequences=1000 + number, enumerated=3, majority=0.5 + number / 100, no_mass=number)
  row |= dict(near_ties=2, exact_ties=1 + number, decided_exactly=2 + number, wrong=0, smallest_gap=1e-5)
  row |= dict(largest_cosine_error=2e-16 * (1 + number), largest_vector_error=3e-14 * (1 + number))
  if theorem == '4.6':
    row |= dict(full_memory=bool(hmm), dependent_cells=hmm == 2, stationary=hmm == 1)
  return row | changes


def mutant_of(theorem, name, hmm, by_label, by_direction, by_factor):
  counts = dict(by_label=by_label, by_direction=by_direction, by_factor=by_factor)
  return (
    dict(OF, part=f'verification-{theorem}', theorem=theorem, hmm=hmm, mutant=name, sequences=500, majority=0.6)
    | counts
  )


def softened_of(hmm, temperature):
  accuracy = 1 - 0.1 * temperature * (1 + hmm)
  row = dict(OF, part='verification-4.6', theorem='4.6', hmm=hmm, temperature=temperature, sequences=400)
  return row | dict(accuracy=accuracy, majority=0.6)


CHECKED = [row_of(theorem, hmm) for theorem in ('3.3', '4.6') for hmm in range(3)]
MUTANTS = [
  mutant_of('3.3', 'D dropped', 0, 7, 20, 21),
  mutant_of('3.3', 'D dropped', 1, 0, 0, 0),
  mutant_of('4.6', 'beta -2', 0, 0, 3, 4),
  mutant_of('4.6', 'never seen', 0, 0, 0, 0),
]
RECORDS = CHECKED + MUTANTS + [softened_of(hmm, t) for hmm in range(3) for t in TEMPERATURES]


def cells_of(table):
  return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_the_table_of_theorems_has_sums_and_extremes():
  """Counts are sums over HMMs, errors the largest, and the commonest label has its range."""
  first, second = cells_of(verification_report.theorems(RECORDS))
  assert first['theorem'] == '3.3' and second['theorem'] == '4.6'
  assert first['HMMs'] == '3' and first['sequences'] == '3,003' and second['sequences'] == '3,033'
  assert first['commonest label'] == '50 to 52.0%' and second['commonest label'] == '60 to 62.0%'
  assert [first[name] for name in ('|H*| > 1', 'C = 3', 'no mass', 'decided exactly', 'wrong')] == list('21390')
  assert first['exact ties'] == '6' and first['cosine error'] == '6e-16' and second['vector error'] == '4e-13'
  assert first['violated besides'] == '4.2 in 2'


def test_a_wrong_sequence_is_not_hidden():
  """One of one HMM is in the table and in the text."""
  wrong = [row_of('3.3', 0, wrong=1), *CHECKED[1:]]
  assert cells_of(verification_report.theorems(wrong))[0]['wrong'] == '1'
  assert 'Wrong: 1.' in verification_report.verification_section(wrong + RECORDS[len(CHECKED) :])


def test_the_table_of_slips_counts_sequences_and_hmms():
  """By label, by direction and by any of them, and the HMMs that see it at all."""
  dropped, beta, never = cells_of(verification_report.mutants(RECORDS))
  assert [dropped[name] for name in ('HMMs', 'sequences', 'by label', 'by direction', 'by any')] == [
    '2',
    '1,000',
    '7',
    '20',
    '21',
  ]
  assert dropped['HMMs that see it'] == beta['HMMs that see it'] == '1' and never['HMMs that see it'] == '0'
  assert beta['what is wrong'] == 'beta -2'


def test_sentences_have_the_numbers_of_the_records():
  """Each number of the section is computed here."""
  text = verification_report.verification_section(RECORDS)
  total = lambda field: sum(row[field] for row in CHECKED)
  assert 'put to 3 HMMs and at least 3,003 different sequences' in text
  assert 'at most 62.0% of them. Wrong: 0.' in text
  assert f'{total("decided_exactly")} sequences, of which {total("exact_ties")} are exact ties' in text
  assert f'{total("no_mass")} sequences leave nothing' in text
  assert 'largest cosine error is 3e-15' in text and 'largest entry, 4e-13.' in text
  assert (
    'Of the 3 HMMs with a memory 2 have more than one state in H*, 1 a prior without full support, 1 dependent' in text
  )
  assert '2 another start than the stationary one' in text
  assert 'Of 3 wrong constructions 2 were seen, 1 by a wrong label' in text
  for table in verification_report.tables(RECORDS):
    assert table.markdown() in text


def test_temperatures_have_means_over_hmms():
  """Accuracy and majority in percent with intervals, and the least of any HMM."""
  rows = cells_of(verification_report.temperatures(RECORDS))
  assert [row['temperature'] for row in rows] == ['0', '0.01', '1'] and {row['HMMs'] for row in rows} == {'3'}
  assert (
    re.match('100', rows[0]['accuracy']) and re.match('80', rows[2]['accuracy']) and re.match('60', rows[2]['majority'])
  )
  assert [row['least of any HMM'] for row in rows] == ['100.0', '99.7', '70.0']


def test_the_figure_draws_the_records():
  """A line for each theorem with attention, at its mean, and the majority, with labels of both axes."""
  figure = verification_report.temperature(RECORDS, FIGURE)
  figure.draw_without_rendering()
  (axes,) = figure.axes
  lines = {line.get_label(): line for line in axes.lines}
  np.testing.assert_allclose(lines['Theorem 4.6'].get_ydata(), [100, 99.8, 80])
  np.testing.assert_allclose(lines['majority class'].get_ydata(), 60)
  assert axes.get_xlabel() and axes.get_ylabel() and 'n = 3' in figure.get_suptitle()


@pytest.mark.parametrize('kept', [CHECKED, CHECKED + MUTANTS])
def test_tables_are_of_what_there_is(kept):
  """Without records of slips or temperatures there is no table of them."""
  assert len(verification_report.tables(kept)) == 1 + (kept is not CHECKED)
