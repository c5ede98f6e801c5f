"""Our BERT against Hugging Face's `BertForMaskedLM` holding the same numbers."""

from bert_cases import random_params
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.bert import Bert

torch = pytest.importorskip('torch', reason="parity needs torch: pip install -e '.[parity]'")
hugging_face = pytest.importorskip('experiments.studies.benchmark.hugging_face')

pytestmark = pytest.mark.usefixtures('without_optimisation')

SMALL = Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=10, dropout_rate=0.0)
PARAMS = random_params(SMALL)


def test_logits_and_every_gradient_equal_hugging_faces():
  """Logits, and the gradient of their cube in every parameter and in a prompt agree; theirs has no parameter more."""
  draws = np.random.default_rng(1)
  tokens = draws.integers(0, SMALL.num_tokens + 1, (3, 8))
  prompts = draws.normal(0, 0.5, (3, 2, SMALL.width)).astype(np.float32)

  def loss_fn(params, prompts):
    bert = SMALL.bind({'params': params})
    logits = bert.decode(bert.encode(jnp.concatenate([prompts, bert.embed(tokens)], axis=1)))
    return (logits**3).mean(), logits

  grads, logits = jax.jit(jax.grad(loss_fn, argnums=(0, 1), has_aux=True))(PARAMS, prompts)

  reference = hugging_face.model_of(SMALL, PARAMS)
  their_prompts = torch.tensor(prompts, requires_grad=True)
  embeddings = torch.cat([their_prompts, reference.get_input_embeddings()(torch.tensor(tokens))], dim=1)
  theirs = reference(inputs_embeds=embeddings).logits
  (theirs**3).mean().backward()

  np.testing.assert_allclose(logits, theirs.detach(), atol=1e-4)
  np.testing.assert_allclose(grads[1], their_prompts.grad, rtol=1e-3, atol=1e-4)
  ours, parameters = hugging_face.named(grads[0]), dict(reference.named_parameters())
  assert set(parameters) == set(ours) | {hugging_face.TOKEN_TYPES}
  for name, grad in ours.items():
    np.testing.assert_allclose(grad, parameters[name].grad, rtol=1e-3, atol=1e-3, err_msg=name)
