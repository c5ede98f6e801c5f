"""The head of a score that is linear in G, as a record of the best head."""

from mask_chains import CHAIN
import numpy as np
import pytest
from run_cases import job_on

from experiments.pipeline import tuning

SIZES = dict(downstream__length=7, downstream__num_train=40, downstream__num_test=20)


@pytest.mark.parametrize(('mu', 'is_linear'), [([1, 0, 1, 1], True), ([1, 0, 0, 0], False)])
def test_the_head_of_a_linear_score_is_right(mu, is_linear):
  """Of four states the last emits as half of the first and half of the third: a score is linear if mu agrees.

  Its head is 1, 0 and 2 on the three tokens.
  """
  (one,) = tuning.tune(job_on(CHAIN, mu, 'head_best', **SIZES))
  head = one.trainable['head'].weights
  assert np.allclose(head[:, 0] - head[:, 1], [1, 0, 2]) == is_linear
  assert one.measured['accuracy'] == 1 or not is_linear
