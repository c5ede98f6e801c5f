"""The cost of pretraining, from its settings alone: floating-point operations (FLOPs) of matrix products, and bytes.

A product of [m, k] and [k, n] has 2 m k n FLOPs. What is done entry by entry counts as none: GELU, softmax, norms and
AdamW.
"""

from experiments.settings.grid import Settings
from hmm_jax.masking import num_slots
from hmm_jax.sampling import token_dtype


def forward(s: Settings, length: int, read: int) -> int:
  """FLOPs of BERT on one sequence, of which `read` positions are read out.

  The last layer computes keys and values everywhere, and all else at those positions alone.
  """
  b = s.bert
  places = (b.num_layers - 1) * length + read
  keys_and_values, attention = 4 * b.width**2 * b.num_layers * length, 4 * b.width * length * places
  queries_and_outputs, feed_forward = 4 * b.width**2 * places, 4 * b.width * b.ffn_width * places
  transform_and_logits = 2 * b.width * (b.width + s.hmm.num_tokens + 1) * read
  return keys_and_values + attention + queries_and_outputs + feed_forward + transform_and_logits


def pretraining_step(s: Settings, read: int | None = None) -> int:
  """FLOPs of one optimiser step: forward, twice that backward, and Muon's.

  What is read out of a sequence is what the step has slots for, or `read` positions.
  """
  batch_size, length = s.pretrain.batch_size, s.corpus.chunk_length
  read = read or num_slots(s.corruption(), batch_size, length)
  return 3 * batch_size * forward(s, length, read) + (muon(s) if s.pretrain.optimizer == 'muon' else 0)


def muon(s: Settings) -> int:
  """FLOPs of Muon's update: five times X X^T, its square, and a product with X, for each matrix X."""
  b = s.bert
  matrix_flops = lambda few, many: 5 * (4 * few**2 * many + 2 * few**3)
  square, oblong = (matrix_flops(*sorted((b.width, size))) for size in (b.width, b.ffn_width))
  return b.num_layers * (4 * square + 2 * oblong) + square


def num_params(s: Settings) -> int:
  """Of BERT."""
  b = s.bert
  layer = 4 * b.width * (b.width + 1) + 2 * b.width * b.ffn_width + b.ffn_width + 5 * b.width
  return b.num_layers * layer + (s.hmm.num_tokens + b.max_positions + b.width + 6) * b.width + s.hmm.num_tokens + 1


def state_bytes(s: Settings) -> int:
  """Of the parameters and the optimiser's moments, float32: two of AdamW, one of a matrix that Muon trains."""
  b = s.bert
  matrices = b.num_layers * (4 * b.width**2 + 2 * b.width * b.ffn_width) + b.width**2
  return 4 * (3 * num_params(s) - matrices * (s.pretrain.optimizer == 'muon'))


def activation_bytes(s: Settings, batch: int, length: int) -> int:
  """Of one batch, in the dtype of pretraining: what each layer keeps for its gradient, and the logits.

  The last layer counts as if all were read: for a batch with more to read than it has slots, that is reserved.
  """
  b = s.bert
  layer = 10 * b.width + 3 * b.ffn_width + 3 * b.num_heads * length
  return batch * length * ((4 if b.dtype == 'float32' else 2) * b.num_layers * layer + 12 * s.hmm.num_tokens)


def corpus_bytes(s: Settings) -> int:
  return token_dtype(s.hmm.num_tokens).itemsize * s.corpus.num_documents * s.corpus.document_length
