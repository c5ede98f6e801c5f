"""The settings of every experiment as frozen dataclasses, and the ids that they give to models and trials."""

import dataclasses
import hashlib
import itertools
import json
from typing import Any, NamedTuple

import jax.numpy as jnp

from experiments.methods import METHODS
from hmm_jax.bert import Bert
from hmm_jax.masking import Corruption
from hmm_jax.tuning import Schedule

# Raised when a change of the code changes the bits of a pretrained model, so that none of before is found again.
_PRETRAINING_VERSION = 1

MODELS = ('bert', 'exact')
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

  def module(self, num_tokens: int) -> Bert:
    return Bert(num_tokens=num_tokens, **{**dataclasses.asdict(self), 'dtype': jnp.dtype(self.dtype)})


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
  fast_compilation: bool
  pretrained: str
  tensorboard: bool
  figure: FigureSettings

  def tuning(self, method: str) -> TuneSettings:
    """The settings of one of METHODS."""
    return getattr(self, method)

  def bert_module(self) -> Bert:
    return self.bert.module(self.hmm.num_tokens)

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
      for point in [Point(point.joint_states) for point in points if point.memory_size]:
        points[point] = tuple(dict.fromkeys(points.get(point, ()) + memory.vanilla_methods))
    return dict(sorted(points.items(), key=lambda item: (item[0].num_cells, item[0].memory_size > 0, item[0])))

  def pretraining_id(self, point: Point, trial: int) -> str:
    """Names a pretrained model by all settings that decide its bits, whatever the experiment.

    Platform, devices and versions may decide them too: they stand beside the model, and are not part of its name.
    """
    pretrain = dataclasses.asdict(self.pretrain)
    del pretrain['checkpoint_every'], pretrain['measure_every']
    parts = [_PRETRAINING_VERSION, self.seed, point.num_states, trial, self.hmm, self.corpus, self.bert, pretrain]
    if self.fast_compilation:
      parts.append('fast compilation')
    if point.memory_size:
      parts += [point, self.memory.joint_prior, self.memory.joint_permutations]
    return digest(parts)

  def trial_id(self, point: Point, trial: int) -> str:
    """Names a trial by all settings that decide its records, whichever models, methods and tasks are asked for."""
    parts = [self.pretraining_id(point, trial), self.measure, self.downstream, [self.tuning(m) for m in METHODS]]
    if point.memory_size:
      parts.append(self.memory.label_cell)
    return digest(parts)


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
  fast_compilation: bool


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
  """The paper's Example 4.1. Fields as in `configs/example_4_1.py`."""

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
  fast_compilation: bool


def digest(parts: list[Any]) -> str:
  """Twelve hexadecimal digits that name settings by their values."""
  text = json.dumps(parts, default=dataclasses.asdict, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:12]
