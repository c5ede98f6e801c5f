"""What a run costs, from its settings alone: floating-point operations (FLOPs) of matrix products, and bytes.

A product of [m, k] and [k, n] has 2 m k n FLOPs. What is done entry by entry counts as none: GELU, softmax, norms and
AdamW.
"""

from collections.abc import Iterator
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
import numpy as np

from experiments.pipeline.communication import Ring, Sent
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS, OF_SEQUENCE
from hmm_jax import sharding
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
  matrix_flops = lambda few, many: 5 * (4 * few**2 * many + 2 * few**3)
  square, oblong = (matrix_flops(*sorted((b.width, size))) for size in (b.width, b.ffn_width))
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
  """Of one step of all tasks of a trial, and all starts, on BERT, for a method that runs it in tuning.

  Of a frozen weight the input alone has a gradient, which is one more product; both sides of attention have one. In
  the first layer a prompt is projected once for a batch and a text once for all tasks, and the text has no gradient.
  """
  kind, text, prompt = METHODS[method], s.seen_length(method), s.prompt_length(method)
  tasks, batch_size = s.tasks_per_trial * s.num_starts(method), s.tuning(method).batch_size
  read = prompt + text if kind.reads in OF_SEQUENCE else 1
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
  if 'bert' not in kind.models:
    return 0.0
  num_inputs, length = d.num_train + d.num_validation + d.num_test, s.seen_length(method) + s.prompt_length(method)
  once = num_inputs * sum(forward(s, length, length if kind.reads in OF_SEQUENCE else 1).values())
  if not (kind.prompt or kind.finetunes):
    return once
  schedule = s.schedule(method)
  steps = schedule.num_epochs * schedule.steps_per_epoch(d.num_train)
  return steps * sum(tuning_step(s, method).values()) + s.tasks_per_trial * s.num_starts(method) * once


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


def communication(s: Settings, data: int, fsdp: int, tensor: int) -> Sent:
  """Bytes that each device of a mesh sends a step, from the partition specs, in rings.

  Single numbers are left out, positions that no chunk reaches are not, and Muon is without weight decay.
  """
  ring = Ring({'data': data, 'fsdp': fsdp, 'tensor': tensor})
  for name, leaf, place in _placed(s, ring.sizes):
    split = [axis for axes in place.spec if axes for axis in np.ravel(axes)]
    _send_weight(ring, name, 4 * leaf.size, split, s.pretrain.optimizer == 'muon')
  # Over `tensor` each half of a layer sums its output, and the gradient of its input; in the last layer all but keys
  # and values is of the positions that are read.
  batch_size, length = s.pretrain.batch_size, s.corpus.chunk_length
  read = num_slots(s.corruption(), batch_size, length)
  places_a_row = 4 * (s.bert.num_layers - 1) * length + 4 * read + length
  bytes_of_one = s.bert.width * (4 if s.bert.dtype == 'float32' else 2)
  ring.add('all-reduce', ['tensor'], batch_size / (data * fsdp) * places_a_row * bytes_of_one)
  return dict(ring.total)


def num_params_of_one(s: Settings, fsdp: int, tensor: int) -> int:
  """Of BERT on one device of a mesh, between steps."""
  if fsdp * tensor == 1:
    return num_params(s)
  placed = _placed(s, {'data': 1, 'fsdp': fsdp, 'tensor': tensor})
  return sum(math.prod(place.shard_shape(leaf.shape)) for _, leaf, place in placed)


def _placed(s: Settings, sizes: dict[str, int]) -> Iterator[tuple[str, Any, NamedSharding]]:
  """Each parameter's path, shape and sharding on a mesh of these sizes."""
  params = jax.eval_shape(lambda: s.bert_module().init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params'])
  mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
  places = jax.tree.leaves(sharding.state_shardings(mesh, params))
  for (path, leaf), place in zip(jax.tree.leaves_with_path(params), places):
    yield jax.tree_util.keystr(path), leaf, place


def _send_weight(ring: Ring, name: str, size: float, split: list[str], muon: bool) -> None:
  """One weight of `size` bytes, float32, and its gradient; the word embedding, looked up and read out, has two."""
  is_fused, times = 'qkv' in name, 2 if 'word_embedding' in name else 1
  part = size / (ring.sizes['tensor'] if 'tensor' in split or is_fused else 1)
  if 'fsdp' in split:
    ring.add('all-gather', ['fsdp'], part)
    ring.add('reduce-scatter', ['fsdp'], times * part)
    ring.add('all-reduce', ['data'], times * part / ring.sizes['fsdp'])
  else:
    ring.add('all-reduce', ['data', 'fsdp'], times * part)
  if is_fused and 'kernel' in name:
    ring.add('all-to-all', ['tensor'], 2 * part)  # From rows to heads, and its gradient back.
  elif is_fused:
    ring.add('all-gather', ['tensor'], size)
  if muon:
    ring.add('all-gather', split, size * (2 if 'kernel' in name else 3))  # Gradient and moments.
