"""Facts about downstream tasks: labels against sums of logarithms in float64, and the draws of `task_weights`."""

import itertools

from conftest import dirichlet_hmm, joint_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
from oracles import cells_of, float64, log_space_posterior, rows_of
import pytest
import scipy.stats

from hmm_jax.tuning import tasks

V, T = 3, 4
HMM = jax.tree.map(np.float32, dirichlet_hmm(np.random.default_rng(0), 3, V))
# Every document, in random order.
DOCUMENTS = np.random.default_rng(0).permutation(np.array(list(itertools.product(range(V), repeat=T)), np.uint8))


def exact_state_probs(hmm, documents):
  """P[H_1 | X_2:T], the first token not counted."""
  hmm = float64(hmm)
  return log_space_posterior(hmm, hmm.emission_matrix.T[documents]).leave_one_out_probs[:, 0]


@pytest.mark.slow
def test_silent_state_probs_equal_the_released_code():
  """A @ P[H | text] untransposed, H the first state of the text after the [MASK], of which tokens may be masked too."""
  exact = float64(HMM)
  inputs = tasks.hide(DOCUMENTS, V).at[::2, 2].set(V)
  smoothed = log_space_posterior(exact, rows_of(exact, inputs[:, 1:])).smoothed_probs[:, 0]
  probs = tasks.silent_state_probs(HMM, inputs)
  np.testing.assert_allclose(probs, smoothed @ exact.transition_matrix.T, rtol=1e-11)


def test_posterior_cell_probs_are_exact_in_float64(monkeypatch):
  """P[M_j | X_-1] of each cell is float64 and agrees with sums of logarithms, though the parameters are float32.

  Inputs that fill more than one block, the last in part, come back complete and in order.
  """
  hmm = float32(dense_hmm(np.random.default_rng(2), 2, per_memory=True, num_tokens=V))
  monkeypatch.setattr(tasks, 'LABELLED_ENTRIES', 30 * T * hmm.joint_initial_probs.size)
  probs = tasks.posterior_cell_probs(hmm, tasks.hide(jnp.array(DOCUMENTS[:80]), V))
  expected = cells_of(hmm.memory_probs.shape, exact_state_probs(joint_hmm(float64(hmm)), DOCUMENTS[:80]))
  np.testing.assert_allclose(probs, expected, rtol=1e-11)


def test_labels_are_the_class_of_the_highest_score():
  """Labels are argmax of mu @ P[H_1 | X_-1], which is exact in float64, and the margin is the gap to the next score."""
  state_probs = tasks.hidden_state_probs(HMM, tasks.hide(DOCUMENTS, V))
  for seed in range(4):
    task = tasks.draw_task(jax.random.key(seed), state_probs, 4, num_classes=3)
    scores = exact_state_probs(HMM, DOCUMENTS) @ np.asarray(task.task_weights, np.float64).T
    np.testing.assert_array_equal(task.labels, scores.argmax(-1))
    ordered = np.sort(scores)
    np.testing.assert_allclose(task.margins, ordered[:, -1] - ordered[:, -2], rtol=1e-9, atol=1e-15)


def draws_of_weights(count, num_states, **how):
  draw = lambda key: tasks.draw_task_weights(key, num_states, **how)
  return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(1), count)))


def test_task_weights_have_six_normal_entries_at_uniform_places():
  """Six distinct places, each equally often, hold standard normal values; the rest is zero.

  If fewer exist all are used.
  """
  weights = draws_of_weights(2000, 4, num_classes=3)
  assert weights.shape == (2000, 3, 4) and ((weights != 0).sum((1, 2)) == 6).all()
  # Six distinct places a draw vary less than 6 times one: their chi-square statistic shrinks by (n - 6) / (n - 1).
  statistic = scipy.stats.chisquare((weights != 0).sum(0).ravel()).statistic * 11 / 6
  assert scipy.stats.chi2(11).sf(statistic) > 1e-4
  assert scipy.stats.kstest(weights[weights != 0], 'norm').pvalue > 1e-4
  assert draws_of_weights(50, 2).all()


def test_places_with_replacement_collide():
  """Drawn with replacement, as in the released code, six places of ten are distinct as often as 10! / 4! / 10^6."""
  filled = (draws_of_weights(4000, 5, with_replacement=True) != 0).sum((1, 2))
  assert scipy.stats.binomtest(int((filled == 6).sum()), 4000, 0.1512).pvalue > 1e-4


@pytest.mark.slow
def test_degenerate_draws_are_redrawn_and_counted():
  """Draws that give all training inputs one label are passed over and counted; the next draw is kept as it is.

  Inputs with one posterior can carry no task, however the test inputs vary.
  """
  # Two training posteriors close together are told apart only now and then; the test inputs do not matter.
  close = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.0, 0.0, 1.0]])
  redraws = 0
  for key in jax.random.split(jax.random.key(0), 8):
    task = tasks.draw_task(key, close, 2)
    draws = [tasks.draw_task_weights(jax.random.fold_in(key, draw), 3) for draw in range(task.redraws + 1)]
    labels = (np.float64(draws) @ close.T).argmax(1)
    np.testing.assert_array_equal(labels[:, 0] != labels[:, 1], [False] * task.redraws + [True])
    np.testing.assert_array_equal(task.task_weights, draws[-1])
    redraws = max(redraws, task.redraws)
  assert redraws > 1
  with pytest.raises(ValueError, match='all 2 training inputs one label'):
    tasks.draw_task(jax.random.key(0), close[[0, 0, 1, 2]], 2)
