"""The shipped records of the theory experiment, their tables and their figure."""

from conftest import DOCS
import numpy as np
import pytest

from experiments.records import load, results
from experiments.studies import registry
from experiments.studies.theory import problems, verification
from experiments.studies.theory.study import STUDY

FOLDER = DOCS / 'results' / 'theory'
SETTINGS = registry.from_record(results.config(FOLDER))
FRAME = load(FOLDER)
RECORDS = results.load(FOLDER)
TABLES = STUDY.tables(FRAME, SETTINGS)
THEOREMS = [theorem.name for theorem in problems.THEOREMS]


def records_with(field, **fields):
  return [r for r in RECORDS if field in r and all(r.get(name) == value for name, value in fields.items())]


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_theorem_was_verified_at_the_sizes_of_the_page(theorem):
  """100 HMMs and 300,000 sequences at least, tasks balanced in every HMM, nothing wrong, both families and more."""
  rows = records_with('assumptions', theorem=theorem)
  count = sum(row['sequences'] for row in rows)
  assert len(rows) >= 100 and count >= 300_000
  assert max(row['majority'] for row in rows) <= 0.7 and not any(row['wrong'] for row in rows)
  assert max(max(row['largest_cosine_error'], row['largest_vector_error']) for row in rows) <= 1e-9
  larger = sum(row['num_essential'] > 1 for row in rows)
  assert 2 * larger >= len(rows) and {row['num_classes'] for row in rows} == {2, 3}
  if 'stationary' in rows[0]:
    assert {row['stationary'] for row in rows} == {row['full_memory'] for row in rows} == {True, False}
  (cells,) = TABLES['theorems'].frame.query('theorem == @theorem').to_dict('records')
  assert cells['sequences'] == f'{count:,}' and cells['|H*| > 1'] == str(larger)
  # One wrong sequence of one HMM is in the table.
  frame = FRAME[FRAME['theorem'] == theorem].copy()
  frame.loc[frame['assumptions'].first_valid_index(), 'wrong'] = 1
  assert STUDY.tables(frame, SETTINGS)['theorems'].frame['wrong'].tolist() == ['1']


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_wrong_construction_was_seen(theorem):
  """Each on 20 HMMs and 10,000 sequences of each, by at least one sequence."""
  rows = records_with('mutant', theorem=theorem)
  for mutant in {row['mutant'] for row in rows} - {verification.CONTROL}:
    of_mutant = [row for row in rows if row['mutant'] == mutant]
    assert len(of_mutant) >= 20 and min(row['sequences'] for row in of_mutant) >= 10_000
    assert any(row['by_direction'] or row['by_factor'] for row in of_mutant), mutant


def test_the_figure_draws_the_records():
  """A line for each theorem with attention at its mean."""
  (axes,) = STUDY.figures(FRAME, SETTINGS)['temperature'].axes
  lines = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
  for theorem in ('4.3', '4.6', 'C.6'):
    found = records_with('temperature', theorem=theorem, temperature=1.0)
    assert lines[f'Theorem {theorem}'] == pytest.approx(100 * np.mean([record['accuracy'] for record in found]))
