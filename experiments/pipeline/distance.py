"""The distance of a model from the ideal one, on chunks, at the [MASK] of test inputs, and over whole documents."""

import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments.pipeline.downstream import Downstream
from experiments.settings.groups import CorpusSettings
from experiments.settings.trial import Trial
import hmm_jax
from hmm_jax._support import compilation
from hmm_jax.distributions.hmm import chunk_start, Distribution
from hmm_jax.models import bayes_gap, masking
from hmm_jax.models.model import MaskedLM

# Fields of records that `measure` fills: the field of `Ideals` and that of its `Gap`.
_MEASURES = {
  'mlm_loss': ('on_chunks', 'loss'),
  'bayes_floor': ('on_chunks', 'floor'),
  'excess_mlm_loss': ('on_chunks', 'kl'),
  'kl_at_mask': ('at_mask', 'kl'),
  'tv_at_mask': ('at_mask', 'total_variation'),
  'kl_over_positions': ('over_positions', 'kl'),
  'tv_over_positions': ('over_positions', 'total_variation'),
}
# The same fields without a model.
UNMEASURED = dict.fromkeys(_MEASURES)


class Ideals(NamedTuple):
  """Ideal predictions that a model is measured against; a causal model, at every position of chunks and documents.

  Attributes:
    on_chunks: on corrupted chunks.
    at_mask: on inputs with one [MASK].
    over_positions: on documents with one [MASK] at each position in turn.
    batch_size: inputs in one call of the model.
  """

  on_chunks: bayes_gap.Ideal
  at_mask: bayes_gap.Ideal
  over_positions: bayes_gap.Ideal
  batch_size: int


def measure(model: MaskedLM, params: Any, ideals: Ideals) -> dict[str, float]:
  """The model's distance from the ideal, by the names that records use; in nats, total variation in [0, 1]."""
  *predictions, batch_size = ideals
  gaps = [bayes_gap.measure_gap(model, params, ideal, batch_size=batch_size) for ideal in predictions]
  by_name = dict(zip(Ideals._fields, gaps))
  return {field: getattr(by_name[name], of_gap) for field, (name, of_gap) in _MEASURES.items()}


def unigram_gap(at_mask: bayes_gap.Ideal) -> float:
  """The mean KL(G || mean of G) at the [MASK] in nats: the gap of a model that predicts only token frequencies."""
  probs = np.asarray(at_mask.token_probs, np.float64)[:, 0]
  return float(scipy.special.rel_entr(probs, probs.mean(0)).sum(-1).mean())


def ideals_of(trial: Trial, distribution: Distribution, downstream: Downstream) -> Ideals:
  """The ideal model's predictions on what pretrained models are measured on."""
  settings, measure = trial.settings, trial.settings.measure
  test_inputs = downstream.inputs[downstream.splits['test']][: measure.num_inputs]
  size, hidden = measure.batch_size, settings.downstream.hidden_position
  if settings.bert.causal:
    over_positions = jax.device_get(bayes_gap.ideal_next_tokens(distribution, downstream.documents))
  else:
    over_positions = bayes_gap.ideal_one_at_a_time(distribution, downstream.documents, batch_size=size)
  corruption = settings.pretrain.corruption(settings.hmm.num_tokens, settings.bert.causal)
  chunks = ideal_on_chunks(trial.keys().measure, distribution, measure.num_chunks, settings.corpus, corruption)
  at_mask = bayes_gap.ideal_at_mask(distribution, test_inputs, batch_size=size, hidden=hidden)
  return Ideals(jax.device_get(chunks), at_mask, over_positions, size)


@functools.partial(jax.jit, static_argnums=(2, 3, 4), compiler_options=compilation.ONCE)
def ideal_on_chunks(
  key: Array, distribution: Distribution, num_chunks: int, corpus: CorpusSettings, corruption: masking.Corruption
) -> bayes_gap.Ideal:
  """The ideal predictions on corrupted chunks, of the distribution as seen from a chunk's start."""
  at_chunk = chunk_start(distribution, corpus.chunk_length, corpus.chunks_per_document)
  chunks = hmm_jax.sample_corpus(key, at_chunk, num_chunks, corpus.chunk_length)
  if corruption == masking.next_token(corruption.num_tokens):
    return bayes_gap.ideal_next_tokens(at_chunk, chunks)
  return bayes_gap.ideal_under_corruption(jax.random.fold_in(key, 1), at_chunk, corruption, chunks)
