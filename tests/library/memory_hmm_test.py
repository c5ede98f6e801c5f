"""Facts about the memory-augmented HMM, checked against the chain of the joint states, and its paths."""

from conftest import enumerated_posterior, in_float64, joint_hmm
from inference_cases import at
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32, MASK, rows_of
import numpy as np
from oracles import cells_of, log_space_posterior
import pytest

from hmm_jax import hmm as hmm_lib, memory_hmm as memory_lib, sampling
from hmm_jax.memory_hmm import MemoryPosterior

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_likelihood_rows_and_lifting(num_cells):
  """A token's row is P[x | m_{J(h)}, h], ones where masked, and linear in noisy sight; it is its lifted column.

  phi is the mean of (C.4), which undoes eta.
  """
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells)
  actual = in_float64(hmm_lib.token_likelihoods, hmm, np.array([1, 3, 0]), np.array([True, False, True]))
  np.testing.assert_allclose(actual, rows_of(hmm, [1, MASK, 0]), rtol=1e-15)
  evidence, of_tokens = rng.uniform(size=(3, 4)), rows_of(hmm, range(4))
  np.testing.assert_allclose(in_float64(hmm_lib.evidence_likelihoods, hmm, evidence), evidence @ of_tokens, rtol=1e-14)
  columns = np.moveaxis(hmm.emission_matrix, -1, 0)
  np.testing.assert_allclose(in_float64(memory_lib.lift, hmm, columns), of_tokens, rtol=1e-15)
  np.testing.assert_allclose(in_float64(memory_lib.reverse_lift, hmm, of_tokens), columns, atol=1e-14)
  matrix = in_float64(memory_lib.lift, hmm, np.eye(6).reshape(6, 2, 3))
  mean = evidence @ of_tokens @ matrix.T / 2 ** (num_cells - 1)
  actual = in_float64(memory_lib.reverse_lift, hmm, evidence @ of_tokens)
  np.testing.assert_allclose(actual, mean.reshape(3, 2, 3), atol=1e-14)


def test_independent_cells_multiply():
  """The memory's probabilities are the products of the cells' own, and their marginals are the cells'."""
  cells = np.random.default_rng(0).dirichlet(np.ones(3), 3)
  joint = in_float64(memory_lib.independent_cells, cells)
  np.testing.assert_allclose(joint, np.einsum('i,j,k->ijk', *cells), rtol=1e-14)
  hmm = dense_hmm(np.random.default_rng(0), 3, memory_size=3)
  np.testing.assert_allclose(in_float64(memory_lib.cell_probs, hmm, joint.reshape(-1)), cells, rtol=1e-13)


def test_flattened_chain_and_chunk_start_are_the_definitions():
  """Seen from a random chunk the first state has moved on, the memory has not, and its zeros stay zeros."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  hmm = hmm._replace(memory_probs=np.array([[0.2, 0.5], [0.3, 0]]))
  flat = in_float64(memory_lib.to_hmm, hmm)
  for actual, expected in zip(flat, joint_hmm(hmm), strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-15)
  by_powers = np.mean([flat.initial_probs @ np.linalg.matrix_power(flat.transition_matrix, 3 * k) for k in range(5)], 0)
  for chain in (hmm, flat):
    start = in_float64(lambda chain: hmm_lib.chunk_start(chain, 3, 5), chain).validate()
    np.testing.assert_allclose(start.joint_initial_probs, by_powers, atol=1e-14)


@pytest.mark.parametrize('joint_prior', [False, True])
def test_random_draw(joint_prior):
  """The draw is well-formed; states are in blocks by cell; starts are softmaxes at a high temperature."""
  draw = lambda joint_prior=joint_prior, key=0, **options: memory_lib.random_memory_hmm(
    jax.random.key(key), 3, 4, 10, num_cells=2, joint_prior=joint_prior, **options
  )
  hmm, other = draw().validate(), draw(not joint_prior)
  assert hmm.initial_probs.shape == ((3, 3) if joint_prior else ()) + (4,)
  assert (hmm.num_cells, hmm.memory_size, hmm.num_states, hmm.num_tokens) == (2, 3, 4, 10)
  assert hmm.cell_index.tolist() == [0, 0, 1, 1]
  # Logits in [0, 1] over a temperature of 10: what is drawn at once spreads over at most 0.1.
  for probs in [hmm.joint_initial_probs] if joint_prior else [hmm.memory_probs, hmm.initial_probs]:
    assert 1e-3 < np.ptp(np.log(probs)) < 0.1 + 1e-5
  joint = np.asarray(hmm.joint_initial_probs).reshape(-1, 4)
  product = joint.sum(1, keepdims=True) * joint.sum(0)
  assert (np.abs(joint / product - 1).max() > 1e-3) == joint_prior
  np.testing.assert_array_equal(other.emission_matrix, hmm.emission_matrix)
  rows = np.asarray(hmm.emission_matrix).reshape(-1, 10)
  assert len(np.unique(rows, axis=0)) == len(rows) and rows.max(1).mean() > 0.5
  assert not np.array_equal(draw(key=1).emission_matrix, hmm.emission_matrix)
  walk = draw(num_permutations=1).transition_matrix
  np.testing.assert_array_equal(np.sort(walk), np.tile(np.eye(4)[-1], (4, 1)))


@pytest.mark.parametrize(
  'field, value',
  [
    ('cell_index', np.array([0, 2, 1])),
    ('cell_index', np.array([0, -1, 1])),
    ('cell_index', np.array([0, 1])),
    ('cell_index', np.array([0.0, 1.0, 0.0])),
    ('memory_probs', np.full((2, 3), 1 / 6)),
    ('initial_probs', np.full((2, 3), 1 / 3)),
  ],
)
def test_validate_names_the_field_that_is_wrong(field, value):
  """Cells are integers from 0, one for each state; other fields fit the memory. `hmm_test` has what any HMM refuses."""
  with pytest.raises(ValueError, match=f'^{field} '):
    dense_hmm(np.random.default_rng(0), 2)._replace(**{field: value}).validate()


def test_too_many_configurations():
  """Too large a memory is refused before anything is drawn, with the count and the limit; 2^12 = 4096 is not."""
  memory_lib.check_configurations(2, 12)
  for refuse in (
    lambda: memory_lib.random_memory_hmm(jax.random.key(0), 2, 13, 10, num_cells=13),
    lambda: memory_lib.independent_cells(jnp.full((13, 2), 0.5)),
    lambda: dense_hmm(np.random.default_rng(0), 1)._replace(memory_probs=np.full((2,) * 13, 2.0**-13)).validate(),
  ):
    with pytest.raises(ValueError, match='8192.* 4096'):
      refuse()
  with pytest.raises(ValueError, match='^num_states is 5'):
    memory_lib.random_memory_hmm(jax.random.key(0), 2, 5, 10, num_cells=2)


def of_joint_states(hmm, joint, xp=np):
  """The `MemoryPosterior` by definition, sums over the `Posterior` of the joint states; `xp=jnp` for derivatives."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  shape = hmm.memory_probs.shape
  read_CxH = np.indices(shape).reshape(len(shape), -1).T[:, hmm.cell_index]
  is_read_MxCxH = read_CxH == np.arange(memory_size)[:, None, None]
  smoothed, leave_one_out = (
    probs.reshape(len(probs), -1, num_states) for probs in (joint.smoothed_probs, joint.leave_one_out_probs)
  )
  return MemoryPosterior(
    cell_probs=cells_of(shape, joint.smoothed_probs[0], xp),
    leave_one_out_cell_probs=cells_of(shape, joint.leave_one_out_probs, xp),
    smoothed_probs=smoothed.sum(1),
    leave_one_out_probs=leave_one_out.sum(1),
    leave_one_out_read_probs=xp.einsum('mch,tch->tmh', is_read_MxCxH, leave_one_out),
    joint=joint,
    marginal_loglik=joint.marginal_loglik,
  )


def inferred(hmm, rows):
  """All that inference tells."""
  told = memory_lib.memory_forward_backward(hmm, rows), memory_lib.cell_posterior(hmm, rows)
  return *told, hmm_lib.conditional_token_probs(hmm, rows)


def expected_of(hmm, rows):
  """The same by logarithms over joint states."""
  posterior = of_joint_states(hmm, log_space_posterior(joint_hmm(hmm), rows))
  return posterior, posterior.cell_probs, posterior.joint.leave_one_out_probs @ joint_hmm(hmm).emission_matrix


def assert_equal_trees(actual, expected, atol):
  for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=atol, atol=atol)
    assert (np.asarray(ours)[theirs == 0] == 0).all()


@pytest.mark.parametrize('num_cells, memory_size', [(1, 2), (3, 2), (2, 3)])
def test_posterior_is_that_of_the_joint_states(num_cells, memory_size):
  """All posteriors, G and the evidence of tokens with a masked position are sums over joint states."""
  hmm = dense_hmm(np.random.default_rng(0), num_cells, memory_size=memory_size)
  rows = rows_of(hmm, [1, MASK, 0, 3])
  assert_equal_trees(in_float64(jax.jit(inferred), hmm, rows), expected_of(hmm, rows), 1e-12)


def test_posteriors_of_many_memories_at_once():
  """The same under `vmap`, of prompts with zeros, of a memory without full support, and of impossible evidence.

  What has probability 0 has it exactly, and nothing is NaN.
  """
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 2, per_memory=True)
  one_sided = hmm._replace(memory_probs=np.array([[0.5, 0.5], [0, 0]]), cell_index=np.array([1, 0, 0]))
  text, prompt = rows_of(hmm, [1, MASK, 0, 3]), rng.uniform(size=(4, 12)) * (rng.uniform(size=(4, 12)) > 0.3)
  held = np.indices((2, 2)).reshape(2, 4).repeat(3, axis=1)
  contradiction = np.stack([held[0] == 0, held[1] == 0, held[0] == 1, held[1] == 1])
  of_the_other = np.where(np.arange(4)[:, None] == 2, held[0] == 1, text)
  cases = [(hmm, text), (hmm, prompt), (one_sided, text), (hmm, contradiction), (one_sided, of_the_other)]
  hmms, rows = jax.tree.map(lambda *x: np.stack(x), *((hmm, rows.astype(float)) for hmm, rows in cases))
  of_all = jax.jit(jax.vmap(inferred))
  double, single = in_float64(of_all, hmms, rows), jax.tree.map(np.asarray, of_all(*float32((hmms, rows))))
  for i, case in enumerate(cases):
    expected = expected_of(*case)
    assert np.isneginf(expected[0].marginal_loglik) == (i > 2)
    assert_equal_trees(at(double, i), expected, 1e-12)
    assert_equal_trees(at(single, i), expected, 1e-6)


def test_gradient_equals_enumeration():
  """Derivatives by every parameter and by the rows are those of the sum over memories and paths."""
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 2, per_memory=True)
  prompt, weights = rng.uniform(size=(3, 12)) + 0.1, rng.normal(size=(4, 2, 2))
  parameters = {name: x for name, x in hmm._asdict().items() if name != 'cell_index'}

  def slopes(posterior_of):
    def total(parameters, prompt):
      hmm_of = hmm._replace(**parameters)
      rows = hmm_lib.token_likelihoods(hmm_of, np.array([1, 0, 3]), np.array([True, False, True])) * prompt
      posterior = posterior_of(hmm_of, rows)
      cells = jnp.concatenate([posterior.cell_probs[None], posterior.leave_one_out_cell_probs])
      return (weights * cells).sum() + posterior.marginal_loglik

    return in_float64(jax.jit(jax.grad(total, (0, 1))), parameters, prompt)

  of_paths = lambda hmm, rows: of_joint_states(hmm, enumerated_posterior(memory_lib.to_hmm(hmm), rows, jnp), jnp)
  assert_equal_trees(slopes(memory_lib.memory_forward_backward), slopes(of_paths), 1e-11)


def test_text_is_rounded_float64():
  """On text of the paper's draw, of 129 and of 512 tokens, every quantity is that of logarithms in float64, rounded."""
  hmm = memory_lib.random_memory_hmm(jax.random.key(0), 3, 4, 10, num_cells=2)
  tokens = sampling.sample_corpus(jax.random.key(1), hmm, 4, 512)
  position = np.arange(512)
  rows = hmm_lib.token_likelihoods(hmm, tokens, (position > 0) & (position < np.array([[512], [129]] * 2)))
  posterior, cells, token_probs = jax.jit(inferred)(hmm, rows)
  expected = log_space_posterior(hmm, rows)
  for ours, theirs in zip(posterior.joint[:4], expected[:4], strict=True):
    np.testing.assert_allclose(ours, theirs, atol=3.1e-8)
  np.testing.assert_allclose(posterior.marginal_loglik, expected.marginal_loglik, rtol=1.2e-7)
  exact = expected.leave_one_out_probs @ np.float64(hmm.joint_emission_matrix)
  np.testing.assert_allclose(token_probs, exact, atol=5e-7)
  np.testing.assert_allclose(cells, cells_of((3, 3), expected.smoothed_probs[:, 60]), atol=2e-7)
