"""Models and tuned prompts in folders: what comes back to the bit, and what is refused."""

import pathlib

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


def test_a_tuned_folder_with_a_field_that_is_gone_is_read(tmp_path):
  tuned(hj.Linear(2), None).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', fields={'num_classes': 2, 'token_classes': [], 'position': 0})
  assert hj.load_tuned(tmp_path / 'tuned').tuner.head == hj.Linear(2)


def test_a_model_of_a_gpu_comes_back_for_this_machine(tmp_path):
  hj.save(tmp_path / 'model', hj.BertModel(BERT.clone(attention='cudnn')), PARAMS)
  model, params, _ = hj.load(tmp_path / 'model')
  assert hj.token_probs(model, params, TOKENS[:2]).shape == (2, 5, 7)


HMM = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=7)


def half(path):
  path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize(
  ('name', 'damage', 'says'),
  [
    *((name, half, 'cannot be read') for name in (WEIGHTS, 'config.json', 'tokenizer.json')),
    ('config.json', pathlib.Path.unlink, 'config.json'),
    ('distribution.json', lambda path: save_distribution(path, hj.random_hmm(0, 3, 3)), 'num_tokens 7; valid is 3'),
  ],
)
def test_a_damaged_model_is_refused_by_the_file(name, damage, says, tmp_path):
  """A lost config makes no exact model of a BERT."""
  hj.save(tmp_path / 'model', MODEL, PARAMS, HMM)
  damage(tmp_path / 'model' / name)
  with pytest.raises((ValueError, FileNotFoundError), match=says):
    hj.load(tmp_path / 'model')


def test_an_exact_model_says_itself_whether_it_is_causal(tmp_path):
  hj.save(tmp_path / 'exact', hj.ExactModel(7, causal=True), HMM)
  (tmp_path / 'exact/causal.json').write_text('{"causal": "no"}')
  with pytest.raises(ValueError, match='causal'):
    hj.load(tmp_path / 'exact')


@pytest.mark.parametrize(
  ('file', 'change', 'says'),
  [
    ('head', lambda x: x * np.nan, 'not finite'),
    # Infinite in float32, in which models compute.
    ('adapter_model', lambda x: np.full(x.shape, 1e300), 'not finite'),
    ('adapter_model', lambda x: x - 2, 'the prompt has .*; valid is 0 to 1'),
  ],
)
def test_numbers_outside_of_their_space_are_refused(file, change, says, tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  path = tmp_path / f'tuned/{file}.safetensors'
  save_file({name: change(values) for name, values in load_file(path).items()}, path)
  with pytest.raises(ValueError, match=says):
    hj.load_tuned(tmp_path / 'tuned')


@pytest.mark.parametrize(
  'change',
  (
    {'head': 'Cubic'},
    {'fields': {'classes': 2}},
    {'fields': {'num_classes': 9}},
    {'fields': {'num_classes': 2, 'position': {}}},
    {'prompt': {'length': 3, 'scale': 0.5, 'place': 0}},
    {'prompt': False},
    {'hidden': 5},
    {'accuracy': 1.5},
  ),
)
def test_a_head_and_a_prompt_that_do_not_fit_are_refused(change, tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', **change)
  with pytest.raises(ValueError, match='cannot be read'):
    hj.load_tuned(tmp_path / 'tuned')


def test_a_folder_that_holds_something_else_is_not_written_to(tmp_path):
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  for name, options in (('config.json', {}), ('mine', {'exist_ok': True})):
    (tmp_path / 'model' / name).touch()
    with pytest.raises(ValueError, match='exists; valid is a new or an empty folder'):
      hj.save(tmp_path / 'model', MODEL, PARAMS, **options)


@pytest.mark.parametrize(
  ('name', 'model', 'params'),
  [
    ('params are a NoneType', hj.ExactModel(7), None),
    ('model is a Tuner', Tuner(MODEL, hj.Linear(2)), ()),
    ('params|embedding', hj.BertModel(BERT.clone(width=24)), PARAMS),
    ('embedding_norm', MODEL, {'params': PARAMS}),
    ('output_bias', MODEL, PARAMS | {'output_bias': PARAMS['output_bias'] * np.nan}),
  ],
)
def test_what_cannot_be_saved_leaves_nothing(name, model, params, tmp_path):
  with pytest.raises(ValueError, match=name):
    hj.save(tmp_path / 'model', model, params)
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize('place', (0, 1))
def test_only_a_prefix_on_a_masked_bert_is_an_adapter(place, tmp_path):
  tuner = Tuner(MODEL, hj.Linear(2), Prompt(length=2, scale=0.5, place=place))
  trainable = jax.tree.map(lambda x: np.asarray(x)[None], tuner.init(jax.random.key(0), PARAMS, TOKENS))
  hj.Tuned(trainable, 0.75, tuner, PARAMS).save(tmp_path / 'tuned')
  assert (tmp_path / 'tuned/adapter_config.json').exists() == (place == 0)
  rows = load_file(tmp_path / 'tuned/adapter_model.safetensors')
  np.testing.assert_array_equal(rows['prompt_embeddings'], trainable['prompt'][0])
