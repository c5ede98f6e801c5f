"""The estimate of memory and disk: how near it is, what it grows with, and what is refused before anything is done."""

import resource

import jax
import jax.numpy as jnp
import pytest

from experiments.pipeline import cost, needs, pretraining, sweep, trial as trial_lib
from experiments.records import checkpoints
from experiments.runtime import machine
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax.hmm import HMM


def _settings(name='memory_cells', scale='smoke', **changes):
  config = config_lib.shipped(name)['get_config'](scale)
  config.update_from_flattened_dict({'compilation_cache': '', 'figures': (), **changes})
  return registry.from_config(config)


def _total(**changes):
  return sum(needs.memory_bytes(_settings(**changes)).values())


@pytest.mark.parametrize(
  ('measured', 'changes'),
  [
    (1.05e9, {}),
    (3.2e9, {'corpus.num_documents': 10**6, 'corpus.document_length': 512}),
  ],
)
def test_the_estimate_is_within_a_factor_of_two_of_the_peak(measured, changes):
  """The most that a process had of memory on two CPU cores, measured by its resource usage."""
  assert measured / 2 < _total(name='prompt_vs_head', **changes) < 2 * measured


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('num_states', (4, 6, 8)),
    ('memory.sizes', (3,)),
    ('hmm.num_tokens', 300),
    ('corpus.num_documents', 9),
    ('corpus.document_length', 1024),
    ('bert.num_layers', 2),
    ('bert.width', 32),
    ('bert.ffn_width', 64),
    ('bert.max_positions', 48),
    ('pretrain.batch_size', 64),
    ('measure.num_documents', 3),
    ('measure.batch_size', 6000),
    ('downstream.num_train', 512),
    ('tasks_per_trial', 50),
    ('methods', ('probe', 'finetune')),
    ('methods', ('attention_converged', 'oracle_prompt')),
  ],
)
def test_more_of_anything_takes_more(field, value):
  assert _total(**{field: value}) > _total(methods=('probe',) if field == 'methods' else ('head', 'prompt'))


def test_a_file_in_the_place_of_checkpoints_has_no_steps(tmp_path):
  """It fails the trial that opens it, and no other."""
  (tmp_path / 'checkpoints').write_text('')
  assert checkpoints.steps(tmp_path / 'checkpoints') == []


def test_the_exact_model_alone_draws_no_corpus():
  assert _total(models=('exact',), **{'corpus.num_documents': 10**6}) == _total(models=('exact',))


def test_what_does_not_fit_is_refused_in_one_sentence(monkeypatch):
  """The field that drives most of it, what it takes and what there is; and nothing of it is allocated."""
  monkeypatch.setattr(machine, 'available_memory', lambda: 8e9)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  for field, value in (('corpus.num_documents', 10**7), ('bert.width', 2**24), ('downstream.num_train', 2 * 10**9)):
    with pytest.raises(SettingsError) as error:
      sweep.check(_settings(**{field: value}))
    assert str(error.value).startswith(f'{field} is {value}; valid is what fits the 8.0 GB of memory')
    assert '\n' not in str(error.value)
  assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**18


def test_the_corpus_of_the_paper_is_drawn_within_a_gibibyte():
  """5000 documents of 10240 tokens: what XLA allocates, the result of 51 MB with it, is a seventh of that, and the
  estimate covers it. In a process of its own the peak rose by 143 MiB over what it was before."""
  settings = _settings('prompt_vs_head', 'paper')
  shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.float32)
  hmm, key = HMM(shape(30), shape(30, 30), shape(30, 10)), jax.eval_shape(lambda: jax.random.key(0))
  allocated = pretraining._corpus.lower(key, hmm, settings.corpus).compile().memory_analysis()
  size = allocated.temp_size_in_bytes + allocated.output_size_in_bytes
  assert size < 2**30 / 5
  assert size < needs.memory_bytes(settings)['corpus.num_documents'] < 3 * size


def test_state_that_is_split_takes_less(monkeypatch):
  """By the devices of fsdp and tensor, but for the parameters, whole for a step; those of data split none of it."""
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  of_mesh = lambda **mesh: needs.memory_bytes(_settings(**{f'mesh.{axis}': size for axis, size in mesh.items()}))
  alone = of_mesh()['bert.width']
  assert alone == of_mesh(data=8)['bert.width']
  for size, split in ((2, {'fsdp': 2}), (4, {'fsdp': 2, 'tensor': 2})):
    assert of_mesh(**split)['bert.width'] / alone == pytest.approx((4 / size + 1) / 5)


@pytest.mark.parametrize('there', [8e9, None])
def test_what_fits_or_cannot_be_known_is_not_refused(monkeypatch, there):
  monkeypatch.setattr(machine, 'available_memory', lambda: there)
  sweep.check(_settings())


def test_runs_share_the_memory_of_the_host(monkeypatch):
  """Each may take its part of what there is."""
  alone = machine.available_memory()
  assert 1e7 < alone < 1e15
  monkeypatch.setenv('HMM_JAX_RUNS', '9999')
  assert machine.available_memory() < alone / 5000
  with pytest.raises(SettingsError, match='; valid is what fits the 0.0 GB of memory that this run has: '):
    sweep.check(_settings())


def _trial(workdir, number=0, **changes):
  return trial_lib.Trial(_settings('prompt_vs_head', **changes), Point(4), number, workdir)


def test_checkpoints_to_come_need_room(tmp_path, monkeypatch):
  """Of each unfinished model one more than is kept, since several runs may write at the same time."""
  trials = [_trial(tmp_path, number) for number in range(2)]
  size = cost.state_bytes(trials[0].settings)
  folders = [trial.pretrained_directory / checkpoints.NAME for trial in trials]
  free = list[int]()
  monkeypatch.setattr(needs.storage, 'free_bytes', lambda path: free[0])
  for number_of_steps, done in ((6, []), (5, [folders[0] / '20']), (3, [folders[0] / '40'])):
    for folder in done:
      folder.mkdir(parents=True)
    free[:] = [number_of_steps * size]
    with pytest.raises(SettingsError, match=f'{free[0]:,} bytes are free there'):
      needs.check_disk(trials)
    free[0] += 2**22
    needs.check_disk(trials)


@pytest.mark.parametrize('changes', [{'pretrained': 'models'}, {'models': ('exact',), 'methods': ('head',)}])
def test_the_room_is_that_where_models_lie(tmp_path, monkeypatch, changes):
  """In their own directory where they are shared; a run without models needs little."""
  changes = {name: str(tmp_path / value) if name == 'pretrained' else value for name, value in changes.items()}
  asked = []
  monkeypatch.setattr(needs.storage, 'free_bytes', lambda path: asked.append(path) or 2**20)
  trial = _trial(tmp_path / 'work', **changes)
  if 'pretrained' in changes:
    with pytest.raises(SettingsError, match=f'{tmp_path / "models"}'):
      needs.check_disk([trial])
  else:
    needs.check_disk([trial])
    assert asked == [trial.directory.parent]
