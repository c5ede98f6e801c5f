"""Our BERT against Hugging Face's `BertForMaskedLM` and causal `BertLMHeadModel` holding the same numbers."""

from bert_cases import random_params
import jax
import numpy as np
import pytest

import hmm_jax as hj
from hmm_jax.files.hugging_face import named, TOKEN_TYPES
from hmm_jax.models.bert import Bert, BertModel

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures('without_optimisation')]

SMALL = Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=10, dropout_rate=0.0)
PARAMS = random_params(SMALL)


@pytest.mark.parametrize('causal', (False, True))
def test_logits_activations_and_every_gradient_equal_hugging_faces(causal):
  """Logits, activations by layer, and the gradient of a loss in every parameter agree; theirs has no parameter more.

  A causal one of theirs reads [MASK] and the tokens but the last.
  """
  # Here and not above, since to import them takes 10 CPU seconds, which a run without this test saves.
  torch = pytest.importorskip('torch', reason="parity needs torch: pip install -e '.[parity]'")
  hugging_face = pytest.importorskip('hugging_face_cases')
  tokens, small = np.random.default_rng(1).integers(0, SMALL.num_tokens + 1, (3, 8)), SMALL.clone(causal=causal)
  read = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=SMALL.num_tokens) if causal else tokens

  def loss_fn(params):
    bert = small.bind({'params': params})
    logits = bert.decode(bert.encode(bert.embed(tokens)))
    return (logits**3).mean(), logits

  grads, logits = jax.jit(jax.grad(loss_fn, has_aux=True))(PARAMS)

  reference = hugging_face.model_of(small, PARAMS)
  theirs = reference(torch.tensor(read)).logits
  (theirs**3).mean().backward()

  np.testing.assert_allclose(logits, theirs.detach(), atol=1e-4)
  states = reference(torch.tensor(read), output_hidden_states=True).hidden_states
  for (name, layer), state in zip(hj.activations(BertModel(small), PARAMS, tokens).items(), states, strict=True):
    np.testing.assert_allclose(layer, state.detach(), atol=1e-4, err_msg=name)
  ours, parameters = named(grads), dict(reference.named_parameters())
  assert set(parameters) == set(ours) | {TOKEN_TYPES}
  for name, grad in ours.items():
    np.testing.assert_allclose(grad, parameters[name].grad, rtol=1e-3, atol=1e-3, err_msg=name)
