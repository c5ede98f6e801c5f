"""Wrong constructions are wrong: each differs from the right one where its theorem speaks, and the checks see it."""

import functools

import numpy as np
import pytest
from theory_cases import drawn, LIMITS, SIZES

from configs import theory
from experiments.studies import registry
from experiments.studies.theory import problems, verification, wrong_constructions
from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import comparison, theorems

pytestmark = pytest.mark.usefixtures('without_optimisation')

SETTINGS = registry.from_config(theory.get_config('smoke'))
LENGTH = SETTINGS.verification.length
THEOREMS = {theorem.name: theorem for theorem in problems.THEOREMS}
# Families and seeds of problems that between them show every slip, and that none is the right construction in disguise.
SHOWN_BY = {
  '3.3': [('planted', 1)],
  '3.6': [('planted', 0)],
  '4.3': [('planted', 1)],
  '4.6': [('adversarial', 4)],
  'C.6': [('adversarial', 3), ('adversarial', 5)],
}
LARGER = {
  '3.3': SIZES['3.3']._replace(num_tokens=6),
  '3.6': SIZES['3.6']._replace(num_tokens=6),
  '4.3': SIZES['4.3']._replace(num_states=5, num_tokens=7, num_recoverable=2),
  '4.6': SIZES['4.6']._replace(num_tokens=8, num_recoverable=2),
  'C.6': SIZES['C.6']._replace(num_tokens=8, num_recoverable=2),
}


@functools.cache
def seen(theorem, family, seed):
  """What sees each wrong construction of a problem: label, direction, factor; and what sees the right one."""
  problem = drawn(theorem, family, seed, LARGER[theorem])
  program = theorems.program(theorem, problem, LENGTH, LIMITS)
  supports = texts.supports(problem.hmm)
  tokens = texts.possible_sequences(supports, LENGTH, most=3000)
  if theorem[0] != '3':
    tokens = tokens[texts.in_region(supports, program.finding.witness['recoverable_states'], tokens)]
  tokens = np.random.default_rng(0).permutation(tokens)[:400]
  padded = THEOREMS[theorem].padded
  predictions = comparison.predicted(problem, program, tokens, padded)
  has_mass = predictions.posterior[:, program.recovered].any(-1)
  of = comparison.PredictedProblem(problem, program, predictions, has_mass, padded)
  constructions = {'right': program}
  constructions |= wrong_constructions.wrong_constructions(theorem, problem, program, LENGTH, LIMITS)
  return {name: verification._caught(SETTINGS, of, each) for name, each in constructions.items()}


@pytest.mark.parametrize('theorem', THEOREMS)
def test_every_slip_is_seen_and_what_is_right_is_not(theorem):
  """By label, by direction or by the factor, on texts of the region; the right construction by none."""
  found = [seen(theorem, *shown) for shown in SHOWN_BY[theorem]]
  counts = lambda row: (row['by_label'], row['by_direction'], row['by_factor'])
  assert all(counts(rows['right']) == (0, 0, 0) for rows in found)
  unseen = [name for name in found[0] if name != 'right' and not any(any(counts(rows[name])) for rows in found)]
  assert not unseen


@pytest.mark.parametrize('theorem', ['4.6', 'C.6'])
def test_the_papers_beta_is_seen_where_the_memory_is_against_it(theorem):
  """-2 fails by direction on adversarial problems, and there beta 0 fails on more."""
  found = [seen(theorem, *shown) for shown in SHOWN_BY[theorem]]
  count = lambda name: sum(rows[name]['by_direction'] for rows in found)
  assert 0 < count('beta -2') <= count('beta 0')


def test_a_slip_changes_one_thing():
  """The program that it is made of stays as it was, and all else of the head is shared with it."""
  problem = drawn('C.6', 'planted', 1, LARGER['C.6'])
  program = theorems.program('C.6', problem, LENGTH, LIMITS)
  before = [np.array(leaf) for leaf in (program.prompt, *program.head)]
  for name, mutant in wrong_constructions.wrong_constructions('C.6', problem, program, LENGTH, LIMITS).items():
    differs = [not np.array_equal(a, b) for a, b in zip((mutant.prompt, *mutant.head), before, strict=True)]
    assert 1 <= sum(differs) <= 2, name
  for leaf, was in zip((program.prompt, *program.head), before, strict=True):
    np.testing.assert_array_equal(leaf, was)
