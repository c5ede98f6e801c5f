"""Facts about sampling: the alias method draws what it should, and a document depends on its key and number alone."""

from hmm_cases import float32_hmm, sparse_hmm
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hmm_jax import hmm as hmm_lib, sampling

pytestmark = pytest.mark.usefixtures('without_optimisation')


def alias_probs(table):
  """The distributions that a table of [N, K] draws from."""
  threshold, alias = map(np.asarray, table)
  probs = threshold.astype(np.float64)
  for row, column in np.ndindex(*alias.shape):
    probs[row, alias[row, column]] += 1 - threshold[row, column]
  return probs / alias.shape[1]


ALIAS_ROWS = np.float32([[0.1, 0.2, 0.3, 0.4], [0, 0.5, 0, 0.5], [0, 0, 1, 0], [0.25] * 4, [1e-6, 0, 0, 1 - 1e-6]])


def test_alias_table_has_the_given_distributions():
  """Thresholds and aliases add up to the probabilities, and outcomes of probability 0 to exactly 0."""
  probs = alias_probs(sampling.alias_table(jnp.asarray(ALIAS_ROWS)))
  np.testing.assert_allclose(probs, ALIAS_ROWS, rtol=0, atol=1e-6)
  np.testing.assert_array_equal(probs[ALIAS_ROWS == 0], 0)


def test_alias_table_of_the_paper_draw():
  """Near one-hot distributions of many outcomes are kept too, whatever the leading axes."""
  emission_matrix = hmm_lib.random_hmm(jax.random.key(0), 30, 50).emission_matrix
  flat = sampling.alias_table(emission_matrix)
  np.testing.assert_allclose(alias_probs(flat), emission_matrix, rtol=0, atol=1e-5)
  for table, folded in zip(flat, sampling.alias_table(emission_matrix.reshape(5, 6, 50))):
    np.testing.assert_array_equal(folded.reshape(30, 50), table)


def test_alias_draw_over_all_words_has_the_given_frequencies():
  """Over an even grid of words each outcome is drawn as often as its probability says, up to the grid."""
  words = jnp.arange(2**16, dtype=jnp.uint32) * 2**16 + 2**15
  table = sampling.alias_table(jnp.asarray(ALIAS_ROWS))
  for row, probs in enumerate(ALIAS_ROWS):
    draws = sampling.alias_draw(table, row, words)
    assert draws.dtype == jnp.int32
    counts = np.bincount(draws, minlength=4)
    np.testing.assert_allclose(counts / 2**16, probs, rtol=0, atol=8 / 2**16)
    np.testing.assert_array_equal(counts[probs == 0], 0)


def test_alias_draw_covers_the_ends_of_the_word_range():
  """The smallest and the largest word give the first and the last outcome of a uniform distribution."""
  table = sampling.alias_table(jnp.full((1, 10), 0.1))
  words = jnp.array([0, 2**32 - 1], jnp.uint32)
  np.testing.assert_array_equal(sampling.alias_draw(table, 0, words), [0, 9])


def assert_counts_follow(counts, probs):
  """Chi-square at level 1e-4; what has probability 0 is never drawn."""
  counts, probs = np.asarray(counts), np.asarray(probs, np.float64)
  np.testing.assert_array_equal(counts[probs == 0], 0)
  expected = probs[probs > 0] / probs.sum() * counts.sum()
  assert stats.chisquare(counts[probs > 0], expected).pvalue > 1e-4


@pytest.mark.parametrize('hmm', [sparse_hmm(), float32_hmm(0, 3, 4)], ids=['sparse', 'dense'])
def test_samples_follow_the_parameters(hmm):
  """First states, transitions and tokens have the frequencies of the parameters, and impossible ones never occur."""
  draw = jax.jit(jax.vmap(lambda key: sampling.sample(key, hmm, 16)))
  states, tokens = map(np.asarray, draw(jax.random.split(jax.random.key(0), 2000)))
  assert states.dtype == tokens.dtype == np.int32
  assert_counts_follow(np.bincount(states[:, 0], minlength=3), hmm.initial_probs)
  transitions, emissions = np.zeros((3, 3)), np.zeros((3, 4))
  np.add.at(transitions, (states[:, :-1], states[:, 1:]), 1)
  np.add.at(emissions, (states, tokens), 1)
  for i in range(3):
    assert_counts_follow(transitions[i], hmm.transition_matrix[i])
    assert_counts_follow(emissions[i], hmm.emission_matrix[i])


@pytest.mark.parametrize('chunk_size', [1, 2, 5, 256])
def test_corpus_document_depends_on_key_and_index_alone(chunk_size):
  """Document d is `sample(fold_in(key, d))`, whatever the size of a chunk and the number of documents."""
  key, hmm = jax.random.key(3), float32_hmm(0, 3, 4)
  corpus = sampling.sample_corpus(key, hmm, 5, 12, chunk_size=chunk_size)
  documents = [sampling.sample(jax.random.fold_in(key, d), hmm, 12)[1] for d in range(5)]
  np.testing.assert_array_equal(corpus, documents)
  np.testing.assert_array_equal(sampling.sample_corpus(key, hmm, 3, 12, chunk_size=chunk_size), documents[:3])


@pytest.mark.parametrize('num_tokens, dtype', [(10, jnp.uint8), (254, jnp.uint8), (255, jnp.uint16)])
def test_corpus_has_the_smallest_type(num_tokens, dtype):
  """The type holds the vocabulary, [MASK] and one id more."""
  assert sampling.sample_corpus(jax.random.key(0), float32_hmm(0, 2, num_tokens), 2, 3).dtype == dtype
