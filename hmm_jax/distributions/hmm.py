"""The hidden Markov model: its parameters, the paper's random draw, and the exact G."""

import functools
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments, compilation, float64
from hmm_jax._support.arguments import check_probs, checked
from hmm_jax._support.display import shown
from hmm_jax.inference import passes
from hmm_jax.inference.posterior import by_sequence, Chain, posterior


class Distribution(Chain, Protocol):
  """A distribution of text with a joint state e = c H + h: constant memory configuration c and hidden state h.

  An `HMM` has no memory, so that E = H. Tokens depend only on the joint state, and every function below serves both.

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
    (num_states,) = arguments.check_shape('initial_probs', hmm.initial_probs, 'num_states')
    check_probs('initial_probs', hmm.initial_probs, num_states)
    check_probs('transition_matrix', hmm.transition_matrix, num_states, num_states)
    check_probs('emission_matrix', hmm.emission_matrix, num_states, 'num_tokens')
    return hmm


@arguments.converted
@compilation.unfused('num_states', 'num_tokens', 'num_permutations')
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


@arguments.converted
def token_likelihoods(
  hmm: Distribution, tokens: Array | np.ndarray, observed: Array | np.ndarray | None = None
) -> Array:
  """Likelihood rows [..., T, E]: P[X = x_t | state] where `observed` [..., T] holds, rows of ones elsewhere.

  Args:
    hmm: an `HMM` (E = H) or a `MemoryHMM`.
    tokens: [..., T] integers; an unobserved one, such as [MASK], may have any value.
    observed: [..., T] bools; None if all are. `is_seen` makes them of text with [MASK].

  Returns:
    A JAX array. For a float64 distribution a float64 numpy array, since float32 would lose small numbers. If the tokens
    are also traced, a float64 tracer: pass it only to inference, since `jax.numpy` needs `jax_enable_x64` for it.

  Raises:
    ValueError: a token that is observed is not from 0 to V - 1, where values are known
      (`hmm_jax._support.arguments`); inside of `jax.jit` its row is NaN.

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0.5, 0.5], [1, 0]]), np.array([[0.75, 0.25], [0, 1]]))
  >>> tokens = jnp.array([0, 1, 1])
  >>> print(token_likelihoods(hmm, tokens, observed=jnp.array([False, True, True])))
  [[1.   1.  ]
   [0.25 1.  ]
   [0.25 1.  ]]
  >>> print(token_likelihoods(hmm, tokens)[0])
  [0.75 0.  ]
  """
  if observed is None:
    observed = np.ones(np.shape(tokens), bool)
  arguments.check_ids('tokens, where observed,', tokens, hmm.num_tokens, observed)
  if not arguments.are_on_host((hmm, tokens, observed)):
    return _token_likelihoods(hmm, tokens, observed)
  rows: Any
  tokens, observed, rows = map(np.asarray, (tokens, observed, hmm.joint_emission_matrix.T))
  rows = rows.astype(jnp.promote_types(rows.dtype, jnp.float32))
  rows = np.where(observed[..., None], rows[np.where(observed, tokens, 0)], rows.dtype.type(1))
  return rows if float64.narrowed(rows).dtype != rows.dtype else jnp.asarray(rows, rows.dtype)


@functools.partial(float64.jit, returns_float64=True)
def _token_likelihoods(hmm: Distribution, tokens: Any, observed: Any) -> Array:
  # Integers have no NaN for an id that does not exist.
  rows = float64.as_float(hmm.joint_emission_matrix).T
  rows = rows.at[tokens].get(mode='fill', wrap_negative_indices=False)
  return jnp.where(observed[..., None], rows, 1)


def text_likelihoods(hmm: Distribution, tokens: Array | np.ndarray) -> Array:
  """`token_likelihoods` of text in which [MASK], the id V, is not observed.

  >>> hmm = HMM(np.array([1.0, 0]), np.array([[0.5, 0.5], [1, 0]]), np.array([[0.75, 0.25], [0, 1]]))
  >>> print(text_likelihoods(hmm, np.array([2, 1], np.uint8)))
  [[1.   1.  ]
   [0.25 1.  ]]
  """
  return token_likelihoods(hmm, tokens, is_seen(tokens, hmm.num_tokens))


def is_seen(tokens: Array | np.ndarray, num_tokens: int) -> Any:
  """True where tokens [..., T] are not [MASK], the id V = `num_tokens`.

  >>> is_seen(np.array([2, 0, 1]), num_tokens=2).tolist()
  [False, True, True]
  """
  # JAX would compare in the type of the tokens, which may be too narrow for V.
  return tokens.astype(np.int32) != num_tokens


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
def conditional_token_probs(hmm: Distribution, likelihoods: Array) -> Array:
  """The paper's G-bar (section 3.1): row i is P[X_i | X_{-i}], [..., T, V]; row i ignores row i of the input.

  G_i = W P[H_i | X_{-i}] (Proposition 3.4), and for a memory W P[M_J, H_i | X_{-i}] (the proof of Claim C.3). Zeros
  if the evidence X_{-i} has probability zero. Leading axes of `likelihoods` [..., T, E] are batches.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> print(conditional_token_probs(hmm, jnp.array([[1.0, 1], [1, 1], [0, 1]])))  # states alternate, the last is 1
  [[0.  1. ]
   [1.  0. ]
   [0.5 0.5]]
  """
  return by_sequence(passes.smooth, hmm, likelihoods, _emitted)


def _emitted(hmm: Distribution, result: Any) -> Array:
  return emitted_token_probs(hmm, posterior(result).leave_one_out_probs)


@arguments.converted
def emitted_token_probs(hmm: Distribution, state_probs: Array) -> Array:
  """The law [..., V] of a token whose joint state has the law `state_probs` [..., E]."""
  # Multiply in float32: JAX would run the gradient's transposed product outside of `in_float64`, where it fails.
  factors = float64.narrowed((state_probs, hmm.joint_emission_matrix))
  return jnp.matmul(*factors, precision=lax.Precision.HIGHEST)


def softmax_of_uniform(key: Array, shape: tuple[int, ...], temperature: float) -> Array:
  """softmax(logits / temperature) on the last axis with logits iid U[0, 1]: the paper's random distribution."""
  return jax.nn.softmax(jax.random.uniform(key, shape) / temperature, axis=-1)


def mixed_permutations(
  key_weights: Array, key_permutations: Array, num_states: int, num_permutations: int | None, temperature: float
) -> Array:
  """A random transition matrix [H, H]: `num_permutations` (None: H) permutation matrices mixed as in `random_hmm`."""
  num_permutations = num_permutations or num_states
  weights = softmax_of_uniform(key_weights, (num_permutations,), temperature)
  permute = functools.partial(jax.random.permutation, x=num_states)
  permutations = jax.vmap(permute)(jax.random.split(key_permutations, num_permutations))
  return lax.scan(_add_permutation, jnp.zeros((num_states, num_states)), (weights, permutations))[0]


def _add_permutation(mixed: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
  """Add one weighted permutation matrix: all at once would take [K, H, H], and a GPU would add them in any order."""
  weight, permutation = row
  return mixed.at[jnp.arange(len(mixed)), permutation].add(weight), None
