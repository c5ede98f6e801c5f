"""The benchmark: who takes part, that contenders do one work, and what a run records."""

import functools

import jax
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.studies import benchmark
import hmm_jax

pytestmark = pytest.mark.slow

SETTINGS = settings_of('smoke', 'benchmark')
KEY = jax.random.key(0)


def test_contenders_take_turns_and_a_failing_one_is_left_out():
  """Of each contender the first call, in which it compiles, is not on record."""
  calls = []

  def work(*_):
    yield 'work', functools.partial(calls.append, 'ours')
    yield 'peer', functools.partial(calls.append, 'peer')
    yield 'failing', lambda: jax.devices('none')

  rows = benchmark.measure(work, SETTINGS, KEY, QUIET)
  assert calls == ['peer', 'ours', *['ours', 'peer'] * 2]
  assert [len(row['seconds']) for row in rows] == [2, 2]


def test_all_smooth_the_same_texts():
  """To float32."""
  hmm = hmm_jax.random_hmm(KEY, 4, 5)
  (_, ours), (_, dynamax) = benchmark.smoothing(SETTINGS, hmm, KEY)
  np.testing.assert_allclose(dynamax(), ours(), atol=1e-5)
