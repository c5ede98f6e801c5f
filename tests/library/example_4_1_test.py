"""Facts about the paper's Example 4.1: the reading of its sentence, and Assumption 4.2."""

import jax.numpy as jnp
import numpy as np

from hmm_jax.distributions import example_4_1
from hmm_jax.distributions.hmm import token_likelihoods
from hmm_jax.distributions.memory_hmm import cell_posterior
from hmm_jax.inference.viterbi import most_likely_states

HMM, VOCABULARY = example_4_1.cow_in_the_pasture()


def test_the_papers_sentence_is_read_as_in_the_paper():
  """The likeliest memory and state path read the subject at cow and rolled, and so on; no cell is certain."""
  tokens = example_4_1.encode(example_4_1.SENTENCE, VOCABULARY)
  rows = token_likelihoods(HMM, tokens, jnp.ones(tokens.shape, bool))
  configuration = np.asarray(most_likely_states(HMM, rows)) // HMM.num_states
  assert len(set(configuration)) == 1
  held = np.unravel_index(configuration[0], HMM.memory_probs.shape)
  assert [names[value] for names, value in zip(VOCABULARY.values, held)] == ['cow', 'pasture', 'happy']
  probs = cell_posterior(HMM, rows)
  np.testing.assert_array_equal(probs.argmax(-1), held)
  assert probs.max() < 0.95
