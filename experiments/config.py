"""ConfigDict in, validated settings out; the only reader of ConfigDict.

Every refusal is one sentence that names the field, its value and what would be valid.
"""

import dataclasses
import itertools
import math
from typing import Any

import ml_collections

from experiments.methods import METHODS
from experiments.settings import ATTENTION_FORMS
from experiments.settings import BenchmarkSettings
from experiments.settings import BertSettings
from experiments.settings import DTYPES
from experiments.settings import ExampleSettings
from experiments.settings import MODELS
from experiments.settings import PretrainSettings
from experiments.settings import PROMPT_INITS
from experiments.settings import Settings
from experiments.settings import SettingsError
from experiments.theory.settings import BertStudySettings
from experiments.theory.settings import TheorySettings
from hmm_jax.memory_hmm import check_configurations

_CLASSES = {
  'prompt_vs_head': Settings,
  'memory_vs_vanilla': Settings,
  'memory_cells': Settings,
  'benchmark': BenchmarkSettings,
  'example_4_1': ExampleSettings,
  'theory': TheorySettings,
}

AnySettings = Settings | BenchmarkSettings | ExampleSettings | TheorySettings


def from_config(config: ml_collections.ConfigDict) -> AnySettings:
  """Validated settings; raises SettingsError at the first field that is wrong."""
  experiment = config.get('experiment')
  if experiment not in _CLASSES:
    raise SettingsError(f'experiment is {experiment!r}; valid is one of {", ".join(_CLASSES)}')
  settings = _read(_CLASSES[experiment], config, '')
  _check_numbers(settings)
  if isinstance(settings, Settings):
    _check(settings)
  if isinstance(settings, TheorySettings):
    _check_theory(settings)
  return settings


def field_names() -> list[str]:
  """Every field of every experiment by its dotted name, groups left out."""
  return sorted({name for cls in _CLASSES.values() for name in _field_names(cls, '')})


def _field_names(cls: Any, prefix: str) -> list[str]:
  names = []
  for field in dataclasses.fields(cls):
    is_group = dataclasses.is_dataclass(field.type)
    names += _field_names(field.type, f'{prefix}{field.name}.') if is_group else [prefix + field.name]
  return names


def _read(cls, config: Any, prefix: str):
  fields = {}
  names = [field.name for field in dataclasses.fields(cls)]
  unknown = sorted(set(config.keys()) - set(names))
  if unknown:
    raise SettingsError(f'{prefix}{unknown[0]} is no field of the config; valid are {", ".join(names)}')
  for field in dataclasses.fields(cls):
    name = prefix + field.name
    if field.name not in config:
      raise SettingsError(f'{name} is missing from the config')
    value = config[field.name]
    if dataclasses.is_dataclass(field.type):
      if not isinstance(value, ml_collections.ConfigDict):
        raise SettingsError(f'{name} is {value!r}; valid is a group of fields')
      fields[field.name] = _read(field.type, value, name + '.')
    else:
      fields[field.name] = _typed(name, value, field.type)
  return cls(**fields)


def _typed(name: str, value: Any, kind: Any) -> Any:
  if kind is float and isinstance(value, int) and not isinstance(value, bool):
    value = float(value)
  if kind in (tuple[int, ...], tuple[float, ...], tuple[str, ...]):
    entry = kind.__args__[0]
    if entry is float and isinstance(value, tuple):
      value = tuple(float(x) if type(x) is int else x for x in value)
    if not isinstance(value, tuple) or not all(type(x) is entry for x in value) or len(set(value)) != len(value):
      raise SettingsError(f'{name} is {value!r}; valid is a tuple of distinct {entry.__name__}s')
    if not value and name not in _EMPTY_ALLOWED:
      raise SettingsError(f'{name} is empty; valid is at least one {entry.__name__}')
  elif type(value) is not kind:
    raise SettingsError(f'{name} is {value!r}; valid is a value of type {kind.__name__}')
  return value


def _require(holds: bool, name: str, value: Any, valid: str) -> None:
  if not holds:
    raise SettingsError(f'{name} is {value!r}; valid is {valid}')


# The most sequences that are enumerated at a time.
_MAX_SEQUENCES = 2**20
_EMPTY_ALLOWED = ('memory.vanilla_methods',)
_ZERO_ALLOWED = (
  'sizes',
  'label_cell',
  'temperature',
  'key_size',
  'value_size',
  'seed',
  'warmup_steps',
  'dropout_rate',
  'weight_decay',
  'num_permutations',
  'num_devices',
  'random_share',
  'support_threshold',
  'noise_levels',
  'leaks',
  'checkpoints',
)


def _check_numbers(group: Any, prefix: str = '') -> None:
  for field in dataclasses.fields(group):
    name, value = prefix + field.name, getattr(group, field.name)
    if dataclasses.is_dataclass(value):
      _check_numbers(value, name + '.')
    elif field.type in (int, float):
      finite = value == value and abs(value) != float('inf')
      if field.name in _ZERO_ALLOWED:
        _require(finite and value >= 0, name, value, 'zero or positive')
      else:
        _require(finite and value > 0, name, value, 'positive')
      _require(field.name != 'seed' or value < 2**31, name, value, 'below 2**31')
    elif field.type == tuple[float, ...]:
      valid = 'numbers from 0' if field.name in _ZERO_ALLOWED else 'positive numbers'
      holds = all(0 <= x < float('inf') and (x > 0 or field.name in _ZERO_ALLOWED) for x in value)
      _require(holds, name, value, valid)
    elif field.type == tuple[int, ...]:
      least = 0 if field.name in _ZERO_ALLOWED else 1
      _require(min(value) >= least, name, value, f'numbers from {least}')


def _check(s: Settings) -> None:
  choices = (
    ('models', s.models, MODELS),
    ('methods', s.methods, METHODS),
    ('memory.vanilla_methods', s.memory.vanilla_methods, METHODS),
  )
  for name, values, valid in choices:
    _require(set(values) <= set(valid), name, values, f'a choice of {", ".join(valid)}')
  _require(s.hmm.num_tokens >= 2, 'hmm.num_tokens', s.hmm.num_tokens, 'at least 2')
  _require(
    s.corpus.chunk_length <= s.corpus.document_length,
    'corpus.chunk_length',
    s.corpus.chunk_length,
    f'at most corpus.document_length, {s.corpus.document_length}',
  )
  _check_memory(s)
  _check_bert(s)
  _check_pretrain(s.pretrain, s.corpus.num_chunks)
  _check_tuning(s)


def _check_memory(s: Settings) -> None:
  m = s.memory
  if any(m.sizes):
    for cells, size in itertools.product(m.cells, m.sizes):
      try:
        check_configurations(max(size, 1), cells)
      except ValueError as error:
        raise SettingsError(f'memory.cells is {m.cells} and memory.sizes is {m.sizes}: {error}')
    for cells in m.cells:
      valid = f'multiples of every number in memory.cells, {m.cells}'
      _require(all(states % cells == 0 for states in s.num_states), 'num_states', s.num_states, valid)
    fewest = min(m.cells)
    valid = f'a cell of every memory, below the fewest in memory.cells, {fewest}'
    _require(m.label_cell < fewest, 'memory.label_cell', m.label_cell, valid)
  _require(1 not in m.sizes, 'memory.sizes', m.sizes, 'at least 2 values, or 0 for no memory')
  form = s.attention.form
  _require(form in ATTENTION_FORMS, 'attention.form', form, f'one of {", ".join(ATTENTION_FORMS)}')


def _check_module(bert: BertSettings, name: str, longest: int, what: str) -> None:
  _require(bert.dtype in DTYPES, f'{name}.dtype', bert.dtype, f'one of {", ".join(DTYPES)}')
  _require(bert.dropout_rate < 1, f'{name}.dropout_rate', bert.dropout_rate, 'in [0, 1)')
  valid = f'a multiple of {name}.num_heads, {bert.num_heads}'
  _require(bert.width % bert.num_heads == 0, f'{name}.width', bert.width, valid)
  valid = f'at least {longest}, {what}'
  _require(bert.max_positions >= longest, f'{name}.max_positions', bert.max_positions, valid)


def _check_bert(s: Settings) -> None:
  longest = max(s.corpus.chunk_length, s.downstream.length)
  _check_module(s.bert, 'bert', longest, 'the longest of corpus.chunk_length and downstream.length')
  if any(METHODS[name].prompt for name in s.methods + s.memory.vanilla_methods) and 'bert' in s.models:
    room = s.bert.max_positions - s.downstream.length
    valid = f'at most {room}: bert.max_positions {s.bert.max_positions} less downstream.length {s.downstream.length}'
    _require(s.prompt.length <= room, 'prompt.length', s.prompt.length, valid)


def _check_corruption(group: PretrainSettings | BertStudySettings, name: str) -> None:
  _require(0 < group.mask_rate < 1, f'{name}.mask_rate', group.mask_rate, 'inside (0, 1)')
  _require(group.mask_share <= 1, f'{name}.mask_share', group.mask_share, 'in (0, 1]')
  rest = 1 - group.mask_share
  valid = f'in [0, {rest:.3g}], what {name}.mask_share leaves'
  _require(group.random_share <= rest + 1e-9, f'{name}.random_share', group.random_share, valid)


def _check_pretrain(p: PretrainSettings, num_chunks: int) -> None:
  _check_corruption(p, 'pretrain')
  valid = f'at most {num_chunks}, the number of chunks in the corpus'
  _require(p.batch_size <= num_chunks, 'pretrain.batch_size', p.batch_size, valid)
  valid = f'below pretrain.num_steps, {p.num_steps}'
  _require(p.warmup_steps < p.num_steps, 'pretrain.warmup_steps', p.warmup_steps, valid)
  for name in ('num_steps', 'checkpoint_every', 'measure_every'):
    valid = f'a multiple of pretrain.steps_per_call, {p.steps_per_call}'
    _require(getattr(p, name) % p.steps_per_call == 0, f'pretrain.{name}', getattr(p, name), valid)


def _check_tuning(s: Settings) -> None:
  d = s.downstream
  _require(d.length >= 2, 'downstream.length', d.length, 'at least 2: the [MASK] and a token')
  _require(d.num_classes >= 2, 'downstream.num_classes', d.num_classes, 'at least 2')
  for method in dict.fromkeys(s.methods + s.memory.vanilla_methods):
    batch_size = s.tuning(method).batch_size
    valid = f'at most downstream.num_train, {d.num_train}'
    _require(batch_size <= d.num_train, f'{method}.batch_size', batch_size, valid)
    steps, warmup = s.tuning(method).num_epochs * (d.num_train // batch_size), s.tuning(method).warmup_steps
    _require(warmup < steps, f'{method}.warmup_steps', warmup, f'below the {steps} steps of {method} tuning')
  _require(s.prompt.init in PROMPT_INITS, 'prompt.init', s.prompt.init, f'one of {", ".join(PROMPT_INITS)}')
  for name, methods in (('methods', s.methods), ('memory.vanilla_methods', s.memory.vanilla_methods)):
    both = 'finetune' in methods and s.models == ('exact',)
    _require(not both, name, methods, "without 'finetune' where models is ('exact',): it has nothing to fine-tune")


def _check_theory(s: TheorySettings) -> None:
  v, i, d, b = s.verification, s.impossibility, s.imperfection, s.bert
  most = s.examination.max_sequences
  _require(most <= _MAX_SEQUENCES, 'examination.max_sequences', most, f'at most {_MAX_SEQUENCES}')
  for name, group in (('verification', v), ('impossibility', i), ('imperfection', d)):
    _require(
      group.num_tokens >= 5, f'{name}.num_tokens', group.num_tokens, 'at least 5, for the structure of the draws'
    )
  _require(v.num_classes >= 2, 'verification.num_classes', v.num_classes, 'at least 2')
  _require(v.memory_size >= 2, 'verification.memory_size', v.memory_size, 'at least 2')
  for name, length, tokens in (
    ('verification.max_length', v.max_length, v.num_tokens),
    ('impossibility.max_length', i.max_length, i.num_tokens),
  ):
    longest = int(math.log(_MAX_SEQUENCES, tokens) + 1e-9)
    valid = f'at most {longest}, for {_MAX_SEQUENCES} sequences of {tokens} tokens'
    _require(length <= longest, name, length, valid)
  valid = f'at least verification.max_length, {v.max_length}'
  _require(v.sampled_length >= v.max_length, 'verification.sampled_length', v.sampled_length, valid)
  for name, states, tokens in (
    ('verification.num_states', v.num_states, v.num_tokens),
    ('imperfection.num_states_3_3', d.num_states_3_3, d.num_tokens),
  ):
    _require(2 <= states <= tokens, name, states, f'from 2 to num_tokens, {tokens}, as Assumption 3.1 needs')
  for name, states in (
    ('verification.num_states_3_6', v.num_states_3_6),
    ('imperfection.num_states_3_6', d.num_states_3_6),
  ):
    _require(states >= 6, name, states, 'at least 6: H* and its imitators')
  valid = f'more than impossibility.num_tokens, {i.num_tokens}'
  _require(i.num_states > i.num_tokens, 'impossibility.num_states', i.num_states, valid)
  valid = f'from 1 to impossibility.num_states, {i.num_states}'
  _require(i.num_weighed <= i.num_states, 'impossibility.num_weighed', i.num_weighed, valid)
  _require(0.5 < d.largest_majority < 1, 'imperfection.largest_majority', d.largest_majority, 'inside (0.5, 1)')
  _require(max(d.leaks) < 1, 'imperfection.leaks', d.leaks, 'shares below 1')
  for name, group in (('impossibility', i), ('imperfection', d)):
    tuning, num_train = group.tuning, group.num_train
    valid = f'at most {name}.num_train, {num_train}'
    _require(tuning.batch_size <= num_train, f'{name}.tuning.batch_size', tuning.batch_size, valid)
    steps = tuning.num_epochs * (num_train // tuning.batch_size)
    valid = f'below the {steps} steps of tuning'
    _require(tuning.warmup_steps < steps, f'{name}.tuning.warmup_steps', tuning.warmup_steps, valid)
  valid = f'ascending multiples of bert.steps_per_call, {b.steps_per_call}, the last above bert.warmup_steps'
  ascending = tuple(sorted(b.checkpoints)) == b.checkpoints and b.checkpoints[-1] > b.warmup_steps
  _require(ascending and not any(x % b.steps_per_call for x in b.checkpoints), 'bert.checkpoints', b.checkpoints, valid)
  _check_module(b.model, 'bert.model', d.length + d.prompt_length, 'imperfection.length and prompt_length')
  _check_corruption(b, 'bert')
  valid = f'at most bert.num_documents, {b.num_documents}'
  _require(b.batch_size <= b.num_documents, 'bert.batch_size', b.batch_size, valid)
