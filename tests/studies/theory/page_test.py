"""docs/theory_results.md says what its records say, and the records keep what the page promises."""

import pytest

from experiments.analysis import pages
from experiments.records import results
from experiments.studies.theory import page, verification

FOLDER = pages.DOCS / 'results' / 'theory'
RECORDS = results.load(FOLDER)
THEOREMS = ('3.3', '3.6', '4.3', '4.6', 'C.6')


def test_the_page_is_what_the_records_give():
  """Tables and sentences with numbers are rendered; none was typed, and no section is left out."""
  text = page.PAGE.read_text()
  assert pages.filled(text, page.section) == text
  assert {match[2] for match in pages.BLOCK.finditer(text)} == set(page.SECTIONS)
  assert pages.filled(text.replace('HMMs', 'HMM'), page.section) != text.replace('HMMs', 'HMM')


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_theorem_was_put_to_what_the_page_says(theorem):
  """100 HMMs and 300,000 sequences at least, tasks balanced in every HMM, nothing wrong, both families and more."""
  rows = [row for row in RECORDS if row.get('theorem') == theorem and 'assumptions' in row]
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
  rows = [row for row in RECORDS if row.get('theorem') == theorem and 'mutant' in row]
  for mutant in {row['mutant'] for row in rows} - {verification.CONTROL}:
    of_mutant = [row for row in rows if row['mutant'] == mutant]
    assert len(of_mutant) >= 20 and min(row['sequences'] for row in of_mutant) >= 10_000
    assert any(row['by_direction'] or row['by_factor'] for row in of_mutant), mutant
