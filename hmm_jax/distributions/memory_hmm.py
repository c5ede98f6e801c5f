"""The memory-augmented HMM (section 4 of the paper): its draw, the posterior over its memory, its flattening.

A document draws a memory of N cells with M values each and keeps it. The hidden state moves as in an HMM and selects
the cell that is read: a token depends on that cell's value and the state. Inference and sampling are those of
`hmm_jax.distributions.hmm`, with the memory as the constant part of the joint state.
"""

import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments, compilation
from hmm_jax._support.arguments import check_probs, check_shape, checked, require
from hmm_jax._support.display import shown
from hmm_jax._support.float64 import positive_or_one
from hmm_jax.distributions.hmm import HMM, mixed_permutations, softmax_of_uniform
from hmm_jax.inference import passes
from hmm_jax.inference.posterior import by_sequence, Posterior, posterior

# The most memory configurations, M^N, that inference enumerates.
MAX_CONFIGURATIONS = 4096


@shown
class MemoryHMM(NamedTuple):
  """A memory-augmented HMM. A joint state is e = c H + h: configuration c of the memory, hidden state h.

  Configurations are numbered in C order, the last cell fastest, and there are M^N of them, so E = M^N H.

  Attributes:
    memory_probs: [M, ..., M], an axis per cell: P[M_1, ..., M_N], `np.multiply.outer` of independent ones.
    initial_probs: [H], P[H_1]; or [M, ..., M, H], P[H_1 | M], if the first state depends on the memory.
    transition_matrix: [H, H], entry (i, j) = P[H_{t+1} = j | H_t = i].
    cell_index: [H] integers below N, the cell J that each hidden state reads.
    emission_matrix: [M, H, V], entry (m, h, v) = P[X_t = v | M_J = m, H_t = h], the paper's W.

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)
  >>> hmm.num_cells, hmm.joint_initial_probs.shape, hmm.joint_emission_matrix.shape
  (1, (6,), (6, 4))
  """

  memory_probs: Array | np.ndarray
  initial_probs: Array | np.ndarray
  transition_matrix: Array | np.ndarray
  cell_index: Array | np.ndarray
  emission_matrix: Array | np.ndarray

  @property
  def num_cells(self) -> int:
    return self.memory_probs.ndim

  @property
  def memory_size(self) -> int:
    return self.emission_matrix.shape[0]

  @property
  def num_states(self) -> int:
    return self.emission_matrix.shape[1]

  @property
  def num_tokens(self) -> int:
    return self.emission_matrix.shape[2]

  @property
  def joint_initial_probs(self) -> Array | np.ndarray:
    return (self.memory_probs[..., None] * self.initial_probs).reshape(-1)

  @property
  def joint_emission_matrix(self) -> Array | np.ndarray:
    return lift(self, self.emission_matrix.transpose(2, 0, 1)).T

  def starting_from(self, joint_initial_probs: Array | np.ndarray) -> 'MemoryHMM':
    """The same with another law of memory and state; a memory of probability 0 keeps its law of the state."""
    joint = joint_initial_probs.reshape(self.memory_probs.shape + (self.num_states,))
    memory_probs = joint.sum(-1)
    total = memory_probs[..., None]
    initial_probs = joint / positive_or_one(total) + (total == 0) * self.initial_probs
    return self._replace(memory_probs=memory_probs, initial_probs=initial_probs)

  def validate(self) -> 'MemoryHMM':
    """Return it as arrays. Raises ValueError naming the field whose type, shape, entries or sums are wrong."""
    hmm: MemoryHMM = arguments.with_arrays(self)
    sizes = 'memory_size', 'num_states', 'num_tokens'
    memory_size, num_states, _ = shape = check_shape('emission_matrix', hmm.emission_matrix, *sizes)
    num_cells = max(hmm.memory_probs.ndim, 1)
    memory_shape = (memory_size,) * num_cells
    check_probs('memory_probs', hmm.memory_probs, *memory_shape, over=None)
    of_memory = memory_shape if hmm.initial_probs.ndim > 1 else ()
    check_probs('initial_probs', hmm.initial_probs, *of_memory, num_states)
    check_probs('transition_matrix', hmm.transition_matrix, num_states, num_states)
    check_probs('emission_matrix', hmm.emission_matrix, *shape)
    check_shape('cell_index', hmm.cell_index, num_states)
    arguments.check_ids('cell_index', np.asarray(hmm.cell_index), num_cells)
    check_configurations(memory_size, num_cells)
    return hmm


def check_configurations(memory_size: int, num_cells: int) -> None:
  """Raise ValueError if M^N is more than inference enumerates."""
  valid = f'fewer: inference enumerates at most {MAX_CONFIGURATIONS} configurations of cells of {memory_size} values'
  require(memory_size**num_cells <= MAX_CONFIGURATIONS, 'num_cells', num_cells, valid)


@arguments.converted
@compilation.unfused('memory_size', 'num_states', 'num_tokens', 'num_cells', 'joint_prior', 'num_permutations')
def random_memory_hmm(
  key: Array,
  memory_size: int,
  num_states: int,
  num_tokens: int,
  *,
  num_cells: int = 1,
  joint_prior: bool = False,
  num_permutations: int | None = None,
  transition_temperature: float = 0.01,
  initial_temperature: float = 10.0,
  emission_temperature: float = 0.01,
) -> MemoryHMM:
  """The paper's draw of a memory-augmented HMM (appendix "Experimental details"), for N cells.

  Distributions are drawn as in `random_hmm`: an emission row for each (m, h), and the memory like the first state. A
  hidden state is a pair (j, s) of cell j and syntax state s, in C order: state h reads cell h // (H / N).

  Args:
    key: a PRNG key.
    memory_size: M.
    num_states: H, a multiple of `num_cells`.
    num_tokens: V.
    num_cells: N.
    joint_prior: draw P[M, H_1] jointly, as the released code does, instead of P[M] and P[H_1].
    num_permutations: number of permutations mixed; None for H; E in the released code.
    transition_temperature: of the mixing weights.
    initial_temperature: of P[M] and P[H_1], or of P[M, H_1].
    emission_temperature: of each emission row.

  Raises:
    ValueError: M^N is over the limit, or H is no multiple of N.

  >>> random_memory_hmm(jax.random.key(0), memory_size=2, num_states=4, num_tokens=5, num_cells=2).memory_probs.shape
  (2, 2)
  """
  check_configurations(memory_size, num_cells)
  if num_states % num_cells:
    raise ValueError(f'num_states is {num_states}; valid is a multiple of num_cells, {num_cells}')
  key_weights, key_permutations, key_initial, key_memory, key_emission = jax.random.split(key, 5)
  num_configurations = memory_size**num_cells
  draw = lambda key, size: softmax_of_uniform(key, (size,), initial_temperature)
  hmm = MemoryHMM(
    memory_probs=draw(key_memory, num_configurations).reshape((memory_size,) * num_cells),
    initial_probs=draw(key_initial, num_states),
    transition_matrix=mixed_permutations(
      key_weights, key_permutations, num_states, num_permutations, transition_temperature
    ),
    cell_index=jnp.arange(num_states, dtype=jnp.int32) // (num_states // num_cells),
    emission_matrix=softmax_of_uniform(key_emission, (memory_size, num_states, num_tokens), emission_temperature),
  )
  return hmm.starting_from(draw(key_initial, num_configurations * num_states)) if joint_prior else hmm


def _values_read(hmm: MemoryHMM) -> Array | np.ndarray:
  """The memory value that each joint state reads, [M^N, H]; on the host if the distribution is."""
  configurations = np.indices(hmm.memory_probs.shape).reshape(hmm.num_cells, -1)
  of_host = isinstance(hmm.cell_index, np.ndarray)
  return (configurations if of_host else jnp.asarray(configurations))[hmm.cell_index].T


@arguments.converted
def lift(hmm: MemoryHMM, rows: Array | np.ndarray) -> Array | np.ndarray:
  """The lifting eta (appendix C.2): rows [..., M, H] as rows [..., E], eta(v)[m_{1:N}, h] = v[m_{J(h)}, h].

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=4, num_tokens=5, num_cells=2)
  >>> lift(hmm, np.ones((7, 2, 4))).shape
  (7, 16)
  """
  lifted = rows[..., _values_read(hmm), np.arange(hmm.num_states)]
  return lifted.reshape(rows.shape[:-2] + (-1,))


@arguments.converted
def reverse_lift(hmm: MemoryHMM, rows: Array | np.ndarray) -> Array | np.ndarray:
  """The reverse lifting phi (C.4): rows [..., E] as [..., M, H], the mean over all configurations that read m at h.

  `reverse_lift(hmm, lift(hmm, rows))` equals `rows`.

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=4, num_tokens=5, num_cells=2)
  >>> rows = np.arange(8.0).reshape(2, 4)
  >>> bool((reverse_lift(hmm, lift(hmm, rows)) == rows).all())
  True
  """
  values = _values_read(hmm)
  reads = values == np.arange(hmm.memory_size)[:, None, None]
  sums = (rows.reshape(*rows.shape[:-1], 1, *values.shape) * reads).sum(-2)
  return sums / hmm.memory_size ** (hmm.num_cells - 1)


@arguments.converted
def cell_probs(hmm: MemoryHMM, joint_probs: Array | np.ndarray) -> Array:
  """The distribution of each cell, [..., N, M], from one over joint states [..., E] or configurations [..., M^N].

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=4, num_tokens=5, num_cells=2)
  >>> cell_probs(hmm, hmm.joint_initial_probs).shape
  (2, 2)
  """
  batch_shape = joint_probs.shape[:-1]
  memory = joint_probs.reshape(batch_shape + hmm.memory_probs.shape + (-1,)).sum(-1)
  cells = range(-hmm.num_cells, 0)
  return jnp.stack([memory.sum(tuple(other for other in cells if other != cell)) for cell in cells], axis=-2)


@shown
class MemoryPosterior(NamedTuple):
  """The posteriors of a memory-augmented HMM by one pass forward and one backward. Zeros for impossible evidence.

  Attributes:
    cell_probs: [..., N, M], P[M_j | x_{1:T}] for every cell j; the same at every position.
    smoothed_probs: [..., T, H], P[H_t | x_{1:T}].
    leave_one_out_probs: [..., T, H], P[H_t | x_{-t}].
    joint: `Posterior` over the E joint states, [..., T, E].
    marginal_loglik: [...], log P[x_{1:T}] in nats; -inf if the evidence has probability zero.

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)
  >>> posterior = memory_forward_backward(hmm, jnp.ones((5, 6)))
  >>> posterior.cell_probs.shape, posterior.leave_one_out_probs.shape
  ((1, 2), (5, 3))
  """

  cell_probs: Array
  smoothed_probs: Array
  leave_one_out_probs: Array
  joint: Posterior
  marginal_loglik: Array


@arguments.converted
def memory_forward_backward(hmm: MemoryHMM, likelihoods: Array) -> MemoryPosterior:
  """Exact posteriors of memory and hidden state from likelihood rows over joint states, [..., T, E].

  The memory is constant, so the chain of H states runs once for each configuration: O(T M^N H^2). Under `jax.jit`
  unused fields are not computed. A row is a token's (`token_likelihoods`), ones for a [MASK], or a prompt over (memory,
  state), `lift`ed or not (appendix C.2). Values outside the support of P[M] have posterior 0.

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)
  >>> posterior = memory_forward_backward(hmm, jnp.ones((5, 6)))  # no token is seen
  >>> bool(jnp.allclose(posterior.cell_probs[0], hmm.memory_probs))
  True
  """
  return by_sequence(passes.smooth, hmm, likelihoods, _with_sums)


def _with_sums(hmm: MemoryHMM, result: Any) -> MemoryPosterior:
  joint = posterior(result)
  over_states = lambda probs: probs.reshape(probs.shape[:-1] + (-1, hmm.num_states)).sum(-2)
  return MemoryPosterior(
    cell_probs=cell_probs(hmm, joint.filtered_probs[..., -1, :]),
    smoothed_probs=over_states(joint.smoothed_probs),
    leave_one_out_probs=over_states(joint.leave_one_out_probs),
    joint=joint,
    marginal_loglik=joint.marginal_loglik,
  )


@arguments.converted
def cell_posterior(hmm: MemoryHMM, likelihoods: Array) -> Array:
  """P[M_j | x_{1:T}] of every cell, [..., N, M], from rows [..., T, E] by a forward pass.

  >>> hmm = random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)
  >>> cell_posterior(hmm, jnp.ones((5, 6))).shape
  (1, 2)
  """
  return by_sequence(passes.filter_to_end, hmm, likelihoods, _of_cells)


def _of_cells(hmm: MemoryHMM, result: Any) -> Array:
  return cell_probs(hmm, result[0])


@functools.partial(checked, returns_float64=True)
def to_hmm(hmm: MemoryHMM) -> HMM:
  """The flattened chain of E = M^N H states, which agrees with `hmm` in every quantity and costs E^2 a step.

  >>> to_hmm(random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)).num_states
  6
  """
  identity = jnp.eye(hmm.joint_initial_probs.size // hmm.num_states, dtype=hmm.transition_matrix.dtype)
  transition_matrix = jnp.kron(identity, hmm.transition_matrix)
  return HMM(hmm.joint_initial_probs, transition_matrix, hmm.joint_emission_matrix)
