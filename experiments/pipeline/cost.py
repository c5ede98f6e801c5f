"""The bytes of pretraining, from its settings alone."""

import functools

import jax

from experiments.settings.grid import Settings
from hmm_jax import pretraining


def num_params(s: Settings) -> int:
  """The number of BERT's parameters."""
  return sum(leaf.size for leaf in jax.tree.leaves(_state(s).params))


def state_bytes(s: Settings) -> int:
  """Bytes of parameters and optimiser moments, float32: two moments with AdamW, one for a matrix that Muon trains."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(_state(s)))


@functools.cache
def _state(s: Settings) -> pretraining.TrainState:
  """The shapes of a pretraining's state; nothing is computed."""
  optimizer = s.pretrain.gradient_transformation(s.pretrain.num_steps)
  return jax.eval_shape(lambda: pretraining.init_train_state(jax.random.key(0), s.bert_module(), optimizer))


def activation_bytes(s: Settings, batch: float, length: int) -> float:
  """Bytes of one batch in the dtype of pretraining: what each layer stores for its gradient, and the logits.

  The last layer counts as if all positions were read: that much is reserved for a batch that overflows its slots.
  """
  b = s.bert
  layer = 10 * b.width + 3 * b.ffn_width + 3 * b.num_heads * length
  return batch * length * ((4 if b.dtype == 'float32' else 2) * b.num_layers * layer + 12 * s.hmm.num_tokens)
