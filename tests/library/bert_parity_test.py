"""Our BERT against Hugging Face's `BertForMaskedLM` holding the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.bert import Bert
from hmm_jax.pretrain import masked_cross_entropy

torch = pytest.importorskip('torch', reason="parity needs torch: pip install -e '.[parity]'")
transformers = pytest.importorskip('transformers', reason="parity needs transformers: pip install -e '.[parity]'")
hugging_face = pytest.importorskip('experiments.studies.benchmark.hugging_face')

pytestmark = pytest.mark.usefixtures('without_optimisation')

SMALL = Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=10, dropout_rate=0.0)
PAPER = Bert(num_tokens=10, num_layers=6, width=768, num_heads=12, ffn_width=3072, max_positions=512, dropout_rate=0.1)


@pytest.fixture(scope='module')
def params():
  """A tree with every bias and scale off its start, so that no two of them can be exchanged unseen."""
  tree = jax.eval_shape(SMALL.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  leaves, structure = jax.tree.flatten(tree)
  draws = np.random.default_rng(0)
  leaves = [np.float32(draws.normal(0, 0.3, leaf.shape) + (leaf.ndim == 1)) for leaf in leaves]
  return structure.unflatten(leaves)


@pytest.fixture(scope='module')
def reference(params):
  """`BertForMaskedLM` in evaluation mode with the numbers of `params` and no token type."""
  model, ours = hugging_face.model_of(SMALL, params), hugging_face.named(params)
  theirs = dict(model.named_parameters())
  assert set(theirs) == set(ours) | {hugging_face.TOKEN_TYPES}
  assert all(theirs[name].shape == value.shape for name, value in ours.items())
  return model


@pytest.fixture(scope='module')
def batch():
  """Tokens [MASK] included, the targets, and which positions count."""
  draws = np.random.default_rng(1)
  tokens = draws.integers(0, SMALL.num_tokens + 1, (3, 8))
  targets = draws.integers(0, SMALL.num_tokens, (3, 8))
  return tokens, targets, draws.random((3, 8)) < 0.4


def our_logits(params, prompt, tokens):
  """Logits [B, T, V + 1] at the tokens, with a prompt [P, D] before them."""
  bert = SMALL.bind({'params': params})
  embeddings = bert.embed(tokens)
  prompts = jnp.broadcast_to(prompt, (len(tokens), *prompt.shape))
  return bert.decode(bert.encode(jnp.concatenate([prompts, embeddings], axis=1)))[:, len(prompt) :]


def their_logits(reference, prompt, tokens):
  embeddings = reference.get_input_embeddings()(torch.tensor(tokens))
  prompts = prompt[None].expand(len(tokens), -1, -1)
  return reference(inputs_embeds=torch.cat([prompts, embeddings], dim=1)).logits[:, len(prompt) :]


def a_prompt(length):
  return np.random.default_rng(2).normal(0, 0.5, (length, SMALL.width)).astype(np.float32)


@pytest.mark.parametrize('prompt_length', [0, 2])
def test_loss_and_every_gradient_equal_hugging_faces(params, reference, batch, prompt_length):
  """Logits, masked-LM loss and its gradient in every parameter and in the prompt agree, with a prompt or without."""
  tokens, targets, selected = batch
  prompt = a_prompt(prompt_length)

  def loss_fn(params, prompt):
    logits = our_logits(params, prompt, tokens)
    return masked_cross_entropy(logits, targets, selected), logits

  run = jax.jit(jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True))
  (loss, logits), (grads, prompt_grad) = run(params, prompt)

  reference.zero_grad()
  their_prompt = torch.tensor(prompt, requires_grad=True)
  theirs = their_logits(reference, their_prompt, tokens)
  labels = torch.tensor(np.where(selected, targets, -100))
  their_loss = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), labels.flatten())
  their_loss.backward()

  np.testing.assert_allclose(logits, theirs.detach(), atol=2e-5)
  np.testing.assert_allclose(loss, their_loss.item(), rtol=1e-5)
  np.testing.assert_allclose(prompt_grad, their_prompt.grad, atol=2e-5)
  their_grads = {name: parameter.grad.numpy() for name, parameter in reference.named_parameters()}
  for name, grad in hugging_face.named(grads).items():
    np.testing.assert_allclose(grad, their_grads[name], atol=2e-5, err_msg=name)
    # A key's bias shifts every score of a query alike, so its gradient alone is zero.
    assert np.abs(their_grads[name]).max() > 1e-4 or name.endswith('self.key.bias'), name


def test_paper_scale_tree_has_hugging_faces_parameter_count():
  """Six BERT-base layers over ten tokens hold exactly what Hugging Face's model does, token types aside."""
  tree = jax.eval_shape(PAPER.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  with torch.device('meta'):
    model = transformers.BertForMaskedLM(hugging_face.config_of(PAPER))
  model.tie_weights()
  theirs = sum(leaf.numel() for name, leaf in model.named_parameters() if name != hugging_face.TOKEN_TYPES)
  ours = sum(leaf.size for leaf in jax.tree.leaves(tree))
  assert ours == theirs
  assert round(ours / 1e6, 1) == 43.5
