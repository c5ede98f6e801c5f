"""The grid: in which order it is filled, and what a time budget leaves of it."""

import dataclasses
import json

import pytest
import rich.console

from configs import prompt_vs_head
from experiments import config as config_lib, files, pretraining, results, sweep, timing
from experiments.progress import Reporter


@pytest.fixture
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6), num_trials=3, tasks_per_trial=1, models=('exact',), methods=('head',), time_budget=1)
  return config_lib.from_config(config)


@pytest.fixture
def begun(monkeypatch):
  """The trials that have begun, in order: each takes a minute, and leaves one record."""
  order = []

  def run(trial, reporter):
    if trial.missing():
      order.append((trial.point.num_states, trial.trial))
      row = {**trial.point._asdict(), 'trial': trial.trial, 'task': 0, 'model': 'exact', 'method': 'head'}
      files.write_json_lines(trial.records_path, [row])
      reporter.clock._begun = reporter.clock._begun.minus(timing.Time(0, 60))

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  return order


def _run(settings, workdir):
  return sweep.run(settings, workdir, Reporter(rich.console.Console(quiet=True)))


def _recorded(workdir):
  return [(record['num_states'], record['trial']) for record in results.load(workdir)]


def test_a_budget_is_filled_trial_by_trial(settings, begun, tmp_path):
  """Trial 0 of every point comes first; each run begins what fits, and the records are in the order of the points."""
  assert _run(settings, tmp_path) == ('1 of 6 trials are finished (|H|=4: 1, |H|=6: 0); the same command goes on')
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

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  assert '1 of 6' in _run(settings, tmp_path)
  assert _recorded(tmp_path) == [(4, 0)] and json.loads((tmp_path / 'config.json').read_text())['time_budget'] == 1


def test_a_workdir_keeps_its_records_until_others_are_finished(settings, begun, tmp_path, monkeypatch):
  """Where other settings run out of time in their first pretraining, records and config stay with table and figure."""
  _run(settings, tmp_path)
  contents = lambda: {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
  before = contents()

  def run(trial, reporter):
    raise pretraining.OutOfTime

  monkeypatch.setattr(sweep.trial_lib, 'run', run)
  assert '0 of 6' in _run(dataclasses.replace(settings, seed=1), tmp_path)
  assert contents() == before and 'results.jsonl' in before
