"""Facts about the most likely path, checked against enumeration."""

from conftest import at, joint_hmm, path_probs, state_paths
from inference_cases import CASES, stacked
import jax
from memory_hmm_cases import dense_hmm
import numpy as np
from oracles import rows_of
import pytest

from hmm_jax.distributions.hmm import HMM
from hmm_jax.inference.viterbi import most_likely_states


@pytest.mark.parametrize('name', ['zero likelihoods', 'zeros everywhere', 'paths of 1e-60'])
def test_most_likely_states_equal_enumeration(name):
  """The Viterbi path is the state path of largest probability, however improbable, exact zeros among the evidence."""
  hmm, rows = at(stacked([CASES[name]]), 0)
  states = most_likely_states(hmm, rows)
  assert states.dtype == np.int32
  probs = path_probs(*jax.tree.map(np.float64, (hmm, rows)))
  np.testing.assert_array_equal(states, state_paths(3, 4)[probs.argmax()])


def test_most_likely_states_of_a_memory():
  """The Viterbi path of joint states keeps the memory that it begins with, and is that of the flattened chain."""
  hmm = dense_hmm(np.random.default_rng(1), 2, per_memory=True)
  joint, configuration = joint_hmm(hmm), np.arange(12) // 3
  for favoured in range(4):
    rows = rows_of(joint, [1, 0, 3, 2]) * np.where(configuration == favoured, 1, 0.2)
    best = state_paths(12, 4)[path_probs(joint, rows).argmax()]
    assert set(configuration[best]) == {favoured}
    np.testing.assert_array_equal(most_likely_states(jax.tree.map(np.asarray, hmm), np.float32(rows)), best)


def test_ties_go_to_the_lower_state():
  """Of the paths of a uniform chain that its last token allows, the one with state 0 until then."""
  hmm = HMM(np.ones(3) / 3, np.ones((3, 3)) / 3, np.eye(3))
  np.testing.assert_array_equal(most_likely_states(hmm, np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1]])), [0, 0, 1])
