"""HMMs to and from dynamax and hmmlearn."""

import operator
from typing import Any

from jax import Array
import numpy as np

from hmm_jax._support import arguments, float64
from hmm_jax.distributions.hmm import HMM


@arguments.converted
def to_dynamax(hmm: HMM) -> dict[str, Array | np.ndarray]:
  """Keyword arguments of dynamax's `CategoricalHMM(...).initialize` (emission probs as [H, 1, V]).

  >>> {name: array.shape for name, array in to_dynamax(HMM(np.ones(1), np.eye(1), np.ones((1, 1)))).items()}
  {'initial_probs': (1,), 'transition_matrix': (1, 1), 'emission_probs': (1, 1, 1)}
  """
  _check(hmm)
  return {
    'initial_probs': hmm.initial_probs,
    'transition_matrix': hmm.transition_matrix,
    'emission_probs': hmm.emission_matrix[:, None, :],
  }


def _check(hmm: HMM) -> None:
  if len(hmm) != 3:
    raise ValueError(f'hmm is a {type(hmm).__name__}; valid is an HMM, such as `to_hmm` of it')


def from_dynamax(initial_probs: Any, transition_matrix: Any = None, emission_probs: Any = None) -> HMM:
  """The HMM of dynamax's `CategoricalHMM` parameters, which `initialize` and `fit_em` return, or of three arrays.

  Args:
    initial_probs: [H], or the parameters: with `initial.probs`, `transitions.transition_matrix`, `emissions.probs`.
    transition_matrix: [H, H], unless the parameters are given.
    emission_probs: [H, 1, V], one emission a step, unless the parameters are given.

  Raises:
    AttributeError: the model lacks one of them.
    ValueError: a shape, an entry or a row sum is wrong.

  >>> from_dynamax(np.array([0.5, 0.5]), np.eye(2), np.eye(2)[:, None]).num_tokens
  2
  """
  if transition_matrix is None:
    attributes = operator.attrgetter('initial.probs', 'transitions.transition_matrix', 'emissions.probs')
    initial_probs, transition_matrix, emission_probs = attributes(initial_probs)
  emission_probs = arguments.array('emission_probs', emission_probs)
  if np.ndim(emission_probs) != 3 or np.shape(emission_probs)[1] != 1:
    raise ValueError(f'emission_probs has shape {np.shape(emission_probs)}; valid is [num_states, 1, num_tokens]')
  return from_hmmlearn(initial_probs, transition_matrix, emission_probs[:, 0])


def to_hmmlearn(hmm: HMM) -> dict[str, np.ndarray]:
  """Attributes to set on hmmlearn's `CategoricalHMM`, float64: startprob_, transmat_, emissionprob_.

  >>> sorted(to_hmmlearn(HMM(np.ones(1), np.eye(1), np.ones((1, 1)))))
  ['emissionprob_', 'startprob_', 'transmat_']
  """
  _check(hmm)
  names = 'startprob_', 'transmat_', 'emissionprob_'
  arrays = map(float64.float64, hmm)
  return {name: rows / rows.sum(-1, keepdims=True) for name, rows in zip(names, arrays)}


def from_hmmlearn(startprob_: Any, transmat_: Any = None, emissionprob_: Any = None) -> HMM:
  """The HMM of hmmlearn's `CategoricalHMM`, fitted or with parameters set, or of its three attributes.

  Args:
    startprob_: [H], or the model.
    transmat_: [H, H], unless the model is given.
    emissionprob_: [H, V], unless the model is given.

  Raises:
    AttributeError: the model lacks one of them.
    ValueError: a shape, an entry or a row sum is wrong.

  >>> from_hmmlearn(np.array([0.5, 0.5]), np.eye(2), np.eye(2)).num_states
  2
  """
  if transmat_ is None:
    startprob_, transmat_, emissionprob_ = operator.attrgetter('startprob_', 'transmat_', 'emissionprob_')(startprob_)
  return HMM(startprob_, transmat_, emissionprob_).validate()
