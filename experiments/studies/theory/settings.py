"""The settings of the theory's experiments."""

from experiments.settings.fields import Group, setting
from experiments.settings.groups import Experiment
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.theorems import Criteria


class VerificationSettings(Group):
  num_hmms: int = setting('number of HMMs for each theorem')
  num_sequences: int = setting('sampled sequences of each HMM in the region of its theorem, about')
  num_mutated: int = setting('number of HMMs on which wrong constructions are tested', least=0)
  length: int = setting('tokens in a sampled sequence; shorter sequences are tested as well', least=4)


class ImpossibilitySettings(Group):
  num_hmms: int = setting('number of HMMs of each of two kinds')
  num_states: int = setting('number of hidden states |H|')
  num_tokens: int = setting('vocabulary size V', least=5)
  length: int = setting('tokens in a text; all texts of this length are tested')


class PrevalenceSettings(Group):
  rank_levels: tuple[float, ...] = setting('singular values up to this share of the largest count as 0', below=1)
  support_levels: tuple[float, ...] = setting('epsilon: probabilities up to this count as 0', least=0, below=1)
  max_nodes: int = setting('maximum nodes of each search for H* in Assumption 3.5')
  num_draws: int = setting('number of draws of each size')
  num_states: tuple[int, ...] = setting('numbers of hidden states |H|')
  memory_sizes: tuple[int, ...] = setting('numbers |M| of values of the one memory cell', least=2)
  num_memory_states: int = setting('number of hidden states |H| with a memory')
  num_tokens: int = setting('vocabulary size V', least=2)


class ThresholdSettings(Experiment):
  """Limits: the largest zero, the widest tie and the longest search."""

  support_threshold: float = setting('epsilon: probabilities up to this count as 0', least=0, below=1)
  rank_threshold: float = setting('singular values up to this share of the largest count as 0', above=0, below=1)
  stationarity_tolerance: float = setting('largest |P[H_0] A - P[H_0]| of a stationary start')
  margin: float = setting('labels whose two best scores differ by at most this are near ties')
  max_nodes: int = setting('maximum nodes of the search for H* in Assumption 3.5')

  @property
  def criteria(self) -> Criteria:
    return Criteria(
      Thresholds(self.support_threshold, self.rank_threshold), self.stationarity_tolerance, self.max_nodes
    )


class ExamineSettings(ThresholdSettings):
  """A user's own HMM and task."""

  distribution: str = setting('the HMM with an optional task: a named process, or a .npz or .json file')
  max_sequences: int = setting('maximum number of enumerated sequences, which bounds their length')
  num_sampled: int = setting('number of sampled sequences')
  sampled_length: int = setting('tokens in a sampled sequence')


class TheorySettings(ThresholdSettings):
  """The theorems verified, and what lies beyond them proved impossible."""

  conditioning: float = setting('lower bound on the smallest singular value of a drawn problem', above=0, below=1)
  verification: VerificationSettings
  impossibility: ImpossibilitySettings
  prevalence: PrevalenceSettings
