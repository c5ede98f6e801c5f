"""The tables of the theory experiment, against counts of the shipped records, and what those records promise."""

import pathlib

import numpy as np
import pytest
import scipy.stats

from experiments.records import results
from experiments.records.frames import load
from experiments.studies import registry
from experiments.studies.theory import verification
from experiments.studies.theory.study import STUDY

FOLDER = pathlib.Path(__file__).parents[3] / 'docs' / 'results' / 'theory'
SETTINGS = registry.from_record(results.config(FOLDER))
FRAME = load(FOLDER)
RECORDS = results.load(FOLDER)
TABLES = STUDY.tables(FRAME, SETTINGS)
THEOREMS = ('3.3', '3.6', '4.3', '4.6', 'C.6')


def rows_of(table, **cells):
  rows = TABLES[table].frame.to_dict('records')
  return [row for row in rows if all(row[name] == cell for name, cell in cells.items())]


def row_of(table, **cells):
  (row,) = rows_of(table, **cells)
  return row


def records_with(field, **fields):
  return [r for r in RECORDS if field in r and all(r.get(name) == value for name, value in fields.items())]


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_theorem_was_put_to_what_the_page_says(theorem):
  """100 HMMs and 300,000 sequences at least, tasks balanced in every HMM, nothing wrong, both families and more."""
  rows = records_with('assumptions', theorem=theorem)
  assert len(rows) >= 100 and sum(row['sequences'] for row in rows) >= 300_000
  assert max(row['majority'] for row in rows) <= 0.7
  assert not any(row['wrong'] for row in rows)
  assert max(max(row['largest_cosine_error'], row['largest_vector_error']) for row in rows) <= 1e-9
  assert 2 * sum(row['num_essential'] > 1 for row in rows) >= len(rows)
  assert {row['num_classes'] for row in rows} == {2, 3} and len({row['num_tokens'] for row in rows}) > 1
  if 'stationary' in rows[0]:
    assert {row['stationary'] for row in rows} == {row['full_memory'] for row in rows} == {True, False}


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_wrong_construction_was_seen(theorem):
  """Each on 20 HMMs and 10,000 sequences of each, by at least one sequence."""
  rows = records_with('mutant', theorem=theorem)
  for mutant in {row['mutant'] for row in rows} - {verification.CONTROL}:
    of_mutant = [row for row in rows if row['mutant'] == mutant]
    assert len(of_mutant) >= 20 and min(row['sequences'] for row in of_mutant) >= 10_000
    assert any(row['by_direction'] or row['by_factor'] for row in of_mutant), mutant


@pytest.mark.parametrize('theorem', THEOREMS)
def test_counts_are_sums_over_hmms_and_errors_the_largest(theorem):
  """Of the records of a theorem."""
  found, row = records_with('assumptions', theorem=theorem), row_of('theorems', theorem=theorem)
  for field, name in (('sequences', 'sequences'), ('no_mass', 'no mass'), ('exact_ties', 'exact ties')):
    assert row[name] == f'{sum(record[field] for record in found):,}'
  assert row['HMMs'] == str(len(found)) and row['|H*| > 1'] == str(sum(r['num_essential'] > 1 for r in found))
  assert row['vector error'] == f'{max(record["largest_vector_error"] for record in found):.0e}'
  violated = [record['violates'] for record in found if record['violates']]
  assert row['violated besides'] == (f'{violated[0]} in {len(violated)}' if violated else '')


def test_a_wrong_sequence_is_not_hidden():
  """One of one HMM is in the table."""
  frame = FRAME.copy()
  frame.loc[frame['assumptions'].first_valid_index(), 'wrong'] = 1
  assert STUDY.tables(frame, SETTINGS)['theorems'].frame['wrong'].tolist() == ['1', '0', '0', '0', '0']


def test_wrong_constructions_count_sequences_and_the_hmms_that_see_them():
  """By label, by direction and by any of them."""
  found = records_with('mutant', theorem='4.6', mutant='beta -2')
  row = row_of('wrong_constructions', **{'theorem': '4.6', 'what is wrong': 'beta -2'})
  assert row['by direction'] == f'{sum(record["by_direction"] for record in found):,}'
  assert row['HMMs that see it'] == str(sum(record['by_factor'] > 0 for record in found))


def test_linear_heads_have_counts_with_their_intervals():
  """As of Clopper and Pearson, by the quantiles of the beta law."""
  count = len(records_with('outcome', kind='sparse', outcome='certified'))
  total = len(records_with('outcome', kind='sparse'))
  low, high = scipy.stats.beta.ppf([0.025, 0.975], [count, count + 1], [total - count + 1, total - count])
  row = row_of('linear_heads', draws='sparse')
  assert row['none (certified)'] == f'{count}/{total} [{100 * low:.0f}, {100 * high:.0f}]'


def test_differences_are_paired_over_certified_hmms():
  """The t interval of each HMM's own difference."""
  found = records_with('outcome', kind='paper', outcome='certified')
  points = [100 * (record['fresh_prompt'] - record['fresh_head']) for record in found]
  half = scipy.stats.t.ppf(0.975, len(points) - 1) * scipy.stats.sem(points)
  row = row_of('differences', **{'draws': "paper's draw", 'scored on': 'a fresh text'})
  assert row['trained prompt - trained head'] == f'{np.mean(points):.1f} ± {half:.1f}'


def test_the_figure_draws_the_records():
  """A line for each theorem with attention, at its mean, and the majority, with labels of both axes."""
  figure = STUDY.figures(FRAME, SETTINGS)['temperature']
  figure.draw_without_rendering()
  (axes,) = figure.axes
  lines = {line.get_label(): line for line in axes.lines}
  for theorem in ('4.3', '4.6', 'C.6'):
    mean = np.mean([record['accuracy'] for record in records_with('temperature', theorem=theorem, temperature=1.0)])
    assert lines[f'Theorem {theorem}'].get_ydata()[-1] == pytest.approx(100 * mean)
  assert 'majority class' in lines and axes.get_xlabel() and axes.get_ylabel()
  assert 'n = 20' in figure.get_suptitle()
