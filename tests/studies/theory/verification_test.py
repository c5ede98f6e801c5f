"""The verification has teeth: an error of a millionth is seen, and counts are exact."""

import functools

import jax
import numpy as np
import pytest
from settings_cases import settings_of
from theory_cases import exact_hmm, exact_posterior

from experiments.studies.theory import problems, verification
from hmm_jax.theory import comparison

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

SETTINGS = settings_of('smoke', 'theory')
THEOREMS = {theorem.name: theorem for theorem in problems.THEOREMS}
# With this number, every problem has a task with an exact tie.
TIED = 2


@functools.cache
def tied(theorem):
  return problems.draw(SETTINGS, THEOREMS[theorem], jax.random.key(TIED), TIED, mutated=False)


def row_of(theorem, drawn):
  return verification.row_of(SETTINGS, THEOREMS[theorem], drawn)


def test_sequences_without_mass_are_capped_at_a_tenth():
  """This problem reaches the cap."""
  problem = problems.draw(SETTINGS, THEOREMS['C.6'], jax.random.key(0), 4, mutated=False)
  assert (~problem.has_mass).sum() == SETTINGS.verification.num_sequences // 10


@pytest.mark.parametrize('theorem', THEOREMS)
def test_counts_are_those_of_fractions(theorem):
  """Sequences differ and are possible; majority, ties and what has no mass are those of exact posteriors."""
  drawn = tied(theorem)
  row, hmm, tokens = row_of(theorem, drawn), exact_hmm(drawn.problem), drawn.predictions.tokens
  assert row['wrong'] == 0 and len(np.unique(tokens, axis=0)) == len(tokens) == row['sequences']
  texts = (problems.text_of(drawn.predictions, index, drawn.problem) for index in range(len(tokens)))
  posteriors = np.array([exact_posterior(drawn.problem, hmm, text) for text in texts])
  assert posteriors.any(-1).all()
  scores = posteriors @ drawn.problem.fractions.task_weights.T
  labels, has_mass = scores.argmax(-1), posteriors[:, drawn.program.recovered].any(-1)
  majority = max(problems.majority(labels), problems.majority(labels[has_mass]))
  # Rounding breaks ties.
  assert abs(row['majority'] - majority) <= row['exact_ties'] / has_mass.sum() + 1e-12
  assert row['no_mass'] == (~has_mass).sum()
  ranked = np.sort(scores, axis=-1)[has_mass]
  assert row['exact_ties'] == (ranked[:, -1] == ranked[:, -2]).sum() > 0
  assert row['near_ties'] == (ranked[:, -1] - ranked[:, -2] <= SETTINGS.margin).sum()


@pytest.mark.parametrize('share', [-2, -1, 1e-6, 1, np.nan])
@pytest.mark.parametrize('theorem', THEOREMS)
def test_a_broken_program_is_wrong(theorem, share):
  """A head that is off by a share in the first recovered value is wrong on all sequences where that has mass."""
  drawn = tied(theorem)
  head = drawn.program.head
  name = 'weights' if hasattr(head, 'weights') else 'output'
  weights = np.array(getattr(head, name))
  weights[:, 0] *= 1 + share
  row = row_of(theorem, drawn._replace(program=drawn.program._replace(head=head._replace(**{name: weights}))))
  concerned = drawn.predictions.posterior[:, drawn.program.recovered[0]] > 0.01
  assert row['wrong'] >= concerned.sum() > 0


def compare_to(monkeypatch, **fields):
  """Replace these fields of every comparison."""
  monkeypatch.setattr(verification, 'compared', lambda *pair: comparison.compared(*pair)._replace(**fields))


@pytest.mark.parametrize('value', [1e-3, np.nan])
def test_a_score_of_a_text_without_mass_is_wrong(monkeypatch, value):
  """A head is wrong if it gives a score or NaN for a text that the prompt contradicts."""
  drawn = tied('C.6')
  compare_to(monkeypatch, vector_error=np.where(drawn.has_mass, 0, value))
  row = row_of('C.6', drawn)
  assert row['wrong'] == row['no_mass'] > 0


@pytest.mark.parametrize('theorem', ['3.3', '4.6'])
def test_rounding_excuses_tiny_errors_with_the_factor_of_the_proof(theorem, monkeypatch):
  """A large relative error passes only if the error is tiny and the fractions have the factor."""
  drawn = tied(theorem)
  for error, factor in ((1e-15, 1), (1e-12, 1), (1e-15, 1 + 1e-6)):
    everywhere = np.full(len(drawn.has_mass), error)
    compare_to(monkeypatch, vector_error=np.where(drawn.has_mass, 1e-8, 0), error=everywhere)
    changed = drawn._replace(predictions=drawn.predictions._replace(factor=drawn.predictions.factor * factor))
    assert (row_of(theorem, changed)['wrong'] > 0) == (error > 1e-14 or factor > 1)
