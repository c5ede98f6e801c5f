"""Exact inference beside dynamax, hmmlearn and loops compiled by numba; a memory's posterior beside its chain.

Every error is the largest of a probability, against scaled messages in numpy and float64 that share no line with ours.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.studies.benchmark.measure import BenchmarkCase, compiled, Contender, Prepared
from experiments.studies.benchmark.settings import InferenceSettings
import hmm_jax
from hmm_jax.hmm import Distribution, HMM
from hmm_jax.memory_hmm import cell_probs


def cases(settings: InferenceSettings, key: Array) -> Iterator[BenchmarkCase]:
  """Smoothing of each size, and the posterior of a memory."""
  for num_states in settings.num_states:
    hmm = hmm_jax.random_hmm(jax.random.fold_in(key, num_states), num_states, settings.num_tokens)
    yield from _smoothing(settings, hmm, key)
  yield _memory(settings, key)


def _text(settings: InferenceSettings, hmm: Distribution, key: Array) -> tuple[Array, Array]:
  """Tokens [B, T] and their rows [B, T, E]."""
  tokens = hmm_jax.sample_corpus(key, hmm, settings.num_sequences, settings.length)
  return tokens, hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def smoothed_in_float64(hmm: HMM, rows: np.ndarray) -> np.ndarray:
  """P[H_t | x_{1:T}] [B, T, H] of rows [B, T, H] by numpy."""
  message, matrix, rows = (np.asarray(x, np.float64) for x in (hmm.initial_probs, hmm.transition_matrix, rows))
  normalized = lambda x: x / x.sum(-1, keepdims=True)
  probs, future = np.empty_like(rows), np.ones(rows.shape[::2])
  for t in range(rows.shape[1]):
    probs[:, t] = normalized(message * rows[:, t])
    message = probs[:, t] @ matrix
  for t in reversed(range(rows.shape[1])):
    probs[:, t] = normalized(probs[:, t] * future)
    future = normalized((future * rows[:, t]) @ matrix.T)
  return probs


def _largest_error(expected: np.ndarray) -> Callable[[Any], float]:
  """The error of smoothed rows, or of posteriors that have some."""

  def error(result: Any) -> float:
    probs = np.asarray(getattr(result, 'smoothed_probs', result), np.float64)
    return float(np.abs(probs.reshape(expected.shape) - expected).max())

  return error


def _dynamax() -> Callable[[HMM, Array], Any]:
  """Its smoother of log rows. Not to be imported while something is traced, or its constants would be tracers."""
  from dynamax.hidden_markov_model.inference import hmm_smoother

  smoother = jax.vmap(hmm_smoother, in_axes=(None, None, 0))
  return lambda hmm, log_rows: smoother(hmm.initial_probs, hmm.transition_matrix, log_rows)


def _smoothing(settings: InferenceSettings, hmm: HMM, key: Array) -> Iterator[BenchmarkCase]:
  """Everything, and the smoothed rows alone; dynamax's smoother tells all that ours does but leave-one-out rows."""
  tokens, rows = _text(settings, hmm, key)
  error = _largest_error(smoothed_in_float64(hmm, np.asarray(rows)))
  everything, alone = lambda posterior: posterior, lambda posterior: posterior.smoothed_probs

  def ours(read: Callable[[Any], Any], hmm: HMM = hmm, rows: Array = rows) -> Prepared:
    smoother = jax.jit(lambda hmm, rows: read(hmm_jax.forward_backward(hmm, rows)))
    return compiled(smoother, hmm, rows, error=error)

  def ours_in_float64() -> Prepared:
    with jax.enable_x64(True):
      return ours(alone, *jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (hmm, rows)))

  def dynamax(name: str, read: Callable[[Any], Any]) -> Contender:
    def prepare() -> Prepared:
      smoother = _dynamax()
      return compiled(jax.jit(lambda log_rows: read(smoother(hmm, log_rows))), jnp.log(rows), error=error)

    return Contender(name, prepare, ('dynamax',))

  def numba(everything: bool) -> Contender:
    def prepare() -> Prepared:
      from experiments.studies.benchmark import loops

      wide = (np.asarray(x, np.float64) for x in (hmm.initial_probs, hmm.transition_matrix, rows))
      arguments = (*wide, everything)
      return Prepared(lambda: loops.forward_backward(*arguments), lambda result: error(result[0]))

    return Contender('numba, float64', prepare, ('numba',))

  size = f'{settings.num_sequences} x {settings.length}, |H| = {hmm.num_states}'
  contenders = [Contender('ours', lambda: ours(everything)), dynamax('dynamax', everything), numba(True)]
  yield BenchmarkCase('inference', f'all posteriors, {size}', contenders)
  contenders = [
    Contender('ours', lambda: ours(alone)),
    Contender('ours, float64 in and out', ours_in_float64),
    dynamax('dynamax', alone),
    dynamax('dynamax, all it tells', everything),
    Contender('hmmlearn, float64', lambda: _hmmlearn(hmm, tokens, error), ('hmmlearn',)),
    numba(False),
  ]
  yield BenchmarkCase('inference', f'smoothed rows, {size}', contenders)


def _hmmlearn(hmm: HMM, tokens: Array, error: Callable[[Any], float]) -> Prepared:
  from hmmlearn.hmm import CategoricalHMM

  model = CategoricalHMM(hmm.num_states, n_features=hmm.num_tokens, implementation='scaling')
  for name, value in hmm_jax.to_hmmlearn(hmm).items():
    setattr(model, name, value)
  column, lengths = np.asarray(tokens, np.int64).reshape(-1, 1), [tokens.shape[1]] * tokens.shape[0]
  return Prepared(lambda: model.predict_proba(column, lengths), error)


def _memory(settings: InferenceSettings, key: Array) -> BenchmarkCase:
  """P[M | x], which labels need: by the memory's own structure, and through the flattened chain."""
  hmm = hmm_jax.random_memory_hmm(key, settings.memory_size, settings.memory_states, settings.num_tokens)
  (_, rows), flat = _text(settings, hmm, key), hmm_jax.to_hmm(hmm)
  first = smoothed_in_float64(flat, np.asarray(rows))[:, 0]
  error = _largest_error(first.reshape(len(first), hmm.memory_size, -1).sum(-1))

  def through_the_chain(smoother: Callable[[HMM, Array], Any]) -> Prepared:
    posterior = jax.jit(lambda flat, rows: cell_probs(hmm, smoother(flat, rows).smoothed_probs[:, 0]))
    return compiled(posterior, flat, rows, error=error)

  def by_dynamax() -> Prepared:
    smoother = _dynamax()
    return through_the_chain(lambda flat, rows: smoother(flat, jnp.log(rows)))

  contenders = [
    Contender('ours', lambda: compiled(hmm_jax.cell_posterior, hmm, rows, error=error)),
    Contender('ours, flattened chain', lambda: through_the_chain(hmm_jax.forward_backward)),
    Contender('dynamax, flattened chain', by_dynamax, ('dynamax',)),
  ]
  name = f'posterior of a memory, {settings.num_sequences} x {settings.length}, |M| = {hmm.memory_size}'
  return BenchmarkCase('inference', name, contenders)
