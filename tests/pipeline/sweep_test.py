"""The grid: in which order it is filled, what a time budget leaves of it, and what is said of another run."""

import dataclasses

import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import sweep
from experiments.records import results, status, trials
from experiments.records.trials import TunedTask
from experiments.runtime.progress import Reporter
from experiments.settings.trial import trial_numbers


@pytest.fixture
def settings():
  tasks = dict(num_trials=3, tasks_per_trial=1, models=('exact',), methods=('head',))
  return settings_of('smoke', num_states=(4, 6), **tasks, time_budget=1.0)


@pytest.fixture
def begun(monkeypatch):
  """The trials that have begun, in order: each takes a minute, and leaves one record."""
  order = []

  def run(folder, missing, reporter):
    order.append((folder.trial.point.num_states, folder.trial.number))
    trials.add(folder, 'exact', 'head', [TunedTask(0, {'head': np.zeros(2)}, {'accuracy': 0.5})], {})
    reporter.clock._begun -= 60

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return order


def _run(settings, workdir, *numbers):
  return sweep.run([settings], workdir, Reporter(settings.time_budget, is_quiet=True), numbers or None)


def _recorded(workdir):
  return [(record['num_states'], record['trial']) for record in results.load(workdir)]


def test_a_budget_is_filled_trial_by_trial(settings, begun, tmp_path):
  """Trial 0 of every point comes first; each run begins what fits, and the records are in the order of the points.

  The budget is no part of what names a trial.
  """
  assert '1 of 6' in _run(settings, tmp_path) and '2 of 6' in _run(settings, tmp_path)
  assert '3 of 6' in _run(settings, tmp_path)
  assert begun == [(4, 0), (6, 0), (4, 1)]
  assert _recorded(tmp_path) == [(4, 0), (4, 1), (6, 0)]
  assert _run(dataclasses.replace(settings, time_budget=0.0), tmp_path) is None
  assert begun == [(states, trial) for trial in range(3) for states in (4, 6)]
  assert _recorded(tmp_path) == [(states, trial) for states in (4, 6) for trial in range(3)]


@pytest.mark.parametrize(('text', 'numbers'), [('', [*range(6)]), ('5,0,2-3,3', [0, 2, 3, 5])])
def test_trials_are_chosen_by_number(text, numbers):
  """Numbers and ranges, each trial once and in order; nothing is all."""
  assert trial_numbers(text, 6) == numbers


def test_any_order_ends_with_the_same_files(settings, begun, tmp_path):
  """Trials run one by one, in another order and some of them twice, leave what one run of all leaves.

  Trials that were asked for and did not fit are left to the same command.
  """
  pieces, unlimited = tmp_path / 'pieces', dataclasses.replace(settings, time_budget=0.0)
  _run(unlimited, tmp_path / 'whole')
  for number in (3, 5, 0, 3):
    assert _run(unlimited, pieces, number).endswith('of 6 trials are finished')
  assert _run(settings, pieces, 4, 2, 1).endswith('4 of 6 trials are finished')
  assert _run(unlimited, pieces, 1, 2) is None
  assert results.load(pieces) == results.load(tmp_path / 'whole')


def test_half_a_trial_is_not_merged(settings, begun, tmp_path, monkeypatch):
  """With a method more than its records have, a trial is not finished, and the workdir keeps what it has."""
  _run(settings, tmp_path, 0, 1)
  before = results.load(tmp_path)
  more = dataclasses.replace(settings, methods=('head', 'prompt'), tasks_per_trial=2)
  monkeypatch.setattr(sweep.trial_lib, 'run', lambda *_: None)
  assert _run(more, tmp_path) == '0 of 6 trials are finished'
  assert results.load(tmp_path) == before
  assert status.text(sweep.folders([more], tmp_path)).count('missing 3 of 4\n') == 1


def test_sizes_may_have_fewer_draws_and_are_filled_further(settings, begun, tmp_path):
  """More draws of all sizes keep what is done."""
  fewer = dataclasses.replace(settings, num_states=(6, 4), time_budget=0.0, num_trials_by_size=(1, 3))
  assert _run(fewer, tmp_path) is None and begun == [(4, 0), (6, 0), (4, 1), (4, 2)]
  more = dataclasses.replace(fewer, num_trials=5, num_trials_by_size=(3, 5))
  assert _run(more, tmp_path) is None and sorted(begun) == [(4, n) for n in range(5)] + [(6, n) for n in range(3)]
