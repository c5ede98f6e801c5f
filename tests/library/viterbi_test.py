"""Facts about the most likely path, checked against enumeration; inference_test.py compares it with dynamax's."""

from conftest import dirichlet_hmm, joint_hmm, path_probs, state_paths
from inference_cases import random_rows, surviving_path_case
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, rows_of
import numpy as np
import pytest

from hmm_jax.viterbi import most_likely_states

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.parametrize('num_states, length', [(2, 1), (3, 5)])
def test_most_likely_states_equal_enumeration(num_states, length):
  """The Viterbi path is the state path of largest probability, exact zeros among the evidence."""
  rng = np.random.default_rng(length)
  hmm, rows = dirichlet_hmm(rng, num_states), random_rows(rng, length, num_states)
  best = state_paths(num_states, length)[path_probs(hmm, rows).argmax()]
  states = most_likely_states(*jax.tree.map(np.float32, (hmm, rows)))
  assert states.dtype == np.int32
  np.testing.assert_array_equal(states, best)


def test_most_likely_states_of_a_memory():
  """The Viterbi path of joint states keeps the memory that it begins with, and is that of the flattened chain."""
  hmm = dense_hmm(np.random.default_rng(1), 2, per_memory=True)
  configuration = np.arange(12) // 3
  for favoured in range(4):
    rows = rows_of(hmm, [1, 0, 3, 2]) * np.where(configuration == favoured, 1, 0.2)
    best = state_paths(12, 4)[path_probs(joint_hmm(hmm), rows).argmax()]
    assert set(configuration[best]) == {favoured}
    states = most_likely_states(jax.tree.map(np.asarray, hmm), np.float32(rows))
    np.testing.assert_array_equal(states, best)


def test_most_likely_states_of_an_improbable_path():
  """Logarithms do not underflow: the one path left is found, however improbable."""
  chain, rows = surviving_path_case()
  np.testing.assert_array_equal(most_likely_states(chain, rows), 1)


def test_most_likely_states_are_constant_to_differentiation():
  """A gradient that passes by the Viterbi path, as in hard EM, is that of what it picks out."""
  rng = np.random.default_rng(0)
  chain, rows = jax.tree.map(jnp.float32, (dirichlet_hmm(rng, 3), rng.uniform(0.1, 1, (5, 3))))
  picked = lambda rows: jnp.take_along_axis(rows, most_likely_states(chain, rows)[:, None], 1).sum()
  np.testing.assert_array_equal(jax.grad(picked)(rows), np.eye(3)[most_likely_states(chain, rows)])
