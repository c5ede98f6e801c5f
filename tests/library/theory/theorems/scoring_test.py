"""What the exact model says, the factor r_x and what a construction reads: all agree with rational arithmetic."""

import functools
import itertools

import numpy as np
import pytest
import rationals
from theory_cases import (
  drawn,
  exact_hmm,
  exact_posterior,
  FAMILIES,
  first_predictions,
  in_region_by_definition,
  LIMITS,
  SIZES,
)

from hmm_jax.theory.exact.constructions import exact_construction
from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import assumptions, padding, scoring, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes

pytestmark = pytest.mark.usefixtures('without_optimisation')

LENGTH = 3
# One size for all problems, so that few programs are compiled; the test of it has each problem of its own size too.
PADDED = PaddedSizes(num_states=7, num_tokens=6, memory_size=3, num_outputs=8)
MARGIN = 1e-9
COUNT = 24


def sequences(problem, states=None):
  """A few of all sequences, impossible and short ones among them, half of them in R of H* = `states`."""
  every, supports = texts.all_sequences(problem.hmm.num_tokens, LENGTH), texts.supports(problem.hmm)
  inside = texts.possible_sequences(supports, LENGTH)
  if states is not None:
    inside = inside[texts.in_region(supports, states, inside)]
  rng = np.random.default_rng(0)
  return np.concatenate([rng.choice(every, COUNT // 2), rng.choice(inside, COUNT // 2)])


@functools.cache
def with_region(theorem, family, count):
  """The first problems of a family with some sequences in R, each with H*."""

  def has_region(problem):
    return texts.in_region(texts.supports(problem.hmm), states_of(problem), texts_of(problem)).any()

  texts_of = lambda problem: texts.possible_sequences(texts.supports(problem.hmm), LENGTH)
  finding_of = lambda problem: theorems.finding(theorems.ON_EMISSIONS[theorem], problem, LIMITS)
  states_of = lambda problem: finding_of(problem).witness.get('recoverable_states')
  found = (drawn(theorem, family, seed) for seed in itertools.count())
  if theorem[0] != '3':
    found = filter(has_region, found)
  return [(problem, states_of(problem)) for problem in itertools.islice(found, count)]


def predicted(theorem, problem, tokens, padded=PADDED):
  """Predictions, and what the theorem's head reads of them."""
  program = theorems.program(theorem, problem, LENGTH, LIMITS)
  predictions = scoring.predict(problem, program.prompt, program.finding, tokens, padded)
  return program, predictions, scoring.read(predictions, program.head, padded)


def in_fractions(theorem, problem, recovered):
  """The construction in `Fraction`s, of the identity on what is recovered."""
  weights = rationals.exact(theorems.identity_weights(problem.task_weights.shape[1], recovered))
  return exact_construction(problem.exact._replace(task_weights=weights), theorem)


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_predictions_and_what_is_read_agree_with_fractions(theorem, family):
  """Posterior, G, possibility, the region; and a head reads r_x times the posterior, with r_x as in the proof."""
  seen = 0
  for problem, states in with_region(theorem, family, 2):
    tokens = sequences(problem, states)
    program, found, read = predicted(theorem, problem, tokens)
    exact, hmm = in_fractions(theorem, problem, program.recovered), exact_hmm(problem)
    with_memory = theorem[0] != '3'
    for index, text in enumerate(tokens.tolist()):
      text = [token for token in text if token < problem.hmm.num_tokens]
      posterior = exact_posterior(problem, hmm, text)
      np.testing.assert_allclose(found.posterior[index], posterior.astype(float), atol=1e-13)
      assert found.possible[index] == posterior.any()
      if not posterior.any():
        continue
      G = exact.predicted(text) if with_memory else [exact.predicted(text)]
      np.testing.assert_allclose(
        found.token_probs[index, : len(G), : problem.hmm.num_tokens], np.array(G, float), atol=1e-13
      )
      assert not found.token_probs[index, len(G) :].any()
      in_region = in_region_by_definition(problem, hmm, states, text) if with_memory else True
      assert found.in_region[index] == in_region
      if in_region and posterior[program.recovered].any():
        _, built = exact.scores(text)
        np.testing.assert_allclose(read[index], built.astype(float), rtol=1e-9, atol=1e-12)
        factors = built[:-1].sum() / posterior[program.recovered].sum()
        np.testing.assert_allclose(found.factor[index], float(factors), rtol=1e-9)
        assert (built[:-1] == factors * posterior[program.recovered]).all() and factors > 0
        seen += 1
  assert seen > 4


def test_the_cases_are_what_the_page_says():
  """Among the problems above: prompts behind a start that is not stationary, P[M] with zeros, two dependent cells."""
  with_prompt = [p for t, f in FAMILIES if t in ('4.6', 'C.6') for p, _ in with_region(t, f, 2)]
  assert any(not np.allclose(p.silent_probs, p.hmm.initial_probs) for p in with_prompt)
  assert any((p.hmm.memory_probs == 0).any() for p in with_prompt)
  rank = lambda p: np.linalg.matrix_rank(p.hmm.memory_probs)
  assert any(p.hmm.num_cells == 2 and rank(p) > 1 for p in with_prompt)


@pytest.mark.parametrize('theorem', ['3.6', 'C.6'])
def test_room_changes_nothing(theorem):
  """A problem filled up gives the very posteriors, predictions, factors and scores, but for rounding."""
  ((problem, states),) = with_region(theorem, 'planted', 1)
  tokens = sequences(problem, states)
  _, small, read_small = predicted(theorem, problem, tokens, padded=None)
  _, large, read_large = predicted(theorem, problem, tokens)
  num_tokens = problem.hmm.num_tokens
  assert not large.token_probs[..., num_tokens:].any()
  large = large._replace(
    token_probs=large.token_probs[..., :num_tokens],
    tokens=np.where(large.tokens < num_tokens, large.tokens, num_tokens),
  )
  for one, other in zip(small, large, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
  inside = small.in_region
  np.testing.assert_allclose(read_small[inside], read_large[inside], rtol=1e-10, atol=1e-13)


def test_the_room_of_a_head_keeps_its_mask():
  """The row of [MASK] stays the last, and nothing is added to what is read."""
  problem = drawn('C.6')
  head = theorems.program('C.6', problem, LENGTH, LIMITS).head
  large = padding.head(head, PaddedSizes(9, 8, 4, 5))
  np.testing.assert_array_equal(large.token_embeddings[-1][: head.token_embeddings.shape[1]], head.token_embeddings[-1])
  assert large.token_embeddings.shape == (9, 36) and large.output.shape == (36, 5)
  assert all(np.sum(np.abs(a)) == pytest.approx(np.sum(np.abs(b))) for a, b in zip(head, large))


def test_a_falling_temperature_tends_to_argmax():
  """Scores of a softmax tend to those of argmax, monotonically in the largest error, also where positions tie."""
  ((problem, states),) = with_region('4.3', 'planted', 1)
  tokens = sequences(problem, states)
  program, found, read = predicted('4.3', problem, tokens)
  errors = [
    np.abs(scoring.read(found, program.head, PADDED, temperature) - read)[found.in_region].max()
    for temperature in (1.0, 0.1, 0.01, 1e-3)
  ]
  assert errors[0] > 10 * errors[-1] and sorted(errors, reverse=True) == errors


def test_first_predictions_agree_with_rational_arithmetic():
  """G_1 of (MASK, x) and the scores of P[H_0 | X_2:T+1 = x], the masked state, from P[H_0]."""
  problem = drawn('3.3')
  model, silent = rationals.exact_hmm(problem.exact.hmm), exact_hmm(problem)
  tokens = sequences(problem)
  features, scores, possible = first_predictions(problem, tokens)
  for index, text in enumerate(tokens.tolist()):
    rows = rationals.likelihood_rows(model, [model.num_tokens, *text])
    states = rationals.state_probs(silent, rows, 0, leave_out=True).astype(float)
    np.testing.assert_allclose(features[index], rationals.token_probs(model, rows, 0).astype(float), atol=1e-12)
    np.testing.assert_allclose(scores[index], assumptions.contrasts(problem.task_weights) @ states, atol=1e-12)
    assert possible[index] == (states.sum() > 0)


def test_one_program_for_all_sizes():
  """A second HMM of another size compiles nothing, behind a prompt or without."""
  sizes = [SIZES['3.3'], SIZES['3.3']._replace(num_states=3, num_tokens=6, num_classes=2)]
  compiled = []
  for size in sizes:
    problem = drawn('3.3', 'unplanted', 6, size)
    predicted('3.3', problem, sequences(problem))
    compiled.append(scoring._state_predictions_in_float64._cache_size())
  assert compiled[0] == compiled[1]
