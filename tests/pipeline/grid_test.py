"""Grids with lists: what their trials share, and that they equal their points run apart, after a kill too."""

import collections
import itertools
import json
import os
import signal

from conftest import ROOT
from faults.processes import Moment, Run
import pytest
from run_cases import finished_command

from experiments.pipeline import downstream, pretraining, queue, trial as trial_lib
from experiments.records import files, load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('cheap_commands')]

_SMALL = (
  '--config=prompt_vs_head:smoke',
  '--config.downstream.num_train=64',
  '--config.prompt.num_epochs=1',
  '--config.head.num_epochs=1',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)
_ONE_SIZE = '--config.num_states=4'
_ON_BERT = ('--config.models=bert', '--config.methods=head')
# The flags of a grid besides its lists, these, and the beginning of which phase is its end.
_GRIDS = {
  'prompt': ((_ONE_SIZE,), {'prompt.length': ('1', '2')}, ('tuning', 4)),
  'recipe': (
    (_ONE_SIZE, *_ON_BERT),
    {'pretrain.optimizer': ('adamw', 'muon'), 'pretrain.learning_rate': ('1e-3', '2e-3')},
    ('save', 4),
  ),
  'data': (
    ('--config.models=exact', '--config.methods=head'),
    {'distribution': ('mess3', 'ginc'), 'downstream.num_train': ('64', '128')},
    ('tuning', 3),
  ),
}


def _records(workdir, columns):
  """The records by their values in `columns`, without these and their environment."""
  by_values = collections.defaultdict(list)
  for line in (workdir / 'results.jsonl').read_text().splitlines():
    record = json.loads(line) | {'environment': ''}
    values = tuple(record.get(column) for column in columns)
    # A process is a field of every record.
    by_values[values].append({name: value for name, value in record.items() if '.' not in name})
  return dict(by_values)


def _arrays(workdir):
  """The bits of each tuned array."""
  arrays = {path: files.read_arrays(path) for path in workdir.glob('trials/*/*.npz')}
  return {(*path.parts[-2:], name): array.tobytes() for path, some in arrays.items() for name, array in some.items()}


@pytest.mark.parametrize('name', _GRIDS)
def test_a_killed_grid_equals_its_points_run_apart(name, tmp_path, monkeypatch):
  """Record by record and bit by bit, tuned arrays too."""
  flags, lists, phase = _GRIDS[name]
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  words = [f'--config.{field}={",".join(values)}' for field, values in lists.items()]
  command = (*_SMALL, *flags, *words, f'--workdir={tmp_path / "grid"}')
  assert Run(command, tmp_path / 'logs', Moment(*phase)).end().status == 128 + signal.SIGKILL
  finished_command(*command)
  grid, arrays = _records(tmp_path / 'grid', lists), dict[str, bytes]()
  for point, found in zip(itertools.product(*lists.values()), grid.values(), strict=True):
    words = [f'--config.{field}={value}' for field, value in zip(lists, point)]
    finished_command(*_SMALL, *flags, *words, f'--workdir={tmp_path / str(point)}')
    assert found == [*itertools.chain(*_records(tmp_path / str(point), ()).values())]
    arrays |= _arrays(tmp_path / str(point))
  assert _arrays(tmp_path / 'grid') == arrays
  columns = set(load(tmp_path / 'grid')) - set(load(tmp_path / str(point)))
  assert columns == set(lists) - {'distribution'}


def test_nothing_is_computed_twice(tmp_path, monkeypatch):
  """Three prompt lengths share a BERT and the exact posteriors; another learning rate, in a later run, all but BERT.

  The folder then shows the records of both runs.
  """
  counts, tuned = collections.Counter(), collections.Counter()
  monkeypatch.setattr(trial_lib, '_drawn', {})

  def count(module, name):
    original = getattr(module, name)

    def counted(*arguments, **options):
      counts[name] += 1
      return original(*arguments, **options)

    monkeypatch.setattr(module, name, counted)

  def tune(job, *more, tune=trial_lib.tuning.tune):
    tuned[job.frozen.name, job.method] += 1
    return tune(job, *more)

  count(pretraining, 'train')
  count(downstream.tasks_lib, 'label_probs')
  monkeypatch.setattr(queue.trial_lib.tuning, 'tune', tune)
  command = (
    *_SMALL,
    _ONE_SIZE,
    '--config.methods=head,prompt',
    '--config.prompt.length=1,2,3',
    f'--workdir={tmp_path}',
  )
  finished_command(*command)
  assert counts == {'train': 1, 'label_probs': 1}
  assert tuned == {(model, method): n for model in ('bert', 'exact') for method, n in (('head', 1), ('prompt', 3))}
  said = finished_command(*command, '--config.pretrain.learning_rate=1e-3')
  assert 'pretrain.learning_rate 0.002 (here 0.001)' in said
  assert counts == {'train': 2, 'label_probs': 1}
  assert tuned['bert', 'prompt'] == 6 and tuned['exact', 'prompt'] == 3
  records = load(tmp_path)
  assert records.groupby(['pretrain.learning_rate', 'prompt.length']).size().tolist() == [8] * 6
  assert {'against_fields.png', 'against_fields.pdf'} <= {path.name for path in tmp_path.iterdir()}
  exact = records[records['model'] == 'exact'].set_index(['prompt.length', 'method', 'task', 'pretrain.learning_rate'])
  assert (exact['accuracy'].unstack().nunique(axis=1) == 1).all()


def test_a_grid_is_verified_and_its_trials_are_chosen(tmp_path):
  """Two trials one by one, the second first, leave what one run does."""
  command = (
    *_SMALL,
    _ONE_SIZE,
    '--config.models=exact',
    '--config.methods=head',
    '--config.head.learning_rate=0.01,0.02',
  )
  whole, pieces = tmp_path / 'whole', tmp_path / 'pieces'
  finished_command(*command, f'--workdir={whole}')
  for number in (1, 0):
    finished_command(*command, f'--workdir={pieces}', f'--trials={number}')
  assert (pieces / 'results.jsonl').read_text() == (whole / 'results.jsonl').read_text()
  assert finished_command(*command, '--list').splitlines()[1].endswith('head.learning_rate=0.02 |H|=4 trial 0')
  assert finished_command(*command, '--mode=status', f'--workdir={whole}').endswith(
    '2 trials: 2 done, 0 running, 0 stale, 0 failed, 0 missing\n'
  )
  assert '2 records of 1 trials' in finished_command('--mode=verify', f'--workdir={whole}', '--trials=1')
