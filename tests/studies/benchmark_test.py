"""The benchmark: how it measures, whom it skips, that contenders do one work, and what a run records."""

import io
import sys
import time

import jax
import numpy as np
import pandas as pd
import pytest
import rich.console
from run_cases import finished_study, QUIET
from schema_cases import kinds_of
from settings_cases import settings_of

from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import benchmark

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _settings(**changes):
  return settings_of('smoke', 'benchmark', **dict(num_states=(4,)) | changes)


def test_contenders_take_turns_and_a_failing_one_is_skipped(monkeypatch):
  """On record are the seconds of one unit in each round but the first, in which ours compiles."""
  calls, clock, reporter = [], [0.0], Reporter(rich.console.Console(file=io.StringIO()))
  monkeypatch.setattr(time, 'perf_counter', lambda: clock[0])

  def lasting(name, *seconds):
    def call():
      clock[0] += seconds[calls.count(name)]
      calls.append(name)

    return call

  peers = {'failing': lambda: jax.devices('none'), 'peer': lambda: lasting('peer', 100, 100, 8, 12)}
  rows = benchmark.measure(_settings(), reporter, 'work', lasting('ours', 100, 2, 4), peers, units=2)
  assert [(row['contender'], row['seconds']) for row in rows] == [('ours', [1, 2]), ('peer', [4, 6])]
  assert calls == ['peer', *['ours', 'peer'] * 3]
  assert 'skipped failing: Unknown backend' in reporter.console.file.getvalue()


def test_all_smooth_the_same_texts(monkeypatch):
  """To float32, with peers and without."""
  found = []
  monkeypatch.setattr(benchmark, 'measure', lambda *given: found.append(given) or [])
  benchmark.smoothing(_settings(), jax.random.key(0), QUIET)
  ((*_, ours, peers),) = found
  for prepare in peers.values():
    np.testing.assert_allclose(np.reshape(prepare()(), (10, 9, 4)), ours(), atol=1e-5)


def test_the_table_has_ratios_by_round_and_the_share_of_all_chips(monkeypatch):
  monkeypatch.setattr(benchmark, '_PEAK_FLOPS', {'chip': 4e12})
  same = dict(work='step', flops=1e12, devices=['chip', 'chip'], cpu='CPU')
  rows = [same | dict(contender='ours', seconds=[0.5, 1, 2]), same | dict(contender='peer', seconds=[1, 3, 8])]
  frame = benchmark.STUDY.tables(pd.DataFrame(rows), _settings())['speed'].frame
  assert frame['ratio'].tolist() == ['1.00 (1.00 to 1.00)', '3.00 (2.50 to 3.50)']
  assert frame['seconds'].tolist() == ['1', '3'] and frame['of peak'].tolist() == ['12%', '4%']


def test_the_flops_of_a_step_are_six_for_each_parameter_and_token():
  """The count for BERT-base with 6 layers, in the paper's size."""
  assert benchmark.step_flops(settings_of('gpu', 'benchmark')) == 6 * 43_522_571 * 8 * 512


def test_a_run_without_torch_records_all_else(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)
  monkeypatch.delitem(sys.modules, 'experiments.studies.hugging_face', raising=False)
  settings = _settings(parts=('smoothing', 'sampling', 'training', 'trial'))
  assert finished_study(benchmark.STUDY, settings, tmp_path).count('skipped Hugging Face') == 2
  records = results.load(tmp_path)
  assert [record['part'] for record in records] == ['smoothing'] * 4 + ['sampling'] * 2 + ['training', 'trial']
  assert all(kinds_of(record) == ('benchmark',) for record in records)


@pytest.mark.parametrize(('field', 'value'), [('pretrain.optimizer', 'muon'), ('memory.sizes', (2,))])
def test_records_that_cannot_be_compared_are_refused(field, value):
  with pytest.raises(SettingsError, match=f'^{field} '):
    _settings(**{field.replace('.', '__'): value})
