"""Facts about the memory-augmented HMM, checked against a sum over memories and paths, and the flattened chain."""

import itertools

from conftest import in_float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hmm_jax import hmm as hmm_lib
from hmm_jax import inference
from hmm_jax import memory_hmm as memory_lib
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.memory_hmm import MemoryPosterior


@jax.jit
def inferred(hmm, rows):
  """All that inference tells, in one compilation."""
  return (
    memory_lib.memory_forward_backward(hmm, rows),
    memory_lib.cell_posterior(hmm, rows),
    inference.still_posterior(hmm, rows).marginal_loglik,
    hmm_lib.conditional_token_probs(hmm, rows),
  )


MASK = -1
# Which cell each of three states reads, by the number of cells; with three cells it is no sorted order.
CELLS = {1: [0, 0, 0], 2: [0, 1, 0], 3: [2, 0, 1]}


def dense_hmm(rng, num_cells, *, per_memory=False, memory_size=2, num_states=3, num_tokens=4):
  """A numpy memory HMM without small probabilities, float64; the first state depends on the memory if `per_memory`."""
  memory_shape = (memory_size,) * num_cells
  dirichlet = lambda size, *shape: rng.dirichlet(np.ones(size), shape)
  return MemoryHMM(
    memory_probs=dirichlet(memory_size**num_cells).reshape(memory_shape),
    initial_probs=dirichlet(num_states, *(memory_shape if per_memory else ())),
    transition_matrix=dirichlet(num_states, num_states),
    cell_index=np.array(CELLS[num_cells][:num_states]),
    emission_matrix=dirichlet(num_tokens, memory_size, num_states),
  )


def configurations(num_cells, memory_size):
  """All memories (m_1, ..., m_N) in the order of their numbers, [C, N]."""
  return np.array(list(itertools.product(range(memory_size), repeat=num_cells)))


def emissions(hmm):
  """P[X = v | memory c, state h] = W[m_{J(h)}, h, v], [C, H, V]: the definition in section 4."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  memories = configurations(hmm.memory_probs.ndim, memory_size)
  read = [[memory[hmm.cell_index[h]] for h in range(num_states)] for memory in memories]
  return hmm.emission_matrix[np.array(read), np.arange(num_states)]


def rows_of(hmm, tokens):
  """Likelihood rows [T, C H] of tokens by definition, ones where a token is MASK."""
  by_memory = emissions(hmm)
  rows = [np.ones(by_memory.shape[:2]) if v == MASK else by_memory[..., v] for v in tokens]
  return np.stack(rows).reshape(len(tokens), -1)


def enumerated_posterior(hmm, rows, xp=np):
  """The `MemoryPosterior` by definition: sums over all memories and state paths; `xp=jnp` can be differentiated."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  num_cells, length = hmm.memory_probs.ndim, len(rows)
  memories = configurations(num_cells, memory_size)
  paths = np.array(list(itertools.product(range(num_states), repeat=length)))
  initial = xp.broadcast_to(hmm.initial_probs, hmm.memory_probs.shape + (num_states,)).reshape(-1, num_states)
  prior = hmm.memory_probs.reshape(-1, 1) * initial[:, paths[:, 0]]
  for t in range(1, length):
    prior = prior * hmm.transition_matrix[paths[:, t - 1], paths[:, t]]
  rows = rows.reshape(length, -1, num_states)

  def normalise(weights):
    possible = weights.sum() > 0
    return xp.where(possible, weights / xp.where(possible, weights.sum(), 1), 0)

  def weights(kept):
    """P[memory c, path p, the evidence at the positions `kept`], [C, P]."""
    total = prior
    for s in kept:
      total = total * rows[s][:, paths[:, s]]
    return total

  def joint(t, kept):
    """P[memory c, H_t = h | the evidence at `kept`], [C, H]."""
    return normalise(weights(kept) @ np.eye(num_states)[paths[:, t]])

  def cells(probs):
    """P[M_j = m] of probabilities [C]."""
    return xp.stack(
      [xp.stack([(probs * (memories[:, j] == m)).sum() for m in range(memory_size)]) for j in range(num_cells)]
    )

  def reads(probs):
    """P[M_{J(h)} = m, H = h] of probabilities [C, H]."""
    held = memories[:, np.asarray(hmm.cell_index)]
    return xp.stack([(probs * (held == m)).sum(0) for m in range(memory_size)])

  times = range(length)
  stack = lambda kept_at: xp.stack([joint(t, kept_at(t)) for t in times])
  without = lambda t: [s for s in times if s != t]
  smoothed, leave_one_out = stack(lambda t: times), stack(without)
  evidence = weights(times).sum()
  loglik = xp.where(evidence > 0, xp.log(xp.where(evidence > 0, evidence, 1)), -xp.inf)
  flat = lambda probs: probs.reshape(length, -1)
  filtered, predicted = stack(lambda t: range(t + 1)), stack(range)
  return MemoryPosterior(
    cell_probs=cells(normalise(weights(times)).sum(1)),
    leave_one_out_cell_probs=xp.stack([cells(normalise(weights(without(t))).sum(1)) for t in times]),
    smoothed_probs=smoothed.sum(1),
    leave_one_out_probs=leave_one_out.sum(1),
    leave_one_out_read_probs=xp.stack([reads(probs) for probs in leave_one_out]),
    joint=inference.Posterior(flat(filtered), flat(predicted), flat(smoothed), flat(leave_one_out), loglik),
    marginal_loglik=loglik,
  )


def assert_trees_close(actual, expected, atol):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=atol, atol=atol), actual, expected)


def assert_all_by_enumeration(hmm, rows, atol=1e-12):
  """Every quantity that inference gives equals its sum over memories and paths, in float64."""
  expected = enumerated_posterior(hmm, rows)
  token_probs = np.einsum('tmh,mhv->tv', expected.leave_one_out_read_probs, hmm.emission_matrix)
  everything = expected, expected.cell_probs, expected.marginal_loglik, token_probs
  actual = in_float64(inferred, hmm, rows)
  assert_trees_close(actual, everything, atol)
  return actual


@pytest.mark.parametrize('num_cells', [1, 2, 3])
@pytest.mark.parametrize('per_memory', [False, True], ids=['independent start', 'start by memory'])
def test_posterior_equals_enumeration(num_cells, per_memory):
  """All posteriors, G and the evidence of tokens with a masked position are sums over memories and state paths."""
  hmm = dense_hmm(np.random.default_rng(num_cells), num_cells, per_memory=per_memory)
  assert_all_by_enumeration(hmm, rows_of(hmm, [1, MASK, 0, 3]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_posterior_of_a_prompt_equals_enumeration(num_cells):
  """Arbitrary rows over the joint states, with exact zeros, are evidence like any other."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells, per_memory=True)
  prompt = rng.uniform(size=(2, 2**num_cells * 3)) * (rng.uniform(size=(2, 2**num_cells * 3)) > 0.3)
  assert_all_by_enumeration(hmm, np.concatenate([prompt, rows_of(hmm, [2, MASK])]))


def test_three_memory_values_equal_enumeration():
  """Nothing rests on two values: two cells of three values and two states."""
  hmm = dense_hmm(np.random.default_rng(0), 2, memory_size=3, num_states=2, per_memory=True)
  assert_all_by_enumeration(hmm, rows_of(hmm, [3, 0, MASK, 1, 2]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_prior_without_full_support(num_cells):
  """Memories of prior probability 0 have posterior probability exactly 0, in every quantity, and nothing is NaN."""
  hmm = dense_hmm(np.random.default_rng(0), num_cells, per_memory=True)
  memory_probs = hmm.memory_probs.copy()
  memory_probs[1] = 0
  hmm = hmm._replace(memory_probs=memory_probs / memory_probs.sum())
  rows = rows_of(hmm, [1, MASK, 0, 3])
  for posterior in (assert_all_by_enumeration(hmm, rows)[0], inferred(*float32((hmm, rows)))[0]):
    np.testing.assert_array_equal(posterior.cell_probs[0, 1], 0)
    np.testing.assert_array_equal(posterior.leave_one_out_cell_probs[:, 0, 1], 0)
    np.testing.assert_array_equal(posterior.joint.smoothed_probs.reshape(4, 2, -1)[:, 1], 0)


def float32(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if np.asarray(x).dtype.kind == 'f' else jnp.int32), tree)


def impossible_cases():
  """(hmm, rows): a row of zeros, cells that contradict each other, and evidence for a memory of prior 0 alone."""
  hmm = dense_hmm(np.random.default_rng(0), 2)
  rows = rows_of(hmm, [1, MASK, 0, 3])
  yield hmm, np.where(np.arange(4)[:, None] == 1, 0, rows)
  held = np.repeat(configurations(2, 2), 3, axis=0)
  yield hmm, np.stack([held[:, 0] == 0, held[:, 1] == 0, held[:, 0] == 1, held[:, 1] == 1]).astype(float)
  one_sided = hmm._replace(memory_probs=np.array([[0.5, 0.5], [0, 0]]))
  yield one_sided, np.where(np.arange(4)[:, None] == 2, held[:, 0] == 1, rows)


@jax.jit
def gradient_of_everything(parameters, cell_index, rows):
  """Derivatives of a weighted sum of all that inference tells, by the parameters and the rows."""

  def total(parameters, rows):
    weighted = lambda x: (jnp.cos(jnp.arange(x.size, dtype=x.dtype)) * jnp.where(jnp.isfinite(x), x, 0).ravel()).sum()
    return sum(map(weighted, jax.tree.leaves(inferred(MemoryHMM(**parameters, cell_index=cell_index), rows))))

  return jax.grad(total, (0, 1))(parameters, rows)


def without_cells(hmm):
  return {name: x for name, x in hmm._asdict().items() if name != 'cell_index'}


@pytest.mark.parametrize('case', [0, 1, 2], ids=['zero row', 'contradiction', 'outside the support'])
def test_impossible_evidence_is_zero_with_finite_gradients(case):
  """Evidence of probability 0 has zeros for a posterior, -inf for its logarithm, and no derivative that is NaN."""
  hmm, rows = list(impossible_cases())[case]
  expected = assert_all_by_enumeration(hmm, rows)
  posterior, cells, loglik, _ = single = inferred(*float32((hmm, rows)))
  assert_trees_close(single, expected, 1e-6)
  for probs in (posterior.cell_probs, posterior.smoothed_probs, posterior.joint.smoothed_probs, cells):
    np.testing.assert_array_equal(probs, 0)
  assert posterior.marginal_loglik == loglik == -np.inf
  gradients = gradient_of_everything(float32(without_cells(hmm)), hmm.cell_index, float32(rows))
  for gradient in jax.tree.leaves(gradients):
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize('num_cells, quantity', [(1, 'cells'), (2, 'cells'), (3, 'cells'), (2, 'leave one out')])
def test_gradient_of_cell_probs_equals_enumeration(num_cells, quantity):
  """Derivatives by every parameter and by the rows are those of the sum over memories and paths."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells, per_memory=True)
  tokens, prompt = np.array([1, 0, 3]), rng.uniform(size=(3, 2**num_cells * 3)) + 0.1
  weights = rng.normal(size=(num_cells, 2))

  def ours(parameters, prompt):
    hmm_of = hmm._replace(**parameters, cell_index=jnp.asarray(hmm.cell_index))
    rows = hmm_lib.token_likelihoods(hmm_of, tokens, np.array([True, False, True])) * prompt
    if quantity == 'cells':
      return (weights * memory_lib.cell_posterior(hmm_of, rows)).sum()
    posterior = memory_lib.memory_forward_backward(hmm_of, rows)
    return (weights * posterior.leave_one_out_cell_probs[1]).sum() + posterior.marginal_loglik

  def enumerated(parameters, prompt):
    hmm_of = hmm._replace(**parameters)
    by_memory = emissions(hmm_of).reshape(-1, 4)
    rows = jnp.stack([by_memory[:, 1], jnp.ones(len(by_memory)), by_memory[:, 3]]) * prompt
    posterior = enumerated_posterior(hmm_of, rows, xp=jnp)
    if quantity == 'cells':
      return (weights * posterior.cell_probs).sum()
    return (weights * posterior.leave_one_out_cell_probs[1]).sum() + posterior.marginal_loglik

  actual, expected = (in_float64(jax.jit(jax.grad(f, (0, 1))), without_cells(hmm), prompt) for f in (ours, enumerated))
  assert_trees_close(actual, expected, 1e-11)


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_joint_emissions_are_the_definition(num_cells):
  """A token's row is P[x | m_{J(h)}, h] at state c H + h, also for noisy sight, and rows of ones where masked."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells)
  tokens = np.array([1, 3, 0])
  expected = rows_of(hmm, [1, MASK, 0])
  actual = in_float64(hmm_lib.token_likelihoods, hmm, tokens, np.array([True, False, True]))
  np.testing.assert_allclose(actual, expected, rtol=1e-15)
  evidence = rng.uniform(size=(3, 4))
  noisy = np.einsum('tv,chv->tch', evidence, emissions(hmm)).reshape(3, -1)
  np.testing.assert_allclose(in_float64(hmm_lib.evidence_likelihoods, hmm, evidence), noisy, rtol=1e-14)


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_lift_and_reverse_lift(num_cells):
  """eta lifts v to v[m_{J(h)}, h], so that a token's row is its lifted column; phi is the mean (C.4) and undoes it."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells)
  memories, states = configurations(num_cells, 2), range(3)
  v = rng.normal(size=(5, 2, 3))
  lifted = in_float64(memory_lib.lift, hmm, v)
  by_definition = [[v[:, memory[hmm.cell_index[h]], h] for h in states] for memory in memories]
  np.testing.assert_array_equal(lifted, np.moveaxis(by_definition, -1, 0).reshape(5, -1))
  np.testing.assert_allclose(in_float64(memory_lib.reverse_lift, hmm, lifted), v, atol=1e-14)
  columns = np.moveaxis(hmm.emission_matrix, -1, 0)
  np.testing.assert_allclose(in_float64(memory_lib.lift, hmm, columns), rows_of(hmm, range(4)), rtol=1e-15)
  rows = rng.normal(size=(4, 2**num_cells, 3))
  mean = np.zeros((4, 2, 3))
  for c, h in itertools.product(range(len(memories)), states):
    mean[:, memories[c, hmm.cell_index[h]], h] += rows[:, c, h] / 2 ** (num_cells - 1)
  actual = in_float64(memory_lib.reverse_lift, hmm, rows.reshape(4, -1))
  np.testing.assert_allclose(actual, mean, atol=1e-14)


def test_independent_cells_multiply():
  """The memory's probabilities are the products of the cells' own, and their marginals are the cells'."""
  cells = np.random.default_rng(0).dirichlet(np.ones(3), 3)
  joint = in_float64(memory_lib.independent_cells, cells)
  np.testing.assert_allclose(joint, np.einsum('i,j,k->ijk', *cells), rtol=1e-14)
  hmm = dense_hmm(np.random.default_rng(0), 3, memory_size=3)._replace(memory_probs=joint)
  np.testing.assert_allclose(in_float64(memory_lib.cell_probs, hmm, joint.reshape(-1)), cells, rtol=1e-13)


def test_flattened_chain_is_the_definition():
  """The flattened chain moves within a memory only, starts from P[M] P[H_1 | M] and emits by what its state reads."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  flat = in_float64(memory_lib.to_hmm, hmm).validate()
  transition_matrix = flat.transition_matrix.reshape(4, 3, 4, 3)
  for c, d in np.ndindex(4, 4):
    np.testing.assert_array_equal(transition_matrix[c, :, d], hmm.transition_matrix * (c == d))
  initial = hmm.memory_probs.reshape(4, 1) * hmm.initial_probs.reshape(4, 3)
  np.testing.assert_allclose(flat.initial_probs, initial.reshape(-1), rtol=1e-15)
  np.testing.assert_allclose(flat.emission_matrix, emissions(hmm).reshape(12, 4), rtol=1e-15)


def sampled_rows(hmm):
  """Rows [4, 512, E] of text of `hmm`, its first token masked; every second text ends after 129 tokens."""
  keys = jax.random.split(jax.random.key(1), 4)
  tokens = jax.vmap(lambda key: hmm_lib.sample(key, hmm, 512)[1])(keys)
  position = jnp.arange(512)
  return hmm_lib.token_likelihoods(hmm, tokens, (position > 0) & (position < jnp.array([[512], [129]] * 2)))


@pytest.mark.parametrize('num_cells, memory_size, num_states', [(1, 5, 4), (2, 3, 4)])
def test_float32_equals_the_flattened_chain(num_cells, memory_size, num_states):
  """On text of the paper's draw every quantity is that of the flattened chain, which runs in float64."""
  hmm = memory_lib.random_memory_hmm(jax.random.key(0), memory_size, num_states, 10, num_cells=num_cells)
  flat, rows = jax.jit(memory_lib.to_hmm)(hmm), sampled_rows(hmm)
  posterior, cells, loglik, tokens = inferred(hmm, rows)
  flattened = jax.jit(inference.batched_forward_backward)
  memories = configurations(num_cells, memory_size)
  expected = in_float64(flattened, flat, rows)
  assert_trees_close(posterior.joint[:4], expected[:4], 2e-6)
  np.testing.assert_allclose(posterior.marginal_loglik, expected.marginal_loglik, rtol=1e-5)
  np.testing.assert_allclose(loglik, expected.marginal_loglik, rtol=1e-5)
  np.testing.assert_allclose(tokens, expected.leave_one_out_probs @ np.asarray(flat.emission_matrix), atol=2e-6)
  memory = np.asarray(expected.smoothed_probs)[:, 60].reshape(4, -1, num_states).sum(-1)
  by_cell = [[memory[:, memories[:, j] == m].sum(1) for m in range(memory_size)] for j in range(num_cells)]
  np.testing.assert_allclose(posterior.cell_probs, np.moveaxis(by_cell, -1, 0), atol=2e-6)
  np.testing.assert_allclose(cells, posterior.cell_probs, atol=2e-6)


def test_chunk_start_is_that_of_the_flattened_chain():
  """Seen from a random chunk the first state has moved on, the memory has not, and its zeros stay zeros."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  hmm = hmm._replace(memory_probs=np.array([[0.2, 0.5], [0.3, 0]]))
  start = in_float64(lambda hmm: hmm_lib.chunk_start(hmm, 3, 5), hmm).validate()
  np.testing.assert_allclose(start.memory_probs, hmm.memory_probs, atol=1e-14)
  flat = in_float64(memory_lib.to_hmm, hmm)
  by_powers = np.mean([flat.initial_probs @ np.linalg.matrix_power(flat.transition_matrix, 3 * k) for k in range(5)], 0)
  np.testing.assert_allclose(start.joint_initial_probs, by_powers, atol=1e-14)
  of_flat = in_float64(lambda flat: hmm_lib.chunk_start(flat, 3, 5), flat)
  np.testing.assert_allclose(start.joint_initial_probs, of_flat.initial_probs, atol=1e-14)


def test_late_evidence_revives_a_memory_that_was_all_but_ruled_out():
  """A memory that one row put below 1e-54 is what the document holds once later rows favour it by 1e60."""
  hmm = MemoryHMM(jnp.array([1, 1e-30]), jnp.ones(1), jnp.ones((1, 1)), jnp.zeros(1, int), jnp.full((2, 1, 2), 0.5))
  rows = jnp.ones((31, 2)).at[0, 1].set(1e-25).at[1:, 0].set(0.01)
  odds = 1e-55 * 10.0 ** (2 * np.arange(31))
  posterior = inference.still_posterior(hmm, rows)
  np.testing.assert_allclose(posterior.probs, [1 / (1 + odds[-1]), odds[-1] / (1 + odds[-1])], atol=1e-6)
  np.testing.assert_allclose(posterior.marginal_loglik, np.log1p(odds[-1]) - 60 * np.log(10), rtol=1e-6)
  filtered = memory_lib.memory_forward_backward(hmm, rows).joint.filtered_probs
  np.testing.assert_allclose(filtered[:, 1], odds / (1 + odds), atol=1e-6)


def test_a_memory_that_was_lost_and_favoured_is_taken_back_by_the_last_row():
  """A memory ruled out by 1e60, favoured by 1e95, then set back by 1e34 holds 10/11: its loss passed every bound."""
  hmm = MemoryHMM(jnp.full(2, 0.5), jnp.ones(1), jnp.ones((1, 1)), jnp.zeros(1, int), jnp.full((2, 1, 2), 0.5))
  rows = jnp.array([[1, 1e-30]] * 2 + [[0.1, 1]] * 95 + [[1, 1e-34]])
  np.testing.assert_allclose(inference.still_posterior(hmm, rows).probs, [1 / 11, 10 / 11], atol=1e-5)


def test_samples_follow_the_parameters():
  """A document keeps its memory; first joint states, transitions and tokens have the frequencies of the parameters."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  hmm = hmm._replace(memory_probs=np.array([[0.2, 0.5], [0.3, 0]]))
  draw = jax.jit(jax.vmap(lambda key: hmm_lib.sample(key, float32(hmm), 12)))
  states, tokens = map(np.asarray, draw(jax.random.split(jax.random.key(0), 3000)))
  memory, state = states // 3, states % 3
  np.testing.assert_array_equal(memory, np.broadcast_to(memory[:, :1], memory.shape))
  first, moves, emitted = np.zeros(12), np.zeros((3, 3)), np.zeros((12, 4))
  np.add.at(first, states[:, 0], 1)
  np.add.at(moves, (state[:, :-1], state[:, 1:]), 1)
  np.add.at(emitted, (states, tokens), 1)
  initial = hmm.memory_probs.reshape(4, 1) * hmm.initial_probs.reshape(4, 3)
  np.testing.assert_array_equal(first[9:], 0)
  assert stats.chisquare(first[:9], initial.reshape(-1)[:9] * 3000).pvalue > 1e-4
  for counts, probs in [*zip(moves, hmm.transition_matrix), *zip(emitted[:9], emissions(hmm).reshape(12, 4))]:
    assert stats.chisquare(counts, probs * counts.sum()).pvalue > 1e-4
  corpus = hmm_lib.sample_corpus(jax.random.key(3), float32(hmm), 5, 8, chunk_size=2)
  one_by_one = [hmm_lib.sample(jax.random.fold_in(jax.random.key(3), d), float32(hmm), 8)[1] for d in range(5)]
  np.testing.assert_array_equal(corpus, one_by_one)


@pytest.mark.parametrize('num_cells, memory_size, num_states', [(1, 7, 4), (2, 3, 6), (3, 2, 3)])
@pytest.mark.parametrize('joint_prior', [False, True])
def test_random_draw(num_cells, memory_size, num_states, joint_prior):
  """The draw is well-formed; states are in blocks by cell; starts are softmaxes at a high temperature."""
  draw = lambda joint_prior, key=0: memory_lib.random_memory_hmm(
    jax.random.key(key), memory_size, num_states, 10, num_cells=num_cells, joint_prior=joint_prior
  )
  hmm = draw(joint_prior).validate()
  memory_shape = (memory_size,) * num_cells
  assert hmm.memory_probs.shape == memory_shape
  assert hmm.initial_probs.shape == (memory_shape if joint_prior else ()) + (num_states,)
  assert hmm.emission_matrix.shape == (memory_size, num_states, 10)
  sizes = hmm.num_cells, hmm.memory_size, hmm.num_states, hmm.num_tokens, hmm.num_configurations
  assert sizes == (num_cells, memory_size, num_states, 10, memory_size**num_cells)
  np.testing.assert_array_equal(hmm.cell_index, np.repeat(np.arange(num_cells), num_states // num_cells))
  # Logits in [0, 1] over a temperature of 10: what is drawn at once spreads over at most 0.1.
  drawn_at_once = [hmm.joint_initial_probs] if joint_prior else [hmm.memory_probs, hmm.initial_probs]
  for probs in drawn_at_once:
    assert 1e-3 < np.ptp(np.log(probs)) < 0.1 + 1e-5
  joint = np.asarray(hmm.joint_initial_probs).reshape(-1, num_states)
  product = joint.sum(1, keepdims=True) * joint.sum(0)
  assert (np.abs(joint / product - 1).max() > 1e-3) == joint_prior
  np.testing.assert_array_equal(draw(not joint_prior).emission_matrix, hmm.emission_matrix)
  np.testing.assert_array_equal(draw(not joint_prior).transition_matrix, hmm.transition_matrix)
  rows = np.asarray(hmm.emission_matrix).reshape(-1, 10)
  assert len(np.unique(rows, axis=0)) == len(rows)
  assert rows.max(1).mean() > 0.5
  assert not np.array_equal(draw(joint_prior, key=1).emission_matrix, hmm.emission_matrix)


def test_number_of_permutations():
  """One permutation is a deterministic walk, and H permutations are mixed where no number is said."""
  draw = lambda **options: memory_lib.random_memory_hmm(
    jax.random.key(0), 5, 8, 10, transition_temperature=1e6, **options
  )
  one, two, default = (
    draw(**options).transition_matrix for options in ({'num_permutations': 1}, {'num_permutations': 2}, {})
  )
  np.testing.assert_array_equal(np.sort(one, axis=1), np.tile(np.eye(8)[-1], (8, 1)))
  np.testing.assert_allclose(two * 2, np.round(two * 2), atol=1e-4)
  np.testing.assert_allclose(default * 8, np.round(default * 8), atol=1e-4)
  assert (np.asarray(default) > 0).sum(1).max() > 2


BAD_FIELDS = [
  ({'cell_index': np.array([0, 2, 1])}, r'^cell_index holds 2; valid is a cell from 0 to 1$'),
  ({'cell_index': np.array([0, -1, 1])}, r'^cell_index holds -1; valid is a cell from 0 to 1$'),
  ({'cell_index': np.array([0, 1])}, r'^cell_index has shape \(2,\).*valid is 3 integers'),
  ({'cell_index': np.array([0.0, 1.0, 0.0])}, r'^cell_index .* type float64; valid is 3 integers'),
  ({'memory_probs': np.full((2, 3), 1 / 6)}, r'^memory_probs has shape \(2, 3\); valid is an axis of 2 values'),
  ({'memory_probs': np.full((3,), 1 / 3)}, r'^memory_probs has shape \(3,\); valid is an axis of 2 values'),
  ({'memory_probs': np.array(1.0)}, r'^memory_probs has shape \(\); valid is an axis of 2 values'),
  ({'memory_probs': np.full((2, 2), 0.5)}, r'^memory_probs has a row that sums to 2; valid is 1'),
  ({'memory_probs': np.array([[-0.5, 0.5], [0.5, 0.5]])}, r'^memory_probs has an entry that is negative'),
  ({'initial_probs': np.full((4,), 0.25)}, r'^initial_probs has shape \(4,\); valid is \(3,\)'),
  ({'initial_probs': np.full((2, 3), 1 / 3)}, r'^initial_probs has shape \(2, 3\); valid is \(2, 2, 3\)'),
  ({'initial_probs': np.full((2, 2, 3), 0.25)}, r'^initial_probs has a row that sums to 0.75; valid is 1'),
  ({'transition_matrix': np.eye(2)}, r'^transition_matrix has shape \(2, 2\); valid is \(3, 3\)'),
  ({'emission_matrix': np.ones((3, 4))}, r'^emission_matrix has shape \(3, 4\); valid is \[memory_size'),
  ({'emission_matrix': np.ones((2, 0, 4))}, r'^emission_matrix has shape \(2, 0, 4\); valid is .* all positive'),
  ({'emission_matrix': np.full((2, 3, 4), 0.5)}, r'^emission_matrix has a row that sums to 2; valid is 1'),
  ({'emission_matrix': np.full((2, 3, 4), np.nan)}, r'^emission_matrix has an entry .* not finite'),
]


@pytest.mark.parametrize(
  'change, message', BAD_FIELDS, ids=[f'{i} {next(iter(c))}' for i, (c, _) in enumerate(BAD_FIELDS)]
)
def test_validate_names_field_value_and_what_is_valid(change, message):
  """A field that does not fit is reported by its name, with what it holds and what is valid; a good one passes."""
  hmm = dense_hmm(np.random.default_rng(0), 2)
  assert hmm.validate() is hmm
  with pytest.raises(ValueError, match=message):
    hmm._replace(**change).validate()


def test_too_many_configurations():
  """Too large a memory is refused before anything is drawn, with the count and the limit; 2^12 = 4096 is not."""
  memory_lib.check_configurations(2, 12)
  memory_lib.check_configurations(4096, 1)
  memory_lib.check_configurations(1, 30)
  message = r'^13 cells of 2 values have 2\^13 = 8192 memory configurations; the limit is 4096$'
  for refuse in (
    lambda: memory_lib.check_configurations(2, 13),
    lambda: memory_lib.random_memory_hmm(jax.random.key(0), 2, 13, 10, num_cells=13),
    lambda: memory_lib.independent_cells(jnp.full((13, 2), 0.5)),
    lambda: dense_hmm(np.random.default_rng(0), 1)._replace(memory_probs=np.full((2,) * 13, 2.0**-13)).validate(),
  ):
    with pytest.raises(ValueError, match=message):
      refuse()
  with pytest.raises(ValueError, match=r'4097\^1 = 4097 .* the limit is 4096'):
    memory_lib.check_configurations(4097, 1)
  with pytest.raises(ValueError, match=r'^num_states is 5; valid is a multiple of num_cells, 2$'):
    memory_lib.random_memory_hmm(jax.random.key(0), 2, 5, 10, num_cells=2)


def test_vmap_over_memory_hmms():
  """A batch of memory HMMs, each with its own batch of evidence, is what each gives alone."""
  hmms = [float32(dense_hmm(np.random.default_rng(seed), 2, per_memory=True)) for seed in range(3)]
  hmms[1] = hmms[1]._replace(cell_index=jnp.array([1, 0, 0]))
  rows = jax.random.uniform(jax.random.key(1), (3, 2, 4, 12)).at[1, 0, 2].set(0)
  together = jax.jit(jax.vmap(inferred))(jax.tree.map(lambda *x: jnp.stack(x), *hmms), rows)
  for i, j in np.ndindex(3, 2):
    alone = inferred(hmms[i], rows[i, j])
    assert_trees_close(jax.tree.map(lambda x: x[i, j], together), alone, 2e-6)  # noqa: B023
