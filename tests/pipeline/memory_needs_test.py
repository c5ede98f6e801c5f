"""The memory estimate: what it grows with, and what is refused before anything is allocated."""

import resource

import jax
import jax.numpy as jnp
import pytest

from experiments.pipeline import memory_needs, pretraining, sweep
from experiments.runtime import memory
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from hmm_jax.hmm import HMM


def _settings(**changes):
  config = config_lib.shipped('memory_cells')['get_config']('smoke')
  config.update_from_flattened_dict({'compilation_cache': '', 'figures': (), **changes})
  return registry.from_config(config)


def _total(**changes):
  return sum(part.size for part in memory_needs.parts(_settings(**changes)))


GROWING = [
  ('num_states', (8,)),
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
  ('downstream.num_train', 512),
  ('tasks_per_trial', 50),
  ('measure.batch_size', 6000),
  ('num_states', (4, 6, 8)),
]


@pytest.mark.parametrize(('field', 'value'), GROWING)
def test_more_of_anything_takes_more(field, value):
  assert _total(**{field: value}) > _total()


def test_restarts_take_as_much_as_they_are():
  """Side by side with BERT out of it, the batch of an oracle prompt is that of a prompt times the starts."""
  sizes = {}
  for method, number in (('prompt', 3), ('oracle_prompt', 1), ('oracle_prompt', 3)):
    found = memory_needs.parts(_settings(methods=(method,), models=('exact',), **{'restarts.number': number}))
    (sizes[method, number],) = [part.size for part in found if part.what == f'a batch of {method} tuning']
  texts = 8 * (256 + 32 + 64) * (9 + 4)
  assert sizes['oracle_prompt', 1] == sizes['prompt', 3] > texts
  assert sizes['oracle_prompt', 3] - texts == 3 * (sizes['prompt', 3] - texts)


def test_what_does_not_fit_is_refused_in_one_sentence(monkeypatch):
  """The field that drives most of it, what it takes and what there is; and nothing of it is allocated."""
  monkeypatch.setattr(memory, 'available', lambda: 8e9)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  for field, value in (('corpus.num_documents', 10**7), ('bert.width', 2**24), ('downstream.num_train', 2 * 10**9)):
    with pytest.raises(SettingsError) as error:
      sweep.check(_settings(**{field: value}))
    assert str(error.value).startswith(f'{field} is {value}; valid is what fits the 8.0 GB of memory')
    assert '\n' not in str(error.value)
  assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**18


def test_a_long_document_is_counted_as_it_is_drawn():
  """256 documents of 200,000 tokens peaked at 1.89 GB; and the exact model alone draws no corpus."""
  long = {'corpus.num_documents': 256, 'corpus.document_length': 200_000}
  assert 1.7e9 < _total(**long) - _total() < 2.1e9
  assert _total(**long, models=('exact',)) == _total(models=('exact',))


def test_the_corpus_of_the_paper_is_drawn_within_a_gibibyte():
  """5000 documents of 10240 tokens: what XLA allocates, the result of 51 MB with it, is a seventh of that, and the
  estimate covers it. In a process of its own the peak rose by 143 MiB over what it was before."""
  settings = registry.from_config(config_lib.shipped('prompt_vs_head')['get_config']('paper'))
  shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.float32)
  hmm, key = HMM(shape(30), shape(30, 30), shape(30, 10)), jax.eval_shape(lambda: jax.random.key(0))
  allocated = pretraining._corpus.lower(key, hmm, settings.corpus).compile().memory_analysis()
  size = allocated.temp_size_in_bytes + allocated.output_size_in_bytes
  assert size < 2**30 / 5
  estimated = sum(
    part.size for part in memory_needs.parts(settings) if part.what in ('drawing documents', 'the corpus')
  )
  assert size < estimated < 3 * size


def _of_state(monkeypatch, optimizer='adamw', **mesh):
  """What is estimated for BERT and its optimiser on one of eight devices."""
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  changes = {'bert.width': 64, 'bert.ffn_width': 128, 'pretrain.optimizer': optimizer} | {
    f'mesh.{axis}': size for axis, size in mesh.items()
  }
  found = {part.what: part.size for part in memory_needs.parts(_settings(**changes))}
  return found["BERT with its optimiser's state"]


def test_state_that_is_split_takes_less(monkeypatch):
  """By the devices of fsdp and tensor, but for the parameters, whole for a step; those of data split none of it."""
  alone, fsdp = _of_state(monkeypatch), [_of_state(monkeypatch, fsdp=size) for size in (2, 4, 8)]
  assert alone == _of_state(monkeypatch, data=8) > fsdp[0] > fsdp[1] > fsdp[2]
  assert alone > _of_state(monkeypatch, tensor=2) > _of_state(monkeypatch, fsdp=2, tensor=2)
  # Seven numbers of a parameter, of which nearly all are split, and one whole.
  for size, found in zip((2, 4, 8), fsdp):
    assert found / alone == pytest.approx(1 / size + 1 / 7, abs=0.03)
  assert fsdp[0] < _of_state(monkeypatch, fsdp=2, optimizer='muon') < alone


def test_what_fits_or_cannot_be_known_is_not_refused(monkeypatch):
  for there in (8e9, None):
    monkeypatch.setattr(memory, 'available', lambda there=there: there)
    sweep.check(_settings())
  assert memory_needs.line(_settings()).startswith('memory: about ')


def test_the_host_says_what_it_has():
  """Linux does; elsewhere there is no estimate to compare with."""
  there = memory.available()
  assert there is None or 1e7 < there < 1e15


def test_runs_share_the_memory_of_the_host(monkeypatch):
  """Each may take its part of what there is, and is refused by a sentence that says of how many runs."""
  alone = memory.available()
  monkeypatch.setenv('HMM_JAX_RUNS', '9999')
  assert memory.available() < alone / 5000
  with pytest.raises(SettingsError, match='; valid is what fits the 0.0 GB of memory for each of 9999 runs: '):
    sweep.check(_settings())


@pytest.mark.parametrize('text', ['', '0', '-1', 'two', '1.5', ' 2', '10000', '٣'])
def test_the_number_of_runs_is_checked(monkeypatch, text):
  monkeypatch.setenv('HMM_JAX_RUNS', text)
  with pytest.raises(SettingsError, match=f'^HMM_JAX_RUNS is {text!r}; valid is a number of runs, 1 to 9999, as '):
    sweep.check(_settings())
