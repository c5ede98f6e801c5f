"""Facts about the oracle: it is what its definition says, by enumeration."""

from conftest import dirichlet_hmm, enumerated_posterior, joint_hmm
from memory_hmm_cases import dense_hmm
import numpy as np
from oracles import log_space_posterior

from hmm_jax.inference import Posterior


def assert_equal_posteriors(actual, expected):
  for field in Posterior._fields:
    np.testing.assert_allclose(getattr(actual, field), getattr(expected, field), rtol=1e-12, atol=1e-12, err_msg=field)


def test_oracle_is_the_sum_over_paths():
  """Every field of every sequence of a batch is the sum over state paths, and zero where the evidence is impossible."""
  rng = np.random.default_rng(0)
  hmm = dirichlet_hmm(rng, 3)
  rows = rng.random((4, 5, 3)) * (rng.random((4, 5, 3)) > 0.3)
  rows[1, 2] = 0
  actual = log_space_posterior(hmm, rows)
  expected = [enumerated_posterior(hmm, of_one) for of_one in rows]
  assert_equal_posteriors(actual, Posterior(*map(np.stack, zip(*expected, strict=True))))
  assert actual.marginal_loglik[1] == -np.inf


def test_oracle_of_a_memory_is_that_of_its_joint_chain():
  """A still part needs no transition matrix of the joint states; two chains of a batch are two calls."""
  rng = np.random.default_rng(1)
  hmm = dense_hmm(rng, 2)
  flat = joint_hmm(hmm)
  rows = rng.random((6, flat.num_states))
  assert_equal_posteriors(log_space_posterior(hmm, rows), log_space_posterior(flat, rows))
  hmms = [dirichlet_hmm(rng, 3) for _ in range(2)]
  stacked = type(hmms[0])(*map(np.stack, zip(*hmms, strict=True)))
  both = log_space_posterior(stacked, rows[:, :3])
  for i, one in enumerate(hmms):
    assert_equal_posteriors(Posterior(*(x[i] for x in both)), log_space_posterior(one, rows[:, :3]))


def test_oracle_does_not_underflow():
  """A path of probability 1e-2000 is found: a chain that never leaves two states, and rows of 1e-200 against one."""
  rows = np.array([[1, 1e-200]] * 10 + [[0, 1.0]])
  chain = dirichlet_hmm(np.random.default_rng(2), 2)._replace(transition_matrix=np.eye(2))
  actual = log_space_posterior(chain, rows)
  np.testing.assert_array_equal(actual.smoothed_probs, np.tile([0.0, 1.0], (11, 1)))
  np.testing.assert_allclose(actual.marginal_loglik, np.log(chain.initial_probs[1]) - 2000 * np.log(10), rtol=1e-14)
