"""Evidence and comparisons that the tests of inference share."""

from conftest import dirichlet_hmm
import jax
import numpy as np

from hmm_jax.distributions.hmm import HMM


def assert_posteriors_close(actual, expected, atol, loglik_rtol=None):
  for field, x, y in zip(actual._fields, actual, expected, strict=True):
    rtol = (loglik_rtol or atol) if field == 'marginal_loglik' else 0
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=field)


def stacked(cases):
  """Trees of arrays of one shape as a tree of arrays with a leading axis, float32."""
  return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *cases)


# Zeros in the start, in a transition row and in each emission row.
SPARSE = HMM(
  np.array([0.7, 0.3, 0]),
  np.array([[0.3, 0, 0.7], [0.1, 0.5, 0.4], [0.6, 0, 0.4]]),
  np.array([[0.25, 0.75, 0], [0, 0.3, 0.7], [0.4, 0, 0.6]]),
)


def evidence_cases():
  """(chain, rows) of 4 positions and 3 states, by name."""
  rng = np.random.default_rng(0)
  dense, rows = dirichlet_hmm(rng, 3, 3), rng.uniform(0.1, 1, (4, 3))
  zero_rows = rows.copy()
  zero_rows[1, 0] = zero_rows[2, 1:] = 0
  # Two states of probability 1e-60 that exclude each other by a zero; the third is impossible.
  identity = np.eye(3)
  rivals = HMM(np.array([0, 1e-30, 1]), identity, identity)
  rival_rows = np.array([[1, 1e-30, 1e-30], [1, 0.5, 1e-30], [1, 1, 0.5], [1, 1, 0.0]])
  return {
    'zero likelihoods': (dense, zero_rows),
    'zeros everywhere': (SPARSE, zero_rows),
    'paths of 1e-60': (rivals, rival_rows),
    'zero row': (dense, np.where(np.arange(4)[:, None] == 2, 0, rows)),
    'contradiction': (HMM(np.array([0.5, 0.5, 0]), identity, identity), identity[[0, 0, 1, 0]]),
  }


CASES = evidence_cases()
IMPOSSIBLE = ('zero row', 'contradiction')
