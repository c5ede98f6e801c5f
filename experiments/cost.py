"""What a run costs, from its settings alone: floating-point operations (FLOPs) of matrix products, and bytes.

A product of [m, k] and [k, n] has 2 m k n FLOPs. What is done entry by entry counts as none: GELU, softmax, norms and
AdamW.
"""

from experiments.methods import METHODS
from experiments.settings import Point, Settings
from hmm_jax.masking import num_slots
from hmm_jax.sampling import token_dtype

# FLOPs by what they are for.
Flops = dict[str, float]


def forward(s: Settings, length: int, read: int) -> Flops:
  """Of BERT on one sequence, of which `read` positions are read out.

  The last layer computes keys and values everywhere, and all else at those positions alone.
  """
  b = s.bert
  places = (b.num_layers - 1) * length + read
  return {
    'queries, keys, values': 2 * b.width**2 * (places + 2 * b.num_layers * length),
    'attention': 4 * b.width * length * places,
    'attention output': 2 * b.width**2 * places,
    'feed-forward': 4 * b.width * b.ffn_width * places,
    'transform and logits': 2 * b.width * (b.width + s.hmm.num_tokens + 1) * read,
  }


def pretraining_step(s: Settings, read: int | None = None) -> Flops:
  """Of one optimiser step: forward, twice that backward, and Muon's.

  What is read out of a sequence is what the step has slots for, or `read` positions.
  """
  batch_size, length = s.pretrain.batch_size, s.corpus.chunk_length
  read = read or num_slots(s.corruption(), batch_size, length)
  step = {part: 3 * batch_size * flops for part, flops in forward(s, length, read).items()}
  return {**step, 'Muon': muon(s) if s.pretrain.optimizer == 'muon' else 0}


def muon(s: Settings) -> float:
  """Of Muon's update, whatever the batch: five times X X^T, its square, and a product with X, for each matrix X."""
  b = s.bert
  of_matrix = lambda few, many: 5 * (4 * few**2 * many + 2 * few**3)
  square, oblong = (of_matrix(*sorted((b.width, size))) for size in (b.width, b.ffn_width))
  return b.num_layers * (4 * square + 2 * oblong) + square


def pretraining(s: Settings) -> float:
  return s.pretrain.num_steps * sum(pretraining_step(s).values())


def measurements(s: Settings) -> int:
  """How often a pretraining is measured: at its start, on the way and at its end."""
  return 1 + -(-s.pretrain.num_steps // s.pretrain.measure_every)


def measuring(s: Settings) -> float:
  """Of measuring once how far BERT is from the ideal model."""
  m, length, chunk_length = s.measure, s.downstream.seen_length(0), s.corpus.chunk_length
  chunks = m.num_chunks * sum(forward(s, chunk_length, chunk_length).values())
  return chunks + (m.num_inputs + m.num_documents * length) * sum(forward(s, length, 1).values())


def tuning_step(s: Settings, method: str) -> Flops:
  """Of one step of all tasks of a trial on BERT, for a method that runs it in tuning.

  Of a frozen weight the input alone has a gradient, which is one more product; both sides of attention have one. In
  the first layer a prompt is projected once for a batch and a text once for all tasks, and the text has no gradient.
  """
  kind, text, prompt = METHODS[method], s.seen_length(method), s.prompt_length(method)
  tasks, batch_size = s.tasks_per_trial, s.tuning(method).batch_size
  read = prompt + text if kind.reads == 'sequence' else 1
  one = forward(s, prompt + text, read)
  products = lambda part: 3 if kind.finetunes or part == 'attention' else 2
  step = {part: products(part) * tasks * batch_size * one[part] for part in one}
  if kind.prompt:
    a_row = 2 * s.bert.width**2 * (3 if s.bert.num_layers > 1 or read > 1 else 2)
    shared = 2 * tasks * prompt + batch_size * text
    step['queries, keys, values'] += a_row * (shared - 2 * tasks * batch_size * (prompt + text))
  return step


def tuning(s: Settings, method: str) -> float:
  """Of one method on BERT: its steps and the predictions after them, or the features that a head alone is tuned on."""
  d, kind = s.downstream, METHODS[method]
  num_inputs, length = d.num_train + d.num_validation + d.num_test, s.seen_length(method) + s.prompt_length(method)
  once = num_inputs * sum(forward(s, length, length if kind.reads == 'sequence' else 1).values())
  if not (kind.prompt or kind.finetunes):
    return once
  schedule = s.tuning(method).schedule
  steps = schedule.num_epochs * schedule.steps_per_epoch(d.num_train)
  return steps * sum(tuning_step(s, method).values()) + s.tasks_per_trial * once


def inference(point: Point, length: int) -> float:
  """Of the exact posterior of one sequence, float64: a pass forward and one back, in each memory configuration."""
  configurations = point.joint_states // point.num_states
  return 2 * 2 * length * configurations * point.num_states**2


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


def all_reduce_bytes(s: Settings, num_devices: int) -> float:
  """What each device sends a step: its gradients, float32, in a ring."""
  return 2 * (num_devices - 1) / num_devices * 4 * num_params(s)
