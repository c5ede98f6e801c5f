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
from hmm_jax.tuning.tuner import frozen_features, Prompt, Tuner


@pytest.mark.parametrize('dtype', (jnp.float32, jnp.bfloat16))
@pytest.mark.parametrize('num_layers', (1, 6))
def test_a_model_comes_back_to_the_bit(num_layers, dtype, tmp_path):
  bert = BERT.clone(num_layers=num_layers, dtype=dtype)
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


HMM = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=7)
PROMPT = Prompt(length=2, scale=0.5)


EXACT, LINEAR = hj.ExactModel(7), hj.Linear(2)


def tuned(head=LINEAR, prompt=PROMPT, model=EXACT, params=HMM):
  """A `Tuned` of random numbers."""
  tuner = Tuner(model, head, prompt)
  trainable = tuner.init(jax.random.key(0), params, frozen_features(tuner, params, TOKENS, batch_size=100))
  return hj.Tuned(jax.tree.map(lambda x: np.asarray(x)[None], trainable), 0.75, tuner, params)


@pytest.mark.parametrize('prompt', (None, PROMPT))
@pytest.mark.parametrize('head', (hj.Linear(2), hj.Attention(2, 3, 4), OfficialAttention(2)))
def test_a_tuned_prompt_and_head_come_back_to_the_bit(head, prompt, tmp_path):
  before = tuned(head, prompt)
  before.save(tmp_path / 'tuned')
  after = hj.load_tuned(tmp_path / 'tuned')
  assert (after.tuner, after.accuracy) == (before.tuner, before.accuracy)
  assert equal_bits((before.trainable, before.params), (after.trainable, after.params))


def test_a_tuned_folder_with_a_field_that_is_gone_is_read(tmp_path):
  tuned(prompt=None).save(tmp_path / 'tuned')
  edited(tmp_path / 'tuned/head.json', fields={'num_classes': 2, 'token_classes': [], 'position': 0})
  assert hj.load_tuned(tmp_path / 'tuned').tuner.head == LINEAR


def test_a_model_of_an_earlier_version_is_read(tmp_path):
  """Its config has fields of running that are gone."""
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  earlier = {'dtype': 'float32', 'attention': 'cudnn', 'scan_layers': True}
  edited(tmp_path / 'model/config.json', hmm_jax=earlier)
  model, params, _ = hj.load(tmp_path / 'model')
  assert model == MODEL and equal_bits(params, PARAMS)


def half(path):
  path.write_bytes(path.read_bytes()[:40])


def changed(change):
  """path -> its arrays are changed."""
  return lambda path: save_file({name: change(values) for name, values in load_file(path).items()}, path)


def with_fields(**fields):
  return lambda path: edited(path, **fields)


@pytest.mark.parametrize(
  ('file', 'damage'),
  [
    *((f'bert/model/{name}', half) for name in (WEIGHTS, 'config.json', 'tokenizer.json')),
    # It makes no exact model of a BERT.
    ('bert/model/config.json', pathlib.Path.unlink),
    ('exact/model/distribution.json', lambda path: save_distribution(path, hj.random_hmm(0, 3, 3))),
    ('exact/head.safetensors', changed(lambda x: x * np.nan)),
    # Infinite in float32, in which models compute.
    ('bert/adapter_model.safetensors', changed(lambda x: np.full(x.shape, 1e300))),
    ('exact/head.json', with_fields(head='Cubic')),
    ('exact/head.json', with_fields(fields={'num_classes': 9})),
    ('exact/head.json', with_fields(prompt={'length': 3, 'scale': 0.5, 'place': 0})),
  ],
)
def test_what_is_damaged_or_does_not_fit_is_refused(file, damage, tmp_path):
  folder = tmp_path / file.partition('/')[0]
  (tuned() if folder.name == 'exact' else tuned(model=MODEL, params=PARAMS)).save(folder)
  damage(tmp_path / file)
  with pytest.raises((ValueError, FileNotFoundError)):
    hj.load_tuned(folder)


def test_a_folder_that_holds_something_else_is_not_written_to(tmp_path):
  hj.save(tmp_path / 'model', MODEL, PARAMS)
  for name, options in (('config.json', {}), ('mine', {'exist_ok': True})):
    (tmp_path / 'model' / name).touch()
    with pytest.raises(ValueError, match='exists; valid is a new or an empty folder'):
      hj.save(tmp_path / 'model', MODEL, PARAMS, **options)


@pytest.mark.parametrize(
  ('name', 'model', 'params'),
  [
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
  of_bert = tuned(prompt=Prompt(2, 0.5, place), model=MODEL, params=PARAMS)
  of_bert.save(tmp_path / 'tuned')
  assert (tmp_path / 'tuned/adapter_config.json').exists() == (place == 0)
  rows = load_file(tmp_path / 'tuned/adapter_model.safetensors')
  np.testing.assert_array_equal(rows['prompt_embeddings'], of_bert.prompt)
