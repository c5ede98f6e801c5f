"""Constructions in exact fractions: against the fractions of other code, and against the float64 ones."""

from fractions import Fraction
import itertools

from conftest import contradictory_memory, contradictory_states
import numpy as np
import pytest
import rationals
from theory_cases import drawn, EXACT, exact_hmm, exact_posterior, LIMITS

from hmm_jax.theory.exact import algebra, constructions
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
T = 3


def texts_of(problem, length):
  return itertools.product(range(problem.hmm.num_tokens), repeat=length)


def in_floats(problem):
  to_float = lambda leaf: np.asarray(leaf, float) if np.asarray(leaf).dtype == object else leaf
  fields = {name: to_float(leaf) for name, leaf in problem._asdict().items() if name != 'hmm'}
  return problem._replace(hmm=type(problem.hmm)(*map(to_float, problem.hmm)), **fields)


def problems_of(theorem, count):
  """Problems of `Fraction`s in which the assumptions hold."""
  family = 'unplanted' if theorem in ('3.3', '3.6') else 'planted'
  return [drawn(theorem, family, seed, SIZES[theorem]).exact for seed in range(count)]


def built(theorem, problem):
  """The float64 construction."""
  return theorems.construct(theorem, in_floats(problem), T, LIMITS)


def predicted(hmm, prompt, tokens):
  """P[X_i | all but position i] [V] of a prompt, if there is one, and of tokens, at each position."""
  rows = [*([] if prompt is None else [prompt.reshape(-1)]), *rationals.likelihood_rows(hmm, tokens)]
  return np.array([rationals.token_probs(hmm, rows, position) for position in range(len(rows))])


def test_left_inverse_and_projection_are_those_of_moore_and_penrose():
  """W^+ W = 1 exactly, both agree with float64, the projection is off the span, and dependent columns are refused."""
  rng = np.random.default_rng(0)
  columns = (rng.multinomial(12, np.ones(5) / 5, 3) * Fraction(1, 12)).T
  inverse = algebra.left_inverse(columns)
  np.testing.assert_array_equal(inverse @ columns, np.eye(3, dtype=int))
  np.testing.assert_allclose(inverse.astype(float), np.linalg.pinv(columns.astype(float)), atol=1e-12)
  twice = np.hstack([columns, columns[:, :1]])
  off = algebra.off_span(twice)
  assert not (off @ twice).any() and algebra.rank(twice) == 3 and algebra.rank(off) == 2
  np.testing.assert_array_equal(off @ off, off)
  with pytest.raises(ValueError, match='4 columns have rank 3'):
    algebra.left_inverse(twice)
  np.testing.assert_array_equal(algebra.off_span(columns[:, :0]), np.eye(5, dtype=int))


def test_integers_over_a_common_denominator():
  integers, denominator = algebra.as_integers(np.array([0.5, 0.25, Fraction(1, 3)], object))
  assert integers.tolist() == [6, 3, 4] and denominator == 12


@pytest.mark.parametrize('theorem', SIZES)
def test_scores_agree_with_other_fractions_and_the_float_head(theorem):
  """The label's scores and G are those of `rationals`, and the scores the float64 head's on that G to 1e-12.

  Of texts with a memory every nineteenth, at every position.
  """
  for problem in problems_of(theorem, 4):
    head, exact = built(theorem, problem)['head'], constructions.exact_construction(problem, theorem)
    of_label, of_model = exact_hmm(problem), rationals.exact_hmm(problem.hmm)
    with_states = isinstance(problem, StateProblem)
    for tokens in list(texts_of(problem, T))[:: 1 if with_states else 19]:
      label, constructed = exact.scores(tokens)
      posterior = exact_posterior(problem, of_label, tokens)
      np.testing.assert_array_equal(label, (problem.task_weights - problem.task_weights[-1]) @ posterior)
      G = predicted(of_model, exact.prompt, [of_model.num_tokens, *tokens] if with_states else tokens)
      if with_states:
        G = G[int(exact.prompt is not None)]
        close(constructed, G.astype(float) @ head.weights + head.bias)
      else:
        close(constructed, attention_on_exact_ties(head, exact, G, tokens))
      np.testing.assert_array_equal(exact.predicted(tokens), G)


def close(constructed, floats):
  np.testing.assert_allclose(constructed.astype(float), floats, rtol=0, atol=1e-12 * (1 + np.abs(floats).max()))


def attention_on_exact_ties(head, exact, G, tokens):
  """The float64 head's mean value over the positions of the largest exact logit, which the float logits agree with."""
  logits = exact.logits(list(G))
  float_logits = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(G.astype(float), head.positions)]
  np.testing.assert_allclose(np.array(logits, float), float_logits, atol=1e-11)
  embeddings = np.concatenate([head.prompt_embeddings, head.token_embeddings[list(tokens)]])
  values = [((head.value_weights @ g) * e) @ head.output for g, e in zip(G.astype(float), embeddings)]
  return np.mean([value for value, logit in zip(values, logits) if logit == max(logits)], axis=0)


@pytest.mark.parametrize('theorem', SIZES)
def test_the_constructions_are_right_without_any_rounding(theorem):
  """On every text that the theorem speaks of the scores are a positive multiple of the exact ones, or both are 0."""
  right = 0
  for problem in problems_of(theorem, 4):
    exact = constructions.exact_construction(problem, theorem)
    for tokens in texts_of(problem, 2):
      label, constructed = exact.scores(tokens)
      if exact.posterior(tokens).any() if isinstance(problem, StateProblem) else exact.in_region(tokens):
        assert_positive_multiple(constructed, label)
        right += bool(label.any())
  assert right > 10


def assert_right_on_region(problem, theorem, length):
  """Scores of every text in R are a positive multiple of the exact ones, or both 0; how many are not."""
  exact, right = constructions.exact_construction(problem, theorem), 0
  for tokens in texts_of(problem, length):
    if exact.in_region(tokens):
      label, constructed = exact.scores(tokens)
      assert_positive_multiple(constructed, label)
      right += bool(label.any())
  return right


@pytest.mark.parametrize('start', ['stationary', 'one-hot'])
def test_theorem_4_3_holds_of_periodic_chains_and_from_one_state(start):
  """Its proof uses nothing of Assumption 3.2: a cycle of three states, from its stationary law and from one state."""
  problem = problems_of('4.3', 1)[0]
  moves = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]) * Fraction(1)
  first = np.array([1, 1, 1]) * Fraction(1, 3) if start == 'stationary' else np.array([0, 1, 0]) * Fraction(1)
  problem = problem._replace(hmm=problem.hmm._replace(transition_matrix=moves, initial_probs=first), silent_probs=first)
  assert not assumptions.regularity(in_floats(problem).hmm, EXACT).holds
  assert 'head' in built('4.3', problem)
  assert assert_right_on_region(problem, '4.3', T) > 2


@pytest.mark.parametrize('theorem', ['4.6', 'C.6'])
def test_the_whole_posterior_is_recovered_from_any_start(theorem):
  """With mu the identity on its support, after a start that is not stationary: the posterior up to one factor."""
  problems = [p for p in problems_of(theorem, 8) if (p.silent_probs != p.hmm.initial_probs).any()]
  right = 0
  for problem in problems:
    identity = rationals.exact(theorems.identity_weights(3, assumptions.weighted_states(problem.task_weights)))
    right += assert_right_on_region(problem._replace(task_weights=identity), theorem, 2)
  assert right > 5


def test_a_memory_without_probability_takes_no_part():
  """Its own first law may lack support, and its prompt be what it likes; both constructions stand."""
  for problem in problems_of('4.6', 6):
    hmm, weighed = problem.hmm, assumptions.weighted_states(problem.task_weights)
    memory_probs, silent, first = map(rationals.exact, (np.zeros(3), np.eye(3), np.eye(3)[::-1]))
    memory_probs[weighed] = [Fraction(1, 3), Fraction(2, 3)]
    silent[weighed], first[weighed] = problem.silent_probs, hmm.initial_probs
    hmm = hmm._replace(memory_probs=memory_probs, initial_probs=first)
    problem = problem._replace(hmm=hmm, silent_probs=silent)
    assert assert_right_on_region(problem, '4.6', 2)
    exact, floats = constructions.exact_construction(problem, '4.6'), built('4.6', problem)
    np.testing.assert_allclose(floats['prompt'][0], exact.prompt.astype(float).reshape(-1), atol=1e-12)


def assert_positive_multiple(constructed, label):
  at = next((index for index, score in enumerate(label) if score), 0)
  factor = constructed[at] / label[at] if label[at] else 1
  assert factor > 0
  np.testing.assert_array_equal(constructed, factor * label)


def test_contradictions_and_impossible_texts_score_nothing():
  """Where a text rules supp(mu) out, or is impossible, exact and constructed scores are 0, and both occur."""
  kinds = set()
  for problem, theorem in ((contradictory_states(), '3.6'), (contradictory_memory(), '4.6')):
    exact = constructions.exact_construction(problem, theorem)
    for tokens in itertools.product(range(problem.hmm.num_tokens), repeat=3):
      label, constructed = exact.scores(tokens)
      if theorem == '3.6' or exact.in_region(tokens):
        assert_positive_multiple(constructed, label)
      kinds.add((theorem, bool(exact.posterior(tokens).any()), bool(label.any())))
  assert {(theorem, True, False) for theorem in ('3.6', '4.6')} <= kinds and ('4.6', False, False) in kinds


def test_a_mask_in_the_text_says_nothing():
  """A text with a [MASK] at its end has the posterior of the text without; the embedding of the [MASK] is ones."""
  problem = problems_of('4.6', 1)[0]
  exact = constructions.exact_construction(problem, '4.6')
  mask = problem.hmm.num_tokens
  text = next(text for text in texts_of(problem, 2) if exact.posterior(text).any())
  np.testing.assert_array_equal(exact.posterior((*text, mask)), exact.posterior(text))
  np.testing.assert_array_equal(exact.token_embeddings[mask], np.ones((3, 3), int))


def test_every_float_problem_is_a_rational_one():
  """Floats are taken as they are, rows divided by their sums; scores agree with those of the fractions they round."""
  for theorem in ('3.3', 'C.6'):
    problem = problems_of(theorem, 1)[0]
    of_fractions = constructions.exact_construction(problem, theorem)
    of_floats = constructions.exact_construction(in_floats(problem), theorem)
    text = next(text for text in texts_of(problem, 2) if of_fractions.posterior(text).any())
    np.testing.assert_allclose(
      of_floats.scores(text)[0].astype(float), of_fractions.scores(text)[0].astype(float), atol=1e-12
    )


def test_what_fails_is_refused():
  """Columns that the theorem cannot recover from."""
  problem = problems_of('3.3', 1)[0]
  flat = problem._replace(hmm=problem.hmm._replace(emission_matrix=np.full((3, 3), Fraction(1, 3), object)))
  for theorem, words in (('3.3', '3 columns have rank 1'), ('3.6', 'Assumption 3.5')):
    with pytest.raises(ValueError, match=words):
      constructions.exact_construction(flat, theorem)
  memory = contradictory_memory()
  hmm = memory.hmm._replace(emission_matrix=np.full((3, 2, 3), 1 / 3))
  with pytest.raises(ValueError, match='no state that reads cell 0'):
    constructions.exact_construction(memory._replace(hmm=hmm), '4.6')
