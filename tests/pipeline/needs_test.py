"""The estimate of memory and disk: how near it is, what it grows with, and what is refused before anything is done."""

import jax
import pytest
from settings_cases import settings_of

from experiments.pipeline import cost, needs, sweep
from experiments.pipeline.trial import Trial
from experiments.records import checkpoints
from experiments.runtime import machine
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point


def _settings(experiment='memory_cells', **changes):
  return settings_of('smoke', experiment, **{'compilation_cache': '', 'figures': (), **changes})


def _total(**changes):
  return sum(needs.memory_bytes(_settings(**changes)).values())


@pytest.mark.parametrize(
  ('measured', 'changes'), [(1.05e9, {}), (3.2e9, dict(corpus__num_documents=10**6, corpus__document_length=512))]
)
def test_the_estimate_is_within_a_factor_of_two_of_the_peak(measured, changes):
  """The most that a process had of memory on two CPU cores, measured by its resource usage."""
  assert measured / 2 < _total(experiment='prompt_vs_head', **changes) < 2 * measured


@pytest.mark.parametrize(
  'more',
  [
    dict(num_states=(4, 6, 8)),
    dict(hmm__num_tokens=300),
    dict(corpus__num_documents=9),
    dict(bert__width=32),
    dict(pretrain__batch_size=64),
    dict(measure__batch_size=6000),
    dict(downstream__num_train=512),
    dict(tasks_per_trial=50),
    dict(methods=('head', 'prompt', 'finetune')),
    dict(methods=('head', 'prompt', 'attention_converged')),
  ],
  ids=str,
)
def test_more_of_anything_takes_more(more):
  assert _total(**{'methods': ('head', 'prompt'), **more}) > _total(methods=('head', 'prompt'))


def test_state_and_batches_that_are_split_take_less(monkeypatch):
  """The state by the devices of fsdp and tensor, but for one whole copy of parameters; a batch by data and fsdp."""
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  of_mesh = lambda **mesh: needs.memory_bytes(_settings(**{f'mesh__{axis}': size for axis, size in mesh.items()}))
  alone = of_mesh(data=1)
  for mesh, state, batch in ((dict(data=8), 1, 1 / 8), (dict(data=2, fsdp=2, tensor=2), (1 / 4 * 4 + 1) / 5, 1 / 4)):
    split = of_mesh(**mesh)
    assert split['bert.width'] / alone['bert.width'] == pytest.approx(state)
    assert split['pretrain.batch_size'] / alone['pretrain.batch_size'] == pytest.approx(batch)


def test_runs_share_the_memory_of_the_host(monkeypatch):
  """Each may take its part of what there is; what does not fit is refused by the field that drives most of it."""
  alone = machine.available_memory()
  monkeypatch.setenv('HMM_JAX_RUNS', '9999')
  assert 1e3 < machine.available_memory() < alone / 5000
  for there in (8e9, None):
    monkeypatch.setattr(machine, 'available_memory', lambda there=there: there)
    sweep.check(_settings())
  monkeypatch.setattr(machine, 'available_memory', lambda: 8e9)
  for field, value in (('corpus.num_documents', 10**7), ('bert.width', 2**24), ('downstream.num_train', 2 * 10**9)):
    with pytest.raises(SettingsError, match=f'^{field} is {value}; valid is what fits the 8.0 GB'):
      sweep.check(_settings(**{field: value}))


def test_checkpoints_to_come_need_room(tmp_path, monkeypatch):
  """Of each unfinished model one more than is kept, since several runs may write at the same time.

  The room is that where shared models lie; a run without models needs little.
  """
  settings = _settings('prompt_vs_head', pretrained=str(tmp_path / 'models'))
  trials = [Trial(settings, Point(4), number, tmp_path / 'work') for number in range(2)]
  size = cost.state_bytes(settings)
  folders = [trial.pretrained_directory / checkpoints.NAME for trial in trials]
  asked, free = [], []
  monkeypatch.setattr(needs.storage, 'free_bytes', lambda path: asked.append(path) or free[0])
  for number_of_steps, done in ((6, []), (5, [folders[0] / '20']), (3, [folders[0] / '40'])):
    for folder in done:
      folder.mkdir(parents=True)
    free[:] = [number_of_steps * size]
    with pytest.raises(SettingsError, match=f'{free[0]:,} bytes are free there'):
      needs.check_disk(trials)
    free[0] += 2**22
    needs.check_disk(trials)
  assert set(asked) == {tmp_path / 'models'}
  free[:] = [2**20]
  exact = _settings('prompt_vs_head', models=('exact',), methods=('head',))
  needs.check_disk([Trial(exact, Point(4), 0, tmp_path)])
