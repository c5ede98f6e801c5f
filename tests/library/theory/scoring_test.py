"""Predictions of the exact model, the factor r_x and the inputs of a construction agree with exact fractions."""

import itertools

import numpy as np
import pytest
import rationals
from theory_cases import CRITERIA, drawn, exact_hmm, exact_posterior, FAMILIES
from theory_fractions import in_region

from hmm_jax.theory import assumptions, comparison, padding, scoring, texts, theorems
from hmm_jax.theory.padding import PaddedSizes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('without_optimisation')]

LENGTH = 3
# One size for all problems, so that few programs are compiled.
PADDED = PaddedSizes(num_states=7, num_tokens=6, memory_size=3, num_outputs=8)
COUNT = 24


def with_region(theorem, family):
  """The problems of a family of which some sequence is in R, each with its sequences.

  Those are a few of all, impossible and short ones among them, and as many in R.
  """
  for seed in itertools.count():
    problem = drawn(theorem, family, seed)
    supports, every = texts.supports(problem.hmm), texts.all_sequences(problem.hmm.num_tokens, LENGTH)
    inside = texts.possible_sequences(supports, LENGTH)
    if theorem[0] != '3':
      witness = theorems.finding(theorems.ON_EMISSIONS[theorem], problem, CRITERIA).witness
      inside = inside[texts.in_region(supports, witness['recoverable_states'], inside)]
    if len(inside):
      rng = np.random.default_rng(0)
      yield problem, np.concatenate([rng.choice(some, COUNT // 2) for some in (every, inside)])


def predicted(theorem, problem, tokens, padded=PADDED):
  """Predictions, and what the theorem's head reads of them."""
  program = theorems.program(theorem, problem, LENGTH, CRITERIA)
  predictions = scoring.predict(problem, program.prompt, program.finding, tokens, padded)
  head = padding.head(program.head, padded) if padded else program.head
  return program, predictions, scoring.read(predictions, head)[:, : len(program.recovered) + 1]


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_predictions_and_inputs_of_heads_agree_with_fractions(theorem, family):
  """Posterior, G, possibility and the region; and a head reads r_x times the posterior, with r_x as in the proof."""
  seen, of_states = 0, theorem[0] == '3'
  for problem, tokens in itertools.islice(with_region(theorem, family), 2):
    program, found, read = predicted(theorem, problem, tokens)
    sure = scoring.has_sure_position(problem, program.finding, tokens)
    recovered, num_tokens, prompt = program.recovered, problem.hmm.num_tokens, list(program.prompt)
    assert np.isin(assumptions.weighted_states(problem.task_weights), recovered).all()
    of_label, of_model = exact_hmm(problem), rationals.exact_hmm(problem.fractions.hmm)
    for index, text in enumerate(tokens.tolist()):
      text = [token for token in text if token < num_tokens]
      posterior = exact_posterior(problem, of_label, text)
      np.testing.assert_allclose(found.posterior[index], posterior.astype(float), atol=1e-13)
      assert found.possible[index] == posterior.any()
      if not posterior.any():
        continue
      rows = prompt + rationals.likelihood_rows(of_model, [num_tokens, *text] if of_states else text)
      positions = [len(prompt)] if of_states else range(len(rows))
      G = np.float64([rationals.token_probs(of_model, rows, position) for position in positions])
      np.testing.assert_allclose(found.token_probs[index, : len(G), :num_tokens], G, atol=1e-13)
      assert not found.token_probs[index, len(G) :].any()
      states = program.finding.witness.get('recoverable_states')
      is_inside = of_states or in_region(problem, of_label, states, text)
      assert sure[index] == is_inside
      if is_inside and posterior[recovered].any():
        expected = found.factor[index] * np.append(posterior[recovered], 0).astype(float)
        np.testing.assert_allclose(read[index], expected, rtol=1e-9, atol=1e-12)
        assert found.factor[index] > 0
        seen += 1
  assert seen > 4


def test_possible_texts_with_a_sure_position_are_those_in_r(monkeypatch):
  """Block by block, as the supports say."""
  monkeypatch.setattr(comparison, 'BLOCK_SIZE', 50)
  problem, _ = next(with_region('4.3', 'planted'))
  program, supports = theorems.program('4.3', problem, LENGTH, CRITERIA), texts.supports(problem.hmm)
  tokens = texts.possible_sequences(supports, LENGTH)
  expected = texts.in_region(supports, program.finding.witness['recoverable_states'], tokens)
  np.testing.assert_array_equal(comparison.has_sure_position(problem, program, tokens), expected)
  assert expected.any()
