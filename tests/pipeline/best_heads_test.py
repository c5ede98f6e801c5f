"""Facts of a task that decide which theorem covers it, in records of the best head."""

from mask_chains import CHAIN
import numpy as np
import pytest
from run_cases import job_on

from experiments.pipeline import best_heads, tuning

SIZES = dict(downstream__length=7, downstream__num_train=40, downstream__num_test=20)


def facts_of(mu, **changes):
  """The measurements of the best head for mu and a class that weighs nothing, on CHAIN."""
  return tuning.tune(job_on(CHAIN, mu, 'head_best', **SIZES, **changes))[0].measured


def test_a_linear_score_outside_the_assumptions():
  """Four states emit three tokens, the last as half of the first and half of the third: 3.1 fails, and a score is
  linear if and only if mu agrees. H* has to be all states: 3.5 fails too. The head is 1, 0 and 2 on the tokens."""
  facts = facts_of([1, 0, 1, 1])
  assert facts['linear'] and facts['exact_head_size'] == 2 and facts['unexplained'] < 1e-12
  assert not facts['assumption_3_1'] and facts['smallest_singular_value'] == 0
  assert not facts['assumption_3_5'] and facts['assumption_3_5_exhaustive'] and facts['separable']


def test_a_relaxed_assumption_of_a_score_that_is_not_linear():
  """State 3 moves to the first and the third state, whose emissions are independent: an H*. Mu asks of the first."""
  facts = facts_of([1, 0, 0, 0])
  assert not facts['linear'] and facts['exact_head_size'] is None and 0.01 < facts['unexplained'] < 1
  assert not facts['assumption_3_1'] and facts['assumption_3_5'] and facts['assumption_3_5_exhaustive']


@pytest.mark.parametrize('changes', [dict(downstream__label_state='silent'), dict(downstream__num_positions=6)])
def test_labels_of_another_score_have_no_facts(changes):
  """Of the silent state, or of tokens that are cut off."""
  assert 'linear' not in facts_of([1, 0, 0, 0], **changes)


def test_the_unexplained_share_is_in_standard_deviations():
  """The noise, of variance 9, in a score of variance 1 + 4 + 9; a constant score has none."""
  rng = np.random.default_rng(0)
  features = np.append(np.ones((4000, 1)), rng.normal(size=(4000, 2)), axis=1)
  noisy = features @ [[5.0], [1], [2]] + rng.normal(0, 3, (4000, 1))
  assert best_heads.unexplained(features, noisy) == pytest.approx(3 / np.sqrt(14), rel=0.05)
  assert best_heads.unexplained(features, np.zeros((4000, 1))) is None
