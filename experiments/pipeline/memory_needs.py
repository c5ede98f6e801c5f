"""What a grid takes of memory, estimated from its settings before anything is allocated.

Counted are the process itself with JAX and its compiled programs; the distribution; the corpus while it is drawn, cut
and put on the device; the parameters with the two moments of AdamW, gradients and a copy for a checkpoint; the
activations that one batch keeps for its gradients; exact inference on the largest block, whose likelihood rows and
posteriors are [B, T, E] float64; what the distance from the ideal model is measured on, [n, T, V] float64; and the
features that heads are tuned on. Of a mesh it is what one device has, with the parameters once whole for a step and for
tuning, and under Muon gradients and a moment too. It is an estimate: parts that do not live at the same time are added,
and what XLA makes besides, or spares, is not known. On two CPU cores prompt_vs_head:smoke was estimated at
1.0 GB and peaked at 0.99 GB, and with 1,000,000 documents of 512 tokens at 3.6 GB and 3.2 GB.
"""

import operator
from typing import NamedTuple

import jax

from experiments.pipeline import cost
from experiments.runtime import local_runs, memory
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, OF_SEQUENCE
from hmm_jax.sampling import DOCUMENTS_AT_A_TIME
from hmm_jax.tasks import LABELLED_ENTRIES

# Measured: the peak of prompt_vs_head:smoke on a CPU, whose arrays are next to nothing.
_PROCESS = 1e9
# What inference holds of one size: likelihood rows, and the filtered, smoothed and leave-one-out probabilities.
_POSTERIORS = 4
# Float32 numbers of each parameter: itself, two moments, their copies for a checkpoint, and its gradient.
_COPIES = 7
# Bytes of a token while its document is drawn, measured with 256 documents of 200,000 tokens.
_DRAWN = 32


class Part(NamedTuple):
  """Bytes, what they are for, and the setting that most drives them."""

  size: float
  what: str
  field: str


def parts(s: Settings) -> list[Part]:
  """What is counted, for the largest distribution of the grid."""
  tokens, d, m, corpus = s.hmm.num_tokens, s.downstream, s.measure, s.corpus
  methods = dict.fromkeys(s.methods + s.memory.vanilla_methods)
  states = max(point.joint_states for point in s.grid())
  largest = max(point.num_states for point in s.grid())
  inputs = d.num_train + d.num_validation + d.num_test
  chunks = m.num_chunks * corpus.chunk_length
  labelled = min(inputs * d.length, max(LABELLED_ENTRIES // states, d.length))
  seen = d.seen_length(0)
  block = max(chunks, m.batch_size * seen, labelled)
  measured = chunks + (m.num_inputs + m.num_documents * seen) * seen
  permutations = states if s.memory.joint_permutations else s.hmm.num_permutations or largest
  draw = 8 * (largest * (largest + permutations) + states * tokens)
  found = [
    Part(_PROCESS, 'the process itself', 'scale'),
    Part(draw, 'the distribution', 'num_states'),
    Part(8 * _POSTERIORS * block * states, 'exact inference', 'num_states'),
    Part(8 * inputs * (states + d.length + s.tasks_per_trial), 'inputs and labels', 'downstream.num_train'),
    Part(3 * 8 * measured * tokens, 'measuring the distance from the ideal model', 'measure.num_documents'),
    *(_features(s, method, inputs, states) for method in methods),
  ]
  if 'bert' in s.models:
    drawn = _DRAWN * min(DOCUMENTS_AT_A_TIME, corpus.num_documents) * corpus.document_length
    kept = 5 * cost.corpus_bytes(s)
    found.append(Part(drawn, 'drawing documents', 'corpus.document_length'))
    found.append(Part(kept, 'the corpus', 'corpus.num_documents'))
    if any(METHODS[method].finetunes for method in methods):
      copies = _COPIES * 4 * s.tasks_per_trial * cost.num_params(s)
      found.append(Part(copies, 'what is fine-tuned', 'bert.width'))
    data, fsdp, tensor = s.mesh.sizes(jax.device_count())
    found.append(Part(_bert_bytes(s, fsdp, tensor), "BERT with its optimiser's state", 'bert.width'))
    batch = -(-s.pretrain.batch_size // (data * fsdp))
    found.append(
      Part(cost.activation_bytes(s, batch, corpus.chunk_length), 'a batch of pretraining', 'pretrain.batch_size')
    )
  return found


def _bert_bytes(s: Settings, fsdp: int, tensor: int) -> float:
  """Of one device of a mesh in pretraining: its part of all that is split, and what it has whole in a step."""
  part = cost.num_params_of_one(s, fsdp, tensor)
  whole = 3 if s.pretrain.optimizer == 'muon' else 1
  return 4 * (_COPIES * part + whole * cost.num_params(s) * (part < cost.num_params(s)))


def _features(s: Settings, method: str, inputs: int, states: int) -> Part:
  """Those of all inputs, twice in float32; where the model itself is run in tuning, the activations of a batch."""
  kind, length = METHODS[method], s.seen_length(method) + s.prompt_length(method)
  trained = s.tasks_per_trial * s.num_starts(method)
  if kind.prompt or kind.finetunes:
    batch = trained * s.tuning(method).batch_size
    of_bert = 2 * cost.activation_bytes(s, batch, length) if 'bert' in kind.models and 'bert' in s.models else 0
    size = max(of_bert, 8 * _POSTERIORS * batch * length * states) + 8 * inputs * length
    return Part(size, f'a batch of {method} tuning', f'{method}.batch_size')
  of_sequence = dict.fromkeys(OF_SEQUENCE, length * s.hmm.num_tokens)
  width = {'mask': s.hmm.num_tokens, **of_sequence, 'representation': max(s.bert.width, states)}
  return Part(8 * inputs * width[kind.reads], f'the features of {method} tuning', 'downstream.num_train')


def total(s: Settings) -> float:
  """All parts together, bytes."""
  return sum(part.size for part in parts(s))


def check(s: Settings) -> None:
  """Raises SettingsError where more is needed than there is."""
  there, num_runs = memory.available(), local_runs.num_runs()
  if there is not None and total(s) > there:
    size, what, field = max(parts(s))
    shared = f' for each of {num_runs} runs' if num_runs > 1 else ''
    valid = f'what fits the {_in_words(there)} of memory{shared}: {what} takes about {_in_words(size)}'
    require(False, field, operator.attrgetter(field)(s), f'{valid}, and all {_in_words(total(s))}')


def line(s: Settings) -> str:
  """The estimate in words."""
  there = memory.available()
  return f'memory: about {_in_words(total(s))}' + (f' of {_in_words(there)}' if there else '')


def _in_words(size: float) -> str:
  return f'{size / 1e9:,.1f} GB'
