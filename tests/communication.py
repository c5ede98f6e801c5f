"""What devices of a mesh send each other: read from the HLO of a program, and predicted for a step of pretraining.

Read is each collective operation, and how often it runs; predicted from the partition specs of the parameters.
"""

from collections.abc import Callable, Iterator
import math
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
import numpy as np

from experiments.settings.grid import Settings
from hmm_jax import sharding
from hmm_jax.masking import num_slots

# Bytes that each of n devices sends of an operation whose larger side has that many, in a ring.
SENT: dict[str, Callable[[float, int], float]] = {
  'all-reduce': lambda size, n: 2 * size * (n - 1) / n,
  'all-gather': lambda size, n: size * (n - 1) / n,
  'reduce-scatter': lambda size, n: size * (n - 1) / n,
  'all-to-all': lambda size, n: size * (n - 1) / n,
  'collective-permute': lambda size, n: size,
}
_OPERATION = re.compile(rf'= (.*?) ({"|".join(SENT)})(-start)?\(')
_SHAPE = re.compile(r'(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]')
_NUMBERS = re.compile(r'\d+')


class Collective(NamedTuple):
  """One operation.

  Attributes:
    operation: one of SENT.
    size: bytes of its larger side on one device.
    group_size: how many devices communicate with each other.
    times: how often a call of the program runs it.
  """

  operation: str
  size: float
  group_size: int
  times: float

  @property
  def sent(self) -> float:
    """Bytes that each device sends in a call."""
    return self.times * SENT[self.operation](self.size, self.group_size)


class Ring:
  """What each device of a mesh of these sizes sends, by operation."""

  def __init__(self, sizes: dict[str, int]):
    self.sizes, self.total = sizes, dict.fromkeys(SENT, 0.0)

  def add(self, operation: str, axes: list[str], size: float) -> None:
    """One operation, of `size` bytes on its larger side, over these axes."""
    self.total[operation] += SENT[operation](size, math.prod(self.sizes[axis] for axis in axes))


def collectives(text: str, num_devices: int) -> list[Collective]:
  """Those of a program, as `Compiled.as_text` has it; of a conditional those of the branch that sends least.

  Raises ValueError for an operation in a loop whose length is not known, or devices in a notation that is not.
  """
  computations = dict(_computations(text))
  (entry,) = re.findall(r'^ENTRY %?([\w.-]+)', text, re.MULTILINE)

  def of(name: str, times: float) -> list[Collective]:
    found = []
    for line in computations[name]:
      if match := _OPERATION.search(line):
        found.append(_collective(match, line, times, num_devices))
      elif ' conditional(' in line:
        branches = [of(branch, times) for branch in _branches(line)]
        found += min(branches, key=lambda ones: sum(one.sent for one in ones))
      else:
        for called in re.findall(r'(?:body|calls|to_apply)=%?([\w.-]+)', line):
          found += of(called, times * _length(line)) if ' while(' in line else of(called, times)
    if any(math.isnan(one.times) for one in found):
      raise ValueError(f'{name} communicates in a loop of unknown length')
    return found

  return of(entry, 1.0)


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
  for block in re.split(r'\n(?=(?:ENTRY )?%?[\w.-]+ \()', text):
    if head := re.match(r'(?:ENTRY )?%?([\w.-]+) \(', block):
      yield head[1], block.splitlines()[1:]


def _branches(line: str) -> list[str]:
  listed = re.search(r'branch_computations=\{([^}]*)\}', line)
  names = listed[1] if listed else ', '.join(re.findall(r'(?:true|false)_computation=(%?[\w.-]+)', line))
  return re.findall(r'%?([\w.-]+)', names)


def _length(line: str) -> float:
  known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
  return float(known[1]) if known else math.nan


def _collective(match: re.Match[str], line: str, times: float, num_devices: int) -> Collective:
  shapes, operation, is_start = match.groups()
  sizes = [_bytes(*shape) for shape in _SHAPE.findall(shapes)]
  if is_start and operation == 'all-gather':
    sizes = sizes[len(sizes) // 2 :]
  elif is_start and operation == 'collective-permute':
    sizes = sizes[1:2]
  group_size = _group_size(line, num_devices)
  # Of a scatter the result is the smaller side.
  return Collective(operation, sum(sizes) * (group_size if operation == 'reduce-scatter' else 1), group_size, times)


def _bytes(kind: str, bits: str, shape: str) -> float:
  return math.prod(_integers(shape)) * (int(bits) / 8 if bits else 1)


def _integers(text: str) -> list[int]:
  return [int(number) for number in _NUMBERS.findall(text)]


def _group_size(line: str, num_devices: int) -> int:
  """How many devices communicate with each other, in any of the notations that XLA prints."""
  if 'source_target_pairs={' in line:
    return 2
  if 'replica_groups={}' in line:
    return num_devices
  if match := re.search(r'replica_groups=\{\{([\d,]+)\}', line):
    return len(_integers(match[1]))
  if match := re.search(r'replica_groups=\[\d+,(\d+)\]<=\[', line):
    return int(match[1])
  if match := re.search(r'replica_groups=mesh\[([^\]]*)\](?:, device_ids=\([^)]*\)?\))? \{([^}:]*)\}', line):
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", match[1])}
    return math.prod(sizes[name] for name in re.findall(r"'(\w+)'", match[2]))
  raise ValueError(f'{line.strip()[:300]} says which devices it is over in a way that is not known')


def sent(text: str, num_devices: int, num_steps: int) -> dict[str, float]:
  """Bytes a step that each of so many devices sends, by operation."""
  total = dict.fromkeys(SENT, 0.0)
  for one in collectives(text, num_devices):
    total[one.operation] += one.sent / num_steps
  return total


def predicted(s: Settings, data: int, fsdp: int, tensor: int) -> dict[str, float]:
  """Bytes that each device of a mesh sends a step, by operation, from the partition specs, in rings.

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
  return ring.total


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
