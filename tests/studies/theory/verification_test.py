"""The verification has teeth: an error of a millionth is seen, and counts are exact."""

import functools

import jax
import numpy as np
import pytest
from theory_cases import exact_hmm, exact_posterior

from configs import theory
from experiments.studies import registry
from experiments.studies.theory import problems, verification
from hmm_jax.theory import comparison

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

SETTINGS = registry.from_config(theory.get_config('smoke'))
THEOREMS = {theorem.name: theorem for theorem in problems.THEOREMS}
# Of this number, every problem has a task with an exact tie.
TIED = 2


@functools.cache
def tied(theorem):
  return problems.draw(SETTINGS, THEOREMS[theorem], jax.random.key(TIED), TIED, mutated=False)


def row_of(theorem, of):
  return verification.row_of(SETTINGS, THEOREMS[theorem], of)


def test_few_sequences_leave_nothing_that_is_recovered_any_probability():
  """A tenth of the least number at most, which this problem's sequences reach."""
  of = problems.draw(SETTINGS, THEOREMS['C.6'], jax.random.key(0), 4, mutated=False)
  assert (~of.has_mass).sum() == SETTINGS.verification.num_sequences // 10


@pytest.mark.parametrize('theorem', THEOREMS)
def test_counts_are_those_of_fractions(theorem):
  """Sequences differ and are possible; majority, ties and what has no mass are those of exact posteriors."""
  of = tied(theorem)
  row, hmm, tokens = row_of(theorem, of), exact_hmm(of.problem), of.predictions.tokens
  assert row['wrong'] == 0 and len(np.unique(tokens, axis=0)) == len(tokens) == row['sequences']
  found = [problems.text_of(of.predictions, index, of.problem) for index in range(len(tokens))]
  posteriors = np.array([exact_posterior(of.problem, hmm, text) for text in found])
  assert posteriors.any(-1).all()
  scores = posteriors @ of.problem.fractions.task_weights.T
  labels, has_mass = scores.argmax(-1), posteriors[:, of.program.recovered].any(-1)
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
  """Where the head is off by a share in the first thing that is recovered, all sequences on which that has mass are."""
  of = tied(theorem)
  head, name = of.program.head, 'weights' if hasattr(of.program.head, 'weights') else 'output'
  weights = np.array(getattr(head, name))
  weights[:, 0] *= 1 + share
  row = row_of(theorem, of._replace(program=of.program._replace(head=head._replace(**{name: weights}))))
  concerned = of.predictions.posterior[:, of.program.recovered[0]] > 0.01
  assert row['wrong'] >= concerned.sum() > 0


def compare_to(monkeypatch, **fields):
  """Put other fields in place of those of every comparison."""
  compared = lambda *arguments: comparison.compared(*arguments)._replace(**fields)
  monkeypatch.setattr(verification, 'compared', compared)


@pytest.mark.parametrize('value', [1e-3, np.nan])
def test_a_score_where_nothing_has_mass_is_wrong(monkeypatch, value):
  """A head is wrong where it says something, or no number, of a text that the prompt contradicts."""
  of = tied('C.6')
  compare_to(monkeypatch, vector_error=np.where(of.has_mass, 0, value))
  row = row_of('C.6', of)
  assert row['wrong'] == row['no_mass'] > 0


@pytest.mark.parametrize('theorem', ['3.3', '4.6'])
def test_rounding_excuses_what_is_as_small_and_has_the_factor_of_the_proof(theorem, monkeypatch):
  """A large relative error passes where it is tiny and the fractions have the factor, and not else."""
  of = tied(theorem)
  for error, factor in ((1e-15, 1), (1e-12, 1), (1e-15, 1 + 1e-6)):
    everywhere = np.full(len(of.has_mass), error)
    compare_to(monkeypatch, vector_error=np.where(of.has_mass, 1e-8, 0), error=everywhere)
    changed = of._replace(predictions=of.predictions._replace(factor=of.predictions.factor * factor))
    assert (row_of(theorem, changed)['wrong'] > 0) == (error > 1e-14 or factor > 1)
