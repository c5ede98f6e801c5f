"""The grid: in which order it is filled, and what a time budget leaves of it."""

import collections
import dataclasses
import json
import pathlib

import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, sweep
from experiments.records import files, results, status, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS

EVIDENCE = ('prompt_vs_head', 'memory_vs_vanilla')


@pytest.fixture
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6), num_trials=3, tasks_per_trial=1, models=('exact',), methods=('head',), time_budget=1)
  return registry.from_config(config)


@pytest.fixture
def begun(monkeypatch):
  """The trials that have begun, in order: each takes a minute, and leaves one record."""
  order = []

  def run(trial, reporter):
    if not trial.missing():
      return False
    order.append((trial.point.num_states, trial.trial))
    trial_records.add(trial, 'exact', 'head', [Tuned(0, {'head': np.zeros(2)}, {'accuracy': 0.5})], {})
    files.write_json_lines(trial.timing_path, [{'trial_id': trial.id}])
    reporter.clock._begun = reporter.clock._begun - np.array([0, 60])
    return True

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return order


def _run(settings, workdir):
  return sweep.run(settings, workdir, Reporter(rich.console.Console(quiet=True)))


def _run_numbers(settings, workdir, *numbers):
  reporter = Reporter(rich.console.Console(quiet=True))
  return sweep.run(settings, workdir, reporter, numbers)


def _recorded(workdir):
  return [(record['num_states'], record['trial']) for record in results.load(workdir)]


def test_a_budget_is_filled_trial_by_trial(settings, begun, tmp_path):
  """Trial 0 of every point comes first; each run begins what fits, and the records are in the order of the points."""
  assert _run(settings, tmp_path) == ('1 of 6 trials are finished; the same command goes on')
  assert '2 of 6' in _run(settings, tmp_path) and '3 of 6' in _run(settings, tmp_path)
  assert begun == [(4, 0), (6, 0), (4, 1)]
  assert _recorded(tmp_path) == [(4, 0), (4, 1), (6, 0)]
  while _run(settings, tmp_path):
    pass
  assert begun == [(states, trial) for trial in range(3) for states in (4, 6)]
  assert _recorded(tmp_path) == [(states, trial) for states in (4, 6) for trial in range(3)]


def test_without_a_budget_all_is_run(settings, begun, tmp_path):
  """And the budget is no part of what names a trial."""
  unlimited = dataclasses.replace(settings, time_budget=0.0)
  assert _run(unlimited, tmp_path) is None and len(begun) == 6
  assert _run(settings, tmp_path) is None and len(begun) == 6


def test_what_stops_in_pretraining_is_no_record(settings, begun, tmp_path, monkeypatch):
  """Of a trial that runs out of time nothing is reported, and no other begins."""
  assert '1 of 6' in _run(settings, tmp_path)

  def run(trial, reporter):
    if trial.missing():
      raise pretraining.OutOfTime
    return False

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  assert '1 of 6' in _run(settings, tmp_path)
  assert _recorded(tmp_path) == [(4, 0)] and json.loads((tmp_path / 'config.json').read_text())['time_budget'] == 1


def test_a_workdir_keeps_its_records_until_others_are_finished(settings, begun, tmp_path, monkeypatch):
  """Where other settings run out of time in their first pretraining, records and config stay with table and figure."""
  _run(settings, tmp_path)
  is_lock = lambda path: path.name.startswith(('.lock', 'claim-'))
  contents = lambda: {path.name: path.read_bytes() for path in tmp_path.glob('*.*') if not is_lock(path)}
  before = contents()

  def run(trial, reporter):
    raise pretraining.OutOfTime

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  assert '0 of 6' in _run(dataclasses.replace(settings, seed=1), tmp_path)
  assert contents() == before and 'results.jsonl' in before


@pytest.mark.parametrize(
  ('text', 'numbers'), [('', range(6)), ('4', [4]), ('5,0,2-3,3', [0, 2, 3, 5]), ('0-5', range(6))]
)
def test_trials_are_chosen_by_number(settings, text, numbers, tmp_path):
  """Numbers and ranges, each trial once and in order; nothing is all."""
  assert sweep.chosen(text, sweep.trials(settings, tmp_path)) == list(numbers)


@pytest.mark.parametrize('text', ['6', '0-6', '2-1', '-1', '1-', ',', '1,', 'x', '1.0', ' 1', '٣', '9' * 5000])
def test_what_is_no_trial_is_refused(settings, text, tmp_path):
  """Past the last, backwards, or no number."""
  with pytest.raises(SettingsError, match='--trials is .*; valid is numbers of 0 to 5'):
    sweep.chosen(text, sweep.trials(settings, tmp_path))


def _merged(workdir):
  return (workdir / 'results.jsonl').read_bytes()


def test_any_order_ends_with_the_same_files(settings, begun, tmp_path):
  """Trials run one by one, in another order and some of them twice, leave what one run of all leaves."""
  unlimited = dataclasses.replace(settings, time_budget=0.0)
  _run(unlimited, tmp_path / 'whole')
  for number in (3, 5, 0, 3, 4, 2):
    assert 'of 6 trials are finished' in _run_numbers(unlimited, tmp_path / 'pieces', number)
  assert _run_numbers(unlimited, tmp_path / 'pieces', 1) is None
  assert begun[6:] == [(6, 1), (6, 2), (4, 0), (4, 2), (4, 1), (6, 0)]
  assert _merged(tmp_path / 'pieces') == _merged(tmp_path / 'whole')


def test_half_a_trial_is_not_merged(settings, begun, tmp_path):
  """With a method more than its records have, a trial is not finished, and the workdir keeps what it has."""
  _run_numbers(settings, tmp_path, 0, 1)
  before = _merged(tmp_path)
  more = dataclasses.replace(settings, methods=('head', 'prompt'))
  left = sweep.merge(more, tmp_path, Reporter(rich.console.Console(quiet=True)))
  assert left == '0 of 6 trials are finished' and _merged(tmp_path) == before


def test_what_is_left_goes_on_with_the_same_command_or_not(settings, begun, tmp_path):
  """Trials that were not asked for are left to others; those that were, and did not fit, to the same command."""
  assert _run_numbers(settings, tmp_path, 1) == '1 of 6 trials are finished'
  assert _run_numbers(settings, tmp_path, 1, 2, 3).endswith('2 of 6 trials are finished; the same command goes on')


def test_a_merge_reads_while_it_has_the_lock(settings, begun, tmp_path, monkeypatch):
  """So that of two that merge the later one lacks nothing that the earlier one has written."""
  seen, records = [], sweep.trial_lib.Trial.records
  monkeypatch.setattr(
    sweep.trial_lib.Trial, 'records', lambda trial: seen.append(locks.holder(tmp_path)) or records(trial)
  )
  monkeypatch.setattr(sweep, 'fill', lambda *_: [])
  _run_numbers(settings, tmp_path, 0)
  assert len(seen) == 6 and all(seen)


def test_the_status_says_what_is_done_and_what_is_missing(settings, begun, tmp_path):
  """A line a trial, by number, with its id; nothing is written."""
  more = dataclasses.replace(settings, methods=('head', 'prompt'), tasks_per_trial=2)
  assert status.text(sweep.trials(more, tmp_path / 'none')).count('missing 4 of 4: exact head, exact prompt') == 6
  assert not (tmp_path / 'none').exists()
  _run_numbers(settings, tmp_path, 1)
  grid = sweep.trials(settings, tmp_path)
  *lines, total = status.text(grid).splitlines()
  assert total == '6 trials: 1 done, 0 running, 0 stale, 0 failed, 5 missing'
  assert [line.split()[:5] for line in lines] == [
    [str(number), trial.id, str(trial.point), 'trial', str(trial.trial)] for number, trial in enumerate(grid.values())
  ]
  assert [line.endswith('done') for line in lines] == [False, True, False, False, False, False]
  assert status.text(sweep.trials(more, tmp_path)).count('missing 3 of 4: exact head, exact prompt') == 1


def test_sizes_may_have_fewer_draws_and_are_filled_further(settings, begun, tmp_path):
  """By number; more draws of all sizes keep what is done, and the rest is counted by size."""
  fewer = dataclasses.replace(settings, time_budget=0.0, num_trials_by_size=(3, 1))
  assert _run(fewer, tmp_path) is None and begun == [(4, 0), (6, 0), (4, 1), (4, 2)]
  more = dataclasses.replace(fewer, num_trials=5, num_trials_by_size=(5, 3))
  assert status.text(sweep.trials(more, tmp_path)).count('  done\n') == 4
  assert _run_numbers(more, tmp_path, 3).startswith('5 of 8 trials are finished')
  assert _run(more, tmp_path) is None and sorted(begun) == [(4, n) for n in range(5)] + [(6, n) for n in range(3)]
  with pytest.raises(
    SettingsError, match=r'^num_trials_by_size is \(3, 1\); valid is \(\), or 2 numbers of which num_trials, 1, '
  ):
    dataclasses.replace(fewer, num_trials=1)


def test_the_evidence_has_as_many_draws_as_figure_3_asks_for():
  """Left seven at |H| = 4, 10 and 30 and five elsewhere; right five of each text; every trial a small one."""
  left, right = (registry.from_config(config_lib.shipped(name)['get_config']('evidence')) for name in EVIDENCE)
  of = lambda s: collections.Counter(point for point, _ in s.draws())
  assert of(left) == {Point(size): 7 if size in (4, 10, 30) else 5 for size in (4, 8, 10, 12, 15, 25, 30)}
  memories = [Point(4, size, 1) for size in (2, 3, 5, 7)]
  assert of(right) == dict.fromkeys([*memories, *(Point(point.joint_states) for point in memories)], 5)
  for name, evidence in zip(EVIDENCE, (left, right)):
    small = registry.from_config(config_lib.shipped(name)['get_config']('small'))
    assert evidence.tasks_per_trial == small.tasks_per_trial == 4
    assert all(evidence.trial_id(*draw) == small.trial_id(*draw) for draw in evidence.draws())


@pytest.mark.parametrize('name', ['prompt_vs_head', 'memory_vs_vanilla', 'memory_cells', 'recipes'])
def test_no_two_trials_of_a_grid_share_a_model_or_a_directory(name):
  """At any scale, so that trials can run at the same time: none pretrains what another one reads."""
  shipped = config_lib.shipped(name)
  for scale in shipped['SCALES']:
    settings = registry.from_config(shipped['get_config'](scale))
    grid = EXPERIMENTS[name].trials(settings, pathlib.Path('runs')).values()
    assert len({trial.pretraining_id for trial in grid}) == len({trial.id for trial in grid}) == len(grid), scale
