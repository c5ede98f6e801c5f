"""HMMs to and from dynamax and hmmlearn."""

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


def from_dynamax(params: Any) -> HMM:
  """The HMM of the parameters of dynamax's `CategoricalHMM`, which `initialize` and `fit_em` return.

  They have `initial.probs` [H], `transitions.transition_matrix` [H, H] and `emissions.probs` [H, 1, V], one emission a
  step.

  Raises:
    AttributeError: the parameters lack one of them.
    ValueError: a shape, an entry or a row sum is wrong.

  >>> from types import SimpleNamespace as Params
  >>> emissions, transitions = Params(probs=np.eye(2)[:, None]), Params(transition_matrix=np.eye(2))
  >>> params = Params(initial=Params(probs=np.array([0.5, 0.5])), transitions=transitions, emissions=emissions)
  >>> from_dynamax(params).num_tokens
  2
  """
  emission_probs = arguments.array('emissions.probs', params.emissions.probs)
  arguments.check_shape('emissions.probs', emission_probs, 'num_states', 1, 'num_tokens')
  return HMM(params.initial.probs, params.transitions.transition_matrix, emission_probs[:, 0]).validate()


def to_hmmlearn(hmm: HMM) -> dict[str, np.ndarray]:
  """Attributes to set on hmmlearn's `CategoricalHMM`, float64: startprob_, transmat_, emissionprob_.

  >>> sorted(to_hmmlearn(HMM(np.ones(1), np.eye(1), np.ones((1, 1)))))
  ['emissionprob_', 'startprob_', 'transmat_']
  """
  _check(hmm)
  names = 'startprob_', 'transmat_', 'emissionprob_'
  arrays = map(float64.float64, hmm)
  return {name: rows / rows.sum(-1, keepdims=True) for name, rows in zip(names, arrays)}


def from_hmmlearn(model: Any) -> HMM:
  """The HMM of hmmlearn's `CategoricalHMM`, fitted or with its three attributes set.

  Raises:
    AttributeError: the model lacks one of them.
    ValueError: a shape, an entry or a row sum is wrong.

  >>> from types import SimpleNamespace as Model
  >>> from_hmmlearn(Model(startprob_=np.array([0.5, 0.5]), transmat_=np.eye(2), emissionprob_=np.eye(2))).num_states
  2
  """
  return HMM(model.startprob_, model.transmat_, model.emissionprob_).validate()
