"""Our BERT against Hugging Face's `BertForMaskedLM` holding the same numbers."""

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


def test_logits_activations_and_every_gradient_equal_hugging_faces():
  """Logits, activations by layer, and the gradient of a loss in every parameter agree; theirs has no parameter more."""
  # Here and not above, since to import them takes 10 CPU seconds, which a run without this test saves.
  torch = pytest.importorskip('torch', reason="parity needs torch: pip install -e '.[parity]'")
  hugging_face = pytest.importorskip('experiments.studies.hugging_face')
  tokens = np.random.default_rng(1).integers(0, SMALL.num_tokens + 1, (3, 8))

  def loss_fn(params):
    bert = SMALL.bind({'params': params})
    logits = bert.decode(bert.encode(bert.embed(tokens)))
    return (logits**3).mean(), logits

  grads, logits = jax.jit(jax.grad(loss_fn, has_aux=True))(PARAMS)

  reference = hugging_face.model_of(SMALL, PARAMS)
  theirs = reference(torch.tensor(tokens)).logits
  (theirs**3).mean().backward()

  np.testing.assert_allclose(logits, theirs.detach(), atol=1e-4)
  states = reference(torch.tensor(tokens), output_hidden_states=True).hidden_states
  for (name, layer), state in zip(hj.activations(BertModel(SMALL), PARAMS, tokens).items(), states, strict=True):
    np.testing.assert_allclose(layer, state.detach(), atol=1e-4, err_msg=name)
  ours, parameters = named(grads), dict(reference.named_parameters())
  assert set(parameters) == set(ours) | {TOKEN_TYPES}
  for name, grad in ours.items():
    np.testing.assert_allclose(grad, parameters[name].grad, rtol=1e-3, atol=1e-3, err_msg=name)
