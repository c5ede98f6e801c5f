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
  _, params, _ = hj.load(folder)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), params, PARAMS)


@pytest.mark.parametrize(
  'change',
  [
    lambda state: state.update({f'{DECODER}weight': state[WORDS]}),
    lambda state: state.update({'bert.embeddings.position_ids': np.arange(14)[None]}),
  ],
)
def test_arrays_of_other_versions_are_the_same_model(change, folder):
  rewritten(folder, change)
  assert equal_bits(hj.load(folder)[1], PARAMS)


@pytest.mark.parametrize(
  ('file', 'content'),
  [
    ('tokenizer_config.json', {'mask_token': {'content': '<mask>'}}),
    ('tokenizer.json', {'added_tokens': [{'id': 3, 'content': '[MASK]'}]}),
    ('tokenizer.json', {'model': {'vocab': {'[MASK]': 3}}}),
  ],
)
def test_a_mask_is_found_by_its_tokenizer(file, content, folder):
  """A file names it, or has its id, as transformers has it."""
  expected = params_of(BERT, load_file(folder / WEIGHTS), 3)
  (folder / 'tokenizer_config.json').unlink()
  (folder / 'tokenizer.json').write_text(json.dumps({'model': {'vocab': {'<mask>': 3, '[MASK]': 4}}}))
  (folder / file).write_text(json.dumps(content))
  assert equal_bits(hj.load(folder)[1], expected)


def test_a_vocabulary_without_its_tokenizer_is_refused(folder):
  """[MASK] may be any of its words."""
  (folder / 'tokenizer.json').rename(folder / 'vocab.txt')
  with pytest.raises(ValueError, match='vocab.txt.*valid is tokenizer.json'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('name', 'change'),
  [
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
