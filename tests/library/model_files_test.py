"""Models and tuned prompts in folders: what comes back, what is refused, and what Hugging Face and PEFT open."""

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

import hmm_jax as hj
from hmm_jax.distributions.files import save_distribution
from hmm_jax.files.hugging_face import params_of
from hmm_jax.tuning.heads import OfficialAttention
from hmm_jax.tuning.tuner import Prompt, Tuner

pytestmark = pytest.mark.usefixtures('without_optimisation')

BERT = hj.Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=14, dropout_rate=0.1)
MODEL, PARAMS = hj.BertModel(BERT), random_params(BERT)
TOKENS = np.random.default_rng(0).integers(0, 7, (100, 5))
TOKENS[:, 0] = 7
WEIGHTS = 'model.safetensors'


@pytest.fixture
def folder(tmp_path):
  """A folder with MODEL."""
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  return tmp_path / 'model'


def equal_bits(ours, theirs):
  same = lambda x, y: x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()
  return jax.tree.all(jax.tree.map(same, ours, theirs))


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


def rewritten(folder, change):
  """Change the arrays of a folder, a dict."""
  state = load_file(folder / WEIGHTS)
  change(state)
  save_file(state, folder / WEIGHTS)


WORD_ROWS, DECODER = 'bert.embeddings.word_embeddings.weight', 'cls.predictions.decoder.'
TYPES, QUERY = 'bert.embeddings.token_type_embeddings.weight', 'bert.encoder.layer.0.attention.self.query.weight'
KEY = QUERY.replace('query', 'key')


def in_former_names(state):
  for name in [name for name in state if 'LayerNorm' in name]:
    state[name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')] = state.pop(
      name
    )


def with_twins_alone(state):
  state[f'{DECODER}weight'], state[f'{DECODER}bias'] = state.pop(WORD_ROWS), state.pop('cls.predictions.bias')


@pytest.mark.parametrize(
  'change',
  [
    in_former_names,
    with_twins_alone,
    lambda state: state.update({f'{DECODER}weight': state[WORD_ROWS]}),
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
  index.write_text(json.dumps({'weight_map': files | {WORD_ROWS: '../model-0.safetensors'}}))
  with pytest.raises(ValueError, match='is not beside it'):
    hj.load(folder)
  index.unlink()
  (folder / 'pytorch_model.bin').write_bytes(b'')
  with pytest.raises(ValueError, match='pytorch_model.bin. is pickled, .*; valid is model.safetensors'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('change', 'sentence'),
  [
    (lambda state: state.update({f'{DECODER}weight': state[WORD_ROWS] + 1}), 'decoder.weight .*tied and differ'),
    (lambda state: state.update({f'{DECODER}bias': state['cls.predictions.bias'] + 1}), 'bias .*tied and differ'),
    (lambda state: state.update({TYPES: np.zeros(12, np.float32)}), r'token_type.* shape \(12,\), .* \(1, 12\)'),
    (
      lambda state: state.update({TYPES: np.zeros((1, 1), np.float32)}),
      r'token_type.* shape \(1, 1\), .* \(1, 12',
    ),
    (lambda state: state.pop(TYPES), 'token_type_embeddings.weight is missing'),
    (
      lambda state: state.update({QUERY: np.ones((14, 12), np.float32), KEY: np.ones((10, 12), np.float32)}),
      r'has shape \(1[04], 12\), .* \(12, 12\)',
    ),
    (lambda state: state.update({QUERY: state[QUERY] * np.nan}), 'query.weight have an entry that is not finite'),
    (lambda state: state.update({'cls.predictions.bias': np.arange(8)}), 'cls.predictions.bias is of type int64'),
  ],
)
def test_arrays_that_the_config_does_not_describe_are_refused(change, sentence, folder):
  rewritten(folder, change)
  with pytest.raises(ValueError, match=sentence):
    hj.load(folder)


@pytest.mark.parametrize('layers', [10**9, 10**30])
def test_no_layer_is_built_before_the_config_is_compared(layers, folder):
  edited(folder / 'config.json', num_hidden_layers=layers)
  with pytest.raises(ValueError, match='layer.2.* is missing|num_hidden_layers of config.json is 1'):
    hj.load(folder)


def test_a_distribution_of_another_vocabulary_is_refused(folder):
  save_distribution(folder / 'distribution.json', hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=3))
  with pytest.raises(ValueError, match='num_tokens 7; valid is 3'):
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
  with pytest.raises(ValueError, match='tokenizer.json. cannot be read'):
    hj.load(folder)
  (folder / 'tokenizer.json').unlink()
  (folder / 'vocab.txt').write_bytes('\u00e9\n[MASK]'.encode('latin-1'))
  with pytest.raises(ValueError, match='vocab.txt. cannot be read .*; valid is a file of UTF-8 text'):
    hj.load(folder)
  (folder / 'vocab.txt').unlink()
  os.mkfifo(folder / 'vocab.txt')
  with pytest.raises(ValueError, match='vocab.txt. cannot be read .it is a pipe'):
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


def test_numbers_that_are_not_finite_are_not_saved(tmp_path):
  with pytest.raises(ValueError, match='params have an entry that is not finite'):
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


def edited(path, **fields):
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
  ('fields', 'sentence'),
  (
    ({'architectures': ['GPT2LMHeadModel']}, r"architectures .*'GPT2LMHeadModel'.*; valid is \['BertForMaskedLM'\]"),
    # As the settings of a run, of the same name.
    ({'architectures': None, 'num_hidden_layers': None}, r'architectures of config.json is None; valid is'),
    ({'hidden_act': 'relu'}, "hidden_act of config.json is 'relu'; valid is 'gelu'"),
    ({'hidden_size': '12'}, "hidden_size of config.json is '12'; valid is a positive integer"),
    ({'num_hidden_layers': True}, 'num_hidden_layers of config.json is True; valid is a positive integer'),
    ({'model_type': 'roberta'}, "model_type of config.json is 'roberta'; valid is 'bert'"),
    ({'hidden_size': 24}, 'has shape .*; valid is the arrays'),
    ({'hidden_size': 13}, 'hidden_size of config.json is 13; valid are multiples of 3 heads'),
    ({'attention_probs_dropout_prob': 0.5}, 'attention_probs_dropout_prob of config.json is 0.5; valid is 0.1'),
    ({'num_hidden_layers': 1}, 'unknown are bert.encoder.layer.1'),
    ({'num_hidden_layers': 3}, 'safetensors.* cannot be read .*bert.encoder.layer.2'),
    ({'hmm_jax': {'dtype': 'int8'}}, 'hmm_jax of config.json'),
    ({'hmm_jax': {'dtype': 'float32', 'attention': 'flash', 'scan_layers': False}}, 'hmm_jax of config.json'),
  ),
)
def test_another_architecture_is_refused_by_its_field(fields, sentence, folder):
  edited(folder / 'config.json', **fields)
  with pytest.raises(ValueError, match=sentence):
    hj.load(folder)


@pytest.mark.parametrize('added', (None, [{'id': True, 'content': '[MASK]'}], [{'id': 8, 'content': '[MASK]'}]))
def test_a_tokenizer_without_a_mask_is_refused(added, folder):
  edited(folder / 'tokenizer.json', added_tokens=added, model={'vocab': {}})
  with pytest.raises(ValueError, match='in the tokenizer of .*; valid are 0 to 7'):
    hj.load(folder)


@pytest.mark.parametrize('name', (WEIGHTS, 'config.json', 'tokenizer.json'))
def test_a_truncated_file_is_refused_by_its_path(name, folder):
  content = (folder / name).read_bytes()
  (folder / name).write_bytes(content[: len(content) // 2])
  with pytest.raises(ValueError, match=f'{name}.* cannot be read'):
    hj.load(folder)


@pytest.mark.parametrize(
  ('change', 'sentence'),
  (
    ({'head': 'Cubic'}, 'Cubic'),
    ({'fields': {'classes': 2}}, 'classes'),
    ({'fields': {'num_classes': 9}}, r'head.json.*head.weights has shape \(7, 2\), .* \(7, 9\)'),
    ({'prompt': {'length': 3, 'scale': 0.5, 'place': 0}}, r'prompt has shape \(2, 3\), .* \(3, 3\)'),
    ({'hidden': 5}, 'hidden is 5'),
    ({'hidden': -3}, 'hidden is -3'),
    ({'accuracy': 1.5}, 'accuracy is 1.5'),
  ),
)
def test_a_head_and_a_prompt_that_do_not_fit_are_refused(change, sentence, tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', **change)
  with pytest.raises(ValueError, match=sentence):
    hj.load_tuned(tmp_path / 'tuned')


@pytest.mark.parametrize('change', [{'prompt': False}, {'fields': {'num_classes': 2, 'position': {}}}])
def test_a_field_of_another_type_is_refused(change, tmp_path):
  tuned(hj.Linear(2)).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', **change)
  with pytest.raises(ValueError, match='head.json. cannot be read'):
    hj.load_tuned(tmp_path / 'tuned')


def test_token_types_are_added_in_float32(folder):
  """Where arrays are of half precision: their sum would round more than either."""
  rewritten(folder, lambda state: state.update({TYPES: np.full((1, 12), 1 / 3)}))
  rewritten(folder, lambda state: state.update({name: values.astype(np.float16) for name, values in state.items()}))
  state = load_file(folder / WEIGHTS)
  positions, types = state['bert.embeddings.position_embeddings.weight'], state[TYPES]
  found = hj.load(folder)[1]['position_embedding']
  np.testing.assert_array_equal(found, np.float32(positions) + np.float32(types))


def test_a_tuned_folder_with_a_field_that_is_gone_is_read(tmp_path):
  tuned(hj.Linear(2), None).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', fields={'num_classes': 2, 'token_classes': [], 'position': 0})
  assert hj.load_tuned(tmp_path / 'tuned').tuner.head == hj.Linear(2)


@pytest.mark.parametrize('name', ['head', 'adapter_model'])
def test_a_tuned_folder_with_a_number_that_is_not_finite_is_refused(name, tmp_path):
  tuned(hj.Linear(2), Prompt(length=2, scale=0.5)).save(tmp_path / 'tuned')
  path = tmp_path / f'tuned/{name}.safetensors'
  save_file({name: values * np.nan for name, values in load_file(path).items()}, path)
  with pytest.raises(ValueError, match='have an entry that is not finite'):
    hj.load_tuned(tmp_path / 'tuned')


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
  with pytest.raises(ValueError, match='params are a NoneType; valid is a distribution'):
    hj.save(folder.parent / 'exact', hj.ExactModel(7), None)
  with pytest.raises(ValueError, match='model is a Own; valid are'):
    hj.save(folder.parent / 'own', Own(7), ())
  integers = jax.tree.map(lambda leaf: leaf.astype(int), PARAMS)
  for params, model in ((PARAMS, hj.BertModel(BERT.clone(width=24))), ({'params': PARAMS}, MODEL), (integers, MODEL)):
    with pytest.raises(ValueError, match='^params '):
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


def test_arrays_of_integers_are_refused(folder):
  state = load_file(folder / WEIGHTS)
  save_file(state | {name: state[name].astype(np.int32) for name in ['cls.predictions.bias']}, folder / WEIGHTS)
  with pytest.raises(ValueError, match="safetensors' cannot be read .'I32'.; valid is an intact file of F64, F32, F16"):
    hj.load(folder)


def test_a_transposed_kernel_is_written_in_the_order_of_its_rows(folder):
  kernel = PARAMS['layers_0']['ffn_in']['kernel']
  np.testing.assert_array_equal(load_file(folder / WEIGHTS)['bert.encoder.layer.0.intermediate.dense.weight'], kernel.T)


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
def test_a_torch_function_of_another_shape_is_refused():
  torch = pytest.importorskip('torch', reason="needs torch: pip install -e '.[parity]'")
  with pytest.raises(ValueError, match=r'module does not embed and predict ids up to \[MASK\], 3 \(IndexError'):
    hj.from_torch(torch.nn.Linear(2, 3), 3, embed=torch.nn.Embedding(3, 2))
  with pytest.raises(ValueError, match=r'module computes in torch.float16; valid is float32'):
    hj.from_torch(torch.nn.Linear(2, 2), 2, torch.nn.Embedding(3, 2).half(), predict=lambda x: x.softmax(-1))
  with pytest.raises(ValueError, match=r'predict returns shape \(1, 1, 2\) for one token; valid is \(1, 1, 3\)'):
    hj.from_torch(torch.nn.Linear(2, 3), 3, embed=lambda ids: torch.zeros(*ids.shape, 2), predict=lambda x: x)


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
  with pytest.raises(ValueError, match='on the output of a frozen model'):
    hj.Tuned({'head': {}}, 0.75, Tuner(MODEL, hj.Linear(2), probes=True), PARAMS).save(tmp_path / 'tuned')
  assert not (tmp_path / 'tuned').exists()
