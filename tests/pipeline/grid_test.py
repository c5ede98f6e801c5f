"""Grids with lists: what their trials share, and that they equal their points run apart, after a kill too."""

import itertools
import os
import signal
from unittest import mock

from conftest import ROOT
from faults.processes import Moment, Run
import pytest
from run_cases import CHEAP, finished_command, records_of

from experiments.pipeline import downstream, pretraining, trial as trial_lib
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


def test_nothing_is_computed_twice(tmp_path, monkeypatch):
  """Three prompt lengths share a BERT and the exact posteriors; another learning rate, in a later run, the posteriors.

  The folder then shows the records of both runs.
  """
  trial_lib._recent.cache_clear()
  watched = (pretraining, 'train'), (downstream.tasks_lib, 'label_probs'), (trial_lib.tuning, 'tune')
  spies = [mock.Mock(wraps=getattr(*place)) for place in watched]
  for place, spy in zip(watched, spies):
    monkeypatch.setattr(*place, spy)
  counts = lambda: [spy.call_count for spy in spies]
  command = _command(tmp_path, [_ONE_SIZE], methods=('head', 'prompt'), prompt__length=(1, 2, 3))
  finished_command(*command)
  # Each model has one head and three prompts.
  assert counts() == [1, 1, 8]
  said = finished_command(*command, '--config.pretrain.learning_rate=3e-3')
  assert counts() == [2, 1, 16]
  assert 'pretrain.learning_rate=0.001' in said
  records = load(tmp_path)
  assert records.groupby(['pretrain.learning_rate', 'prompt.length']).size().tolist() == [8] * 6
