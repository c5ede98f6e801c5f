"""Facts about downstream tasks: labels against sums over hidden paths in float64, and the draws of `task_weights`."""

import itertools

from conftest import enumerated_posterior, joint_hmm, path_probs, state_paths
import jax
import jax.numpy as jnp
import numpy as np
from oracles import float64, log_space_posterior
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


def enumerated_state_probs(hmm, documents):
  """P[H_1 | X_2:T] by summing over hidden paths."""
  hmm = HMM(*(np.asarray(x, np.float64) for x in hmm))
  rows = hmm.emission_matrix.T[documents]
  return np.stack([enumerated_posterior(hmm, row).leave_one_out_probs[0] for row in rows])


def draws_of_weights(count, num_states, **kwargs):
  draw = lambda key: tasks.draw_task_weights(key, num_states, **kwargs)
  return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(1), count)))


def test_first_state_probs_are_exact_in_float64(hmm, documents, state_probs):
  """P[H_1 | X_-1] is float64 and agrees with enumeration to float64's precision, though the HMM is float32."""
  assert state_probs.dtype == np.float64
  np.testing.assert_allclose(state_probs, enumerated_state_probs(hmm, documents), rtol=1e-11)


def test_silent_state_probs_are_what_the_released_code_computes(hmm, documents):
  """A @ P[H | text] untransposed, H the first state of the text after the [MASK], by summing over its paths."""
  exact = float64(hmm)
  smoothed = [enumerated_posterior(exact, exact.emission_matrix.T[text]).smoothed_probs[0] for text in documents[:, 1:]]
  expected = np.einsum('ij,nj->ni', exact.transition_matrix, smoothed)
  inputs = tasks.mask_first(jnp.asarray(documents), V)
  np.testing.assert_allclose(tasks.silent_state_probs(hmm, inputs), expected, rtol=1e-11)


def test_the_silent_state_is_the_masked_one_where_every_state_may_be_first_alike(hmm, documents):
  """With a uniform start and permutations mixed, the released code's scores are those of P[H_1 | X_-1]."""
  mixed = 0.75 * np.eye(H)[[1, 2, 0]] + 0.25 * np.eye(H)[[0, 2, 1]]
  hmm = hmm._replace(initial_probs=np.full(H, 1 / H), transition_matrix=mixed)
  inputs = tasks.mask_first(jnp.asarray(documents), V)
  expected = enumerated_state_probs(hmm, documents)
  np.testing.assert_allclose(tasks.silent_state_probs(hmm, inputs), expected, rtol=1e-6)


def test_first_state_probs_are_those_of_each_input_alone(hmm):
  """Inputs that fill more than one block come back complete and in order."""
  inputs = np.random.default_rng(0).integers(0, V, (2049, 2))
  initial, transition, emission = (np.asarray(x, np.float64) for x in hmm)
  expected = initial * (transition @ emission)[:, inputs[:, 1]].T
  expected /= expected.sum(-1, keepdims=True)
  np.testing.assert_allclose(tasks.first_state_probs(hmm, jnp.array(inputs)), expected, rtol=1e-11)


def enumerated_cell_probs(memory_hmm, tokens):
  """P[M_j | X_2:T] of each cell j, [N, M], by summing over the paths of the flattened chain."""
  hmm = joint_hmm(float64(memory_hmm))
  rows = hmm.emission_matrix.T[tokens]
  rows[0] = 1
  paths = state_paths(len(hmm.initial_probs), len(tokens))
  joint = np.bincount(paths[:, 0], path_probs(hmm, rows), len(hmm.initial_probs))
  # A joint state is (the configuration, the hidden state), and a configuration is a value for each cell.
  by_cell = joint.reshape(*[memory_hmm.memory_size] * memory_hmm.num_cells, memory_hmm.num_states)
  cells = range(memory_hmm.num_cells)
  return np.stack([by_cell.sum(tuple({*cells, -1} - {cell})) for cell in cells]) / joint.sum()


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
  """P[M_j | X_-1] of each cell is float64 and agrees with enumeration, though the parameters are float32."""
  memory_hmm = draw_memory_hmm(num_cells, joint_prior)
  documents = np.array(list(itertools.product(range(V), repeat=3)))
  probs = tasks.memory_probs(memory_hmm, tasks.mask_first(jnp.array(documents), V))
  assert probs.dtype == np.float64 and probs.shape == (V**3, num_cells, 3)
  expected = [enumerated_cell_probs(memory_hmm, document) for document in documents]
  np.testing.assert_allclose(probs, expected, rtol=1e-11)


def test_memory_probs_are_those_of_each_input_alone(monkeypatch):
  """Inputs that fill more than one block, the last in part, come back complete and in order; no block is too large."""
  memory_hmm = draw_memory_hmm(2)
  inputs = tasks.mask_first(jnp.array(np.random.default_rng(0).integers(0, V, (7, 6))), V)
  rows = np.vstack([float64(memory_hmm).joint_emission_matrix.T, np.ones((1, 18))])[np.asarray(inputs)]
  joint = log_space_posterior(memory_hmm, rows).smoothed_probs[:, 0].reshape(7, 3, 3, 2).sum(-1)
  expected = np.stack([joint.sum(2), joint.sum(1)], axis=1)
  together = tasks.memory_probs(memory_hmm, inputs)
  np.testing.assert_allclose(together, expected, rtol=1e-11)
  # Room for the messages of three inputs of 6 tokens and 18 joint states.
  monkeypatch.setattr(tasks, 'LABELLED_ENTRIES', 3 * 6 * 18 + 1)
  sizes, compute = [], tasks._memory_probs
  monkeypatch.setattr(tasks, '_memory_probs', lambda hmm, block: sizes.append(len(block)) or compute(hmm, block))
  np.testing.assert_allclose(tasks.memory_probs(memory_hmm, inputs), together, rtol=1e-13)
  assert sizes == [3, 3, 3]


def test_labels_of_a_cell_are_the_class_of_the_highest_score():
  """A task on the posterior of a memory cell has weights [C, M], and its labels are argmax of mu @ P[M_j | X_-1]."""
  memory_hmm = draw_memory_hmm(2)
  documents = np.array(list(itertools.product(range(V), repeat=3)))
  probs = tasks.memory_probs(memory_hmm, tasks.mask_first(jnp.array(documents), V))
  expected = np.array([enumerated_cell_probs(memory_hmm, document) for document in documents])
  for cell in range(2):
    task = tasks.draw_task(jax.random.key(0), probs[:, cell], 20)
    assert task.task_weights.shape == (2, 3)
    np.testing.assert_array_equal(task.labels, (expected[:, cell] @ np.asarray(task.task_weights).T).argmax(-1))


def test_labels_are_the_class_of_the_highest_score(hmm, documents, state_probs):
  """Labels are argmax of mu @ P[H_1 | X_-1] and the margin the least gap of any input, recomputed from enumeration."""
  for seed in range(4):
    task = tasks.draw_task(jax.random.key(seed), state_probs, 4, num_classes=3)
    scores = enumerated_state_probs(hmm, documents) @ np.asarray(task.task_weights, np.float64).T
    assert scores.shape == (V**T, 3)
    np.testing.assert_array_equal(task.labels, scores.argmax(-1))
    ordered = np.sort(scores)
    np.testing.assert_allclose(task.margins, ordered[:, -1] - ordered[:, -2], rtol=1e-9, atol=1e-15)


def test_labels_do_not_depend_on_the_masked_token(hmm, documents, state_probs):
  """Documents that differ in their first token alone become one input and share a posterior, masked or not."""
  other = documents.copy()
  other[:, 0] = (other[:, 0] + 1) % V
  masked = tasks.mask_first(jnp.asarray(documents), V)
  np.testing.assert_array_equal(masked, tasks.mask_first(jnp.asarray(other), V))
  np.testing.assert_array_equal(tasks.first_state_probs(hmm, jnp.asarray(other, jnp.int32)), state_probs)


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
