"""Constructions in exact fractions: against the fractions of other code, and against their theorems."""

import itertools

import numpy as np
import pytest
import rationals
from theory_cases import drawn, exact_hmm, exact_posterior, in_region_by_definition

from experiments.studies.theory.rational_constructions import exact_construction
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.problem import StateProblem

SIZES = {
  '3.3': Sizes(3, 3, 3),
  '3.6': Sizes(3, 2, 3),
  '4.3': Sizes(3, 5, 3, memory_size=2, num_cells=1),
  '4.6': Sizes(3, 5, 3, memory_size=3, num_cells=1),
  'C.6': Sizes(3, 5, 3, memory_size=3, num_cells=2),
}


def problem_of(theorem, seed=0):
  """A problem in which the assumptions hold."""
  return drawn(theorem, 'unplanted' if theorem[0] == '3' else 'planted', seed, SIZES[theorem])


def texts_of(problem, length):
  return itertools.product(range(problem.hmm.num_tokens), repeat=length)


@pytest.mark.parametrize('theorem', SIZES)
def test_the_constructions_are_right_without_any_rounding(theorem):
  """Posteriors, G and R are those of `rationals`, and in R the scores are a positive multiple of the exact ones."""
  right = 0
  for seed in range(3):
    floats = problem_of(theorem, seed)
    problem, with_states = floats.fractions, isinstance(floats, StateProblem)
    exact = exact_construction(problem, theorem)
    of_floats = exact_construction(floats._replace(fractions=None), theorem)
    of_label, of_model, mask = exact_hmm(problem), rationals.exact_hmm(problem.hmm), problem.hmm.num_tokens
    prompt = [] if exact.prompt is None else [exact.prompt.reshape(-1)]
    for tokens in texts_of(problem, 2):
      label, constructed = exact.scores(tokens)
      posterior = exact_posterior(problem, of_label, tokens)
      np.testing.assert_array_equal(label, (problem.task_weights - problem.task_weights[-1]) @ posterior)
      rows = prompt + rationals.likelihood_rows(of_model, [mask, *tokens] if with_states else tokens)
      positions = [len(prompt)] if with_states else range(len(rows))
      G = np.array([rationals.token_probs(of_model, rows, position) for position in positions])
      np.testing.assert_array_equal(np.reshape(exact.predicted(tokens), G.shape), G)
      in_region = posterior.any() if with_states else exact.in_region(tokens)
      if not with_states:
        assert in_region == in_region_by_definition(problem, of_label, exact.states, tokens)
      if in_region:
        assert_positive_multiple(constructed, label)
        right += label.any()
      np.testing.assert_array_equal(exact.posterior((*tokens, mask)), posterior)
      np.testing.assert_allclose(of_floats.posterior(tokens).astype(float), posterior.astype(float), atol=1e-12)
  assert right > 10


def assert_positive_multiple(constructed, label):
  """The scores are a positive multiple of the label's, or both are 0."""
  factor = constructed @ label / (label @ label) if label.any() else 1
  assert factor > 0
  np.testing.assert_array_equal(constructed, factor * label)


@pytest.mark.parametrize(('theorem', 'words'), [('3.3', 'rank 1'), ('3.6', 'Assumption 3.5'), ('4.6', 'reads cell 0')])
def test_equal_columns_are_refused(theorem, words):
  """If all states emit the same, nothing can be recovered."""
  problem = problem_of(theorem)
  flat = np.full_like(problem.hmm.emission_matrix, 1 / problem.hmm.num_tokens)
  with pytest.raises(ValueError, match=words):
    exact_construction(problem._replace(hmm=problem.hmm._replace(emission_matrix=flat)), theorem)
