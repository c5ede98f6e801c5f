"""The settings of the study of degradation."""

from experiments.settings.fields import require, setting
from experiments.settings.groups import (
  BertSettings,
  ConvergedSettings,
  Experiment,
  FigureSettings,
  MlmSettings,
  TuneSettings,
)
from hmm_jax.theory.assumptions import Thresholds


class PretrainedSettings(MlmSettings):
  """The BERTs, each pretrained on the text of its own HMM."""

  checkpoints: tuple[int, ...] = setting('pretraining steps at which BERT is evaluated', least=0)
  num_documents: int = setting('number of documents in the corpus', most=10**7)
  document_length: int = setting('tokens in a document, which is one pretraining chunk', least=2, most=2**16)
  model: BertSettings

  def check_fields(self) -> None:
    super().check_fields()
    require(not self.model.causal, 'model.causal', self.model.causal, 'False: the theorems are about masked models')
    steps, each = self.checkpoints, self.steps_per_call
    ascending = tuple(sorted(steps)) == steps and steps[-1] > self.warmup_steps
    valid = f'ascending multiples of steps_per_call, {each}, the last above warmup_steps'
    require(ascending and not any(step % each for step in steps), 'checkpoints', steps, valid)
    valid = f'at most num_documents, {self.num_documents}'
    require(self.batch_size <= self.num_documents, 'batch_size', self.batch_size, valid)


class DegradationSettings(Experiment):
  """The imperfect models that constructions, trained heads and prompts are tested on, and the training."""

  models: tuple[str, ...] = setting('models to test: a perturbed exact G, or a BERT', choices=('exact', 'bert'))
  num_hmms: int = setting('number of HMMs for each theorem')
  num_states_3_3: int = setting('number of hidden states |H| for Theorem 3.3', least=2)
  num_states_3_6: int = setting('number of hidden states |H| for Theorem 3.6: H* and its imitators', least=6, most=1000)
  num_tokens: int = setting('vocabulary size V', least=5, most=1000)
  conditioning: float = setting('lower bound on the smallest singular value of a drawn problem', above=0, below=1)
  rank_threshold: float = setting('singular values up to this share of the largest count as 0', above=0, below=1)
  max_nodes: int = setting('maximum nodes of the search for H* in Assumption 3.5')
  length: int = setting('tokens in an input', least=2, most=10**4)
  num_train: int = setting('number of training inputs', most=10**7)
  num_test: int = setting('number of test inputs', most=10**7)
  largest_majority: float = setting('largest share of a class; other tasks are redrawn', above=0.5, below=1)
  max_draws: int = setting('maximum draws of a task')
  noise_levels: tuple[float, ...] = setting('KL(G || noisy G) at the [MASK] in nats', least=0)
  short_context_levels: tuple[float, ...] = setting('KL of G mixed with G of a short context in nats')
  reach: int = setting('tokens on each side in the short context', most=10**4)
  noise_beside: tuple[float, ...] = setting('KL of the noise beside a nearly singular W and a leak in nats', least=0)
  singular_values: tuple[float, ...] = setting('smallest singular values of W')
  leaks: tuple[float, ...] = setting('probabilities that B leaves H*', above=0, below=1)
  prompt_length: int = setting('prompt length in vectors', most=1000)
  prompt_scale: float = setting('largest magnitude of an initial prompt entry')
  tuning: TuneSettings
  converged: ConvergedSettings
  bert: PretrainedSettings
  figure: FigureSettings

  def check_fields(self) -> None:
    valid = f'from 2 to num_tokens, {self.num_tokens}, for Assumption 3.1'
    require(self.num_states_3_3 <= self.num_tokens, 'num_states_3_3', self.num_states_3_3, valid)
    valid = f'each at most conditioning, {self.conditioning}, the lower bound for a drawn W'
    require(max(self.singular_values) <= self.conditioning, 'singular_values', self.singular_values, valid)
    self.tuning.check_num_train('tuning', self.num_train)
    longest, positions = max(self.length + self.prompt_length, self.bert.document_length), self.bert.model.max_positions
    valid = f'at least {longest}, the larger of a document and an input with its prompt'
    require(positions >= longest, 'bert.model.max_positions', positions, valid)

  @property
  def thresholds(self) -> Thresholds:
    """Thresholds for problems that are drawn with exact zeros."""
    return Thresholds(support=0.0, rank=self.rank_threshold)
