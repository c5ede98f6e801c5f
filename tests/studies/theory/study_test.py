"""The theory experiment at smoke scale: what is recorded of each part; and the records on file."""

from conftest import DOCS
import pytest
from settings_cases import settings_of

from experiments.analysis.tables import select
from experiments.records import load
from experiments.studies.theory import verification

SETTINGS = settings_of('smoke', 'theory')


@pytest.fixture(scope='module')
def records(reduced_run):
  return load(reduced_run('theory', 'smoke'))


@pytest.mark.slow
def test_every_draw_has_its_outcome(records):
  """A fixed number of each kind; a proof bounds the error; ten permutations have the zeros to be expected."""
  heads, zeros = records.dropna(subset='outcome'), records['zeros'].dropna()
  proven = heads[heads['outcome'] == 'certified'].index
  assert len(heads) == 2 * SETTINGS.impossibility.num_hmms and len(proven)
  assert heads['least_error'].dropna().index.equals(proven)
  assert heads['least_error'].dropna().between(1e-300, 0.5).all() and (heads['proof_texts'].dropna() >= 2).all()
  assert len(zeros) == SETTINGS.prevalence.num_draws and (zeros - 0.9**10).abs().max() < 0.15


@pytest.mark.parametrize('theorem', [theorem.name for theorem in verification.THEOREMS])
def test_every_theorem_was_verified_at_the_sizes_of_the_page(theorem):
  """100 HMMs and 300,000 sequences at least, nothing wrong; every wrong construction was seen."""
  rows = select(load(DOCS / 'results' / 'theory'), theorem=theorem)
  right = select(rows, construction=verification.RIGHT)
  assert len(right) >= 100 and right['sequences'].all() and right['sequences'].sum() >= 300_000
  wrong = rows.groupby('construction')['wrong'].sum()
  assert wrong.pop(verification.RIGHT) == 0 and len(wrong) >= 2 and wrong.all()
