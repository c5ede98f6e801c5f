"""Grids with lists: what their trials share, and that they equal their points run apart, after a kill too."""

import signal
from unittest import mock

from conftest import ROOT
from faults.processes import Moment, Run
import pytest
from run_cases import CHEAP, finished_command, made

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('cheap_commands')]


def _command(workdir, **values):
  """A command line of one size with lists of values, or single ones."""
  lists = (f'--config.{name.replace("__", ".")}={",".join(map(str, some))}' for name, some in values.items())
  return '--config=prompt_vs_head:smoke', *CHEAP, '--config.num_states=4', *lists, f'--workdir={workdir}'


def test_a_killed_grid_equals_its_points_run_apart(tmp_path, monkeypatch):
  """Record by record and bit by bit, if a trial is run before the rest too. The field has a column."""
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  command = _command(tmp_path / 'grid', prompt__length=(1, 2))
  assert Run(command, tmp_path / 'logs', Moment('tuning', 4)).end().status == 128 + signal.SIGKILL
  for rest in ['--trials=1'], []:
    finished_command(*command, *rest)
  rows, arrays = [], {}
  for length in (1, 2):
    apart = tmp_path / str(length)
    finished_command(*_command(apart, prompt__length=[length]))
    some, of_point = made(apart)
    rows += [row | {'prompt.length': length} for row in some]
    arrays |= of_point
  assert made(tmp_path / 'grid') == (rows, arrays)
  first, last = finished_command(*command, '--list').splitlines()
  assert 'prompt.length=1' in first and 'prompt.length=2' in last


def test_nothing_is_tuned_or_trained_twice(tmp_path, monkeypatch):
  """Three prompt lengths share a BERT; the folder shows the records of a later run with another learning rate too."""
  train, tune = (mock.Mock(wraps=call) for call in (pretraining.train, trial_lib.tuning.tune))
  monkeypatch.setattr(pretraining, 'train', train)
  monkeypatch.setattr(trial_lib.tuning, 'tune', tune)
  command = _command(tmp_path, methods=('head', 'prompt'), prompt__length=(1, 2, 3))
  finished_command(*command)
  # Each model has one head and three prompts.
  assert (train.call_count, tune.call_count) == (1, 8)
  said = finished_command(*command, '--config.pretrain.learning_rate=3e-3')
  assert train.call_count == 2 and 'pretrain.learning_rate=0.001' in said
  assert load(tmp_path).groupby(['pretrain.learning_rate', 'prompt.length']).size().tolist() == [8] * 6
