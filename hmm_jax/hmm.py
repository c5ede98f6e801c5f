"""The hidden Markov model: its parameters, the paper's random draw, and the exact G."""

import functools
import operator
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax import arguments, float64, inference
from hmm_jax.arguments import checked
from hmm_jax.display import shown


class Distribution(inference.Chain, Protocol):
  """A distribution of text with a joint state e = c H + h: constant memory configuration c and hidden state h.

  An `HMM` has no memory, so that E = H. Tokens depend on the joint state alone, and every function below serves both.

  >>> isinstance(random_hmm(jax.random.key(0), 3, 4).starting_from(np.eye(3)[0]), HMM)
  True
  """

  @property
  def joint_emission_matrix(self) -> Array | np.ndarray:
    """[E, V], entry (e, v) = P[X_t = v | joint state e]."""

  @property
  def num_tokens(self) -> int: ...

  def starting_from(self, joint_initial_probs: Array | np.ndarray) -> Self:
    """The same distribution with another law [E] of the first joint state."""


DistributionT = TypeVar('DistributionT', bound=Distribution)


@shown
class HMM(NamedTuple):
  """A hidden Markov model in the field's convention (Rabiner 1989, hmmlearn, dynamax): rows sum to 1.

  The paper writes A = transition_matrix.T and W = emission_matrix.T, and puts a silent state H_0 first.

  Attributes:
    initial_probs: [H], P[H_1], the distribution of the first emitting state.
    transition_matrix: [H, H], entry (i, j) = P[H_{t+1} = j | H_t = i].
    emission_matrix: [H, V], entry (i, v) = P[X_t = v | H_t = i].

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0.5, 0.5], [1, 0]]), np.eye(2)).validate()
  >>> hmm.num_states, hmm.num_tokens
  (2, 2)
  """

  initial_probs: Array | np.ndarray
  transition_matrix: Array | np.ndarray
  emission_matrix: Array | np.ndarray

  @property
  def joint_initial_probs(self) -> Array | np.ndarray:
    return self.initial_probs

  @property
  def joint_emission_matrix(self) -> Array | np.ndarray:
    return self.emission_matrix

  @property
  def num_states(self) -> int:
    return self.emission_matrix.shape[-2]

  @property
  def num_tokens(self) -> int:
    return self.emission_matrix.shape[-1]

  def starting_from(self, joint_initial_probs: Array | np.ndarray) -> 'HMM':
    return self._replace(initial_probs=joint_initial_probs)

  def validate(self) -> 'HMM':
    """Return it as arrays. Raises ValueError naming the field whose type, shape, entries or sums are wrong."""
    hmm: HMM = arguments.with_arrays(self)
    num_states, num_tokens = emission_shape(hmm.emission_matrix, 'num_states', 'num_tokens')
    check_probs('initial_probs', hmm.initial_probs, (num_states,))
    check_probs('transition_matrix', hmm.transition_matrix, (num_states, num_states))
    check_probs('emission_matrix', hmm.emission_matrix, (num_states, num_tokens))
    return hmm


def emission_shape(emission_matrix: Array | np.ndarray, *axes: str) -> tuple[int, ...]:
  """The shape, which other fields must fit. Raises ValueError unless it has these axes, none of size 0."""
  shape = np.shape(emission_matrix)
  if len(shape) != len(axes) or 0 in shape:
    raise ValueError(f'emission_matrix has shape {shape}; valid is [{", ".join(axes)}], no axis empty')
  return shape


def check_probs(
  field: str, probs: Array | np.ndarray, shape: tuple[int, ...], axis: int | tuple[int, ...] | None = -1
) -> None:
  """Raise ValueError naming `field` unless `probs` has this shape and sums to 1 over `axis`; None for all axes."""
  if np.shape(probs) != shape:
    raise ValueError(f'{field} has shape {np.shape(probs)}; valid is {shape}')
  rows = np.asarray(probs, np.float64)
  if not np.isfinite(rows).all() or (rows < 0).any():
    raise ValueError(f'{field} has an entry that is negative or not finite; valid are probabilities')
  sums = np.ravel(rows.sum(axis))
  worst = sums[np.abs(sums - 1).argmax()]
  if abs(worst - 1) > 1e-5:
    raise ValueError(f'{field} has a row that sums to {worst:.6g}; valid is 1 (within 1e-5)')


def softmax_of_uniform(key: Array, shape: tuple[int, ...], temperature: float) -> Array:
  """softmax(logits / temperature) on the last axis with logits iid U[0, 1]: the paper's random distribution."""
  return jax.nn.softmax(jax.random.uniform(key, shape) / temperature, axis=-1)


@arguments.converted
def random_hmm(
  key: Array,
  num_states: int,
  num_tokens: int,
  *,
  num_permutations: int | None = None,
  transition_temperature: float = 0.01,
  initial_temperature: float = 10.0,
  emission_temperature: float = 0.01,
) -> HMM:
  """The paper's draw (appendix "Experimental details", "Generating HMM parameters").

  transition_matrix = sum_k w_k P_k with P_k uniform permutation matrices and w, as the initial distribution and
  each emission row, a softmax of uniform logits over its temperature.

  Args:
    key: a PRNG key.
    num_states: H.
    num_tokens: V.
    num_permutations: number of permutations mixed; None for H.
    transition_temperature: of the mixing weights; small means near-deterministic.
    initial_temperature: of the initial distribution; large means near-uniform.
    emission_temperature: of each emission row.

  Raises:
    ValueError: a size is not from 1 to 2^31 - 1 (num_states: 2^15), or a temperature is not positive.

  >>> hmm = random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> hmm.transition_matrix.shape, hmm.emission_matrix.shape
  ((3, 3), (3, 4))
  """
  key_weights, key_permutations, key_initial, key_emission = jax.random.split(key, 4)
  return HMM(
    initial_probs=softmax_of_uniform(key_initial, (num_states,), initial_temperature),
    transition_matrix=mixed_permutations(
      key_weights, key_permutations, num_states, num_permutations, transition_temperature
    ),
    emission_matrix=softmax_of_uniform(key_emission, (num_states, num_tokens), emission_temperature),
  )


def mixed_permutations(
  key_weights: Array, key_permutations: Array, num_states: int, num_permutations: int | None, temperature: float
) -> Array:
  """A random transition matrix [H, H]: `num_permutations` (None: H) permutation matrices mixed as in `random_hmm`."""
  num_permutations = num_permutations or num_states
  weights = softmax_of_uniform(key_weights, (num_permutations,), temperature)
  permute = functools.partial(jax.random.permutation, x=num_states)
  permutations = jax.vmap(permute)(jax.random.split(key_permutations, num_permutations))
  return jnp.einsum('k,kij->ij', weights, jax.nn.one_hot(permutations, num_states), precision=lax.Precision.HIGHEST)


@arguments.converted
def token_likelihoods(hmm: Distribution, tokens: Array | np.ndarray, observed: Array | np.ndarray) -> Array:
  """Likelihood rows [..., T, E]: P[X = x_t | state] where `observed` [..., T] holds, rows of ones elsewhere.

  Args:
    hmm: an `HMM` (E = H) or a `MemoryHMM`.
    tokens: [..., T] integers; an unobserved one, such as [MASK], may have any value.
    observed: [..., T] bools.

  Returns:
    A JAX array. For a float64 distribution a float64 numpy array, since float32 would lose small numbers. If the tokens
    are also traced, a float64 tracer: pass it only to inference, since `jax.numpy` needs `jax_enable_x64` for it.

  Raises:
    ValueError: a token that is observed is not from 0 to V - 1, where values are known (`hmm_jax.arguments`); inside of
      `jax.jit` its row is NaN.

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0.5, 0.5], [1, 0]]), np.array([[0.75, 0.25], [0, 1]]))
  >>> tokens = jnp.array([0, 1, 1])
  >>> print(token_likelihoods(hmm, tokens, observed=jnp.array([False, True, True])))
  [[1.   1.  ]
   [0.25 1.  ]
   [0.25 1.  ]]
  """
  arguments.check_ids('tokens', tokens, hmm.num_tokens, observed)
  return _token_likelihoods(hmm, tokens, observed)


@functools.partial(float64.jit, returns_float64=True)
def _token_likelihoods(hmm: Distribution, tokens: Any, observed: Any) -> Array:
  rows = jnp.asarray(hmm.joint_emission_matrix).T.at[tokens].get(mode='fill', wrap_negative_indices=False)
  return jnp.where(observed[..., None], rows, 1)


@functools.partial(checked, returns_float64=True)
def evidence_likelihoods(hmm: Distribution, evidence: Array) -> Array:
  """Likelihood rows [..., T, E] of noisy observations: evidence[t, v] = P[observation at t | X_t = v], [..., T, V].

  A noiseless token is a one-hot row and [MASK] a row of ones; `masking.channel` gives BERT's noise.

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0.5, 0.5], [1, 0]]), np.array([[0.75, 0.25], [0, 1]]))
  >>> print(evidence_likelihoods(hmm, jnp.array([[1.0, 0], [0.5, 0.5]])))
  [[0.75 0.  ]
   [0.5  0.5 ]]
  """
  return jnp.matmul(evidence, hmm.joint_emission_matrix.T, precision=lax.Precision.HIGHEST)


@functools.partial(checked, returns_float64=True, static_argnames=('chunk_length', 'num_chunks'))
def chunk_start(hmm: DistributionT, chunk_length: int, num_chunks: int) -> DistributionT:
  """The distribution as seen from the start of a random one of a document's first `num_chunks` chunks.

  The law of its first hidden state is the mean over k < num_chunks of `initial @ transition_matrix^(k chunk_length)`;
  the law of the memory is unchanged.

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> print(chunk_start(hmm, chunk_length=3, num_chunks=2).initial_probs)
  [0.5 0.5]
  """
  # A GPU's default precision, ten bits, would accumulate errors over thousands of steps.
  with jax.default_matmul_precision('highest'):
    stride = jnp.linalg.matrix_power(hmm.transition_matrix, chunk_length)
    advance = lambda probs, _: (probs @ stride, probs)
    _, starts = lax.scan(advance, hmm.joint_initial_probs.reshape(-1, len(stride)), length=num_chunks)
  mean = starts.mean(0).reshape(-1)
  return hmm.starting_from(mean / mean.sum())


@arguments.converted
def emitted_token_probs(hmm: Distribution, state_probs: Array) -> Array:
  """The law [..., V] of a token whose joint state has the law `state_probs` [..., E]."""
  # Multiply in float32: JAX would run the gradient's transposed product outside of `in_float64`, where it fails.
  factors = float64.narrowed((state_probs, hmm.joint_emission_matrix))
  return jnp.matmul(*factors, precision=lax.Precision.HIGHEST)


@checked
def conditional_token_probs(hmm: Distribution, likelihoods: Array) -> Array:
  """The paper's G-bar (section 3.1): row i is P[X_i | X_{-i}], [..., T, V]; row i ignores row i of the input.

  G_i = W P[H_i | X_{-i}] (Proposition 3.4), and for a memory W P[M_J, H_i | X_{-i}] (the proof of Claim C.3). Zeros
  where the evidence X_{-i} has probability zero. Leading axes of `likelihoods` [..., T, E] are batches.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> print(conditional_token_probs(hmm, jnp.array([[1.0, 1], [1, 1], [0, 1]])))  # states alternate, the last is 1
  [[0.  1. ]
   [1.  0. ]
   [0.5 0.5]]
  """
  return emitted_token_probs(hmm, inference.forward_backward(hmm, likelihoods).leave_one_out_probs)


@arguments.converted
def to_dynamax(hmm: HMM) -> dict[str, Array | np.ndarray]:
  """Keyword arguments of dynamax's `CategoricalHMM(...).initialize` (emission probs as [H, 1, V]).

  >>> {name: array.shape for name, array in to_dynamax(random_hmm(jax.random.key(0), 3, 4)).items()}
  {'initial_probs': (3,), 'transition_matrix': (3, 3), 'emission_probs': (3, 1, 4)}
  """
  return {
    'initial_probs': hmm.initial_probs,
    'transition_matrix': hmm.transition_matrix,
    'emission_probs': hmm.emission_matrix[:, None, :],
  }


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

  >>> sorted(to_hmmlearn(random_hmm(jax.random.key(0), 3, 4)))
  ['emissionprob_', 'startprob_', 'transmat_']
  """
  if len(hmm) != 3:
    raise ValueError(f'hmm is a {type(hmm).__name__}; valid is an HMM, such as `to_hmm` of it')
  arrays = map(float64.float64, hmm.validate())
  return {
    name: rows / rows.sum(-1, keepdims=True) for name, rows in zip(('startprob_', 'transmat_', 'emissionprob_'), arrays)
  }


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
