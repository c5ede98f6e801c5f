"""The theory experiment at smoke scale: what is recorded of each part."""

import numpy as np
import pytest
from settings_cases import settings_of

from experiments.records import results
from experiments.settings.fields import SettingsError
from experiments.studies.theory import prevalence, problems, study, verification
from hmm_jax.distributions.hmm import HMM

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _settings(**changes):
  return settings_of('smoke', 'theory', **changes)


SETTINGS = _settings()
V = SETTINGS.verification
# The right construction, and slips that not every theorem's problems show at this size; the records on file do.
NOT_SEEN = {verification.CONTROL, 'keys not off V-bar', 'beta -2', 'prompt not scaled by P[H_0] / P[H_1]'}


@pytest.fixture(scope='module')
def records(reduced_run):
  """Records of every part of a finished run, by its name."""
  found = results.load(reduced_run('theory', 'smoke'))
  return {part: [row for row in found if row['part'] == part] for part in study.parts(SETTINGS)}


@pytest.mark.parametrize('theorem', problems.THEOREMS, ids=lambda theorem: theorem.name)
def test_no_construction_is_wrong(records, theorem):
  """Tasks are balanced, some problems violate what is relaxed; and the softmax at temperature 0 is the construction.

  Every other slip is seen, by label, by direction or by the factor.
  """
  of_theorem = records[f'verification-{theorem.name}']
  rows = [row for row in of_theorem if 'assumptions' in row]
  assert [row['hmm'] for row in rows] == list(range(V.num_hmms))
  for row in rows:
    assert row['wrong'] == 0 and row['majority'] <= V.largest_majority
  assert {'', *(row['violates'] for row in rows)} == {'', theorem.relaxes}
  softened = [row for row in of_theorem if 'temperature' in row]
  assert len(softened) == bool(theorem.num_cells) * V.num_mutated * len(V.temperatures)
  assert all(row['accuracy'] == 1 for row in softened if row['temperature'] == 0)
  wrong = [row for row in of_theorem if 'mutant' in row]
  seen = {row['mutant'] for row in wrong if row['by_label'] or row['by_direction'] or row['by_factor']}
  assert seen >= {row['mutant'] for row in wrong} - NOT_SEEN and verification.CONTROL not in seen


def test_every_draw_has_its_outcome_and_certified_heads_err(records):
  """A fixed number of each kind. No head is better than a proof allows, and Theorem 3.6 is wrong nowhere."""
  rows = records['impossibility']
  kinds = [kind for kind in ('sparse', 'paper') for _ in range(SETTINGS.impossibility.num_hmms)]
  assert [row['kind'] for row in rows] == kinds
  assert {row['outcome'] for row in rows} >= {'certified', 'constant'}
  for row in rows:
    is_certified = row['outcome'] == 'certified'
    assert (row['least_error'] is not None) == is_certified
    assert (row['fresh_head'] is None) == (row['outcome'] == 'constant')
    assert row['fresh_construction_wrong'] in (None, 0)
    for method in ('program', 'converged', 'head') if is_certified else ():
      assert row[f'fresh_{method}'] <= 1 - row['least_error'] + 1e-9


def test_every_size_has_its_draws(records):
  """A mixture of ten permutations has the zeros to be expected."""
  s = SETTINGS.prevalence
  expected = [('chain', size, draw) for size in s.num_states for draw in range(s.num_draws)]
  expected += [('memory', size, draw) for size in s.memory_sizes for draw in range(s.num_draws)]
  rows = records['prevalence']
  assert [(row['text'], row['size'], row['draw']) for row in rows] == expected
  assert all(row['zeros'] == pytest.approx(0.9**10, abs=0.15) for row in rows[: s.num_draws])


def _of_chain(transition_matrix, emission_matrix):
  hmm = HMM(np.ones(3) / 3, transition_matrix, emission_matrix)
  return prevalence.chain_row(SETTINGS.prevalence, hmm, np.array([[1.0, -1, 0], [0, 0, 0]]))


def test_a_chain_is_decided_by_its_supports_and_its_columns():
  """A cycle over one-hot states satisfies 3.1 and 3.5 and is periodic; two states alike fail both if mu weighs them."""
  cycle = np.roll(np.eye(3), 1, axis=1)
  good, alike = _of_chain(cycle, np.eye(3)), _of_chain(cycle, np.eye(3)[[0, 0, 2]])
  assert not good['3.2'] and all(good['3.1'].values())
  for row, holds in ((good, True), (alike, False)):
    assert {answer for by_rank in row['3.5'].values() for answer in by_rank.values()} == {holds}
  assert good['zeros'] == pytest.approx(2 / 3) and good['smallest_singular_value'] == pytest.approx(1)
  assert not any(alike['3.1'].values())


@pytest.mark.parametrize(('field', 'value'), [('impossibility.length', 9), ('impossibility.tuning.batch_size', 61)])
def test_wrong_settings_are_named(field, value):
  with pytest.raises(SettingsError, match=f'^{field} is {value}'):
    _settings(**{field: value})
