"""Sampling text from an `HMM` or a `MemoryHMM`, by Walker's alias method: one random word per draw."""

import functools
from typing import NamedTuple, TypeVar

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64
from hmm_jax._support.arguments import are_on_host, checked, converted
from hmm_jax.distributions.hmm import Distribution

ArrayT = TypeVar('ArrayT', Array, np.ndarray)

# Documents of a corpus that are drawn at once.
DOCUMENTS_AT_A_TIME = 256


@functools.partial(checked, static_argnames='length')
def sample(key: Array, hmm: Distribution, length: int) -> tuple[Array, Array]:
  """Draw one document: `(joint states [T], tokens [T])`, both int32, by the alias method from one word a draw.

  The memory is drawn once and stays for the whole document. Probabilities are resolved to 2^-24.

  >>> import hmm_jax as hj
  >>> hmm = hj.HMM(np.array([1.0, 0]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> states, tokens = sample(jax.random.key(0), hmm, length=5)
  >>> tokens.tolist()
  [0, 1, 0, 1, 0]
  """
  return _sample(key, _tables(hmm), length)


@converted
def sample_corpus(key: Array, hmm: Distribution, num_documents: int, length: int) -> Array:
  """Tokens of many documents, [S, T], int32.

  Document d is `sample(fold_in(key, d), hmm, length)`: it depends only on (key, d).

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> corpus = sample_corpus(jax.random.key(1), hmm, num_documents=6, length=5)
  >>> corpus.shape, corpus.dtype
  ((6, 5), dtype('int32'))
  """
  if not are_on_host(hmm):
    return _corpus(key, hmm, num_documents, length)
  # One of few sizes, so that most corpora share a program.
  step = 16 if num_documents <= DOCUMENTS_AT_A_TIME else DOCUMENTS_AT_A_TIME
  drawn = _corpus(key, hmm, -(-num_documents // step) * step, length)
  tokens = np.asarray(drawn)[:num_documents]
  return jnp.asarray(tokens, tokens.dtype)


@functools.partial(float64.jit, static_argnames=('num_documents', 'length'))
def _corpus(key: Array, hmm: Distribution, num_documents: int, length: int) -> Array:
  tables = _tables(hmm)

  def document(index: Array) -> Array:
    return _sample(jax.random.fold_in(key, index), tables, length)[1]

  # Chunks of one size, the last one running over, compile once; a remainder would compile again.
  num_chunks = -(-num_documents // DOCUMENTS_AT_A_TIME)
  chunk_size = -(-num_documents // num_chunks)
  return lax.map(document, jnp.arange(num_chunks * chunk_size), batch_size=chunk_size)[:num_documents]


@converted
def in_chunks(documents: ArrayT, chunk_length: int) -> ArrayT:
  """Documents cut into the chunks [S, T] of pretraining, without each document's remainder."""
  return documents[:, : documents.shape[1] // chunk_length * chunk_length].reshape(-1, chunk_length)


@converted
def sample_chunks(key: Array, hmm: Distribution, num_documents: int, document_length: int, chunk_length: int) -> Array:
  """`in_chunks` of `sample_corpus`, as `token_dtype`."""
  documents = sample_corpus(key, hmm, num_documents, document_length)
  return in_chunks(documents.astype(token_dtype(hmm.num_tokens)), chunk_length)


def far_start(hmm: Distribution, document_length: int, chunk_length: int) -> str:
  """A sentence if texts begin at another law of the hidden state than the chunks of documents do, else ''.

  A text begins at P[H_1], the middle one of the chunks of a document at P[H_t] of its first token t. The laws are far
  from each other if their total variation is 1/2 or more.
  """
  transitions = float64.float64(hmm.transition_matrix)
  law = float64.float64(hmm.joint_initial_probs).reshape(-1, len(transitions)).sum(0)
  middle = document_length // chunk_length // 2 * chunk_length
  distance = abs(law @ np.linalg.matrix_power(transitions, middle) - law).sum() / 2
  if distance < 0.5:
    return ''
  where = f'chunks of {chunk_length} tokens begin anywhere in documents of {document_length}'
  difference = f'total variation {distance:.2f} between the laws of their first states'
  return f'texts begin at initial_probs, {where} ({difference}); with document_length={chunk_length} chunks are texts'


def token_dtype(num_tokens: int) -> np.dtype:
  """The smallest unsigned type that holds ids 0 to V + 1."""
  return np.min_scalar_type(num_tokens + 1)


class AliasTable(NamedTuple):
  """Walker's alias method: a draw of one of V outcomes, from any row, costs two look-ups and one 32-bit word.

  Attributes:
    threshold: [..., V] in [0, 1], the share of column k that stays with outcome k.
    alias: [..., V] int32, the outcome that has the rest of column k.
  """

  threshold: Array
  alias: Array


def alias_table(probs: Array | np.ndarray) -> AliasTable:
  """The alias table, in float32, of each distribution on the last axis of `probs` (Walker 1977)."""

  def table_of_row(row: Array) -> tuple[Array, Array]:
    # float32 for every input type: narrower types cannot hold the 24 random bits that thresholds are compared with.
    row, size = row.astype(jnp.float32), row.shape[0]

    def settle(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
      # Fills the emptiest open column from the fullest one, which stays open with what is left of it.
      level, is_open, threshold, alias = carry
      low = jnp.where(is_open, level, jnp.inf).argmin()
      high = jnp.where(is_open, level, -jnp.inf).argmax()
      share = jnp.minimum(level[low], 1)
      threshold, alias = threshold.at[low].set(share), alias.at[low].set(high.astype(jnp.int32))
      return level.at[high].add(share - 1), is_open.at[low].set(False), threshold, alias

    level = row / row.sum() * size
    start = (level, jnp.ones(size, bool), jnp.ones(size, row.dtype), jnp.arange(size, dtype=jnp.int32))
    return lax.fori_loop(0, size, settle, start)[2:]

  return AliasTable(*jnp.vectorize(table_of_row, signature='(v)->(v),(v)')(probs))


def alias_draw(table: AliasTable, row: Array | int, word: Array) -> Array:
  """One draw from row `row` of `table`, decided by one uniform uint32 `word`; int32."""
  # word * size / 2**32 in halves: its whole part picks the column, its fraction is compared with the threshold.
  size_high, size_low = divmod(table.threshold.shape[-1], 2**16)
  low = (word & 0xFFFF) * size_low
  middle = (word >> 16) * size_low + (low >> 16)
  carry = (middle & 0xFFFF) + (word & 0xFFFF) * size_high
  column = ((middle >> 16) + (word >> 16) * size_high + (carry >> 16)).astype(jnp.int32)
  fraction = ((carry & 0xFFFF) << 8) | ((low & 0xFFFF) >> 8)
  stays = fraction.astype(jnp.float32) < table.threshold[row, column] * 2.0**24
  return jnp.where(stays, column, table.alias[row, column])


def _tables(hmm: Distribution) -> tuple[AliasTable, ...]:
  """The alias tables of P[e_1], of the transitions of h and of the emissions of e."""
  rows = hmm.joint_initial_probs[None], hmm.transition_matrix, hmm.joint_emission_matrix
  return tuple(map(alias_table, rows))


def _sample(key: Array, tables: tuple[AliasTable, ...], length: int) -> tuple[Array, Array]:
  """`sample` from the alias tables of P[e_1], transitions and emissions."""
  initial, transition, emission = tables
  words_2xT = jax.random.bits(key, (2, length), jnp.uint32)

  def step(state: Array, word: Array) -> tuple[Array, Array]:
    return alias_draw(transition, state, word), state

  first = alias_draw(initial, 0, words_2xT[0, 0])
  first_state = first % transition.threshold.shape[0]
  last, states = lax.scan(step, first_state, words_2xT[0, 1:])
  joint_states = first - first_state + jnp.append(states, last)
  return joint_states, alias_draw(emission, joint_states, words_2xT[1])
