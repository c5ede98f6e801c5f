"""Sampling text beside dynamax; and a whole corpus, for its memory.

Every error is the largest distance of a token's share in the text from its exact mean over positions in float64.
Samplers of the right law have only sampling noise.
"""

from collections.abc import Iterator
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.studies.benchmark.measure import Case, compiled, Prepared
from experiments.studies.benchmark.settings import SamplingSettings
import hmm_jax
from hmm_jax.hmm import chunk_start, emitted_token_probs, HMM


def cases(settings: SamplingSettings, key: Array) -> Iterator[Case]:
  """Documents beside dynamax's, and a corpus, for which dynamax is too slow."""
  hmm = hmm_jax.random_hmm(key, settings.num_states, settings.num_tokens)
  length, expected = settings.document_length, exact_shares(hmm, settings.document_length)

  def error(tokens: Any) -> float:
    counts = np.bincount(np.asarray(tokens, np.uint8).reshape(-1), minlength=len(expected))
    return float(np.abs(counts / counts.sum() - expected).max())

  def ours(count: int) -> Prepared:
    return compiled(lambda key, hmm: hmm_jax.sample_corpus(key, hmm, count, length), key, hmm, error=error)

  def dynamax(count: int) -> Prepared:
    from dynamax.hidden_markov_model import CategoricalHMM

    # One emission a step.
    model = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)
    params, _ = model.initialize(**hmm_jax.to_dynamax(hmm))
    sample = jax.vmap(lambda key: model.sample(params, key, length)[1])
    return compiled(sample, jax.random.split(key, count), error=error)

  count, corpus = settings.num_documents, settings.corpus_documents
  yield (
    f'sample {count} x {length}, |H| = {hmm.num_states}',
    {
      'ours': lambda: ours(count),
      'dynamax': lambda: dynamax(count),
    },
  )
  yield f'sample a corpus, {corpus} x {length}', {'ours': lambda: ours(corpus)}


def exact_shares(hmm: HMM, length: int) -> np.ndarray:
  """The mean over positions of P[X_t], [V], in float64: the law of the first token of a chunk that begins anywhere."""
  with jax.enable_x64(True):
    start = chunk_start(jax.tree.map(jnp.float64, hmm), 1, length)
    return np.asarray(emitted_token_probs(start, start.initial_probs))
