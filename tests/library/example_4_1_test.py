"""Facts about the paper's Example 4.1: the reading of its sentence, and Assumption 4.2."""

import jax.numpy as jnp
import numpy as np
from oracles import cells_of, log_space_posterior

from hmm_jax.distributions import example_4_1
from hmm_jax.distributions.hmm import token_likelihoods
from hmm_jax.inference.viterbi import most_likely_states

HMM, VOCABULARY = example_4_1.cow_in_the_pasture()


def test_the_papers_sentence_is_read_as_in_the_paper():
  """The likeliest memory and state path read the subject at cow and rolled, and so on.

  Cow, pasture and happy each gain at two words at least, and none is certain at the end.
  """
  tokens = example_4_1.encode(example_4_1.SENTENCE, VOCABULARY)
  posterior = log_space_posterior(HMM, np.float64(HMM.joint_emission_matrix).T[tokens])
  path = np.asarray(most_likely_states(HMM, token_likelihoods(HMM, tokens, jnp.ones(tokens.shape, bool))))
  assert len(set(path // HMM.num_states)) == 1
  held = np.unravel_index(path[0] // HMM.num_states, HMM.memory_probs.shape)
  assert [names[value] for names, value in zip(VOCABULARY.values, held)] == ['cow', 'pasture', 'happy']
  cells_TxNxM = cells_of(HMM.memory_probs.shape, posterior.filtered_probs)
  np.testing.assert_array_equal(cells_TxNxM[-1].argmax(-1), held)
  probs_TxN = cells_TxNxM[:, range(HMM.num_cells), held]
  assert ((np.diff(probs_TxN, axis=0) > 0.005).sum(0) >= 2).all() and (probs_TxN[-1] < 0.95).all()
