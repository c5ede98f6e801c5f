"""ConfigDict in, validated frozen dataclasses out; the only reader of ConfigDict.

Every refusal is one sentence that names the field, its value and what would be valid, and is raised before
anything is compiled or written.
"""

import dataclasses
import hashlib
import itertools
import json
from typing import Any, NamedTuple

import jax.numpy as jnp
import ml_collections

from hmm_jax.bert import Bert
from hmm_jax.masking import Corruption
from hmm_jax.memory_hmm import check_configurations
from hmm_jax.tuning import Schedule

# Raised when a change of the code changes the bits of a pretrained model, so that none of before is found again.
_PRETRAINING_VERSION = 1

MODELS = ('bert', 'exact')
METHODS = ('head', 'prompt', 'probe', 'finetune', 'attention', 'prompt_attention')
PROMPT_METHODS = ('prompt', 'prompt_attention')
PROMPT_INITS = ('uniform', 'vocabulary')
ATTENTION_FORMS = ('paper', 'official')
DTYPES = ('float32', 'bfloat16', 'float16')


class SettingsError(ValueError):
  """Bad input, as one sentence for the user."""


class Point(NamedTuple):
  """A distribution of the grid: an HMM of |H| states, or with a memory of N cells and |M| values (else 0 and 0)."""

  num_states: int
  memory_size: int = 0
  num_cells: int = 0

  @property
  def joint_states(self) -> int:
    """|M|^N |H|, the states of the flattened chain."""
    return self.num_states * self.memory_size**self.num_cells

  def __str__(self) -> str:
    memory = f' |M|={self.memory_size} N={self.num_cells}' if self.memory_size else ''
    return f'|H|={self.num_states}{memory}'


@dataclasses.dataclass(frozen=True)
class HmmSettings:
  num_tokens: int
  num_permutations: int
  transition_temperature: float
  initial_temperature: float
  emission_temperature: float


@dataclasses.dataclass(frozen=True)
class MemorySettings:
  sizes: tuple[int, ...]
  cells: tuple[int, ...]
  label_cell: int
  joint_prior: bool
  joint_permutations: bool
  vanilla_methods: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
  num_documents: int
  document_length: int
  chunk_length: int

  @property
  def chunks_per_document(self) -> int:
    return self.document_length // self.chunk_length

  @property
  def num_chunks(self) -> int:
    return self.num_documents * self.chunks_per_document


@dataclasses.dataclass(frozen=True)
class BertSettings:
  num_layers: int
  width: int
  num_heads: int
  ffn_width: int
  max_positions: int
  dropout_rate: float
  init_stddev: float
  dtype: str


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
  num_steps: int
  batch_size: int
  learning_rate: float
  warmup_steps: int
  weight_decay: float
  clip_norm: float
  mask_rate: float
  mask_share: float
  random_share: float
  steps_per_call: int
  checkpoint_every: int
  measure_every: int


@dataclasses.dataclass(frozen=True)
class MeasureSettings:
  num_chunks: int
  num_inputs: int
  num_documents: int
  batch_size: int


@dataclasses.dataclass(frozen=True)
class DownstreamSettings:
  length: int
  num_train: int
  num_validation: int
  num_test: int
  num_classes: int
  num_nonzero: int
  with_replacement: bool


@dataclasses.dataclass(frozen=True)
class TuneSettings:
  learning_rate: float
  num_epochs: int
  batch_size: int
  warmup_steps: int
  weight_decay: float
  clip_norm: float

  @property
  def schedule(self) -> Schedule:
    return Schedule(*(getattr(self, name) for name in Schedule._fields))


@dataclasses.dataclass(frozen=True)
class PromptSettings(TuneSettings):
  length: int
  init: str
  init_scale: float


@dataclasses.dataclass(frozen=True)
class AttentionSettings(TuneSettings):
  form: str
  temperature: float
  key_size: int
  value_size: int


@dataclasses.dataclass(frozen=True)
class FigureSettings:
  width: float
  height: float
  dpi: int
  paper_overlay: bool


@dataclasses.dataclass(frozen=True)
class Settings:
  """One experiment. Fields as in `configs/base.py`."""

  experiment: str
  scale: str
  seed: int
  num_states: tuple[int, ...]
  num_trials: int
  tasks_per_trial: int
  models: tuple[str, ...]
  methods: tuple[str, ...]
  hmm: HmmSettings
  memory: MemorySettings
  corpus: CorpusSettings
  bert: BertSettings
  pretrain: PretrainSettings
  measure: MeasureSettings
  downstream: DownstreamSettings
  head: TuneSettings
  probe: TuneSettings
  finetune: TuneSettings
  prompt: PromptSettings
  attention: AttentionSettings
  prompt_attention: TuneSettings
  num_devices: int
  compilation_cache: str
  pretrained: str
  tensorboard: bool
  figure: FigureSettings

  def tuning(self, method: str) -> TuneSettings:
    """The settings of one of METHODS."""
    return getattr(self, method)

  def bert_module(self) -> Bert:
    fields = dataclasses.asdict(self.bert)
    return Bert(num_tokens=self.hmm.num_tokens, **{**fields, 'dtype': jnp.dtype(self.bert.dtype)})

  def corruption(self) -> Corruption:
    return Corruption(
      self.hmm.num_tokens, self.pretrain.mask_rate, self.pretrain.mask_share, self.pretrain.random_share
    )

  def grid(self) -> dict[Point, tuple[str, ...]]:
    """The points of the experiment, each with its methods: those with a memory, then the vanilla HMMs beside them."""
    memory = self.memory
    product = itertools.product(memory.cells, memory.sizes, self.num_states)
    points = {Point(states, size, cells if size else 0): self.methods for cells, size, states in product}
    if memory.vanilla_methods:
      beside = {Point(point.joint_states): memory.vanilla_methods for point in points if point.memory_size}
      points = {**beside, **points}
    return dict(sorted(points.items(), key=lambda item: (item[0].num_cells, item[0].memory_size > 0, item[0])))

  def pretraining_id(self, point: Point, trial: int) -> str:
    """Names a pretrained model by all that decides its bits, whatever the experiment."""
    pretrain = dataclasses.asdict(self.pretrain)
    del pretrain['checkpoint_every'], pretrain['measure_every']
    parts = [_PRETRAINING_VERSION, self.seed, point.num_states, trial, self.hmm, self.corpus, self.bert, pretrain]
    if point.memory_size:
      parts += [point, self.memory.joint_prior, self.memory.joint_permutations]
    return _digest(parts)

  def trial_id(self, point: Point, trial: int) -> str:
    """Names a trial by all that decides its records, whichever models, methods and tasks are asked for."""
    parts = [self.pretraining_id(point, trial), self.measure, self.downstream, [self.tuning(m) for m in METHODS]]
    if point.memory_size:
      parts.append(self.memory.label_cell)
    return _digest(parts)


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings:
  """The benchmark. Fields as in `configs/benchmark.py`."""

  experiment: str
  scale: str
  seed: int
  num_states: tuple[int, ...]
  num_tokens: int
  num_sequences: int
  length: int
  memory_size: int
  memory_states: int
  sampling_states: int
  num_documents: int
  document_length: int
  repeats: int
  compilation_cache: str


@dataclasses.dataclass(frozen=True)
class PastureSettings:
  """The paper's Example 4.1. Fields as in `configs/cow_in_the_pasture.py`."""

  experiment: str
  scale: str
  seed: int
  sentence: str
  num_documents: int
  document_length: int
  figure_width: float
  figure_height: float
  figure_dpi: int
  compilation_cache: str


AnySettings = Settings | BenchmarkSettings | PastureSettings

_CLASSES = {
  'prompt_vs_head': Settings,
  'memory_vs_vanilla': Settings,
  'memory_cells': Settings,
  'benchmark': BenchmarkSettings,
  'cow_in_the_pasture': PastureSettings,
}


def _digest(parts: list[Any]) -> str:
  text = json.dumps(parts, default=dataclasses.asdict, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:12]


def from_config(config: ml_collections.ConfigDict) -> AnySettings:
  """Validated settings; raises SettingsError at the first field that is wrong."""
  experiment = config.get('experiment')
  if experiment not in _CLASSES:
    raise SettingsError(f'experiment is {experiment!r}; valid is one of {", ".join(_CLASSES)}')
  settings = _read(_CLASSES[experiment], config, '')
  _check_numbers(settings)
  if isinstance(settings, Settings):
    _check(settings)
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
  if kind in (tuple[int, ...], tuple[str, ...]):
    entry = kind.__args__[0]
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


def _check_bert(s: Settings) -> None:
  _require(s.bert.dtype in DTYPES, 'bert.dtype', s.bert.dtype, f'one of {", ".join(DTYPES)}')
  _require(s.bert.dropout_rate < 1, 'bert.dropout_rate', s.bert.dropout_rate, 'in [0, 1)')
  heads = s.bert.num_heads
  _require(s.bert.width % heads == 0, 'bert.width', s.bert.width, f'a multiple of bert.num_heads, {heads}')
  longest = max(s.corpus.chunk_length, s.downstream.length)
  _require(
    s.bert.max_positions >= longest,
    'bert.max_positions',
    s.bert.max_positions,
    f'at least {longest}, the longest of corpus.chunk_length and downstream.length',
  )
  if set(PROMPT_METHODS) & set(s.methods + s.memory.vanilla_methods) and 'bert' in s.models:
    room = s.bert.max_positions - s.downstream.length
    valid = f'at most {room}: bert.max_positions {s.bert.max_positions} less downstream.length {s.downstream.length}'
    _require(s.prompt.length <= room, 'prompt.length', s.prompt.length, valid)


def _check_pretrain(p: PretrainSettings, num_chunks: int) -> None:
  _require(0 < p.mask_rate < 1, 'pretrain.mask_rate', p.mask_rate, 'inside (0, 1)')
  _require(p.mask_share <= 1, 'pretrain.mask_share', p.mask_share, 'in (0, 1]')
  rest = 1 - p.mask_share
  valid = f'in [0, {rest:.3g}], what pretrain.mask_share leaves'
  _require(p.random_share <= rest + 1e-9, 'pretrain.random_share', p.random_share, valid)
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
  both = 'finetune' in s.methods and s.models == ('exact',)
  _require(not both, 'methods', s.methods, "without 'finetune' where models is ('exact',): it has nothing to fine-tune")
