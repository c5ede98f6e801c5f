"""Facts about the memory-augmented HMM: its draw, its samples, lifting, flattening, and what it refuses."""

import itertools

from conftest import in_float64
import jax
import jax.numpy as jnp
from memory_hmm_cases import configurations, dense_hmm, DRAWN, emissions, float32, MASK, rows_of
import numpy as np
import pytest
from scipy import stats

from hmm_jax import hmm as hmm_lib, memory_hmm as memory_lib, sampling

pytestmark = pytest.mark.usefixtures('without_optimisation')


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


def test_samples_follow_the_parameters():
  """A document keeps its memory; first joint states, transitions and tokens have the frequencies of the parameters."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  hmm = hmm._replace(memory_probs=np.array([[0.2, 0.5], [0.3, 0]]))
  draw = jax.jit(jax.vmap(lambda key: sampling.sample(key, float32(hmm), 12)))
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
  corpus = sampling.sample_corpus(jax.random.key(3), float32(hmm), 5, 8, chunk_size=2)
  one_by_one = [sampling.sample(jax.random.fold_in(jax.random.key(3), d), float32(hmm), 8)[1] for d in range(5)]
  np.testing.assert_array_equal(corpus, one_by_one)


@pytest.mark.parametrize('num_cells, memory_size, num_states', [*DRAWN, (3, 2, 3)])
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
  sizes = hmm.num_cells, hmm.memory_size, hmm.num_states, hmm.num_tokens, hmm.memory_probs.size
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
    jax.random.key(0), 5, 4, 10, transition_temperature=1e6, **options
  )
  one, two, default = (
    draw(**options).transition_matrix for options in ({'num_permutations': 1}, {'num_permutations': 2}, {})
  )
  np.testing.assert_array_equal(np.sort(one, axis=1), np.tile(np.eye(4)[-1], (4, 1)))
  np.testing.assert_allclose(two * 2, np.round(two * 2), atol=1e-4)
  np.testing.assert_allclose(default * 4, np.round(default * 4), atol=1e-4)
  assert (np.asarray(default) > 0).sum(1).max() > 2


BAD_FIELDS = [
  ('cell_index', np.array([0, 2, 1]), r'is \[0, 2, 1\]'),
  ('cell_index', np.array([0, -1, 1]), r'is \[0, -1, 1\]'),
  ('cell_index', np.array([0, 1]), r'is \[0, 1\]'),
  ('cell_index', np.array([0.0, 1.0, 0.0]), r'is \[0.0, 1.0, 0.0\]'),
  ('memory_probs', np.full((2, 3), 1 / 6), r'has shape \(2, 3\)'),
  ('memory_probs', np.array(1.0), r'has shape \(\)'),
  ('memory_probs', np.full((2, 2), 0.5), 'has a row that sums to 2'),
  ('memory_probs', np.array([[-0.5, 0.5], [0.5, 0.5]]), 'has an entry that is negative'),
  ('initial_probs', np.full((2, 3), 1 / 3), r'has shape \(2, 3\)'),
  ('initial_probs', np.full((2, 2, 3), 0.25), 'has a row that sums to 0.75'),
  ('transition_matrix', np.eye(2), r'has shape \(2, 2\)'),
  ('emission_matrix', np.ones((2, 0, 4)), r'has shape \(2, 0, 4\)'),
  ('emission_matrix', np.full((2, 3, 4), np.nan), 'has an entry .* not finite'),
]


@pytest.mark.parametrize('field, value, said', BAD_FIELDS)
def test_validate_names_the_field_that_is_wrong(field, value, said):
  """A field that does not fit is reported by its name, with what it holds; a good one passes."""
  hmm = dense_hmm(np.random.default_rng(0), 2)
  assert hmm.validate() is hmm
  with pytest.raises(ValueError, match=f'^{field} {said}'):
    hmm._replace(**{field: value}).validate()


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
