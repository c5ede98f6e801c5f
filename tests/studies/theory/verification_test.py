"""The verification has teeth: what is right passes, what is wrong by a millionth does not, and counts are exact."""

import functools
import io

import jax
import numpy as np
import pytest
import rich.console
from theory_cases import exact_hmm, exact_posterior, in_region_by_definition

from configs import theory
from experiments.runtime.progress import Reporter
from experiments.studies import registry
from experiments.studies.theory import problems, verification
from hmm_jax.theory.theorems import comparison

pytestmark = pytest.mark.usefixtures('without_optimisation')

SETTINGS = registry.from_config(theory.get_config('smoke'))
V = SETTINGS.verification
THEOREMS = {theorem.name: theorem for theorem in problems.THEOREMS}
KEY = jax.random.key(0)
# Every fourth and the one before it have a task with an exact tie.
TIED = 2


@functools.cache
def drawn(theorem, index):
  """The HMM of this number, as `verify` draws it."""
  key = jax.random.fold_in(KEY, index)
  return problems.draw(SETTINGS, THEOREMS[theorem], key, index, index < V.num_mutated)


@functools.cache
def rows_of(theorem):
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
  return verification.verify(THEOREMS[theorem], SETTINGS, KEY, reporter)


def row_of(theorem, of):
  return verification._row(SETTINGS, THEOREMS[theorem], of)


def text_of(of, tokens):
  return [token for token in tokens.tolist() if token < of.problem.hmm.num_tokens]


@pytest.mark.parametrize('theorem', THEOREMS)
def test_what_is_right_passes(theorem):
  """A row for each HMM, none wrong, balanced tasks, and counts that do not contradict each other."""
  rows = [row for row in rows_of(theorem) if 'assumptions' in row]
  assert [row['hmm'] for row in rows] == list(range(V.num_hmms)) and {row['theorem'] for row in rows} == {theorem}
  for row in rows:
    least = V.num_sequences_mutated if row['hmm'] < V.num_mutated else V.num_sequences
    assert row['sequences'] == least
    assert row['wrong'] == 0 and row['majority'] <= V.largest_majority < 1
    assert 0 <= row['exact_ties'] <= row['near_ties'] <= row['decided_exactly'] <= least - row['no_mass']
    assert row['largest_cosine_error'] <= 1e-9 and row['largest_vector_error'] <= 1e-9
    assert row['violates'] in ('', THEOREMS[theorem].relaxes)
  assert rows[TIED]['exact_ties'] >= 1


@pytest.mark.parametrize('theorem', THEOREMS)
def test_mutants_and_temperatures_have_rows_of_the_same_sequences(theorem):
  """Of the first HMMs alone; the temperature 0 is the construction itself, and has every label right."""
  mutated = [row for row in rows_of(theorem) if 'mutant' in row]
  assert {row['hmm'] for row in mutated} == set(range(V.num_mutated))
  for row in mutated:
    assert row['sequences'] == V.num_sequences_mutated
    assert max(row['by_label'], row['by_direction'], row['by_factor']) <= row['sequences']
  softened = [row for row in rows_of(theorem) if 'temperature' in row]
  assert len(softened) == bool(THEOREMS[theorem].num_cells) * V.num_mutated * len(V.temperatures)
  assert all(row['accuracy'] == 1 for row in softened if row['temperature'] == 0)
  assert all(0 < row['majority'] <= 1 and 0 <= row['accuracy'] <= 1 for row in softened)


@pytest.mark.parametrize('theorem', THEOREMS)
def test_counts_are_those_of_fractions(theorem):
  """Sequences differ and are in the region; majority, ties and what has no mass are those of exact posteriors."""
  of = drawn(theorem, TIED)
  row, hmm, tokens = row_of(theorem, of), exact_hmm(of.problem), of.predictions.tokens
  assert len(np.unique(tokens, axis=0)) == len(tokens) == row['sequences']
  texts = [text_of(of, text) for text in tokens]
  posteriors = np.array([exact_posterior(of.problem, hmm, text) for text in texts])
  assert posteriors.any(-1).all()
  scores = posteriors @ of.problem.exact.task_weights.T
  labels = [max(range(len(row)), key=lambda c: (row[c], -c)) for row in scores.tolist()]
  has_mass = posteriors[:, of.program.recovered].any(-1)
  shares = [np.bincount(some).max() / len(some) for some in (labels, np.array(labels)[has_mass])]
  # Rounding breaks ties.
  assert abs(row['majority'] - max(shares)) <= row['exact_ties'] / has_mass.sum() + 1e-12
  assert row['no_mass'] == (~has_mass).sum()
  # Those come last, in as few blocks as can be.
  assert has_mass[: has_mass.sum()].all()
  ranked = np.sort(scores, axis=-1)[has_mass]
  assert row['exact_ties'] == (ranked[:, -1] == ranked[:, -2]).sum()
  assert row['near_ties'] == (ranked[:, -1] - ranked[:, -2] <= SETTINGS.margin).sum()
  if THEOREMS[theorem].num_cells:
    states = of.program.finding.witness['recoverable_states']
    assert all(in_region_by_definition(of.problem, hmm, states, text) for text in texts[::7])


def broken(of, change):
  """The same with another head in the program's place."""
  head, name = of.program.head, 'weights' if hasattr(of.program.head, 'weights') else 'output'
  wrong = head._replace(**{name: change(np.array(getattr(head, name)))})
  return of._replace(program=of.program._replace(head=wrong))


BREAKS = {
  'the factor of the proof doubled': lambda weights: 2 * weights,
  'the sign': lambda weights: -weights,
  'two things swapped': lambda weights: weights[:, [1, 0, *range(2, weights.shape[1])]],
  'nothing': lambda weights: 0 * weights,
  'not a number': lambda weights: np.nan * weights,
  'the first too large by a millionth': lambda weights: weights * (1 + 1e-6 * (np.arange(weights.shape[1]) == 0)),
}


@pytest.mark.parametrize('name', BREAKS)
@pytest.mark.parametrize('theorem', THEOREMS)
def test_a_broken_program_is_wrong(theorem, name):
  """The check of the check: whatever is broken in the head, sequences with mass on what is recovered are wrong."""
  of = drawn(theorem, TIED)
  row = row_of(theorem, broken(of, BREAKS[name]))
  posterior = of.predictions.posterior[:, of.program.recovered]
  concerned = posterior.any(-1)
  if 'swapped' in name:
    concerned = np.abs(posterior[:, 0] - posterior[:, 1]) > 1e-3
  if 'millionth' in name:
    concerned = posterior[:, 0] > 0.01
  assert row['wrong'] >= concerned.sum() > 0


def test_a_score_where_nothing_has_mass_is_wrong():
  """A head that says something where nothing that is recovered has probability, or no number, is wrong there."""
  theorem, of, found = '4.6', drawn('4.6', TIED), comparison.compared
  predictions, has_mass = of.predictions, of.has_mass.copy()
  arrays = {name: getattr(predictions, name).copy() for name in ('posterior', 'token_probs')}
  # A text that the prompt contradicts: nothing that is recovered is possible, and the model says nothing.
  has_mass[0] = arrays['posterior'][0] = arrays['token_probs'][0] = 0
  of = of._replace(predictions=predictions._replace(**arrays), has_mass=has_mass)
  assert row_of(theorem, of)['wrong'] == 0

  def said(value):
    def compared(*arguments):
      comparison = found(*arguments)
      return comparison._replace(vector_error=np.where(has_mass, comparison.vector_error, value))

    return compared

  for value in (1e-3, np.nan):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(verification, 'compared', said(value))
      row = row_of(theorem, of)
    assert row['wrong'] == row['no_mass'] > 0


@pytest.mark.parametrize('theorem', ['3.3', '4.6'])
def test_rounding_excuses_what_is_as_small_and_has_the_factor_of_the_proof(theorem, monkeypatch):
  """A large relative error passes where it is tiny and the fractions have the factor, and not else."""
  of, found = drawn(theorem, TIED), comparison.compared

  def wrong(error, factor=1.0):
    changed = of._replace(predictions=of.predictions._replace(factor=of.predictions.factor * factor))
    relative = lambda seen: seen._replace(
      vector_error=np.where(of.has_mass, 1e-8, 0), error=np.full(len(seen.gap), error)
    )
    monkeypatch.setattr(verification, 'compared', lambda *_: relative(found(of, *_[1:])))
    return row_of(theorem, changed)['wrong']

  assert wrong(1e-15) == 0 < wrong(1e-12)
  assert wrong(1e-15, factor=1 + 1e-6) > 0


def test_an_hmm_is_a_function_of_its_number():
  """Drawn again, alone, the row of an HMM is what it was among all."""
  again = verification._verify_one(SETTINGS, THEOREMS['3.6'], KEY, 1)
  assert again == [row for row in rows_of('3.6') if row['hmm'] == 1]
