"""Exact inference beside dynamax and hmmlearn; a memory's posterior beside its chain.

Every error is the largest of a probability, against an independent implementation in numpy and float64.
"""

from collections.abc import Callable, Iterator
import functools
import operator
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.studies.benchmark.measure import Case, compiled, Contenders, Prepared
from experiments.studies.benchmark.settings import InferenceSettings
import hmm_jax
from hmm_jax.hmm import Distribution, HMM
from hmm_jax.memory_hmm import cell_probs

_Error = Callable[[Any], float]
# (HMM, rows) -> a posterior whose field `smoothed_probs` is P[H_t | x_{1:T}].
_Smoother = Callable[[HMM, Array], Any]
_smoothed_rows = operator.attrgetter('smoothed_probs')


def cases(settings: InferenceSettings, key: Array) -> Iterator[Case]:
  """Smoothing of each size, and the posterior of a memory."""
  for num_states in settings.num_states:
    hmm = hmm_jax.random_hmm(jax.random.fold_in(key, num_states), num_states, settings.num_tokens)
    yield from _smoothing(settings, hmm, key)
  yield _memory(settings, key)


def _text(settings: InferenceSettings, hmm: Distribution, key: Array) -> tuple[Array, Array]:
  """Tokens [B, T] and their rows [B, T, E]."""
  tokens = hmm_jax.sample_corpus(key, hmm, settings.num_sequences, settings.length)
  return tokens, hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def smoothed_in_float64(hmm: HMM, rows: Array) -> np.ndarray:
  """P[H_t | x_{1:T}] [B, T, H] of rows [B, T, H] by numpy."""
  message, matrix, rows_BxTxH = _in_numpy(hmm, rows)
  normalized = lambda x: x / x.sum(-1, keepdims=True)
  probs, future = np.empty_like(rows_BxTxH), 1.0
  times = range(rows_BxTxH.shape[1])
  for t in times:
    probs[:, t] = normalized(message * rows_BxTxH[:, t])
    message = probs[:, t] @ matrix
  # Backward over the same array, which holds what was filtered until a step is smoothed.
  for t in reversed(times):
    probs[:, t] = normalized(probs[:, t] * future)
    future = normalized((future * rows_BxTxH[:, t]) @ matrix.T)
  return probs


def _in_numpy(hmm: HMM, rows: Array) -> tuple[np.ndarray, ...]:
  """P[H_1], the transition matrix and the rows in float64."""
  return tuple(np.asarray(x, np.float64) for x in (hmm.initial_probs, hmm.transition_matrix, rows))


def _largest_error(expected: np.ndarray) -> _Error:
  """The error of smoothed rows, or of posteriors that have some."""

  def error(result: Any) -> float:
    probs = np.asarray(getattr(result, 'smoothed_probs', result), np.float64)
    return float(np.abs(probs.reshape(expected.shape) - expected).max())

  return error


def _smoothing(settings: InferenceSettings, hmm: HMM, key: Array) -> Iterator[Case]:
  """Cases for all posteriors and for smoothed rows alone; dynamax returns all that we do but leave-one-out rows."""
  tokens, rows = _text(settings, hmm, key)
  error = _largest_error(smoothed_in_float64(hmm, rows))
  size = f'{settings.num_sequences} x {settings.length}, |H| = {hmm.num_states}'
  ours = functools.partial(_program, hmm_jax.forward_backward, hmm, rows, error)

  def dynamax(*read: Callable[[Any], Any]) -> Prepared:
    return _program(_dynamax(), hmm, jnp.log(rows), error, *read)

  by_vmap = functools.partial(_program, jax.vmap(hmm_jax.forward_backward, (None, 0)), hmm, rows, error)
  alone: Contenders = {
    'ours': functools.partial(ours, _smoothed_rows),
    'ours, float64 in and out': functools.partial(_in_float64, hmm, rows, error),
    'dynamax': functools.partial(dynamax, _smoothed_rows),
    'dynamax, all it tells': dynamax,
    'hmmlearn, float64': functools.partial(_hmmlearn, hmm, tokens, error),
  }
  yield f'all posteriors, {size}', {'ours': ours, 'ours, by jax.vmap': by_vmap, 'dynamax': dynamax}
  yield f'smoothed rows, {size}', alone
  hmms = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), hmm)
  yield (
    f'smoothed rows, an HMM for each of {size}',
    {
      'ours, by jax.vmap': lambda: _program(jax.vmap(hmm_jax.forward_backward), hmms, rows, error, _smoothed_rows),
      'dynamax': lambda: _program(_dynamax(0), hmms, jnp.log(rows), error, _smoothed_rows),
    },
  )


def _program(
  smoother: _Smoother, hmm: HMM, rows: Array, error: _Error, read: Callable[[Any], Any] = lambda posterior: posterior
) -> Prepared:
  """A smoother compiled for what is read of its posterior; XLA leaves out the rest."""
  return compiled(lambda hmm, rows: read(smoother(hmm, rows)), hmm, rows, error=error)


def _in_float64(hmm: HMM, rows: Array, error: _Error) -> Prepared:
  with jax.enable_x64(True):
    hmm, rows = jax.tree.map(jnp.float64, (hmm, rows))
    return _program(hmm_jax.forward_backward, hmm, rows, error, _smoothed_rows)


def _dynamax(hmm_axis: int | None = None) -> _Smoother:
  """dynamax's smoother of log rows, with an HMM for each sequence where `hmm_axis` is 0.

  Do not call it while tracing: the import would turn dynamax's constants into tracers.
  """
  from dynamax.hidden_markov_model.inference import hmm_smoother

  smoother = jax.vmap(hmm_smoother, in_axes=(hmm_axis, hmm_axis, 0))
  return lambda hmm, log_rows: smoother(hmm.initial_probs, hmm.transition_matrix, log_rows)


def _hmmlearn(hmm: HMM, tokens: Array, error: _Error) -> Prepared:
  from hmmlearn.hmm import CategoricalHMM

  model = CategoricalHMM(hmm.num_states, n_features=hmm.num_tokens, implementation='scaling')
  vars(model).update(hmm_jax.to_hmmlearn(hmm))
  # One column for all sequences, which it tells apart by their lengths.
  column, lengths = np.asarray(tokens, np.int64).reshape(-1, 1), [tokens.shape[1]] * len(tokens)
  return Prepared(lambda: model.predict_proba(column, lengths), error)


def _memory(settings: InferenceSettings, key: Array) -> Case:
  """P[M | x], which labels need: by the memory's own structure, and through the flattened chain."""
  hmm = hmm_jax.random_memory_hmm(key, settings.memory_size, settings.memory_states, settings.num_tokens)
  (_, rows), flat = _text(settings, hmm, key), hmm_jax.to_hmm(hmm)
  joint = smoothed_in_float64(flat, rows)[:, 0]
  error = _largest_error(joint.reshape(len(joint), hmm.memory_size, -1).sum(-1))

  read = lambda posterior: cell_probs(hmm, posterior.smoothed_probs[:, 0])

  def dynamax() -> Prepared:
    smoother = _dynamax()
    return _program(lambda flat, rows: smoother(flat, jnp.log(rows)), flat, rows, error, read)

  return f'posterior of a memory, {settings.num_sequences} x {settings.length}, |M| = {hmm.memory_size}', {
    'ours': lambda: compiled(hmm_jax.cell_posterior, hmm, rows, error=error),
    'ours, flattened chain': functools.partial(_program, hmm_jax.forward_backward, flat, rows, error, read),
    'dynamax, flattened chain': dynamax,
  }
