"""Answers, predictions, the factor r_x and the inputs of a construction agree with exact fractions."""

import itertools

import numpy as np
import pytest
import rationals
from theory_cases import CRITERIA, drawn, exact_hmm, exact_posterior, FAMILIES
from theory_fractions import in_region

from hmm_jax.theory import assumptions, enumeration, scoring, theorems

pytestmark = pytest.mark.slow

LENGTH = 3
COUNT = 24


def with_region(theorem, family):
  """The problems of a family of which some sequence is in R, each with its program and answers on sequences.

  Those are a few of all, impossible and short ones among them, and as many in R.
  """
  for seed in itertools.count():
    problem = drawn(theorem, family, seed)
    program = theorems.program(theorem, problem, LENGTH, CRITERIA)
    every = enumeration.all_sequences(problem.hmm.num_tokens, LENGTH, LENGTH)
    inside = every[scoring.in_region(problem, program.finding, scoring.answer(problem, every))]
    if len(inside):
      rng = np.random.default_rng(0)
      tokens = np.concatenate([rng.choice(some, COUNT // 2) for some in (every, inside)])
      yield problem, program, scoring.answer(problem, tokens)


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_predictions_and_inputs_of_heads_agree_with_fractions(theorem, family):
  """Posterior, G, possibility and the region; and a head reads r_x times the posterior, with r_x as in the proof."""
  seen, of_states = 0, theorem[0] == '3'
  for problem, program, answers in itertools.islice(with_region(theorem, family), 2):
    covered = scoring.in_region(problem, program.finding, answers)
    found = scoring.predict(problem, program.prompt, program.finding, answers)
    read = scoring.read(found, program.head)
    recovered, num_tokens, prompt = program.recovered, problem.hmm.num_tokens, list(program.prompt)
    assert np.isin(assumptions.weighted_states(problem.task_weights), recovered).all()
    of_label, of_model = exact_hmm(problem), rationals.exact_hmm(problem.hmm)
    states = program.finding.witness.get('recoverable_states')
    for index, text in enumerate(answers.tokens.tolist()):
      text = [token for token in text if token < num_tokens]
      posterior = exact_posterior(problem, of_label, text)
      np.testing.assert_allclose(answers.posterior[index], posterior.astype(float), atol=1e-13)
      assert covered[index] == bool(posterior.any() and (of_states or in_region(problem, of_label, states, text)))
      if not covered[index]:
        continue
      rows = prompt + rationals.likelihood_rows(of_model, [num_tokens, *text] if of_states else text)
      positions = [len(prompt)] if of_states else range(len(rows))
      G = np.float64([rationals.token_probs(of_model, rows, position) for position in positions])
      np.testing.assert_allclose(found.token_probs[index, : len(G)], G, atol=1e-13)
      if posterior[recovered].any():
        expected = found.factor[index] * np.append(posterior[recovered], 0).astype(float)
        np.testing.assert_allclose(read[index], expected, rtol=1e-9, atol=1e-12)
        assert found.factor[index] > 0
        seen += 1
  assert seen > 4


def test_relative_errors_by_hand():
  """A positive factor is no error, a negative one is 2 and zeros are 1; small vectors are compared over 1e-4."""
  expected = np.array([[2, 1.0], [2, 1], [2, 1], [0, 0], [1e-9, 0]])
  scores = np.array([[6, 3.5], [-4, -2], [0, 0], [1e-9, 0], [0, 0]])
  np.testing.assert_allclose(scoring.relative_errors(scores, expected), [1 / 12, 2, 1, 1e-5, 1e-5])
