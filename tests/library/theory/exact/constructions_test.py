"""Constructions in exact fractions: against the fractions of other code, and against their theorems."""

from fractions import Fraction
import itertools

from conftest import contradictory_memory, contradictory_states
import numpy as np
import pytest
import rationals
from theory_cases import drawn, exact_hmm, exact_posterior, in_region_by_definition, LIMITS

from hmm_jax.theory.exact import algebra
from hmm_jax.theory.exact.constructions import exact_construction
from hmm_jax.theory.exact.problem import StateProblem
from hmm_jax.theory.problems.families import Sizes
from hmm_jax.theory.theorems import assumptions, theorems

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


def test_left_inverse_and_projection_are_those_of_moore_and_penrose():
  """Both are exact, also where the span has dependent columns; of those there is no left inverse."""
  columns = (np.random.default_rng(0).multinomial(12, np.ones(5) / 5, 3) * Fraction(1, 12)).T
  inverse, twice = algebra.left_inverse(columns), np.hstack([columns, columns[:, :1]])
  np.testing.assert_array_equal(inverse @ columns, np.eye(3))
  np.testing.assert_array_equal(columns @ inverse, (columns @ inverse).T)
  np.testing.assert_array_equal(algebra.off_span(twice), np.eye(5, dtype=int) - columns @ inverse)
  with pytest.raises(ValueError, match='rank 3'):
    algebra.left_inverse(twice)


@pytest.mark.parametrize('theorem', SIZES)
def test_the_constructions_are_right_without_any_rounding(theorem):
  """Posteriors, G and R are those of `rationals`, and in R the scores are a positive multiple of the exact ones."""
  right = 0
  for seed in range(3):
    floats = problem_of(theorem, seed)
    problem, with_states = floats.exact, isinstance(floats, StateProblem)
    exact, of_floats = exact_construction(problem, theorem), exact_construction(floats._replace(exact=None), theorem)
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
  at = next((index for index, score in enumerate(label) if score), 0)
  factor = constructed[at] / label[at] if label[at] else 1
  assert factor > 0
  np.testing.assert_array_equal(constructed, factor * label)


def assert_right_on_region(problem, theorem, length):
  """Scores of every text in R are a positive multiple of the exact ones; returns how many are not 0."""
  exact, right = exact_construction(problem, theorem), 0
  for tokens in filter(exact.in_region, texts_of(problem, length)):
    label, constructed = exact.scores(tokens)
    assert_positive_multiple(constructed, label)
    right += label.any()
  return right


@pytest.mark.parametrize('first', [np.full(3, 1 / 3), np.eye(3)[1]], ids=['stationary', 'one-hot'])
def test_theorem_4_3_holds_of_periodic_chains_and_from_one_state(first):
  """Its proof uses nothing of Assumption 3.2: a cycle of three states will do, and the float program is built."""
  problem = problem_of('4.3')
  hmm = problem.hmm._replace(transition_matrix=np.roll(np.eye(3), 1, axis=0), initial_probs=first)
  problem = problem._replace(hmm=hmm, silent_probs=first, exact=None)
  assert not assumptions.regularity(hmm, LIMITS.thresholds).holds
  theorems.construct('4.3', problem, 3, LIMITS)
  assert assert_right_on_region(problem, '4.3', 3) > 2


def test_a_memory_without_probability_takes_no_part():
  """Its own first law may lack support, and its prompt be what it likes."""
  for seed in range(3):
    problem = problem_of('4.6', seed).exact
    weighed = assumptions.weighted_states(problem.task_weights)
    memory_probs, silent, first = map(rationals.exact, (np.zeros(3), np.eye(3), np.eye(3)[::-1]))
    memory_probs[weighed] = [Fraction(1, 3), Fraction(2, 3)]
    silent[weighed], first[weighed] = problem.silent_probs, problem.hmm.initial_probs
    hmm = problem.hmm._replace(memory_probs=memory_probs, initial_probs=first)
    problem = problem._replace(hmm=hmm, silent_probs=silent)
    assert assert_right_on_region(problem, '4.6', 2)


def test_contradictions_and_impossible_texts_score_nothing():
  """Where a text rules supp(mu) out, or is impossible, exact and constructed scores are 0, and both occur."""
  kinds = set()
  for problem, theorem in ((contradictory_states(), '3.6'), (contradictory_memory(), '4.6')):
    exact = exact_construction(problem, theorem)
    for tokens in texts_of(problem, 3):
      label, constructed = exact.scores(tokens)
      if theorem == '3.6' or exact.in_region(tokens):
        assert_positive_multiple(constructed, label)
      kinds.add((theorem, bool(exact.posterior(tokens).any()), bool(label.any())))
  assert kinds >= {('3.6', True, False), ('4.6', True, False), ('4.6', False, False)}


@pytest.mark.parametrize(
  ('theorem', 'words'), [('3.3', 'rank 1'), ('3.6', 'Assumption 3.5'), ('4.6', 'reads cell 0'), ('C.6', 'reads cell')]
)
def test_columns_that_cannot_be_told_apart_are_refused(theorem, words):
  """Where all states say the same, nothing can be recovered."""
  problem = problem_of(theorem)
  flat = np.full_like(problem.hmm.emission_matrix, 1 / problem.hmm.num_tokens)
  with pytest.raises(ValueError, match=words):
    exact_construction(problem._replace(hmm=problem.hmm._replace(emission_matrix=flat)), theorem)
