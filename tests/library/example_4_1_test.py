"""Facts about the paper's Example 4.1: the reading of its sentence, and Assumption 4.2."""

from conftest import at
import jax
import jax.numpy as jnp
import numpy as np
from oracles import attention_by_the_paper, cells_of, float64, log_space_posterior
import pytest

from hmm_jax import example_4_1
from hmm_jax.hmm import token_likelihoods
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory.theorems import assumptions, recovery
from hmm_jax.viterbi import most_likely_states

pytestmark = pytest.mark.usefixtures('without_optimisation')

EXACT = assumptions.Thresholds(support=0.0, rank=1e-9)
HMM, VOCABULARY = example_4_1.cow_in_the_pasture()
WORDS = example_4_1.SENTENCE.lower().replace('.', ' .').split()
RECOVERABLE = {
  'subject': ('subject noun', 'subject verb'),
  'location': ('place noun', 'ground noun'),
  'sentiment': ('mood verb', 'adverb'),
}


def of_states(joint):
  """The probabilities of hidden states [..., H] from those of joint states."""
  return joint.reshape(*joint.shape[:-1], -1, HMM.num_states).sum(-2)


def state_numbers(names):
  return [VOCABULARY.states.index(name) for name in names]


@pytest.fixture(scope='module')
def texts():
  """Tokens [101, T] of the paper's sentence and of 100 sampled texts of as many words, and their posteriors."""
  sampled = sample_corpus(jax.random.key(2), HMM, 100, len(WORDS))
  tokens = np.concatenate([example_4_1.encode(example_4_1.SENTENCE, VOCABULARY)[None], sampled])
  return tokens, log_space_posterior(HMM, np.float64(HMM.joint_emission_matrix).T[tokens])


def test_the_example_is_a_distribution_and_its_names_fit():
  """Every field is a distribution of the right shape, and everything has exactly one name."""
  HMM.validate()
  words, cells, values, states = VOCABULARY
  sizes = HMM.num_tokens, HMM.num_cells, HMM.num_states, *[HMM.memory_size] * HMM.num_cells
  assert tuple(len(set(names)) for names in (words, cells, states, *values)) == sizes


def test_the_papers_sentence_is_read_as_in_the_paper(texts):
  """The likeliest memory and state path read the subject at cow and rolled, and so on.

  Cow, pasture and happy each gain at two words at least, and none is certain at the end.
  """
  tokens, posterior = texts[0][0], at(texts[1], 0)
  path = np.asarray(most_likely_states(HMM, token_likelihoods(HMM, tokens, jnp.ones(tokens.shape, bool))))
  assert len(set(path // HMM.num_states)) == 1
  held = np.unravel_index(path[0] // HMM.num_states, HMM.memory_probs.shape)
  assert [names[value] for names, value in zip(VOCABULARY.values, held)] == ['cow', 'pasture', 'happy']
  cells_TxNxM = cells_of(HMM.memory_probs.shape, posterior.filtered_probs)
  np.testing.assert_array_equal(cells_TxNxM[-1].argmax(-1), held)
  probs_TxN = cells_TxNxM[:, range(HMM.num_cells), held]
  assert ((np.diff(probs_TxN, axis=0) > 0.005).sum(0) >= 2).all() and (probs_TxN[-1] < 0.95).all()


def test_the_chain_of_the_example_starts_in_one_state():
  """So Assumption 3.2 fails, which Theorem 4.3 states and its proof does not use."""
  finding = assumptions.regularity(HMM, EXACT)
  assert not finding.holds
  assert finding.witness['states_without_start'].tolist() == list(range(1, HMM.num_states))


@pytest.mark.parametrize(
  'cell, words', [('subject', ['cow']), ('location', ['pasture', 'grass']), ('sentiment', ['happily'])]
)
def test_the_construction_of_theorem_4_3_recovers_each_cell_of_the_example(cell, words, texts):
  """With mu the identity its scores are P[M_j | x] up to a positive factor, on every text in R, and so is the label.

  Assumption 4.2 holds, or it would refuse. The paper's sentence is in R by supp P[H_i | x_-i] at these words,
  and never by rolled. A last class of weight 0 keeps mu the identity relative to it.
  """
  j, values = VOCABULARY.cells.index(cell), HMM.memory_size
  identity = np.vstack([np.eye(values), np.zeros((1, values))])
  head = recovery.theorem_4_3(HMM, identity, j, len(WORDS), EXACT)['head']
  tokens, posterior = texts
  others = np.delete(of_states(posterior.leave_one_out_probs), state_numbers(RECOVERABLE[cell]), -1)
  within = ~others.any(-1)
  assert within[0, [WORDS.index(word) for word in words]].all() and not within[0, WORDS.index('rolled')]
  assert within.any(1).sum() >= 60
  token_probs = posterior.leave_one_out_probs @ np.asarray(float64(HMM).joint_emission_matrix)
  for i in np.flatnonzero(within.any(1)):
    _, scores = attention_by_the_paper(head, token_probs[i], tokens[i], 0.0)
    expected = cells_of(HMM.memory_probs.shape, posterior.filtered_probs[i, -1])[j]
    cosine = scores[:values] @ expected / (np.linalg.norm(scores[:values]) * np.linalg.norm(expected))
    assert 1 - cosine <= 1e-9 and scores.argmax() == expected.argmax()


def test_text_and_tokens_translate_into_each_other():
  """`encode` undoes `decode`, which writes sentences; an unknown word is named."""
  twice = f'{example_4_1.SENTENCE} {example_4_1.SENTENCE}'
  assert example_4_1.decode(example_4_1.encode(twice, VOCABULARY), VOCABULARY) == twice
  with pytest.raises(ValueError, match="'horse' .* pasture"):
    example_4_1.encode('The horse in the pasture.', VOCABULARY)
