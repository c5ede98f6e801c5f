"""Settings of the single-module studies, apart from code that plots and fits, which `--help` need not import."""

from experiments.settings.fields import require, setting
from experiments.settings.grid import Settings
from experiments.settings.groups import Experiment, FigureSettings


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

  num_states: tuple[int, ...] = setting('|H| of the HMMs of each entry of temperatures', most=1024, may_repeat=True)
  temperatures: tuple[float, ...] = setting('temperatures of P[X | H]', least=1e-6, may_repeat=True)
  checkpoints: tuple[int, ...] = setting('pretraining steps after which layers are probed, beside 0')
  num_texts: int = setting('texts of each design that probes are fitted to and scored on', least=20, most=10**6)

  def check_fields(self) -> None:
    super().check_fields()
    require_drawn_hmms(self)
    pairs = set(zip(self.num_states, self.temperatures))
    fits = len(pairs) == len(self.num_states) == len(self.temperatures)
    require(fits, 'temperatures', self.temperatures, f'one for each of num_states, {self.num_states}, no pair twice')
