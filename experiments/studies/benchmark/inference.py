"""Exact inference beside dynamax, hmmlearn and loops compiled by numba; a memory's posterior beside its chain.

Every error is the largest of a probability, against scaled messages in numpy and float64 that share no line with ours.
"""

from collections.abc import Callable, Iterator
import functools
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
    yield from _smoothing(settings, hmm, _text(settings, hmm, key))
  yield _memory(settings, key)


def _text(settings: InferenceSettings, hmm: Distribution, key: Array) -> Array:
  return hmm_jax.sample_corpus(key, hmm, settings.num_sequences, settings.length)


def _rows(hmm: Distribution, tokens: Array) -> Array:
  return hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def smoothed_in_float64(hmm: HMM, rows: np.ndarray) -> np.ndarray:
  """P[H_t | x_{1:T}] [B, T, H] of rows [B, T, H] by numpy."""
  initial, matrix = (np.asarray(x, np.float64) for x in (hmm.initial_probs, hmm.transition_matrix))
  rows = np.asarray(rows, np.float64)
  probs, message = np.empty_like(rows), np.broadcast_to(initial, rows[:, 0].shape)
  for t in range(rows.shape[1]):
    joint = message * rows[:, t]
    probs[:, t] = joint / joint.sum(-1, keepdims=True)
    message = probs[:, t] @ matrix
  future = np.ones_like(message)
  for t in reversed(range(rows.shape[1])):
    joint = probs[:, t] * future
    probs[:, t] = joint / joint.sum(-1, keepdims=True)
    future = (future * rows[:, t]) @ matrix.T
    future /= future.sum(-1, keepdims=True)
  return probs


def _largest_error(expected: np.ndarray, read: Callable[[Any], Any]) -> Callable[[Any], float]:
  return lambda result: float(np.abs(np.asarray(read(result), np.float64).reshape(expected.shape) - expected).max())


def _smoothing(settings: InferenceSettings, hmm: HMM, tokens: Array) -> Iterator[BenchmarkCase]:
  """Everything, and the smoothed rows alone; dynamax's smoother tells all that ours does but leave-one-out rows."""
  rows = _rows(hmm, tokens)
  expected = smoothed_in_float64(hmm, np.asarray(rows))
  error_of = functools.partial(_largest_error, expected)
  size = f'{settings.num_sequences} x {settings.length}, |H| = {hmm.num_states}'
  of_posterior, of_loop = error_of(lambda posterior: posterior.smoothed_probs), error_of(lambda result: result[2])
  dynamax = lambda read: lambda: _dynamax(hmm, rows, read, error_of)
  everything = [
    Contender('ours', lambda: compiled(hmm_jax.forward_backward, hmm, rows, error=of_posterior)),
    Contender('dynamax', dynamax(lambda posterior: posterior), ('dynamax',)),
    Contender('numba, float64', lambda: _numba('forward_backward', hmm, rows, of_loop), ('numba',)),
  ]
  yield BenchmarkCase('inference', f'all posteriors, {size}', everything)
  alone = [
    Contender('ours', lambda: _ours_alone(hmm, rows, error_of)),
    Contender('ours, float64 in and out', lambda: _ours_in_float64(hmm, rows, error_of)),
    Contender('dynamax', dynamax(lambda posterior: posterior.smoothed_probs), ('dynamax',)),
    Contender('dynamax, all it tells', dynamax(lambda posterior: posterior), ('dynamax',)),
    Contender('hmmlearn, float64', lambda: _hmmlearn(hmm, tokens, error_of), ('hmmlearn',)),
    Contender('numba, float64', lambda: _numba('smooth', hmm, rows, error_of(lambda result: result)), ('numba',)),
  ]
  yield BenchmarkCase('inference', f'smoothed rows, {size}', alone)


def _ours_alone(hmm: HMM, rows: Array, error_of: Any) -> Prepared:
  smoothed = jax.jit(lambda hmm, rows: hmm_jax.forward_backward(hmm, rows).smoothed_probs)
  return compiled(smoothed, hmm, rows, error=error_of(lambda probs: probs))


def _ours_in_float64(hmm: HMM, rows: Array, error_of: Any) -> Prepared:
  with jax.enable_x64(True):
    wide_hmm, wide_rows = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (hmm, rows))
    return _ours_alone(wide_hmm, wide_rows, error_of)


def _dynamax(hmm: HMM, rows: Array, read: Callable[[Any], Any], error_of: Any) -> Prepared:
  from dynamax.hidden_markov_model.inference import hmm_smoother

  smoother = lambda log_row: read(hmm_smoother(hmm.initial_probs, hmm.transition_matrix, log_row))
  probs = lambda result: getattr(result, 'smoothed_probs', result)
  return compiled(jax.jit(jax.vmap(smoother)), jnp.log(rows), error=error_of(probs))


def _hmmlearn(hmm: HMM, tokens: Array, error_of: Any) -> Prepared:
  from hmmlearn.hmm import CategoricalHMM

  model = CategoricalHMM(hmm.num_states, n_features=hmm.num_tokens, implementation='scaling')
  for name, value in hmm_jax.to_hmmlearn(hmm).items():
    setattr(model, name, value)
  column, lengths = np.asarray(tokens, np.int64).reshape(-1, 1), [tokens.shape[1]] * tokens.shape[0]
  return Prepared(lambda: model.predict_proba(column, lengths), error_of(lambda probs: probs))


def _numba(name: str, hmm: HMM, rows: Array, error: Callable[[Any], float]) -> Prepared:
  from experiments.studies.benchmark import loops

  arguments = [np.asarray(x, np.float64) for x in (hmm.initial_probs, hmm.transition_matrix, rows)]
  return Prepared(lambda: getattr(loops, name)(*arguments), error)


def _memory(settings: InferenceSettings, key: Array) -> BenchmarkCase:
  """What a label needs, P[M | x]: by the memory's own structure, and through the flattened chain."""
  sizes = settings.memory_size, settings.memory_states, settings.num_tokens
  hmm = hmm_jax.random_memory_hmm(key, *sizes)
  rows, flat = _rows(hmm, _text(settings, hmm, key)), hmm_jax.to_hmm(hmm)
  first = smoothed_in_float64(flat, np.asarray(rows))[:, 0]
  error = _largest_error(first.reshape(len(first), hmm.memory_size, -1).sum(-1), lambda probs: probs)

  def through_the_chain(read_smoothed: Callable[[HMM, Array], Array]) -> Callable[[], Prepared]:
    posterior = jax.jit(lambda flat, rows: cell_probs(hmm, read_smoothed(flat, rows)[:, 0]))
    return lambda: compiled(posterior, flat, rows, error=error)

  def by_dynamax(flat: HMM, rows: Array) -> Array:
    from dynamax.hidden_markov_model.inference import hmm_smoother

    smoother = lambda log_row: hmm_smoother(flat.initial_probs, flat.transition_matrix, log_row).smoothed_probs
    return jax.vmap(smoother)(jnp.log(rows))

  ours_flat = lambda flat, rows: hmm_jax.forward_backward(flat, rows).smoothed_probs
  contenders = [
    Contender('ours', lambda: compiled(hmm_jax.cell_posterior, hmm, rows, error=error)),
    Contender('ours, flattened chain', through_the_chain(ours_flat)),
    Contender('dynamax, flattened chain', through_the_chain(by_dynamax), ('dynamax',)),
  ]
  name = f'posterior of a memory, {settings.num_sequences} x {settings.length}, |M| = {hmm.memory_size}'
  return BenchmarkCase('inference', name, contenders)
