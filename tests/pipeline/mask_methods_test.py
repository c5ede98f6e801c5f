"""Methods that read several [MASK]s, as a trial runs them."""

from mask_chains import CHAIN
import numpy as np
from run_cases import job_on

from experiments.pipeline import methods, optimal_heads, tuning


def job_of(method, name='exact'):
  """On two masks, with labels that no head on G gets right."""
  return job_on(CHAIN, [-1, 2, -2, 0], method, name, length=7, num_train=200, num_test=100)


def test_two_masks_decide_the_labels_that_one_does_not():
  (one,), (two,) = (tuning.tune(job_of(method)) for method in ('head_whitened', 'masks_converged'))
  assert 0.5 < one.measured['accuracy'] < 0.9 and two.measured['accuracy'] == 1


def test_heads_read_the_marginals_of_masks():
  """A model's own, as BERT's are computed, are those that float64 fits read."""
  jobs = [job_of('masks', name) for name in ('own', 'exact')]
  own, exact = (methods.WAYS['masks'].read(job) for job in jobs)
  np.testing.assert_allclose(own, exact, atol=1e-6)
  np.testing.assert_array_equal(
    exact, optimal_heads.exact_marginals_at_masks(CHAIN, job_of('masks').downstream.inputs, 2)
  )
