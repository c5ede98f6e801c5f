"""Facts about the problems of every family: what their theorem assumes holds, decided here and in fractions."""

import jax
import numpy as np
import pytest
from theory_assumptions_cases import is_ergodic_by_powers
from theory_cases import CONDITIONING, drawn, FAMILIES, LIMITS, SIZES

from hmm_jax.theory.exact.algebra import rank
from hmm_jax.theory.problems import families

SEEDS = range(3)


def weighed_by(problem):
  """supp(mu) of `Fraction`s, relative to the last class."""
  mu = problem.exact.task_weights
  return np.flatnonzero((mu != mu[-1]).any(0))


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_the_theorem_assumes_holds(theorem, family):
  """By ranks and supports of fractions; the chain is ergodic in all but 4.3, whose proof uses nothing of it."""
  for problem in [drawn(theorem, family, seed) for seed in SEEDS]:
    assert theorem == '4.3' or is_ergodic_by_powers(problem.hmm.transition_matrix > 0)
    assert theorem == '4.3' or (problem.silent_probs > 0).all() and (problem.hmm.initial_probs > 0).all()
    assert theorem != '3.6' or rank(problem.exact.hmm.emission_matrix) < problem.hmm.num_states
    assert len(problem.task_weights) == SIZES[theorem].num_classes
    assert len(weighed_by(problem)) == problem.hmm.memory_size if theorem == '4.3' else len(weighed_by(problem)) > 1


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_is_drawn_are_small_fractions_decided_by_the_key(theorem, family):
  """Rows sum to 1 and have denominators of at most 64, but for laws that follow from others; floats are those."""
  again = families.draw(theorem, family, jax.random.key(0), SIZES[theorem], LIMITS, CONDITIONING)
  problem, other = drawn(theorem, family), drawn(theorem, family, 1)
  jax.tree.map(np.testing.assert_array_equal, problem, again)
  exact, hmm = problem.exact, problem.exact.hmm
  assert (problem.hmm.emission_matrix != other.hmm.emission_matrix).any()
  assert (hmm.initial_probs == exact.silent_probs @ hmm.transition_matrix).all()
  for rows in (hmm.transition_matrix, hmm.emission_matrix):
    assert (rows.sum(-1) == 1).all() and max(value.denominator for value in rows.flat) <= 64
  for floats, fractions in zip(problem.hmm.validate(), hmm):
    np.testing.assert_array_equal(floats, np.array(fractions, floats.dtype))


def test_impossible_conditioning_is_refused(monkeypatch):
  """No distributions have a smallest singular value of 2."""
  monkeypatch.setattr(families, 'MAX_DRAWS', 10)
  with pytest.raises(ValueError, match='conditioning is 2'):
    families.draw('4.6', 'planted', jax.random.key(0), SIZES['4.6'], LIMITS, 2.0)
