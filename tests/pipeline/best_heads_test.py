"""The head of a score that is linear in G, as a record of the best head."""

from mask_chains import CHAIN
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest
from run_cases import job_on

from experiments.pipeline import tuning


@pytest.mark.parametrize(('mu', 'is_linear'), [([1, 0, 1, 1], True), ([1, 0, 0, 0], False)])
def test_the_head_of_a_linear_score_is_right(mu, is_linear):
  """Of four states the last emits as half of the first and half of the third: a score is linear if mu agrees.

  Its head is 1, 0 and 2 on the three tokens. Accuracies are those of the head, and below the proven bound.
  """
  job = job_on(CHAIN, mu, 'head_best', length=7, num_train=40, num_test=20)
  (one,) = tuning.tune(job)
  head, test = one.trainable['head'].weights, job.downstream.splits['test']
  assert np.allclose(head[:, 0] - head[:, 1], [1, 0, 2]) == is_linear
  probs = log_space_conditional(CHAIN, rows_of(CHAIN, job.downstream.inputs[test]))[:, 0]
  is_right = (probs @ head).argmax(-1) == job.downstream.tasks[0].labels[test]
  assert one.measured['accuracy'] == is_right.mean() <= one.measured['accuracy_at_most'] <= 1
  assert is_right.all() or not is_linear
