"""Small problems of every family of every theorem, for the tests of theory, and what is true of them in fractions."""

import functools

import jax
import rationals
from theory_assumptions_cases import EXACT

from experiments.studies.theory.verification import THEOREMS
from hmm_jax.theory import families
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.problem import StateProblem
from hmm_jax.theory.theorems import Criteria

CRITERIA = Criteria(EXACT, tolerance=1e-9, max_nodes=10_000)
CONDITIONING = 0.05
FAMILIES = [(theorem.name, family) for theorem in THEOREMS for family in theorem.families]
SIZES = {
  '3.3': Sizes(4, 5, 3),
  '3.6': Sizes(7, 4, 3),
  '4.3': Sizes(4, 6, 3, memory_size=2, num_cells=2),
  '4.6': Sizes(4, 6, 3, memory_size=3, num_cells=1),
  'C.6': Sizes(5, 6, 2, memory_size=3, num_cells=2),
}


@functools.cache
def drawn(theorem, family='planted', seed=0, sizes=None):
  """A problem of a family, which must not be changed in place."""
  return families.draw(theorem, family, jax.random.key(seed), sizes or SIZES[theorem], CRITERIA, CONDITIONING)


def exact_hmm(problem):
  """The `HMM` over joint states in `Fraction`s, from P[H_0] where the task is on states."""
  hmm = rationals.exact_hmm(problem.hmm)
  if isinstance(problem, StateProblem):
    hmm = hmm._replace(initial_probs=rationals.as_fractions(problem.silent_probs))
  return hmm


def exact_posterior(problem, hmm, tokens):
  """P[H_0 | x] or P[M_j* | x] of a text as `Fraction`s by `exact_hmm`; zeros where x cannot occur."""
  if isinstance(problem, StateProblem):
    rows = rationals.likelihood_rows(hmm, [hmm.num_tokens, *tokens])
    return rationals.state_probs(hmm, rows, 0, leave_out=False)
  joint = rationals.state_probs(hmm, rationals.likelihood_rows(hmm, tokens), 0, leave_out=False)
  by_cell = joint.reshape(*problem.hmm.memory_probs.shape, -1)
  return by_cell.sum(tuple(axis for axis in range(by_cell.ndim) if axis != problem.cell))
