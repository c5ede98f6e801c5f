"""Sampling text beside dynamax and a loop compiled by numba; and a whole corpus, for its memory.

Every error is the largest distance of a token's share in the text from its exact mean over positions in float64, so
that it is of the size of chance: it says that all sample one law.
"""

from collections.abc import Iterator
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.studies.benchmark.measure import BenchmarkCase, compiled, Contender, Prepared
from experiments.studies.benchmark.settings import SamplingSettings
import hmm_jax
from hmm_jax.hmm import HMM
from hmm_jax.sampling import alias_table


def cases(settings: SamplingSettings, key: Array) -> Iterator[BenchmarkCase]:
  """Documents beside every peer, and a corpus without dynamax, which is too slow for it."""
  hmm = hmm_jax.random_hmm(key, settings.num_states, settings.num_tokens)
  length, expected = settings.document_length, exact_shares(hmm, settings.document_length)

  def error(tokens: Any) -> float:
    counts = np.bincount(np.asarray(tokens, np.uint8).reshape(-1), minlength=len(expected))
    return float(np.abs(counts / counts.sum() - expected).max())

  def ours(count: int) -> Prepared:
    sample = jax.jit(lambda key, hmm: hmm_jax.sample_corpus(key, hmm, count, length))
    return compiled(sample, key, hmm, error=error)

  def numba(count: int) -> Prepared:
    from experiments.studies.benchmark import loops

    initial, transition, emission = (tuple(map(np.asarray, alias_table(rows))) for rows in hmm)
    return Prepared(lambda: loops.sample(initial, transition, emission, count, length, 0), error)

  def dynamax(count: int) -> Prepared:
    from dynamax.hidden_markov_model import CategoricalHMM

    model = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)
    params, _ = model.initialize(**hmm_jax.to_dynamax(hmm))
    sample = jax.jit(jax.vmap(lambda key: model.sample(params, key, length)[1]))
    return compiled(sample, jax.random.split(key, count), error=error)

  def case(name: str, count: int, *more: Contender) -> BenchmarkCase:
    both = [Contender('ours', lambda: ours(count)), Contender('numba', lambda: numba(count), ('numba',))]
    return BenchmarkCase('sampling', name, [*both, *more])

  count, corpus = settings.num_documents, settings.corpus_documents
  peer = Contender('dynamax', lambda: dynamax(count), ('dynamax',))
  yield case(f'sample {count} x {length}, |H| = {hmm.num_states}', count, peer)
  yield case(f'sample a corpus, {corpus} x {length}', corpus)


def exact_shares(hmm: HMM, length: int) -> np.ndarray:
  """The mean over positions of P[X_t], [V], in float64."""
  probs, matrix, emissions = (np.asarray(x, np.float64) for x in hmm)
  total = np.zeros_like(probs)
  for _ in range(length):
    total += probs
    probs = probs @ matrix
    probs /= probs.sum()
  return total / length @ emissions
