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
ESM = dict(mask_token_id=V, pad_token_id=1)
TEXTS = np.random.default_rng(1).integers(0, V + 1, (30, 5))


def built(family, of='ForMaskedLM', **sizes):
  torch.manual_seed(0)
  config = getattr(transformers, f'{family}Config')(**{**SIZES, **sizes})
  return getattr(transformers, family + of)(config).eval()


def probs_of(model):
  return np.asarray(model.predict((), model.embed((), jnp.asarray(TEXTS))))


@pytest.mark.parametrize(
  ('family', 'of', 'sizes'),
  [
    ('ModernBert', 'ForMaskedLM', dict(pad_token_id=0)),
    ('DebertaV2', 'ForMaskedLM', {}),
    # Of a padding token that is no word, positions do not depend on ids.
    ('Roberta', 'ForMaskedLM', dict(pad_token_id=V + 2)),
    ('Esm', 'ForMaskedLM', ESM | dict(token_dropout=False, position_embedding_type='rotary')),
    ('GPT2', 'LMHeadModel', dict(n_positions=40, n_embd=16, n_layer=2, n_head=2)),
    ('Bert', 'LMHeadModel', dict(is_decoder=True)),
  ],
)
def test_a_model_gives_its_own_law(family, of, sizes):
  """A causal one is found, and its row i is their row i of [MASK] and tokens 1 to i - 1."""
  module = built(family, of, **sizes)
  model = hj.from_torch(module, V)
  read = np.insert(TEXTS[:, :-1], 0, V, axis=1) if model.causal else TEXTS
  expected = module(input_ids=torch.tensor(read)).logits[..., :V].softmax(-1).numpy(force=True)
  assert model.causal == (of == 'LMHeadModel') and np.ptp(expected) > 0.1
  np.testing.assert_allclose(probs_of(model), expected, atol=1e-5)


@pytest.mark.parametrize(('family', 'sizes'), [('Roberta', {}), ('Esm', ESM)])
def test_a_model_that_reads_ids_beside_their_embeddings_is_refused(family, sizes):
  """Its positions or its [MASK] depend on ids, which a prompt does not have."""
  with pytest.raises(ValueError, match='inputs_embeds'):
    hj.from_torch(built(family, **sizes), V)


def own(kind, dtype=torch.float32):
  """Functions of one's own: row i reads the mean of all embeddings, of those up to i, or of those before it."""
  words, network = torch.nn.Embedding(V + 1, 6, dtype=dtype), torch.nn.Linear(6, V, dtype=dtype)
  every = torch.ones(40, 40, dtype=dtype)
  sees = {'all': every, 'up to': every.tril(), 'before': every.tril(-1)}[kind]
  read = lambda x: sees[: x.shape[1], : x.shape[1]] @ x
  return torch.nn.ModuleList([words, network]), V, words, lambda x: network(read(x)).softmax(-1)


def test_slopes_are_those_of_torch():
  *_, words, predict = args = own('all')
  model, rows = hj.from_torch(*args), words(torch.tensor(TEXTS)).requires_grad_()
  slopes = jax.jit(jax.grad(lambda rows: (model.predict((), rows) ** 3).sum()))(rows.numpy(force=True))
  (predict(rows) ** 3).sum().backward()
  np.testing.assert_allclose(slopes, rows.grad, atol=1e-6)


@pytest.mark.parametrize(
  ('says', 'build'),
  [
    # [MASK] has no row; predictions are of another shape; they are no probabilities.
    ('module does not embed', lambda: (torch.nn.Linear(2, 3), 3, torch.nn.Embedding(3, 2), None)),
    ('the shape of what', lambda: (torch.nn.Linear(2, 3), 3, torch.nn.Embedding(4, 2), lambda x: x.softmax(-1))),
    ('.*valid are probabilities', lambda: (*own('all')[:3], own('all')[0][1])),
  ],
)
def test_what_is_no_language_model_is_refused(says, build):
  with pytest.raises(ValueError, match=f'^{says}'):
    hj.from_torch(*build())
