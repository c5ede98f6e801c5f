"""The shipped records of the theory experiment, and their tables."""

from conftest import DOCS
import pytest

from experiments.records import load, results
from experiments.studies import registry
from experiments.studies.theory import verification
from experiments.studies.theory.study import STUDY

FOLDER = DOCS / 'results' / 'theory'
SETTINGS = registry.from_record(results.config(FOLDER))
FRAME = load(FOLDER)
TABLES = STUDY.tables(FRAME, SETTINGS)


@pytest.mark.parametrize('theorem', [theorem.name for theorem in verification.THEOREMS])
def test_every_theorem_was_verified_at_the_sizes_of_the_page(theorem):
  """100 HMMs and 300,000 sequences at least, nothing wrong; every wrong construction was seen."""
  of_theorem = FRAME[FRAME['theorem'] == theorem]
  right = of_theorem[of_theorem['construction'] == verification.RIGHT]
  count = int(right['sequences'].sum())
  assert len(right) >= 100 and count >= 300_000 and right['sequences'].min() > 250
  assert not right['wrong'].any() and right['largest_error'].max() <= verification.TOLERANCE
  wrong = of_theorem.drop(right.index).groupby('construction')['wrong'].sum()
  assert len(wrong) >= 2 and wrong.min() > 0
  cells = TABLES['constructions'].frame.query('theorem == @theorem').set_index('construction')
  assert cells.loc[verification.RIGHT, 'sequences'] == f'{count:,}'
  # One wrong sequence of one HMM is in the table.
  frame = right.copy()
  frame.loc[frame.index[0], 'wrong'] = 1
  assert STUDY.tables(frame, SETTINGS)['constructions'].frame['wrong'].tolist() == ['1']
