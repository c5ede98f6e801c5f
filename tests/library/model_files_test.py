"""Models and tuned prompts in folders: what comes back to the bit, and what is refused."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from bert_cases import random_params
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from saved_cases import BERT, edited, equal_bits, MODEL, PARAMS, TOKENS, WEIGHTS

import hmm_jax as hj
from hmm_jax.distributions.files import save_distribution
from hmm_jax.tuning.heads import OfficialAttention
from hmm_jax.tuning.tuner import Prompt, Tuner

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.fixture
def folder(tmp_path):
  """A folder with MODEL."""
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  return tmp_path / 'model'


@pytest.mark.parametrize('dtype', (jnp.float32, jnp.bfloat16))
@pytest.mark.parametrize(('num_layers', 'scan_layers'), ((1, False), (1, True), (3, True), (6, False)))
def test_a_model_comes_back_to_the_bit(num_layers, scan_layers, dtype, tmp_path):
  bert = BERT.clone(num_layers=num_layers, scan_layers=scan_layers, dtype=dtype)
  params = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), random_params(bert))
  hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=7)
  hj.save(tmp_path / 'model', hj.BertModel(bert), params, hmm, card='# mine')
  model, same, distribution = hj.load(tmp_path / 'model')
  assert model == hj.BertModel(bert) and equal_bits(params, same) and equal_bits(hmm, distribution)
  assert '# mine' in (tmp_path / 'model/README.md').read_text()


@pytest.mark.parametrize('causal', (False, True))
def test_an_exact_model_is_its_distribution(causal, tmp_path):
  memory = hj.random_memory_hmm(jax.random.key(0), memory_size=2, num_cells=2, num_states=4, num_tokens=4)
  hj.save(tmp_path / 'exact', hj.ExactModel(4, causal), memory)
  model, params, distribution = hj.load(tmp_path / 'exact')
  assert model == hj.ExactModel(4, causal) and equal_bits(memory, params) and distribution is params
  # A BERT in its place, of another process or none, is read as itself.
  hj.save(tmp_path / 'exact', MODEL, PARAMS, exist_ok=True)
  model, _, distribution = hj.load(tmp_path / 'exact')
  assert model == MODEL and distribution is None


@pytest.mark.parametrize(('dtype', 'is_possible'), [(np.float64, True), (np.float32, False)])
def test_a_number_below_the_normal_ones_of_float32_comes_back_as_what_it_is(dtype, is_possible, tmp_path):
  """In float32 inference reads it as 0, in float64 as itself."""
  hmm = hj.HMM(*(np.array(x, dtype) for x in ([1], [[1]], [[1, 2.0**-140]])))
  hj.save(tmp_path / 'exact', hj.ExactModel(2), hmm)
  for each in (hmm, hj.load(tmp_path / 'exact')[1]):
    loglik = hj.forward_backward(each, hj.token_likelihoods(each, [1], [True])).marginal_loglik
    assert np.isfinite(loglik) == is_possible


def tuned(head, prompt=None):
  """A `Tuned` of random numbers on the exact model."""
  hmm, tuner = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=7), Tuner(hj.ExactModel(7), head, prompt)
  parameters = {'head': head.init(jax.random.key(1), 7, prompt.length if prompt else 0, 5)}
  if prompt:
    parameters['prompt'] = prompt.init(jax.random.key(2), tuner.model, hmm)
  return hj.Tuned(jax.tree.map(lambda x: np.asarray(x)[None], parameters), 0.75, tuner, hmm)


@pytest.mark.parametrize('prompt', (None, Prompt(length=2, scale=0.5)))
@pytest.mark.parametrize('head', (hj.Linear(2), hj.Attention(2, 3, 4, temperature=1.0), OfficialAttention(2)))
def test_a_tuned_prompt_and_head_come_back_to_the_bit(head, prompt, tmp_path):
  before = tuned(head, prompt)
  before.save(tmp_path / 'tuned')
  after = hj.load_tuned(tmp_path / 'tuned')
  assert (after.tuner, after.accuracy) == (before.tuner, before.accuracy)
  assert equal_bits((before.trainable, before.params), (after.trainable, after.params))


def test_a_distribution_of_another_vocabulary_is_refused(folder):
  save_distribution(folder / 'distribution.json', hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=3))
  with pytest.raises(ValueError, match='num_tokens 7; valid is 3'):
    hj.load(folder)


def test_numbers_that_are_not_finite_are_not_saved(tmp_path):
  with pytest.raises(ValueError, match='output_bias'):
    hj.save(tmp_path / 'model', MODEL, PARAMS | {'output_bias': PARAMS['output_bias'] * np.nan})
  before = tuned(hj.Linear(2), Prompt(length=2, scale=0.5))
  before = dataclasses.replace(before, trainable=jax.tree.map(lambda x: x * np.inf, before.trainable))
  with pytest.raises(ValueError, match='head and prompt have an entry that is not finite'):
    before.save(tmp_path / 'tuned')
  assert not any(tmp_path.iterdir())


def test_bytes_in_the_other_order_are_saved_as_they_are_meant(tmp_path):
  hj.save(tmp_path / 'model', MODEL, jax.tree.map(lambda leaf: leaf.astype('>f4'), PARAMS))
  assert equal_bits(hj.load(tmp_path / 'model')[1], PARAMS)


def test_a_model_of_a_gpu_comes_back_for_this_machine(tmp_path):
  bert = BERT.clone(attention='cudnn', dtype=jnp.bfloat16)
  hj.save(tmp_path / 'model', hj.BertModel(bert), PARAMS)
  model, params, _ = hj.load(tmp_path / 'model')
  assert equal_bits(params, PARAMS) and hj.token_probs(model, params, TOKENS[:2]).shape == (2, 5, 7)


def test_files_are_utf_8_in_any_locale(tmp_path):
  """In the locale C, where Python's own default is ASCII."""
  code = f"""
import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parents[1])!r})
import hmm_jax as hj, pathlib
from library.model_files_test import MODEL, PARAMS
assert open({str(tmp_path / 'x')!r}, 'w').encoding.lower() != 'utf-8'
hj.save({str(tmp_path / 'model')!r}, MODEL, PARAMS, card='a dash \\u2014')
folder = pathlib.Path({str(tmp_path / 'model')!r})
(folder / 'tokenizer.json').unlink()
(folder / 'vocab.txt').write_bytes('\\u00e9\\n[MASK]'.encode())
hj.load(folder)
"""
  plain = {'LC_ALL': 'C', 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0'}
  done = subprocess.run([sys.executable, '-c', code], env=os.environ | plain, capture_output=True, text=True)
  assert not done.returncode, done.stderr
  assert '\u2014' in (tmp_path / 'model/README.md').read_text('utf-8')


@pytest.mark.parametrize('name', (WEIGHTS, 'config.json', 'tokenizer.json'))
def test_a_truncated_file_is_refused_by_its_path(name, folder):
  content = (folder / name).read_bytes()
  (folder / name).write_bytes(content[: len(content) // 2])
  with pytest.raises(ValueError, match=f'{name}.* cannot be read'):
    hj.load(folder)


def test_a_tuned_folder_with_a_field_that_is_gone_is_read(tmp_path):
  tuned(hj.Linear(2), None).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', fields={'num_classes': 2, 'token_classes': [], 'position': 0})
  assert hj.load_tuned(tmp_path / 'tuned').tuner.head == hj.Linear(2)


@pytest.mark.parametrize('content', ['{"causal": "no"}', '{}', 'garbage'])
def test_an_exact_model_says_itself_whether_it_is_causal(content, tmp_path):
  hj.save(
    tmp_path / 'exact', hj.ExactModel(4, causal=True), hj.random_hmm(jax.random.key(0), num_states=2, num_tokens=4)
  )
  (tmp_path / 'exact/causal.json').write_text(content)
  with pytest.raises(ValueError, match='causal'):
    hj.load(tmp_path / 'exact')


def test_a_prompt_lies_in_the_space_of_its_model(tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  path = tmp_path / 'tuned/adapter_model.safetensors'
  save_file({name: values - 2 for name, values in load_file(path).items()}, path)
  with pytest.raises(ValueError, match='the prompt has .*; valid is 0 to 1'):
    hj.load_tuned(tmp_path / 'tuned')


@pytest.mark.parametrize('number', [np.nan, 1e300])
@pytest.mark.parametrize('name', ['head', 'adapter_model'])
def test_a_tuned_folder_with_a_number_that_is_not_finite_is_refused(name, number, tmp_path):
  """Nor one that is infinite in float32, in which models compute."""
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  path = tmp_path / f'tuned/{name}.safetensors'
  save_file({name: np.full(values.shape, number) for name, values in load_file(path).items()}, path)
  with pytest.raises(ValueError, match='have an entry that is not finite') as refused:
    hj.load_tuned(tmp_path / 'tuned')
  assert 'head.json' not in str(refused.value)


def test_a_head_reads_no_position_outside_of_a_text_or_of_its_model(tmp_path):
  tuned(hj.Linear(2, position=7)).save(tmp_path / 'exact')
  with pytest.raises(ValueError, match='positions of the head contain 7; valid are integers from 0 to 4'):
    hj.load_tuned(tmp_path / 'exact').predict(TOKENS)
  tuner = Tuner(MODEL, hj.Linear(2, position=14))
  trainable = jax.tree.map(lambda x: np.asarray(x)[None], tuner.init(jax.random.key(0), PARAMS, TOKENS))
  hj.Tuned(trainable, 0.75, tuner, PARAMS).save(tmp_path / 'bert')
  with pytest.raises(ValueError, match='positions contain 14; valid are integers from 0 to 13'):
    hj.load_tuned(tmp_path / 'bert')


def test_a_folder_is_written_whole_or_not_at_all(folder):
  """A folder that is not empty, a model of one's own and parameters that do not fit leave nothing behind."""

  @dataclasses.dataclass(frozen=True)
  class Own(hj.MaskedLM):
    num_tokens: int

    def embed(self, params, tokens): ...

    def predict(self, params, embeddings, positions=None): ...

  before = sorted(folder.parent.iterdir())
  with pytest.raises(ValueError, match='exists; valid is a new or an empty folder'):
    hj.save(folder, MODEL, PARAMS)
  (folder / 'mine').touch()
  with pytest.raises(ValueError, match='exists; valid is a new or an empty folder'):
    hj.save(folder, MODEL, PARAMS, exist_ok=True)
  (folder / 'mine').unlink()
  with pytest.raises(ValueError, match='params are a NoneType; valid is a distribution'):
    hj.save(folder.parent / 'exact', hj.ExactModel(7), None)
  with pytest.raises(ValueError, match='model is a Own; valid are'):
    hj.save(folder.parent / 'own', Own(7), ())
  integers = jax.tree.map(lambda leaf: leaf.astype(int), PARAMS)
  for params, model in ((PARAMS, hj.BertModel(BERT.clone(width=24))), ({'params': PARAMS}, MODEL), (integers, MODEL)):
    with pytest.raises(ValueError, match='params|embedding|layers_0|output_bias'):
      hj.save(folder.parent / 'other', model, params)
  with pytest.raises(FileNotFoundError, match='gone'):
    hj.load(folder.parent / 'gone')
  assert sorted(folder.parent.iterdir()) == before


def test_a_lost_config_makes_no_exact_model(tmp_path):
  hj.save(tmp_path / 'model', MODEL, PARAMS, hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=7))
  (tmp_path / 'model/config.json').unlink()
  with pytest.raises(FileNotFoundError, match='config.json'):
    hj.load(tmp_path / 'model')


def test_a_link_leads_to_its_folder_and_all_may_read_the_files(tmp_path):
  (tmp_path / 'real').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'real')
  hj.save(tmp_path / 'link', MODEL, PARAMS)
  assert (tmp_path / 'link').is_symlink()
  modes = {path.stat().st_mode for path in (tmp_path / 'real').iterdir()}
  assert len(modes) == 1


@pytest.mark.parametrize('place', (0, 1))
def test_only_a_prefix_on_a_masked_bert_is_an_adapter(place, tmp_path):
  tuner = Tuner(MODEL, hj.Linear(2), Prompt(length=2, scale=0.5, place=place))
  trainable = jax.tree.map(lambda x: np.asarray(x)[None], tuner.init(jax.random.key(0), PARAMS, TOKENS))
  hj.Tuned(trainable, 0.75, tuner, PARAMS).save(tmp_path / 'tuned')
  path = tmp_path / 'tuned/adapter_config.json'
  assert path.exists() == (place == 0)
  if place == 0:
    config, rows = json.loads(path.read_text()), load_file(tmp_path / 'tuned/adapter_model.safetensors')
    assert (config['peft_type'], config['task_type']) == ('PROMPT_TUNING', 'FEATURE_EXTRACTION')
    assert config['num_virtual_tokens'] == 2 and config['base_model_name_or_path'] == 'model'
    np.testing.assert_array_equal(rows['prompt_embeddings'], trainable['prompt'][0])


def test_a_probe_is_not_saved(tmp_path):
  with pytest.raises(ValueError, match='^the tuner '):
    hj.Tuned({'head': {}}, 0.75, Tuner(MODEL, hj.Linear(2), probes=True), PARAMS).save(tmp_path / 'tuned')
  assert not (tmp_path / 'tuned').exists()


@pytest.mark.parametrize(
  'change',
  (
    {'head': 'Cubic'},
    {'fields': {'classes': 2}},
    {'fields': {'num_classes': 9}},
    {'fields': {'num_classes': 2, 'position': {}}},
    {'head': 'Attention', 'fields': {'num_classes': 2, 'reads_tokens': 'no'}},
    {'prompt': {'length': 3, 'scale': 0.5, 'place': 0}},
    {'prompt': {'length': 2, 'scale': 'half'}},
    {'prompt': False},
    {'hidden': 5},
    {'hidden': -3},
    {'accuracy': 1.5},
  ),
)
def test_a_head_and_a_prompt_that_do_not_fit_are_refused(change, tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', **change)
  with pytest.raises(ValueError, match='cannot be read'):
    hj.load_tuned(tmp_path / 'tuned')
