"""The verification sees an error of 1e-5, and tests different sequences of the region."""

import jax
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.studies.theory import verification
from hmm_jax.theory import scoring

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('theorem', verification.THEOREMS, ids=lambda theorem: theorem.name)
def test_a_broken_program_is_wrong(theorem):
  """A head that is off by a share in the first recovered value is wrong wherever that and another are likely."""
  problem, program, answers, _ = verification.draw(theorem, settings_of('smoke', 'theory'), jax.random.key(0), 0)
  assert scoring.in_region(problem, program.finding, answers).all()
  assert len(np.unique(answers.tokens, axis=0)) == len(answers.tokens)
  recovered, programs = answers.posterior[:, program.recovered], {'right': program}
  name = 'weights' if hasattr(program.head, 'weights') else 'output'
  for share in (-2, 1e-5, np.nan):
    weights = np.array(getattr(program.head, name))
    weights[:, 0] *= 1 + share
    programs[share] = program._replace(head=program.head._replace(**{name: weights}))
  found = verification.errors_of(problem, program, answers, programs)
  right, *broken = [verification.judged(errors)['wrong'] for errors in found.values()]
  concerned = (recovered[:, 0] > 0.2) & (recovered[:, 1:].max(-1) > 0.2)
  assert right == 0 < concerned.sum() <= min(broken)
