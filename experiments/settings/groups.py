"""Groups of self-checking fields, which make up settings; the defaults are in `configs/`."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import optax

from experiments.settings.fields import Group, require, setting
from experiments.settings.methods import METHODS
from hmm_jax import optimizer as optimizer_lib
from hmm_jax.bert import Bert
from hmm_jax.masking import Corruption
from hmm_jax.memory_hmm import MAX_CONFIGURATIONS
from hmm_jax.tuning import Schedule


class Experiment(Group):
  """The settings that every experiment has."""

  experiment: str = setting('name of the experiment, decided by --config')
  scale: str = setting('name of the defaults, how much is run: decided by --config=NAME:SCALE')
  seed: int = setting('decides everything that is drawn', least=0)
  compilation_cache: str = setting("where compiled programs are kept between runs: auto, a directory, or '' nowhere")
  fast_compilation: bool = setting('whether programs compile in half the time and run slower')
  deterministic: bool = setting('whether a GPU goes without operations whose last bits differ from run to run')
  debug_nans: bool = setting('whether JAX looks at every result and stops at the first NaN, with its place')


class FigureSettings(Group):
  width: float = setting('inches', least=1, most=30)
  height: float = setting('inches', least=1, most=30)
  dpi: int = setting('dots per inch', least=10, most=600)
  paper_overlay: bool = setting("whether the paper's Figure 3 is drawn and tabulated beside ours")


class TemperatureSettings(Group):
  transition_temperature: float = setting('of the weights of the permutations', least=1e-6, most=1_000_000)
  initial_temperature: float = setting('of P[H_1]', least=1e-6, most=1_000_000)
  emission_temperature: float = setting('of the rows P[X | H]', least=1e-6, most=1_000_000)

  @property
  def temperatures(self) -> dict[str, Any]:
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(TemperatureSettings)}


class HmmSettings(TemperatureSettings):
  num_tokens: int = setting('size V of the vocabulary', least=2, most=65_536)
  num_permutations: int = setting('permutations that the transition matrix mixes; 0: |H|', least=0, most=65_536)


class MemorySettings(Group):
  sizes: tuple[int, ...] = setting('values |M| of a cell; 0: an HMM without a memory', least=0, most=4096)
  cells: tuple[int, ...] = setting('numbers N of cells', most=64)
  label_cell: int = setting("the cell that labels speak of, the paper's j*", least=0)
  joint_prior: bool = setting('whether P[M, H_1] is drawn at once')
  joint_permutations: bool = setting('whether as many permutations are mixed as joint states |M||H|')
  vanilla_methods: tuple[str, ...] = setting(
    'methods on the HMM of |M||H| states beside each memory', choices=tuple(METHODS), may_be_empty=True
  )

  def check(self) -> None:
    self.require('sizes', 1 not in self.sizes, 'at least 2 values, or 0 for no memory')
    if any(self.sizes):
      # The grid combines every size with every number of cells.
      valid = f'fewer, for sizes {self.sizes}: at most {MAX_CONFIGURATIONS} memory configurations are enumerated'
      self.require('cells', max(self.sizes) ** max(self.cells) <= MAX_CONFIGURATIONS, valid)
      fewest = min(self.cells)
      self.require('label_cell', self.label_cell < fewest, f'below the fewest in cells, {fewest}')


class CorpusSettings(Group):
  num_documents: int = setting('documents of the corpus')
  document_length: int = setting('tokens of a document')
  chunk_length: int = setting('tokens that pretraining sees at once; a remainder of the document is left out')

  def check(self) -> None:
    valid = f'at most document_length, {self.document_length}'
    self.require('chunk_length', self.chunk_length <= self.document_length, valid)

  @property
  def chunks_per_document(self) -> int:
    return self.document_length // self.chunk_length

  @property
  def num_chunks(self) -> int:
    return self.num_documents * self.chunks_per_document


class BertSettings(Group):
  num_layers: int = setting('layers', most=1000)
  width: int = setting('width D of an embedding')
  num_heads: int = setting('attention heads of a layer')
  ffn_width: int = setting('width of the inner layer of the feed-forward network')
  max_positions: int = setting('positions, those of a prompt included')
  dropout_rate: float = setting('share that dropout zeroes in pretraining', least=0, below=1)
  init_stddev: float = setting("standard deviation of initial weights; BERT's 0.02 is for width 768")
  dtype: str = setting('arithmetic of pretraining; parameters are float32', choices=('float32', 'bfloat16', 'float16'))
  attention: str = setting('its kernel in pretraining; cudnn needs a GPU', choices=('xla', 'cudnn'))
  scan_layers: bool = setting('whether all layers but the last compile as one')

  def check(self) -> None:
    # cuDNN's kernel supports only half precision, and no dropout.
    if self.attention == 'cudnn':
      self.require('dtype', self.dtype != 'float32', "bfloat16 or float16 where attention is 'cudnn'")
      self.require('dropout_rate', self.dropout_rate == 0, "0 where attention is 'cudnn'")
    self.require('scan_layers', not self.scan_layers or self.num_layers > 1, 'False for one layer')
    self.require('width', self.width % self.num_heads == 0, f'a multiple of num_heads, {self.num_heads}')

  def module(self, num_tokens: int) -> Bert:
    return Bert(num_tokens=num_tokens, **{**dataclasses.asdict(self), 'dtype': jnp.dtype(self.dtype)})


class AdamWSettings(Group):
  learning_rate: float = setting('peak, after a linear warm-up and before the decay')
  batch_size: int = setting('inputs of an optimiser step')
  warmup_steps: int = setting('steps until the peak', least=0)
  weight_decay: float = setting('of AdamW', least=0)
  clip_norm: float = setting('most norm of a gradient')


class MlmSettings(AdamWSettings):
  optimizer: str = setting('AdamW, or Muon for the matrices of the layers', choices=('adamw', 'muon'))
  muon_learning_rate: float = setting('as learning_rate, of the matrices that Muon trains')
  decay: str = setting('of the learning rate; wsd: over the last fifth of the steps', choices=optimizer_lib.DECAYS)
  b2: float = setting("of Adam's mean square", least=0, below=1)
  mask_rate: float = setting('share of positions that are selected', above=0, below=1)
  mask_share: float = setting('share of the selected that become [MASK]', above=0, most=1)
  random_share: float = setting('share of the selected that become a random token', least=0, most=1)
  steps_per_call: int = setting('steps of one call of the compiled program')

  def check(self) -> None:
    # 0.9 + 0.1 may be more than 1 in binary.
    fits = self.mask_share + self.random_share <= 1 + 1e-9
    self.require('random_share', fits, f'at most {1 - self.mask_share:.3g}, what mask_share leaves')

  def gradient_transformation(self, num_steps: int) -> optax.GradientTransformation:
    """The optimiser whose learning rate is 0 after `num_steps`."""
    muon = functools.partial(optimizer_lib.muon, muon_learning_rate=self.muon_learning_rate)
    build = muon if self.optimizer == 'muon' else optimizer_lib.adamw
    return build(
      self.learning_rate,
      self.warmup_steps,
      num_steps,
      weight_decay=self.weight_decay,
      clip_norm=self.clip_norm,
      b2=self.b2,
      decay=self.decay,
    )

  def corruption(self, num_tokens: int) -> Corruption:
    return Corruption(num_tokens, self.mask_rate, self.mask_share, self.random_share)


class PretrainSettings(MlmSettings):
  num_steps: int = setting('optimiser steps')
  checkpoint_every: int = setting('steps between checkpoints')
  measure_every: int = setting('steps between measurements of the distance from the ideal model')

  def check(self) -> None:
    super().check()
    self.require('warmup_steps', self.warmup_steps < self.num_steps, f'below num_steps, {self.num_steps}')
    # All happens between two calls of the compiled program.
    for name in ('num_steps', 'checkpoint_every', 'measure_every'):
      is_multiple = getattr(self, name) % self.steps_per_call == 0
      self.require(name, is_multiple, f'a multiple of steps_per_call, {self.steps_per_call}')


class MeasureSettings(Group):
  num_chunks: int = setting('chunks corrupted as in pretraining, for the loss above its Bayes floor')
  num_inputs: int = setting('test inputs at most, for KL and total variation at the [MASK]')
  num_documents: int = setting('documents masked one position at a time')
  batch_size: int = setting('inputs that are computed at a time', most=65_536)


class DownstreamSettings(Group):
  length: int = setting('tokens of a text, which all decide its label: the [MASK] and at least one more', least=2)
  num_positions: int = setting('positions that a text is cut to for the model, prompt included; 0: no cut', least=0)
  label_state: str = setting(
    'whose posterior labels speak of without a memory: H_1, or the silent state before',
    choices=('first', 'silent'),
  )
  num_train: int = setting('training inputs')
  num_validation: int = setting('validation inputs')
  num_test: int = setting('test inputs')
  num_classes: int = setting('labels', least=2, most=1000)
  num_nonzero: int = setting('nonzero entries of mu, at most all', most=1_000_000)
  with_replacement: bool = setting('whether the places of the nonzero entries may coincide')

  def seen_length(self, prompt_length: int) -> int:
    """Tokens of a text that a model sees after a prompt, [MASK] included."""
    return min(self.length, self.num_positions - prompt_length) if self.num_positions else self.length


class TuneSettings(AdamWSettings):
  num_epochs: int = setting('passes over the training inputs')

  @property
  def schedule(self) -> Schedule:
    return Schedule(*(getattr(self, name) for name in Schedule._fields))

  def check_for(self, name: str, num_train: int) -> None:
    """Raise SettingsError where `num_train` inputs make no batch, or fewer steps than the warm-up has."""
    valid = f'at most num_train, {num_train}'
    require(self.batch_size <= num_train, f'{name}.batch_size', self.batch_size, valid)
    # An incomplete last batch of an epoch is dropped.
    steps = self.num_epochs * (num_train // self.batch_size)
    require(self.warmup_steps < steps, f'{name}.warmup_steps', self.warmup_steps, f'below the {steps} steps of {name}')


class OnTestSettings(Group):
  ridges: tuple[float, ...] = setting('of heads converged on test inputs, from the best of which the search starts too')
  tolerance: float = setting('margins up to which count as none, where test inputs have unit covariance', below=1)
  max_rounds: int = setting('rounds of search from each start at most', most=1_000_000)
  max_certificates: int = setting('certificates of inseparability that are looked for')


class ConvergedSettings(Group):
  ridge: float = setting('half of it times the squares of weights and bias is added to the mean loss')
  tolerance: float = setting('largest entry of the gradient at which a head is converged')
  max_iterations: int = setting('steps of the optimiser at which it gives up')


class RestartSettings(Group):
  number: int = setting('starts of each task, of which validation chooses', most=16_384)
  steps_factor: int = setting('epochs from each start, in units of those of the schedule', most=1_000_000)


class PromptSettings(TuneSettings):
  length: int = setting('vectors of a prompt', most=65_536)
  init: str = setting('how it starts: uniform entries, or rows of the vocabulary', choices=('uniform', 'vocabulary'))
  init_scale: float = setting('half-width of the uniform start, in units of the prompt space of the model')


class AttentionSettings(TuneSettings):
  form: str = setting("of the head: the paper's (4.1), or the released code's", choices=('paper', 'official'))
  temperature: float = setting('of its softmax; 0: argmax, averaging over ties', least=0, most=1_000_000)
  key_size: int = setting('of its keys; 0: |H| + 1', least=0, most=65_536)
  value_size: int = setting('of its values; 0: |M||H|', least=0, most=65_536)
