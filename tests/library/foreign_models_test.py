"""Folders that were written elsewhere: read as transformers reads them, or refused."""

import json
import os

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from saved_cases import BERT, edited, equal_bits, MODEL, PARAMS, TOKENS, WEIGHTS

import hmm_jax as hj
from hmm_jax.files.hugging_face import params_of

pytestmark = pytest.mark.usefixtures('without_optimisation')

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
  for name in ('bert.embeddings.word_embeddings.weight', 'cls.predictions.bias'):
    state[name] = state[name][order]
  state['bert.embeddings.position_embeddings.weight'] -= types[0]
  extra = {'bert.pooler.dense.weight': types, 'cls.predictions.decoder.bias': state['cls.predictions.bias']}
  save_file(state | extra | {'bert.embeddings.token_type_embeddings.weight': types}, folder / WEIGHTS)
  edited(folder / 'tokenizer.json', added_tokens=[{'id': 2, 'content': '[MASK]'}], model={'vocab': {}})
  edited(folder / 'config.json', type_vocab_size=2)
  _, params, _ = hj.load(folder)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), params, PARAMS)
  (folder / 'tokenizer.json').unlink()
  (folder / 'vocab.txt').write_text('\n'.join('01[23456').replace('[', '[MASK]'))
  assert equal_bits(hj.load(folder)[1], params)


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
  files = {name: f'model-{number % 2}.safetensors' for number, name in enumerate(state)}
  for file in set(files.values()):
    save_file({name: values for name, values in state.items() if files[name] == file}, folder / file)
  (folder / WEIGHTS).unlink()
  index.write_text(json.dumps({'weight_map': files}))
  assert equal_bits(hj.load(folder)[1], PARAMS)
  for elsewhere in '../model-0.safetensors', '..':
    index.write_text(json.dumps({'weight_map': files | {WORDS: elsewhere}}))
    with pytest.raises(ValueError, match='is not beside it'):
      hj.load(folder)
  index.unlink()
  (folder / 'pytorch_model.bin').write_bytes(b'')
  with pytest.raises(ValueError, match='pytorch_model.bin'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('name', 'change'),
  [
    (f'{DECODER}weight', lambda state: state[WORDS] + 1),
    (f'{DECODER}bias', lambda state: state[BIAS] + 1),
    (TYPES, lambda state: np.zeros(12, np.float32)),
    (TYPES, lambda state: np.zeros((1, 1), np.float32)),
    (TYPES, None),
    (QUERY, lambda state: state.update({KEY: np.ones((10, 12), np.float32)}) or np.ones((14, 12), np.float32)),
    (QUERY, lambda state: state[QUERY] * np.nan),
    (BIAS, lambda state: np.arange(8)),
    (BIAS, lambda state: state[BIAS].astype(np.int32)),
    ('bert.unknown', lambda state: np.zeros(1, np.float32)),
  ],
)
def test_arrays_that_the_config_does_not_describe_are_refused(name, change, folder):
  rewritten(folder, lambda state: state.update({name: change(state)}) if change else state.pop(name))
  with pytest.raises(ValueError, match='model.safetensors'):
    hj.load(folder)


@pytest.mark.parametrize(
  'fields',
  (
    {'architectures': ['GPT2LMHeadModel']},
    # As the settings of a run, of the same name.
    {'architectures': None, 'num_hidden_layers': None},
    {'hidden_act': 'relu'},
    {'hidden_size': '12'},
    {'hidden_size': 13},
    {'type_vocab_size': '2'},
    {'num_hidden_layers': True},
    {'model_type': 'roberta'},
    {'attention_probs_dropout_prob': 0.5},
    {'hmm_jax': {'dtype': 'int8'}},
    {'hmm_jax': {'dtype': 'float32', 'attention': 'flash', 'scan_layers': False}},
  ),
)
def test_another_architecture_is_refused_by_its_first_field(fields, folder):
  edited(folder / 'config.json', **fields)
  with pytest.raises(ValueError, match=f'^{[*fields][0]} of config.json'):
    hj.load(folder)


@pytest.mark.parametrize('fields', [{'hidden_size': 24}, *({'num_hidden_layers': n} for n in (1, 3, 10**9, 10**30))])
def test_arrays_of_another_architecture_are_refused_before_it_is_built(fields, folder):
  edited(folder / 'config.json', **fields)
  with pytest.raises(ValueError, match='config.json'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('content', 'number'),
  [
    ('a\u2028b\n\x85\n[MASK]\nc', 2),
    ('a\x0cb\rc\n[MASK]\nc', 1),
    ('\u00e9\u2014\r\n[MASK]\r\nc', 1),
    ('[MASK]\na\n[MASK]', 2),
  ],
)
def test_a_newline_alone_ends_a_token_of_a_vocabulary(content, number, folder):
  expected = params_of(BERT, load_file(folder / WEIGHTS), number)
  (folder / 'tokenizer.json').unlink()
  (folder / 'vocab.txt').write_bytes(content.encode())
  assert equal_bits(hj.load(folder)[1], expected)


def test_what_is_no_vocabulary_is_refused_and_a_pipe_does_not_wait(folder):
  edited(folder / 'tokenizer.json', added_tokens=[{'content': ['[MASK]'], 'id': 7}])
  with pytest.raises(ValueError, match='tokenizer.json'):
    hj.load(folder)
  (folder / 'tokenizer.json').unlink()
  (folder / 'vocab.txt').write_bytes('\u00e9\n[MASK]'.encode('latin-1'))
  with pytest.raises(ValueError, match='vocab.txt'):
    hj.load(folder)
  (folder / 'vocab.txt').unlink()
  os.mkfifo(folder / 'vocab.txt')
  with pytest.raises(ValueError, match='vocab.txt'):
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
  ],
)
def test_a_mask_is_found_in_every_file_of_a_tokenizer(file, content, folder):
  """Each names it, or has its id, as transformers has it."""
  expected = params_of(BERT, load_file(folder / WEIGHTS), 3)
  (folder / 'tokenizer.json').unlink()
  (folder / 'tokenizer_config.json').unlink()
  if file != 'tokenizer.json':
    (folder / 'vocab.txt').write_text('a\nb\nc\n<mask>\n[MASK]' if 'mask_token' in content else 'a\nb\nc')
  (folder / file).write_text(json.dumps(content))
  assert equal_bits(hj.load(folder)[1], expected)


@pytest.mark.parametrize('added', (None, [{'id': True, 'content': '[MASK]'}], [{'id': 8, 'content': '[MASK]'}]))
def test_a_tokenizer_without_a_mask_is_refused(added, folder):
  edited(folder / 'tokenizer.json', added_tokens=added, model={'vocab': {}})
  with pytest.raises(ValueError, match=r'\[MASK\]'):
    hj.load(folder)


def test_token_types_are_added_in_float32(folder):
  """Where arrays are of half precision: their sum would round more than either."""
  rewritten(folder, lambda state: state.update({TYPES: np.full((1, 12), 1 / 3)}))
  rewritten(folder, lambda state: state.update({name: values.astype(np.float16) for name, values in state.items()}))
  state = load_file(folder / WEIGHTS)
  positions, types = state['bert.embeddings.position_embeddings.weight'], state[TYPES]
  found = hj.load(folder)[1]['position_embedding']
  np.testing.assert_array_equal(found, np.float32(positions) + np.float32(types))


@pytest.mark.parity
def test_a_torch_module_tunes_as_the_model_that_it_holds(folder):
  """A BERT in transformers gives our predictions, and slopes in a prompt, of a batch and under vmap."""
  transformers = pytest.importorskip('transformers', reason="needs transformers: pip install -e '.[parity]'")
  torch_model = hj.from_torch(transformers.AutoModelForMaskedLM.from_pretrained(folder), 7)

  def total(model, params, prompts):
    probs = model.predict_prompted(params, prompts, TOKENS[:4], np.array([2]))
    return (probs**3).sum()

  prompts = np.random.default_rng(1).normal(size=(3, 2, 12)).astype(np.float32)
  ours = jax.value_and_grad(total, argnums=2)(MODEL, PARAMS, prompts)
  theirs = jax.jit(jax.value_and_grad(total, argnums=2), static_argnums=0)(torch_model, (), prompts)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5, rtol=1e-4), ours, theirs)
  by_vmap = jax.vmap(lambda prompt: jax.grad(total, argnums=2)(torch_model, (), prompt[None])[0])(prompts)
  np.testing.assert_allclose(by_vmap, theirs[1], atol=1e-6)


@pytest.mark.parity
def test_transformers_opens_a_model_and_its_tokenizer(folder):
  transformers = pytest.importorskip('transformers', reason="needs transformers: pip install -e '.[parity]'")
  model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  texts = [' '.join('[MASK]' if token == 7 else str(token) for token in row) for row in TOKENS]
  encoded = tokenizer(texts, return_tensors='pt')
  assert encoded['input_ids'].tolist() == TOKENS.tolist()
  # TransformerLens tries this word.
  assert tokenizer.encode('a') == [7]
  probs = model(**encoded).logits[..., :7].softmax(-1).detach().numpy()
  np.testing.assert_allclose(probs, hj.token_probs(MODEL, PARAMS, TOKENS), atol=2e-6)
