"""Settings of the single-module studies, apart from code that plots and fits, which `--help` need not import."""

from experiments.settings.fields import require, setting
from experiments.settings.grid import Settings
from experiments.settings.groups import (
  BertSettings,
  ConvergedSettings,
  Experiment,
  FigureSettings,
  MlmSettings,
  TuneSettings,
)


class ExampleSettings(Experiment):
  """The paper's Example 4.1."""

  sentence: str = setting('sentence in the words and grammar of the example')
  figure: FigureSettings


def require_drawn_hmms(settings: Settings) -> None:
  """Raise SettingsError unless the settings draw HMMs without a memory, pretrain, and hide the first token."""
  hidden = settings.downstream.hidden
  require(hidden == 'first', 'downstream.hidden', hidden, "'first': the study is about masked models")
  require(not settings.given, 'distribution', settings.distribution, "'': the study draws its HMMs")
  require(not settings.pretrained_from, 'pretrained_from', settings.pretrained_from, "'': the study pretrains")
  require(settings.memory.sizes == (0,), 'memory.sizes', settings.memory.sizes, '(0,): HMMs without a memory')


class BenchmarkSettings(Settings):
  """The settings of prompt_vs_head, whose work is measured, and how."""

  parts: tuple[str, ...] = setting('parts to measure', choices=('smoothing', 'sampling', 'training'))
  repeats: int = setting('measurements of each contender; the median counts')
  num_texts: int = setting('texts that are smoothed')
  text_length: int = setting('tokens in each of them')

  def check_fields(self) -> None:
    super().check_fields()
    require_drawn_hmms(self)
    optimizer = self.pretrain.optimizer
    require(optimizer == 'adamw', 'pretrain.optimizer', optimizer, "'adamw', the optimiser of every library")


class BeliefSettings(Settings):
  """The settings of prompt_vs_head, the HMMs whose beliefs are probed beside mess3 and a memory, and the texts."""

  num_states: tuple[int, ...] = setting('|H| of the HMMs of each entry of temperatures', most=1024)
  temperatures: tuple[float, ...] = setting('temperatures of P[X | H]', least=1e-6)
  checkpoints: tuple[int, ...] = setting('pretraining steps after which layers are probed, beside 0')
  num_texts: int = setting('texts of each design that probes are fitted to and scored on', least=20, most=10**6)

  def check_fields(self) -> None:
    super().check_fields()
    require_drawn_hmms(self)
    pairs = set(zip(self.num_states, self.temperatures))
    fits = len(pairs) == len(self.num_states) == len(self.temperatures)
    require(fits, 'temperatures', self.temperatures, f'one for each of num_states, {self.num_states}, no pair twice')


class PretrainedSettings(MlmSettings):
  """The BERTs, each pretrained on the text of its own HMM."""

  checkpoints: tuple[int, ...] = setting('pretraining steps at which BERT is evaluated', least=0)
  num_documents: int = setting('number of documents in the corpus')
  document_length: int = setting('tokens in a document, which is one pretraining chunk', least=2)
  model: BertSettings

  def check_fields(self) -> None:
    super().check_fields()
    self.require('model.causal', not self.model.causal, 'False: the theorems are about masked models')
    last, each = self.checkpoints[-1], self.steps_per_call
    passed = set(range(0, last + 1, each)).intersection(self.checkpoints)
    ascending = tuple(sorted(passed))
    valid = f'ascending multiples of steps_per_call, {each}, the last above warmup_steps'
    self.require('checkpoints', self.checkpoints == ascending and last > self.warmup_steps, valid)
    valid = f'at most num_documents, {self.num_documents}'
    self.require('batch_size', self.batch_size <= self.num_documents, valid)


class DegradationSettings(Experiment):
  """The imperfect models that constructions, trained heads and prompts are tested on, and the training."""

  gone = (*Experiment.gone, 'reach', 'short_context_levels')

  models: tuple[str, ...] = setting('models to test: a perturbed exact G, or a BERT', choices=('exact', 'bert'))
  num_hmms: int = setting('number of HMMs for each theorem')
  num_states_3_3: int = setting('number of hidden states |H| for Theorem 3.3', least=2)
  num_states_3_6: int = setting('number of hidden states |H| for Theorem 3.6: H* and its imitators', least=6)
  num_tokens: int = setting('vocabulary size V', least=5)
  conditioning: float = setting('lower bound on the smallest singular value of a drawn problem', below=1)
  rank_threshold: float = setting('singular values up to this share of the largest count as 0', below=1)
  max_nodes: int = setting('maximum nodes of the search for H* in Assumption 3.5')
  length: int = setting('tokens in an input', least=2)
  num_train: int = setting('number of training inputs')
  num_test: int = setting('number of test inputs')
  largest_majority: float = setting('largest share of a class; other tasks are redrawn', above=0.5, below=1)
  max_draws: int = setting('maximum draws of a task')
  noise_levels: tuple[float, ...] = setting('KL(G || noisy G) at the [MASK] in nats', least=0)
  noise_beside: tuple[float, ...] = setting('KL of the noise beside a nearly singular W and a leak in nats', least=0)
  singular_values: tuple[float, ...] = setting('smallest singular values of W')
  leaks: tuple[float, ...] = setting('probabilities that B leaves H*', below=1)
  prompt_length: int = setting('prompt length in vectors')
  prompt_scale: float = setting('largest magnitude of an initial prompt entry')
  tuning: TuneSettings
  converged: ConvergedSettings
  bert: PretrainedSettings
  figure: FigureSettings

  def check_fields(self) -> None:
    valid = f'at most num_tokens, {self.num_tokens}'
    self.require('num_states_3_3', self.num_states_3_3 <= self.num_tokens, valid)
    valid = f'each at most conditioning, {self.conditioning}, the lower bound for a drawn W'
    self.require('singular_values', max(self.singular_values) <= self.conditioning, valid)
    self.tuning.check_num_train('tuning', self.num_train)
    longest = max(self.length + self.prompt_length, self.bert.document_length)
    valid = f'at least {longest}, the larger of a document and an input with its prompt'
    self.require('bert.model.max_positions', self.bert.model.max_positions >= longest, valid)
