"""Groups of self-checking fields, which make up settings; the defaults are in `configs/`."""

import dataclasses
import math
import typing

import jax.numpy as jnp
import optax

from experiments.settings.fields import Group, require, setting
from experiments.settings.methods import METHODS
from hmm_jax import defaults
from hmm_jax.models import optimizer as optimizer_lib
from hmm_jax.models.bert import Bert
from hmm_jax.models.masking import Corruption, next_token
from hmm_jax.tuning.tuner import Schedule


class Experiment(Group):
  """The settings that every experiment has."""

  gone: typing.ClassVar[tuple[str, ...]] = ('deterministic', 'fast_compilation')

  experiment: str = setting('name of the experiment; set by --config')
  scale: str = setting('scale of the experiment; set by --config=NAME:SCALE')
  seed: int = setting('random seed', least=0, below=2**31)
  compilation_cache: str = setting("folder of compiled programs: auto, a path, or '' for none")


class FigureSettings(Group):
  width: float = setting('width in inches', least=1)
  height: float = setting('height in inches', least=1)
  dpi: int = setting('resolution in dots per inch', least=10)
  paper_overlay: bool = setting("draw and tabulate the paper's Figure 3 beside ours")


class HmmSettings(Group):
  gone = ('num_permutations',)

  transition_temperature: float = setting('softmax temperature of the permutation weights', least=1e-6)
  initial_temperature: float = setting('softmax temperature of P[H_1]', least=1e-6)
  emission_temperature: float = setting('softmax temperature of the rows P[X | H]', least=1e-6)
  num_tokens: int = setting('vocabulary size V', least=2)


class MemorySettings(Group):
  sizes: tuple[int, ...] = setting('numbers |M| of values of a memory cell; 0: no memory', least=0)
  cells: tuple[int, ...] = setting('numbers N of memory cells')
  label_cell: int = setting("index of the cell that decides the label, the paper's j*", least=0)
  joint_prior: bool = setting('draw P[M, H_1] jointly')
  joint_permutations: bool = setting('mix as many permutations as joint states |M||H|')
  vanilla_methods: tuple[str, ...] = setting(
    'methods to tune on an HMM with |M||H| states beside each memory HMM', choices=tuple(METHODS), may_be_empty=True
  )


class CorpusSettings(Group):
  num_documents: int = setting('number of documents in the corpus')
  document_length: int = setting('tokens in a document')
  chunk_length: int = setting('tokens in a pretraining chunk; the remainder of a document is dropped')

  @property
  def chunks_per_document(self) -> int:
    return self.document_length // self.chunk_length

  @property
  def num_chunks(self) -> int:
    return self.num_documents * self.chunks_per_document


class BertSettings(Group):
  gone = ('attention', 'scan_layers')

  num_layers: int = setting('number of layers')
  width: int = setting('embedding width D')
  num_heads: int = setting('attention heads in a layer')
  ffn_width: int = setting('width of the feed-forward layer')
  max_positions: int = setting('maximum number of positions, prompt included')
  dropout_rate: float = setting('dropout rate in pretraining', least=0, below=1)
  init_stddev: float = setting('standard deviation of the initial weights; 0.02 in BERT at width 768')
  dtype: str = setting('compute dtype of pretraining; parameters: float32', choices=('float32', 'bfloat16', 'float16'))
  causal: bool = setting('predict the next token: each row sees only the tokens before it', earlier=False)

  def module(self, num_tokens: int) -> Bert:
    return Bert(num_tokens=num_tokens, **{**dataclasses.asdict(self), 'dtype': jnp.dtype(self.dtype)})


class AdamWSettings(Group):
  learning_rate: float = setting('peak learning rate, after linear warm-up and before decay')
  batch_size: int = setting('batch size of an optimiser step')
  warmup_steps: int = setting('warm-up steps', least=0)
  weight_decay: float = setting('weight decay of AdamW', least=0)
  clip_norm: float = setting('maximum gradient norm')


class MlmSettings(AdamWSettings):
  gone = ('b2', 'decay', 'mask_share', 'random_share')

  optimizer: str = setting('optimiser: AdamW, or Muon for the matrices of the layers', choices=('adamw', 'muon'))
  muon_learning_rate: float = setting('peak learning rate of the matrices trained by Muon')
  mask_rate: float = setting('share of positions selected for prediction', above=0, below=1)
  steps_per_call: int = setting('optimiser steps in one call of the compiled program')

  def gradient_transformation(self, num_steps: int) -> optax.GradientTransformation:
    """The optimiser whose learning rate is 0 after `num_steps`."""
    return optimizer_lib.scheduled(
      self.learning_rate,
      self.warmup_steps,
      num_steps,
      weight_decay=self.weight_decay,
      clip_norm=self.clip_norm,
      muon_learning_rate=self.muon_learning_rate if self.optimizer == 'muon' else None,
    )

  def corruption(self, num_tokens: int, causal: bool) -> Corruption:
    """The corruption of a masked model, or none for a causal one, which ignores the fields of masks."""
    if causal:
      return next_token(num_tokens)
    return Corruption(num_tokens, **defaults.CORRUPTION)._replace(mask_rate=self.mask_rate)


class PretrainSettings(MlmSettings):
  num_steps: int = setting('number of optimiser steps')
  checkpoint_every: int = setting('steps between checkpoints')
  measure_every: int = setting('steps between evaluations against the ideal model')


class MeasureSettings(Group):
  num_chunks: int = setting('corrupted chunks for the MLM loss above its Bayes floor')
  num_inputs: int = setting('maximum test inputs for KL and total variation at the [MASK]')
  num_documents: int = setting('documents evaluated with one position masked at a time')
  batch_size: int = setting('batch size of the evaluation')
  prompts: int = setting(
    'prompts of text and random ones whose effect is measured; 0: none',
    least=0,
    earlier=0,
  )


class DownstreamSettings(Group):
  length: int = setting('tokens in a text, [MASK] included; all of them decide the label', least=2)
  num_positions: int = setting('positions the model sees, prompt included; 0: the whole text', least=0)
  label_state: str = setting(
    'state of labels without a memory: of the hidden token, or the silent one before',
    choices=('first', 'silent'),
  )
  hidden: str = setting('hidden token of a text, that [MASK] stands for', choices=('first', 'last'), earlier='first')
  num_train: int = setting('number of training inputs', least=2)
  num_validation: int = setting('number of validation inputs')
  num_labels: int = setting(
    'training inputs with a label, and as many for validation; 0: all', least=0, most=100_000, earlier=0
  )
  num_test: int = setting('number of test inputs')
  num_classes: int = setting('number of classes', least=2)
  num_nonzero: int = setting('nonzero entries of mu, capped at its size')
  with_replacement: bool = setting('draw the places of the nonzero entries with replacement')

  @property
  def num_labelled(self) -> int:
    """The number of training inputs with a label."""
    return self.num_labels or self.num_train

  @property
  def hidden_position(self) -> int:
    """The position of the hidden token, negative from the end."""
    return 0 if self.hidden == 'first' else -1

  def seen_length(self, prompt_length: int) -> int:
    """Tokens of a text that a model sees after a prompt, [MASK] included."""
    return min(self.length, self.num_positions - prompt_length) if self.num_positions else self.length


class TuneSettings(AdamWSettings):
  num_epochs: int = setting('epochs over the training inputs')
  min_steps: int = setting('optimiser steps that further epochs fill up to; 0: none', least=0, earlier=0)

  def schedule(self, num_inputs: int) -> Schedule:
    """The schedule on this many inputs, at least a batch, of so many epochs that they have `min_steps`."""
    schedule = Schedule(*(getattr(self, name) for name in Schedule._fields))
    epochs = math.ceil(self.min_steps / schedule.steps_per_epoch(num_inputs))
    return schedule._replace(num_epochs=max(self.num_epochs, epochs))

  def check_num_train(self, name: str, num_train: int) -> None:
    """Raise SettingsError unless `num_train` inputs fill a batch and give more steps than `warmup_steps`."""
    valid = f'at most num_train, {num_train}'
    require(self.batch_size <= num_train, f'{name}.batch_size', self.batch_size, valid)
    schedule = self.schedule(num_train)
    steps = schedule.num_epochs * schedule.steps_per_epoch(num_train)
    require(self.warmup_steps < steps, f'{name}.warmup_steps', self.warmup_steps, f'below the {steps} steps of {name}')


class OnTestSettings(Group):
  gone = ('max_certificates', 'max_rounds', 'ridges')

  tolerance: float = setting('margins up to this count as 0; test inputs have unit covariance', below=1)


class ConvergedSettings(Group):
  ridge: float = setting('L2 penalty added to the mean loss: ridge / 2 times the squared weights and bias')
  tolerance: float = setting('largest gradient entry of a converged head')
  max_iterations: int = setting('maximum optimiser steps to convergence')


class RestartSettings(Group):
  number: int = setting('starts of each task; the best on validation counts', most=16_384)
  steps_factor: int = setting('epochs of each start, as a multiple of num_epochs')


class MlpHeadSettings(Group):
  width: int = setting('units of the hidden layer of a head', earlier=300)


class NeighbourSettings(Group):
  num_texts: int = setting('texts among which the nearest G is looked for', earlier=100_000)


class MaskSettings(Group):
  number: int = setting('masks: number of [MASK]s before a text, whose marginals are read', earlier=5)


class PromptSettings(TuneSettings):
  length: int = setting('prompt length in vectors')
  init: str = setting('initialisation: uniform entries, or rows of the vocabulary', choices=('uniform', 'vocabulary'))
  init_scale: float = setting("half-width of the uniform initialisation, in units of the model's prompt space")


class AttentionSettings(TuneSettings):
  gone = ('temperature', 'key_size', 'value_size')

  form: str = setting("attention head: the paper's (4.1), or the released code's", choices=('paper', 'official'))
