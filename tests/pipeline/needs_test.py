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
    dict(corpus__num_documents=9),
    dict(pretrain__batch_size=64),
    dict(measure__batch_size=6000),
    dict(downstream__num_train=512),
    dict(tasks_per_trial=50),
    dict(tasks_at_a_time=50),
    dict(methods=('head', 'prompt', 'finetune')),
    dict(methods=('head', 'prompt', 'attention_converged')),
  ],
  ids=str,
)
def test_more_of_anything_takes_more(more):
  assert _total(**{'methods': ('head', 'prompt'), **more}) > _total(methods=('head', 'prompt'))


def test_state_and_batches_that_are_split_take_less(monkeypatch):
  """The state by the devices of fsdp and tensor, but for one copy of parameters; a batch by data and fsdp."""
  monkeypatch.setattr(jax, 'device_count', lambda: 30)
  of_mesh = lambda data, fsdp, tensor: _settings(mesh__data=data, mesh__fsdp=fsdp, mesh__tensor=tensor)
  alone, split = needs.memory_bytes(of_mesh(1, 1, 1)), needs.memory_bytes(of_mesh(2, 3, 5))
  assert split['bert.width'] / alone['bert.width'] == pytest.approx((1 + 4 / 15) / 5)
  assert split['pretrain.batch_size'] / alone['pretrain.batch_size'] == pytest.approx(1 / 6)


def test_runs_share_the_memory_of_the_host(monkeypatch):
  """Each may take its part of what there is; what does not fit is refused by the field that drives most of it."""
  alone = machine.available_memory()
  monkeypatch.setenv('HMM_JAX_RUNS', '9999')
  assert 1e3 < machine.available_memory() < alone / 5000
  monkeypatch.setattr(machine, 'available_memory', lambda: 8e9)
  sweep.check(_settings())
  with pytest.raises(SettingsError, match='^bert.width is 16777216'):
    sweep.check(_settings(bert__width=2**24))


def test_checkpoints_to_come_need_room(tmp_path, monkeypatch):
  """Of each unfinished model one more than is kept, since several runs may write at the same time.

  The room is that where shared models lie.
  """
  settings = _settings('prompt_vs_head', pretrained=str(tmp_path / 'models'))
  trials = [Trial(settings, Point(4), number, tmp_path / 'work') for number in range(2)]
  (trials[0].pretrained_directory / checkpoints.NAME / '20').mkdir(parents=True)
  free = {tmp_path / 'models': 5 * cost.state_bytes(settings)}
  monkeypatch.setattr(needs.storage, 'free_bytes', free.__getitem__)
  with pytest.raises(SettingsError, match='bytes free; valid is at least'):
    needs.check_disk(trials)
  free[tmp_path / 'models'] += 2**22
  needs.check_disk(trials)
