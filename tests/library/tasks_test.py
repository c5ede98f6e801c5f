"""Facts about downstream tasks: labels against sums of logarithms in float64, and the draws of `task_weights`."""

import itertools

from conftest import joint_hmm
import jax
import jax.numpy as jnp
import numpy as np
from oracles import cells_of, float64, log_space_posterior
import pytest
import scipy.stats

from hmm_jax import tasks
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T = 3, 3, 4


@pytest.fixture(scope='module')
def hmm():
  rng = np.random.default_rng(0)
  dirichlet = lambda size, *shape: rng.dirichlet(np.full(size, 0.5), shape).astype(np.float32)
  return HMM(dirichlet(H), dirichlet(H, H), dirichlet(V, H))


@pytest.fixture(scope='module')
def documents():
  """Every document of T tokens, in random order."""
  every = np.array(list(itertools.product(range(V), repeat=T)), np.uint8)
  return np.random.default_rng(0).permutation(every)


@pytest.fixture(scope='module')
def state_probs(hmm, documents):
  return tasks.first_state_probs(hmm, tasks.mask_first(jnp.asarray(documents), V))


def exact_state_probs(hmm, documents):
  """P[H_1 | X_2:T], the first token not counted."""
  hmm = float64(hmm)
  return log_space_posterior(hmm, hmm.emission_matrix.T[documents]).leave_one_out_probs[:, 0]


def draws_of_weights(count, num_states, **kwargs):
  draw = lambda key: tasks.draw_task_weights(key, num_states, **kwargs)
  return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(1), count)))


def test_first_state_probs_are_exact_in_float64(hmm, documents, state_probs):
  """P[H_1 | X_-1] is float64 and agrees with sums of logarithms to float64's precision, though the HMM is float32."""
  assert state_probs.dtype == np.float64
  np.testing.assert_allclose(state_probs, exact_state_probs(hmm, documents), rtol=1e-11)


def test_silent_state_probs_are_what_the_released_code_computes(hmm, documents):
  """A @ P[H | text] untransposed, H the first state of the text after the [MASK]."""
  exact = float64(hmm)
  smoothed = log_space_posterior(exact, exact.emission_matrix.T[documents[:, 1:]]).smoothed_probs[:, 0]
  expected = np.einsum('ij,nj->ni', exact.transition_matrix, smoothed)
  inputs = tasks.mask_first(jnp.asarray(documents), V)
  np.testing.assert_allclose(tasks.silent_state_probs(hmm, inputs), expected, rtol=1e-11)


def test_first_state_probs_are_those_of_each_input_alone(hmm):
  """Inputs that fill more than one block come back complete and in order."""
  inputs = np.random.default_rng(0).integers(0, V, (2049, 2))
  probs = tasks.first_state_probs(hmm, jnp.array(inputs))
  np.testing.assert_allclose(probs, exact_state_probs(hmm, inputs), rtol=1e-11)


def exact_cell_probs(memory_hmm, documents):
  """P[M_j | X_2:T] of each cell j, [n, N, M], by the chain of the joint states."""
  return cells_of(memory_hmm.memory_probs.shape, exact_state_probs(joint_hmm(float64(memory_hmm)), documents))


def draw_memory_hmm(num_cells, joint_prior=False):
  """Float32 arrays; with a joint prior the first state depends on the memory."""
  rng, shape = np.random.default_rng(2), (3,) * num_cells
  dirichlet = lambda size, *shape: rng.dirichlet(np.full(size, 0.5), shape).astype(np.float32)
  return MemoryHMM(
    memory_probs=dirichlet(3**num_cells).reshape(shape),
    initial_probs=dirichlet(2, *(shape if joint_prior else ())),
    transition_matrix=dirichlet(2, 2),
    cell_index=np.arange(2, dtype=np.int32) % num_cells,
    emission_matrix=dirichlet(V, 3, 2),
  )


@pytest.mark.parametrize(('num_cells', 'joint_prior'), [(1, False), (2, False), (2, True)])
def test_memory_probs_are_exact_in_float64(num_cells, joint_prior):
  """P[M_j | X_-1] of each cell is float64 and agrees with sums of logarithms, though the parameters are float32."""
  memory_hmm = draw_memory_hmm(num_cells, joint_prior)
  documents = np.array(list(itertools.product(range(V), repeat=3)))
  probs = tasks.memory_probs(memory_hmm, tasks.mask_first(jnp.array(documents), V))
  assert probs.dtype == np.float64 and probs.shape == (V**3, num_cells, 3)
  np.testing.assert_allclose(probs, exact_cell_probs(memory_hmm, documents), rtol=1e-11)


def test_memory_probs_are_those_of_each_input_alone(monkeypatch):
  """Inputs that fill more than one block, the last in part, come back complete and in order; no block is too large."""
  memory_hmm = draw_memory_hmm(2)
  documents = np.random.default_rng(0).integers(0, V, (7, 6))
  inputs = tasks.mask_first(jnp.array(documents), V)
  together = tasks.memory_probs(memory_hmm, inputs)
  np.testing.assert_allclose(together, exact_cell_probs(memory_hmm, documents), rtol=1e-11)
  # Room for the messages of three inputs of 6 tokens and 18 joint states.
  monkeypatch.setattr(tasks, 'LABELLED_ENTRIES', 3 * 6 * 18 + 1)
  sizes, compute = [], tasks.in_blocks
  monkeypatch.setattr(tasks, 'in_blocks', lambda *args: sizes.append(args[-1]) or compute(*args))
  np.testing.assert_allclose(tasks.memory_probs(memory_hmm, inputs), together, rtol=1e-13)
  assert sizes == [3]


def test_labels_are_the_class_of_the_highest_score(hmm, documents, state_probs):
  """Labels are argmax of mu @ P[H_1 | X_-1] and the margin the least gap of any input, recomputed."""
  for seed in range(4):
    task = tasks.draw_task(jax.random.key(seed), state_probs, 4, num_classes=3)
    scores = exact_state_probs(hmm, documents) @ np.asarray(task.task_weights, np.float64).T
    assert scores.shape == (V**T, 3)
    np.testing.assert_array_equal(task.labels, scores.argmax(-1))
    ordered = np.sort(scores)
    np.testing.assert_allclose(task.margins, ordered[:, -1] - ordered[:, -2], rtol=1e-9, atol=1e-15)


def test_masking_the_first_token_changes_nothing_else():
  """The first token becomes id V in int32, past the range of a small corpus type too; the rest is as it was."""
  tokens = jnp.arange(12, dtype=jnp.uint8).reshape(2, 2, 3) + 200
  masked = tasks.mask_first(tokens, 300)
  assert masked.dtype == jnp.int32
  np.testing.assert_array_equal(masked[..., 0], 300)
  np.testing.assert_array_equal(masked[..., 1:], tokens[..., 1:])


@pytest.mark.parametrize('num_states, num_classes', [(5, 2), (4, 3)])
def test_task_weights_have_six_normal_entries_at_uniform_places(num_states, num_classes):
  """Six distinct places, each equally often, hold independent standard normal values; the rest is zero."""
  weights = draws_of_weights(2000, num_states, num_classes=num_classes)
  assert weights.shape == (2000, num_classes, num_states)
  assert ((weights != 0).sum((1, 2)) == 6).all()
  places = (weights != 0).sum(0).ravel()
  # Six distinct places a draw vary less than 6 times one: their chi-square statistic shrinks by (n - 6) / (n - 1).
  size = num_states * num_classes
  statistic = scipy.stats.chisquare(places).statistic * (size - 1) / (size - 6)
  assert scipy.stats.chi2(size - 1).sf(statistic) > 1e-4
  values = weights[weights != 0]
  assert scipy.stats.kstest(values, 'norm').pvalue > 1e-4
  first_values = values.reshape(2000, 6)
  assert np.abs(np.corrcoef(first_values.T) - np.eye(6)).max() < 0.12


def test_places_with_replacement_collide():
  """Drawn with replacement, as in the released code, six places of ten are distinct as often as 10! / 4! / 10^6."""
  filled = (draws_of_weights(4000, 5, with_replacement=True) != 0).sum((1, 2))
  distinct = 10 * 9 * 8 * 7 * 6 * 5 / 10**6
  assert filled.max() == 6 and filled.min() >= 1
  assert scipy.stats.binomtest(int((filled == 6).sum()), 4000, distinct).pvalue > 1e-4


def test_all_places_are_used_where_fewer_exist():
  """With two states and two classes every one of the four entries is nonzero."""
  assert (draws_of_weights(50, 2) != 0).all()


def test_degenerate_draws_are_redrawn_and_counted():
  """Draws that give all training inputs one label are passed over and counted; the next draw is kept as it is."""
  # Two training posteriors close together are told apart only now and then; the test inputs do not matter.
  close = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.0, 0.0, 1.0]])
  counts = []
  for seed in range(8):
    key = jax.random.key(seed)
    task = tasks.draw_task(key, close, 2)
    weights = [tasks.draw_task_weights(jax.random.fold_in(key, draw), 3) for draw in range(task.redraws + 1)]
    labels = [(close @ np.asarray(w, np.float64).T).argmax(-1) for w in weights]
    assert [len(set(row[:2])) for row in labels] == [1] * task.redraws + [2]
    np.testing.assert_array_equal(task.task_weights, weights[-1])
    np.testing.assert_array_equal(task.labels, labels[-1])
    counts.append(task.redraws)
  assert max(counts) > 1


def test_inputs_that_cannot_carry_a_task_are_refused(monkeypatch):
  """Training inputs with one posterior raise ValueError, however the test inputs vary."""
  monkeypatch.setattr(tasks, '_MAX_REDRAWS', 5)
  same = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
  with pytest.raises(ValueError, match='5 draws .* all 2 training inputs one label'):
    tasks.draw_task(jax.random.key(0), same, 2)


def test_majority_accuracy_is_that_of_the_commonest_training_label():
  """Always answering the commonest training label is right this often, task by task."""
  draws = np.random.default_rng(0)
  train, test = draws.choice(3, (5, 20), p=(0.2, 0.3, 0.5)), draws.integers(0, 3, (5, 9))
  expected = [(row == np.bincount(seen).argmax()).mean() for seen, row in zip(train, test, strict=True)]
  np.testing.assert_allclose(tasks.majority_accuracy(jnp.array(train), jnp.array(test)), expected, atol=1e-6)
  np.testing.assert_allclose(tasks.majority_accuracy(jnp.array([0, 0, 1]), jnp.array([2, 0, 0, 1])), 0.5)
