"""The verification sees an error of 1e-5, and what it tests is what the theorem covers."""

import functools

import jax
import numpy as np
import pytest
from settings_cases import settings_of
from theory_cases import exact_hmm, exact_posterior
from theory_fractions import in_region

from experiments.studies.theory import verification

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

SETTINGS = settings_of('smoke', 'theory')
THEOREMS = {theorem.name: theorem for theorem in verification.THEOREMS}


@functools.cache
def drawn(theorem, index=0):
  return verification.draw(THEOREMS[theorem], SETTINGS, jax.random.key(index), index)


def wrong_of(drawn, program):
  return verification.compared(drawn, {'tried': program})['tried']['wrong']


@pytest.mark.parametrize('theorem', THEOREMS)
def test_tested_sequences_are_those_of_the_region(theorem):
  """They differ, and posterior and region are those of fractions; unplanted HMMs have some, too."""
  for index in range(len(THEOREMS[theorem].families)):
    found = drawn(theorem, index)
    tokens = found.answers.tokens
    assert len(np.unique(tokens, axis=0)) == len(tokens) > 0
    hmm, states = exact_hmm(found.problem), found.program.finding.witness.get('recoverable_states')
    for number in np.random.default_rng(0).choice(len(tokens), 8):
      text = [token for token in tokens[number].tolist() if token < found.problem.hmm.num_tokens]
      posterior = exact_posterior(found.problem, hmm, text)
      assert posterior.any() and (theorem[0] == '3' or in_region(found.problem, hmm, states, text))
      np.testing.assert_allclose(found.answers.posterior[number], posterior.astype(float), atol=1e-13)


@pytest.mark.parametrize('share', [-2, 1e-5, np.nan])
@pytest.mark.parametrize('theorem', THEOREMS)
def test_a_broken_program_is_wrong(theorem, share):
  """A head that is off by a share in the first recovered value is wrong wherever that and another are likely."""
  found = drawn(theorem)
  program, head = found.program, found.program.head
  name = 'weights' if hasattr(head, 'weights') else 'output'
  weights = np.array(getattr(head, name))
  weights[:, 0] *= 1 + share
  recovered = found.answers.posterior[:, program.recovered]
  concerned = (recovered[:, 0] > 0.2) & (recovered[:, 1:].max(-1) > 0.2)
  broken = program._replace(head=head._replace(**{name: weights}))
  assert wrong_of(found, program) == 0
  assert wrong_of(found, broken) >= concerned.sum() > 0
