"""The oracle in fractions against sums over all hidden paths, and float64 inference against the oracle."""

from fractions import Fraction
import itertools

from conftest import dirichlet_hmm, in_float64
import jax
from memory_hmm_cases import dense_hmm
import numpy as np
import rationals

from hmm_jax import hmm as hmm_lib, inference
from hmm_jax.hmm import HMM

# A chain with zeros: after token 1 comes no token 0 but right at the start.
SMALL = HMM(
  np.array([Fraction(1, 3), Fraction(2, 3), 0]),
  np.array([[0, Fraction(1, 2), Fraction(1, 2)], [0, Fraction(1, 7), Fraction(6, 7)], [0, 0, Fraction(1)]]),
  np.array([[Fraction(1, 5), Fraction(4, 5)], [Fraction(1), 0], [0, Fraction(1)]]),
)


def test_state_probs_equal_the_sum_over_all_paths():
  """They do so exactly for every text of tokens and [MASK]s, at each position, given its token or not."""
  kinds = set()
  for tokens in itertools.product(range(3), repeat=3):
    rows = rationals.likelihood_rows(SMALL, tokens)
    for position, leave_out in itertools.product(range(3), [True, False]):
      seen = [None if token == 2 else token for token in tokens]
      if leave_out:
        seen[position] = None
      weights = rationals.path_weights(*SMALL, seen, position)
      probs = rationals.state_probs(SMALL, rows, position, leave_out)
      np.testing.assert_array_equal(probs * weights.sum(), weights)
      assert probs.sum() == weights.any()
      kinds.add(weights.any())
  assert kinds == {True, False}


@jax.jit
def inferred(distribution, likelihoods):
  posterior = inference.forward_backward(distribution, likelihoods)
  return posterior, hmm_lib.conditional_token_probs(distribution, likelihoods)


def test_float64_inference_agrees_with_fractions():
  """It does so at every position of texts of a soft chain, of a cycle that makes most impossible, and of a memory."""
  rng = np.random.default_rng(3)
  cycle = HMM(np.full(4, 0.25), np.roll(np.eye(4), 1, axis=1), np.eye(4, 5))
  memory = dense_hmm(rng, 2, per_memory=True, num_states=2, num_tokens=3)
  for distribution in (dirichlet_hmm(rng, 4, 5), cycle, memory):
    hmm = rationals.exact_hmm(distribution)
    texts = rng.integers(hmm.num_tokens + 1, size=(4, 5))
    rows_of_texts = [rationals.likelihood_rows(hmm, tokens) for tokens in texts]
    posterior, token_probs = in_float64(inferred, distribution, np.array(rows_of_texts).astype(float))
    for at in np.ndindex(texts.shape):
      text, position = at
      rows = rows_of_texts[text]
      for found, exact in (
        (posterior.leave_one_out_probs, rationals.state_probs(hmm, rows, position, leave_out=True)),
        (posterior.smoothed_probs, rationals.state_probs(hmm, rows, position, leave_out=False)),
        (token_probs, rationals.token_probs(hmm, rows, position)),
      ):
        np.testing.assert_allclose(found[at], exact.astype(float), atol=1e-12)
