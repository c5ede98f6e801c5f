"""Our BERT and Hugging Face's that opens its folder: `BertForMaskedLM`, or `BertLMHeadModel` of a causal one."""

from bert_cases import random_params
import jax
import numpy as np
import pytest

import hmm_jax as hj
from hmm_jax.files.hugging_face import named, TOKEN_TYPES
from hmm_jax.models.bert import Bert, BertModel

pytestmark = pytest.mark.parity

SMALL = Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=10, dropout_rate=0.0)
PARAMS = random_params(SMALL)


@pytest.mark.parametrize('causal', (False, True))
def test_logits_activations_and_every_gradient_equal_hugging_faces(causal, tmp_path):
  """Logits, activations by layer, and the gradient of a loss in every parameter agree; theirs has no parameter more.

  Their tokenizer has our ids; a causal model of theirs reads [MASK] and the tokens but the last.
  """
  # Here and not above, since to import it takes 10 CPU seconds, which a run without this test saves.
  transformers = pytest.importorskip('transformers', reason="parity needs transformers: pip install -e '.[parity]'")
  small, V = SMALL.clone(causal=causal), SMALL.num_tokens
  tokens = np.random.default_rng(1).integers(0, V + 1, (3, 8))

  def loss_fn(params):
    bert = small.bind({'params': params})
    logits = bert.decode(bert.encode(bert.embed(tokens)))
    return (logits**3).mean(), logits

  grads, logits = jax.jit(jax.grad(loss_fn, has_aux=True))(PARAMS)

  hj.save(tmp_path, BertModel(small), PARAMS)
  family = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
  reference = family.from_pretrained(tmp_path).eval()
  read = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=V) if causal else tokens
  texts = [' '.join('[MASK]' if token == V else str(token) for token in row) for row in read]
  encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)(texts, return_tensors='pt')
  assert encoded['input_ids'].tolist() == read.tolist()
  theirs = reference(**encoded, output_hidden_states=True)
  (theirs.logits**3).mean().backward()

  np.testing.assert_allclose(logits, theirs.logits.detach(), atol=1e-4)
  layers = hj.activations(BertModel(small), PARAMS, tokens)
  for (name, layer), state in zip(layers.items(), theirs.hidden_states, strict=True):
    np.testing.assert_allclose(layer, state.detach(), atol=1e-4, err_msg=name)
  ours, parameters = named(grads), dict(reference.named_parameters())
  assert set(parameters) == set(ours) | {TOKEN_TYPES}
  for name, grad in ours.items():
    np.testing.assert_allclose(grad, parameters[name].grad, rtol=1e-3, atol=1e-3, err_msg=name)
