"""The settings of the theory experiment. Fields as in `configs/theory.py`."""

import dataclasses

from experiments.settings import BertSettings
from experiments.settings import TuneSettings
from hmm_jax.masking import Corruption
from hmm_jax.theory.assumptions import Thresholds


@dataclasses.dataclass(frozen=True)
class VerificationSettings:
  num_hmms: int
  max_length: int
  num_sampled: int
  sampled_length: int
  num_states: int
  num_states_3_6: int
  num_tokens: int
  num_classes: int
  memory_size: int


@dataclasses.dataclass(frozen=True)
class ExaminationSettings:
  max_sequences: int
  num_sampled: int
  sampled_length: int


@dataclasses.dataclass(frozen=True)
class ImpossibilitySettings:
  num_hmms: int
  num_states: int
  num_tokens: int
  num_weighed: int
  num_nonzero: int
  transition_temperature: float
  initial_temperature: float
  emission_temperature: float
  max_draws: int
  max_length: int
  clear_gap: float
  num_train: int
  prompt_length: int
  prompt_scale: float
  tuning: TuneSettings


@dataclasses.dataclass(frozen=True)
class ImperfectionSettings:
  num_hmms: int
  num_states_3_3: int
  num_states_3_6: int
  num_tokens: int
  length: int
  num_train: int
  num_test: int
  largest_majority: float
  max_draws: int
  noise_levels: tuple[float, ...]
  num_calibrations: int
  noise_beside: float
  singular_values: tuple[float, ...]
  leaks: tuple[float, ...]
  prompt_length: int
  prompt_scale: float
  tuning: TuneSettings


@dataclasses.dataclass(frozen=True)
class BertStudySettings:
  num_hmms: int
  checkpoints: tuple[int, ...]
  steps_per_call: int
  warmup_steps: int
  learning_rate: float
  weight_decay: float
  clip_norm: float
  batch_size: int
  num_documents: int
  mask_rate: float
  mask_share: float
  random_share: float
  model: BertSettings

  def corruption(self, num_tokens: int) -> Corruption:
    return Corruption(num_tokens, self.mask_rate, self.mask_share, self.random_share)


@dataclasses.dataclass(frozen=True)
class TheorySettings:
  """The theory experiment."""

  experiment: str
  scale: str
  seed: int
  hmm_file: str
  examination: ExaminationSettings
  support_threshold: float
  rank_threshold: float
  stationarity_tolerance: float
  margin: float
  conditioning: float
  max_nodes: int
  verification: VerificationSettings
  impossibility: ImpossibilitySettings
  imperfection: ImperfectionSettings
  bert: BertStudySettings
  figure_width: float
  figure_height: float
  figure_dpi: int
  compilation_cache: str
  fast_compilation: bool

  @property
  def thresholds(self) -> Thresholds:
    return Thresholds(self.support_threshold, self.rank_threshold)
