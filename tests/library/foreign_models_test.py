"""Folders that were written elsewhere: read as transformers reads them, or refused."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from saved_cases import BERT, edited, equal_bits, MODEL, PARAMS, WEIGHTS

import hmm_jax as hj
from hmm_jax.files.hugging_face import params_of

WORDS = 'bert.embeddings.word_embeddings.weight'
TYPES = 'bert.embeddings.token_type_embeddings.weight'
QUERY, KEY = (f'bert.encoder.layer.0.attention.self.{name}.weight' for name in ('query', 'key'))
BIAS, DECODER = 'cls.predictions.bias', 'cls.predictions.decoder.'


@pytest.fixture
def folder(tmp_path):
  """A folder with MODEL."""
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  return tmp_path / 'model'


def rewritten(folder, change):
  """Change the arrays of a folder, a dict."""
  state = load_file(folder / WEIGHTS)
  change(state)
  save_file(state, folder / WEIGHTS)


def test_a_mask_elsewhere_and_token_types_are_folded_in(folder):
  """[MASK] with id 2 moves to the end with its output, and the first token type is part of every position."""
  state, types = load_file(folder / WEIGHTS), np.full((2, 12), [[0.25], [9]], np.float32)
  order = [0, 1, 7, 2, 3, 4, 5, 6]
  for name in (WORDS, BIAS):
    state[name] = state[name][order]
  state['bert.embeddings.position_embeddings.weight'] -= types[0]
  extra = {'bert.pooler.dense.weight': types, f'{DECODER}bias': state[BIAS], TYPES: types}
  save_file(state | extra, folder / WEIGHTS)
  edited(folder / 'tokenizer.json', added_tokens=[{'id': 2, 'content': '[MASK]'}], model={'vocab': {}})
  edited(folder / 'config.json', type_vocab_size=2)
  _, params, _ = hj.load(folder)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), params, PARAMS)


def in_former_names(state):
  for name in [name for name in state if 'LayerNorm' in name]:
    former = name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')
    state[former] = state.pop(name)


def with_twins_alone(state):
  state[f'{DECODER}weight'], state[f'{DECODER}bias'] = state.pop(WORDS), state.pop(BIAS)


@pytest.mark.parametrize(
  'change',
  [
    in_former_names,
    with_twins_alone,
    lambda state: state.update({f'{DECODER}weight': state[WORDS]}),
    lambda state: state.update({'bert.embeddings.position_ids': np.arange(14)[None]}),
  ],
)
def test_arrays_of_other_versions_are_the_same_model(change, folder):
  rewritten(folder, change)
  assert equal_bits(hj.load(folder)[1], PARAMS)


def test_shards_are_one_model_and_stay_inside_of_their_folder(folder):
  state, index = load_file(folder / WEIGHTS), folder / f'{WEIGHTS}.index.json'
  (folder / WEIGHTS).unlink()
  save_file({WORDS: state.pop(WORDS)}, folder / 'words.safetensors')
  save_file(state, folder / 'others.safetensors')
  files = dict.fromkeys(state, 'others.safetensors') | {WORDS: 'words.safetensors'}
  index.write_text(json.dumps({'weight_map': files}))
  assert equal_bits(hj.load(folder)[1], PARAMS)
  index.write_text(json.dumps({'weight_map': files | {WORDS: '../words.safetensors'}}))
  with pytest.raises(ValueError, match='is not beside it'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('file', 'content'),
  [
    ('tokenizer_config.json', {'mask_token': {'content': '<mask>'}}),
    ('special_tokens_map.json', {'mask_token': '<mask>'}),
    ('added_tokens.json', {'[MASK]': 3}),
    ('tokenizer_config.json', {'added_tokens_decoder': {'3': {'content': '[MASK]'}}}),
    ('tokenizer.json', {'added_tokens': [{'id': 3, 'content': '[MASK]'}]}),
    ('tokenizer.json', {'model': {'vocab': {'[MASK]': 3}}}),
    ('vocab.txt', 'a\u2028b\n\x85\nc\n[MASK]\nd'),
    ('vocab.txt', '\u00e9\r\nb\r\nc\r\n[MASK]\r\nd'),
  ],
)
def test_a_mask_is_found_in_every_file_of_a_tokenizer(file, content, folder):
  """Each names it, or has its id, as transformers has it. A newline alone ends a token of a vocabulary."""
  expected = params_of(BERT, load_file(folder / WEIGHTS), 3)
  (folder / 'tokenizer.json').unlink()
  (folder / 'tokenizer_config.json').unlink()
  if file != 'tokenizer.json':
    (folder / 'vocab.txt').write_text('a\nb\nc\n<mask>\n[MASK]' if 'mask_token' in content else 'a\nb\nc')
  (folder / file).write_bytes((content if file == 'vocab.txt' else json.dumps(content)).encode())
  assert equal_bits(hj.load(folder)[1], expected)


@pytest.mark.parametrize(
  ('name', 'change'),
  [
    (f'{DECODER}weight', lambda state: state[WORDS] + 1),
    (TYPES, lambda state: np.zeros(12, np.float32)),
    (QUERY, lambda state: state[QUERY] * np.nan),
    ('bert.unknown', lambda state: np.zeros(1, np.float32)),
  ],
)
def test_arrays_that_the_config_does_not_describe_are_refused(name, change, folder):
  rewritten(folder, lambda state: state.update({name: change(state)}))
  with pytest.raises(ValueError, match='model.safetensors'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('file', 'fields', 'says'),
  [
    ('config', {'architectures': ['GPT2LMHeadModel']}, '^architectures'),
    ('config', {'hidden_act': 'relu'}, '^hidden_act'),
    ('config', {'hmm_jax': {'dtype': 'int8'}}, '^hmm_jax'),
    # An architecture of other arrays is refused before it is built.
    ('config', {'num_hidden_layers': 10**30}, 'config.json'),
    ('tokenizer', {'added_tokens': None, 'model': {'vocab': {}}}, r'\[MASK\]'),
    ('tokenizer', {'added_tokens': [{'content': ['[MASK]'], 'id': 7}]}, 'tokenizer.json'),
  ],
)
def test_another_architecture_or_vocabulary_is_refused_by_its_field_or_file(file, fields, says, folder):
  edited(folder / f'{file}.json', **fields)
  with pytest.raises(ValueError, match=says):
    hj.load(folder)
