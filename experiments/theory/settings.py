"""The settings of the theory's experiments."""

import math

from experiments.fields import Group, require, setting
from experiments.settings import Experiment, TemperatureSettings, TuneSettings
from hmm_jax.theory.assumptions import Thresholds

# The most sequences that are enumerated at a time.
_MAX_SEQUENCES = 2**20


def _check_length(length: int, num_tokens: int) -> None:
  longest = int(math.log(_MAX_SEQUENCES, num_tokens) + 1e-9)
  valid = f'at most {longest}, for {_MAX_SEQUENCES} sequences of {num_tokens} tokens'
  require(length <= longest, 'max_length', length, valid)


def _check_3_1(name: str, states: int, tokens: int) -> None:
  require(states <= tokens, name, states, f'from 2 to num_tokens, {tokens}, as Assumption 3.1 needs')


class VerificationSettings(Group):
  num_hmms: int = setting('HMMs for each theorem')
  max_length: int = setting('every sequence is checked up to this length')
  num_sampled: int = setting('sampled long sequences of each HMM', most=10**7)
  sampled_length: int = setting('their length', most=10**5)
  num_states: int = setting('hidden states |H|, but for Theorem 3.6', least=2)
  num_states_3_6: int = setting('hidden states |H| for Theorem 3.6: H* and its imitators', least=6, most=1000)
  num_tokens: int = setting('size V of the vocabulary, with room for the structure of the draws', least=5, most=1000)
  num_classes: int = setting('labels', least=2, most=1000)
  memory_size: int = setting('values |M| of a cell', least=2, most=64)

  def check(self) -> None:
    _check_length(self.max_length, self.num_tokens)
    valid = f'at least max_length, {self.max_length}'
    require(self.sampled_length >= self.max_length, 'sampled_length', self.sampled_length, valid)
    _check_3_1('num_states', self.num_states, self.num_tokens)


class _TunedSettings(Group):
  """Heads and prompts that are tuned on drawn HMMs."""

  num_tokens: int = setting('size V of the vocabulary', least=5, most=1000)
  num_train: int = setting('training inputs', most=10**7)
  prompt_length: int = setting('vectors of a prompt', most=1000)
  prompt_scale: float = setting('most magnitude of an initial entry')
  tuning: TuneSettings

  def check(self) -> None:
    self.tuning.check_for('tuning', self.num_train)


class ImpossibilitySettings(_TunedSettings, TemperatureSettings):
  num_hmms: int = setting('certified HMMs of each of two kinds')
  num_states: int = setting('hidden states |H|', most=1000)
  num_weighed: int = setting('states that mu weighs in the sparse draws')
  num_nonzero: int = setting("entries of mu in the paper's draws", most=10**6)
  max_draws: int = setting('draws of each kind in search of num_hmms certified ones')
  max_length: int = setting('every sequence up to this length is asked for')
  clear_gap: float = setting('labels nearer to a tie take no part')

  def check(self) -> None:
    _check_length(self.max_length, self.num_tokens)
    require(
      self.num_states > self.num_tokens, 'num_states', self.num_states, f'more than num_tokens, {self.num_tokens}'
    )
    valid = f'from 1 to num_states, {self.num_states}'
    require(self.num_weighed <= self.num_states, 'num_weighed', self.num_weighed, valid)
    super().check()


class ThresholdSettings(Experiment):
  """What counts as zero, as a tie and as too long a search."""

  support_threshold: float = setting('epsilon: probabilities up to this count as 0', least=0, below=1)
  rank_threshold: float = setting('singular values up to this share of the largest count as 0', above=0, below=1)
  stationarity_tolerance: float = setting('most |P[H_0] A - P[H_0]| of a stationary start')
  margin: float = setting('labels whose two best scores differ by no more are near ties')
  max_nodes: int = setting('nodes of the search for H* in Assumption 3.5')

  @property
  def thresholds(self) -> Thresholds:
    return Thresholds(self.support_threshold, self.rank_threshold)


class ExamineSettings(ThresholdSettings):
  """A user's own HMM and task."""

  hmm_file: str = setting('the HMM and its task, .npz or .json')
  max_sequences: int = setting('every sequence is checked up to the length that has so many', most=_MAX_SEQUENCES)
  num_sampled: int = setting('sampled long sequences', most=10**7)
  sampled_length: int = setting('their length', most=10**5)


class TheorySettings(ThresholdSettings):
  """The theorems verified, and what lies beyond them proved impossible."""

  conditioning: float = setting('least smallest singular value of a problem that is drawn', above=0, below=1)
  verification: VerificationSettings
  impossibility: ImpossibilitySettings
