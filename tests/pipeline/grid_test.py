"""Grids with lists: what their trials share, and that they equal their points run apart, after a kill too."""

import itertools
import os
import signal
from unittest import mock

from conftest import ROOT
from faults.processes import Moment, Run
import pytest
from run_cases import CHEAP, finished_command, records_of

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import files, load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('cheap_commands')]

_ONE_SIZE = '--config.num_states=4'
_OF_HEAD = '--config.methods=head'


def _command(workdir, flags, **values):
  """A command line with lists of values, or single ones."""
  lists = (f'--config.{name.replace("__", ".")}={",".join(map(str, some))}' for name, some in values.items())
  return '--config=prompt_vs_head:smoke', *CHEAP, *flags, *lists, f'--workdir={workdir}'


def _made(workdir):
  """The records without their environment, and the digest of each file of tuned arrays."""
  arrays = {str(path.relative_to(workdir)): files.digest(path) for path in workdir.glob('trials/*/*.npz')}
  return records_of(workdir), arrays


# Flags, the moment of a kill, and lists. Without FAULTS only the first: each compiles for a minute.
_GRIDS = [
  ([_ONE_SIZE], Moment('tuning', 4), dict(prompt__length=(1, 2))),
  (
    [_ONE_SIZE, '--config.models=bert', _OF_HEAD],
    Moment('save', 4),
    dict(pretrain__optimizer=('adamw', 'muon'), pretrain__learning_rate=(1e-3, 2e-3)),
  ),
  (
    ['--config.models=exact', _OF_HEAD],
    Moment('tuning', 3),
    dict(distribution=('mess3', 'ginc'), downstream__num_train=(64, 128)),
  ),
]


@pytest.mark.parametrize(('flags', 'moment', 'lists'), _GRIDS if os.environ.get('FAULTS') else _GRIDS[:1])
def test_a_killed_grid_equals_its_points_run_apart(flags, moment, lists, tmp_path, monkeypatch):
  """Record by record and bit by bit, if a trial is run before the rest too. Each field has a column; a process is one.

  The grid is listed, its status shown and a trial verified.
  """
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  command = _command(tmp_path / 'grid', flags, **lists)
  assert Run(command, tmp_path / 'logs', moment).end().status == 128 + signal.SIGKILL
  for rest in ['--trials=1'], []:
    finished_command(*command, *rest)
  rows, arrays = [], {}
  for values in itertools.product(*lists.values()):
    point = dict(zip(lists, values))
    apart = tmp_path / str(values)
    finished_command(*_command(apart, flags, **{name: [value] for name, value in point.items()}))
    some, of_point = _made(apart)
    columns = {name.replace('__', '.'): value for name, value in point.items() if name != 'distribution'}
    rows += [row | columns for row in some]
    arrays |= of_point
  assert _made(tmp_path / 'grid') == (rows, arrays)
  *others, last = finished_command(*command, '--list').splitlines()
  assert all(f'{name}={value}' in last for name, value in columns.items())
  assert f'\n{len(others) + 1} trials: {len(others) + 1} done' in finished_command(*command, '--mode=status')
  assert 'records of 1 trials' in finished_command('--mode=verify', command[-1], '--trials=1')


def test_nothing_is_tuned_or_trained_twice(tmp_path, monkeypatch):
  """Three prompt lengths share a BERT; the folder shows the records of a later run with another learning rate too."""
  train, tune = (mock.Mock(wraps=call) for call in (pretraining.train, trial_lib.tuning.tune))
  monkeypatch.setattr(pretraining, 'train', train)
  monkeypatch.setattr(trial_lib.tuning, 'tune', tune)
  command = _command(tmp_path, [_ONE_SIZE], methods=('head', 'prompt'), prompt__length=(1, 2, 3))
  finished_command(*command)
  # Each model has one head and three prompts.
  assert (train.call_count, tune.call_count) == (1, 8)
  said = finished_command(*command, '--config.pretrain.learning_rate=3e-3')
  assert train.call_count == 2 and 'pretrain.learning_rate=0.001' in said
  assert load(tmp_path).groupby(['pretrain.learning_rate', 'prompt.length']).size().tolist() == [8] * 6
