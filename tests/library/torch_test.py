"""Torch modules give their own laws, or are refused: the families of transformers, tiny and with random weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmm_jax as hj

pytestmark = pytest.mark.parity
torch = pytest.importorskip('torch', reason="needs torch: pip install -e '.[parity]'")
transformers = pytest.importorskip('transformers', reason="needs transformers: pip install -e '.[parity]'")

V = 7
SIZES = dict(
  vocab_size=V + 4,
  hidden_size=16,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=16,
  max_position_embeddings=40,
  initializer_range=0.4,
)
TEXTS = np.random.default_rng(1).integers(0, V + 1, (30, 5))


def built(family, of, **sizes):
  torch.manual_seed(0)
  config = getattr(transformers, f'{family}Config')(**{**SIZES, **sizes})
  return getattr(transformers, f'{family}For{of}' if of[0] != 'L' else f'{family}{of}')(config).eval()


def probs_of(model):
  return np.asarray(model.predict((), model.embed((), jnp.asarray(TEXTS))))


MASKED = {
  'Bert': {},
  'Electra': dict(embedding_size=16),
  'Albert': dict(embedding_size=16),
  'DistilBert': dict(dim=16, n_layers=2, n_heads=2, hidden_dim=16),
  'ModernBert': dict(pad_token_id=0),
  'DebertaV2': {},
  'BigBird': {},
  'FNet': {},
  # Of a padding token that is no word, positions do not depend on ids.
  'Roberta': dict(pad_token_id=V + 2),
  'Esm': dict(mask_token_id=V, pad_token_id=1, token_dropout=False, position_embedding_type='rotary'),
}


@pytest.mark.parametrize('family', MASKED)
def test_a_masked_model_gives_its_own_law(family):
  module = built(family, 'MaskedLM', **MASKED[family])
  model = hj.from_torch(module, V)
  expected = module(input_ids=torch.tensor(TEXTS)).logits[..., :V].softmax(-1).numpy(force=True)
  assert not model.causal and np.ptp(expected) > 0.1
  np.testing.assert_allclose(probs_of(model), expected, atol=1e-5)


def test_a_module_that_is_trained_on_is_read_without_dropout():
  """Whatever mode its owner has put it into since; it stays in that."""
  module = built('Bert', 'MaskedLM')
  model = hj.from_torch(module, V)
  before = probs_of(model)
  module.train()
  np.testing.assert_array_equal(probs_of(model), before)
  assert module.training


def test_a_text_longer_than_the_positions_of_a_module_is_refused():
  model = hj.from_torch(built('Bert', 'MaskedLM', max_position_embeddings=8), V)
  predict = jax.jit(lambda tokens: model.predict((), model.embed((), tokens)))
  assert predict(jnp.zeros((1, 8), jnp.int32)).shape == (1, 8, V)
  with pytest.raises(ValueError, match='^module does not predict 9 positions'):
    predict(jnp.zeros((1, 9), jnp.int32))


@pytest.mark.parametrize('num_tokens', [0, 7.0, True, None])
def test_a_number_of_tokens_is_named(num_tokens):
  with pytest.raises(ValueError, match='^num_tokens is '):
    hj.from_torch(built('Bert', 'MaskedLM'), num_tokens)


CAUSAL = {
  'GPT2': ('LMHeadModel', dict(n_positions=40, n_embd=16, n_layer=2, n_head=2)),
  'Bert': ('LMHeadModel', dict(is_decoder=True)),
  'Llama': ('CausalLM', {}),
}


@pytest.mark.parametrize('family', CAUSAL)
def test_a_causal_model_is_found_and_reads_the_tokens_before(family):
  """Its row i is their row i of [MASK] and tokens 1 to i - 1; a head tuned on it reads what it gives for ids."""
  of, sizes = CAUSAL[family]
  module = built(family, of, **sizes)
  model = hj.from_torch(module, V)
  shifted = np.insert(TEXTS[:, :-1], 0, V, axis=1)
  expected = module(input_ids=torch.tensor(shifted)).logits[..., :V].softmax(-1).numpy(force=True)
  assert model.causal
  np.testing.assert_allclose(probs_of(model), expected, atol=1e-5)


@pytest.mark.parametrize('family', ['Roberta', 'Camembert', 'XLMRoberta', 'MPNet', 'Longformer', 'Esm'])
def test_a_model_that_reads_ids_beside_their_embeddings_is_refused(family):
  """Its positions or its [MASK] depend on ids, which a prompt does not have."""
  sizes = dict(mask_token_id=V, pad_token_id=1, position_embedding_type='absolute') if family == 'Esm' else {}
  sizes |= dict(attention_window=4) if family == 'Longformer' else {}
  with pytest.raises(ValueError, match='other probabilities for inputs_embeds than for input_ids, by 0.*in the text'):
    hj.from_torch(built(family, 'MaskedLM', **sizes), V)


def test_an_id_that_the_config_names_is_tried_in_a_large_vocabulary():
  module = built('Roberta', 'MaskedLM', vocab_size=9001, pad_token_id=8765, max_position_embeddings=8800)
  with pytest.raises(ValueError, match='by 0.*in the text .*8765'):
    hj.from_torch(module, 9000)


@pytest.mark.parametrize('family', ['Bart', 'T5'])
def test_a_model_of_two_texts_is_refused(family):
  sizes = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, encoder_layers=1, decoder_layers=1)
  sizes |= dict(encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16)
  with pytest.raises(ValueError, match='module does not embed and predict ids'):
    hj.from_torch(built(family, 'ConditionalGeneration', **sizes), V)


def own(kind, dtype=torch.float32):
  """Functions of one's own: row i reads the mean of all embeddings, of those up to i, or of those before it."""
  words, network = torch.nn.Embedding(V + 1, 6, dtype=dtype), torch.nn.Linear(6, V, dtype=dtype)
  every = torch.arange(40)
  sees = {'all': every >= 0 * every[:, None], 'up to': every <= every[:, None], 'before': every < every[:, None]}[kind]
  read = lambda x: sees[: x.shape[1], : x.shape[1]].to(dtype) @ x
  return torch.nn.ModuleList([words, network]), V, words, lambda x: network(read(x)).softmax(-1)


@pytest.mark.parametrize(('kind', 'causal'), [('all', False), ('before', True), ('up to', True)])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_functions_of_ones_own_compute_in_their_type(dtype, kind, causal):
  _, _, words, predict = args = own(kind, dtype)
  model = hj.from_torch(*args)
  assert model.causal == causal
  seen = np.insert(TEXTS[:, :-1], 0, V, axis=1) if kind == 'up to' else TEXTS
  np.testing.assert_allclose(probs_of(model), predict(words(torch.tensor(seen))).numpy(force=True), atol=1e-6)
  hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=V)
  task = hj.draw_task(hmm, jax.random.key(1), length=5, num_train=20, num_test=10, hidden=-causal)
  assert np.isfinite(hj.tune(model, (), hmm, task, prompt_length=2).prompt).all()


def test_functions_that_are_no_laws_of_a_token_are_refused():
  module, _, words, _ = own('all')
  with pytest.raises(ValueError, match='valid are probabilities'):
    hj.from_torch(module, V, words, module[1])


@pytest.mark.parametrize(
  ('embed', 'predict'),
  [
    (torch.nn.Embedding(3, 2), None),
    (torch.nn.Embedding(4, 2).half(), lambda x: x[..., :1].softmax(-1).expand(*x.shape[:-1], 3) / 3),
    (torch.nn.Embedding(4, 2), lambda x: x.softmax(-1)),
  ],
)
def test_functions_without_mask_of_half_precision_or_of_another_shape_are_refused(embed, predict):
  with pytest.raises(ValueError, match='^(module|predict) '):
    hj.from_torch(torch.nn.Linear(2, 3), 3, embed, predict)
