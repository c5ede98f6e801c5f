"""Sampling: the alias method draws from its rows, and a document depends only on its key and number."""

from conftest import joint_hmm
from inference_cases import SPARSE
import jax
import jax.numpy as jnp
from memory_hmm_cases import float32, memory_without_full_support
import numpy as np
import pytest
from scipy import stats

from hmm_jax.distributions import sampling


def test_alias_draw_over_all_words_has_the_given_frequencies():
  """Over an even grid of words each outcome is drawn as often as its probability says, up to the grid.

  Outcomes of probability 0 are never drawn, and the ends of the range are words like any other.
  """
  probs = np.float32([[0.1, 0.2, 0.3, 0.4], [0, 0.5, 0, 0.5], [0, 0, 1, 0], [0.25] * 4, [1e-6, 0, 0, 1 - 1e-6]])
  words = np.linspace(0, 2**32 - 1, 2**16).astype(np.uint32)
  table = sampling.alias_table(probs)
  for row, expected in enumerate(probs):
    counts = np.bincount(sampling.alias_draw(table, row, words), minlength=4)
    np.testing.assert_allclose(counts / 2**16, expected, rtol=0, atol=8 / 2**16)
    np.testing.assert_array_equal(counts[expected == 0], 0)


@pytest.mark.parametrize('size', [3, 2**16, 2**16 + 1, 100_000, 2**20 + 7])
def test_a_column_is_the_words_share_of_all_columns(size):
  """Also where a product of a half of the word with the size takes more than 32 bits."""
  words = np.random.default_rng(0).integers(2**32, size=1000, dtype=np.uint32)
  table = sampling.AliasTable(jnp.ones((1, size)), jnp.zeros((1, size), jnp.int32))
  expected = [int(word) * size >> 32 for word in words]
  assert sampling.alias_draw(table, 0, jnp.asarray(words)).tolist() == expected


def assert_counts_follow(counts, probs):
  """Chi-square at level 1e-4; what has probability 0 is never drawn."""
  np.testing.assert_array_equal(counts[probs == 0], 0)
  possible = probs[probs > 0]
  assert stats.chisquare(counts[probs > 0], possible / possible.sum() * counts.sum()).pvalue > 1e-4


def test_samples_follow_the_parameters():
  """First states, transitions and tokens have the frequencies of the chain of joint states, where a memory stays."""
  hmm = memory_without_full_support()
  flat = jax.tree.map(np.float64, joint_hmm(hmm))
  draw = jax.jit(jax.vmap(lambda key: sampling.sample(key, float32(hmm), 16)))
  states, tokens = map(np.asarray, draw(jax.random.split(jax.random.key(0), 3000)))
  assert states.dtype == tokens.dtype == np.int32
  assert_counts_follow(np.bincount(states[:, 0], minlength=flat.num_states), flat.initial_probs)
  moves, emitted = np.zeros_like(flat.transition_matrix), np.zeros_like(flat.emission_matrix)
  np.add.at(moves, (states[:, :-1], states[:, 1:]), 1)
  np.add.at(emitted, (states, tokens), 1)
  for i in np.unique(states):
    assert_counts_follow(moves[i], flat.transition_matrix[i])
    assert_counts_follow(emitted[i], flat.emission_matrix[i])


def test_a_corpus_document_depends_only_on_key_and_index():
  """Document d is `sample(fold_in(key, d))` for any number of documents."""
  key, hmm = jax.random.key(3), float32(SPARSE)
  document = lambda d: sampling.sample(jax.random.fold_in(key, d), hmm, 12)[1]
  for count in (3, sampling.DOCUMENTS_AT_A_TIME + 3):
    corpus = sampling.sample_corpus(key, hmm, count, 12)
    np.testing.assert_array_equal(corpus[-3:], [document(d) for d in range(count - 3, count)])
    assert corpus.dtype == np.int32


def test_chunks_are_cut_from_the_beginning_of_each_document():
  chunks = sampling.in_chunks(np.arange(14).reshape(2, 7), 3)
  assert chunks.tolist() == [[0, 1, 2], [3, 4, 5], [7, 8, 9], [10, 11, 12]]


def test_tokens_have_the_smallest_type():
  """It holds the vocabulary, [MASK] and one id more."""
  assert [sampling.token_dtype(num_tokens) for num_tokens in (254, 255)] == [np.uint8, np.uint16]
