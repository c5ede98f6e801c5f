"""Settings of the single-module studies, apart from code that plots and fits, which `--help` need not import."""

import ast
import dataclasses
from typing import Any

from experiments.pipeline import cost
from experiments.settings import config as config_lib
from experiments.settings.fields import require, setting, SettingsError
from experiments.settings.grid import Point, Settings
from experiments.settings.groups import Experiment, FigureSettings

BASE = 'base'
# Groups that a recipe may change, except for the architecture.
_GROUPS = ('pretrain.', 'corpus.', 'bert.')
_ARCHITECTURE = {'bert.num_layers', 'bert.width', 'bert.num_heads', 'bert.ffn_width'}
# Fields that a given corpus decides.
_OF_CORPUS = {'corpus.num_documents', 'corpus.document_length'}


class ExampleSettings(Experiment):
  """The paper's Example 4.1."""

  sentence: str = setting('sentence in the words and grammar of the example')
  num_documents: int = setting('number of sampled documents', most=1000)
  document_length: int = setting('words in each document; an unfinished last sentence is dropped', most=10**5)
  figure: FigureSettings


class RecipeSettings(Settings):
  """A grid of trials, each pretrained by the config's own recipe and by its variants."""

  variants: tuple[str, ...] = setting(
    f'recipes to compare with {BASE}, the config itself: FIELD=VALUE of pretrain, corpus or bert, separated by spaces',
    may_be_empty=True,
  )
  num_measurements: int = setting('evaluations against the ideal model during a pretraining', most=1000)

  def check(self) -> None:
    super().check()
    require(self.models == ('bert',), 'models', self.models, "('bert',), the only pretrained model")
    if not self.variants:
      return
    models = set()
    for text in ('', *self.variants):
      try:
        models.add(self.recipe(text).pretraining_id(Point(self.num_states[0]), 0))
      except SettingsError as error:
        raise SettingsError(f'variants contains {text!r}: {error}')
    # Otherwise two trials would train one model, perhaps at the same time.
    valid = f'recipes whose pretraining differs from {BASE} and from each other'
    require(len(models) == 1 + len(self.variants), 'variants', self.variants, valid)

  def recipes(self) -> dict[str, 'RecipeSettings']:
    """The settings of each recipe by its name, the base first."""
    return {text or BASE: self.recipe(text) for text in ('', *self.variants)}

  def recipe(self, text: str) -> 'RecipeSettings':
    """The settings with the fields of `text`, and as many steps as the base's operations pay for.

    The warm-up is the same share of the steps. Both hold unless `text` itself names `num_steps` or `warmup_steps`.
    """
    changes = self._changes(text)
    changed = config_lib.replace(self, {'variants': (), **changes})
    p, operations = changed.pretrain, cost.pretraining_step(self) / cost.pretraining_step(changed)
    ratio = 1.0 if 'pretrain.num_steps' in changes else operations
    # 1e-9 undoes rounding just below a whole number of calls.
    calls = max(int(p.num_steps * ratio / p.steps_per_call + 1e-9), 1)
    num_steps = calls * p.steps_per_call
    share = 1.0 if 'pretrain.warmup_steps' in changes else num_steps / self.pretrain.num_steps
    every = max(round(calls / self.num_measurements), 1) * p.steps_per_call
    steps = dict(num_steps=num_steps, warmup_steps=round(p.warmup_steps * share))
    pretrain = dataclasses.replace(p, **steps, measure_every=every, checkpoint_every=every)
    return dataclasses.replace(changed, pretrain=pretrain)

  def _changes(self, text: str) -> dict[str, Any]:
    """The changed fields, with unchecked values; raises SettingsError for an unknown field."""
    names = [name for name, _ in config_lib.fields(RecipeSettings) if name.startswith(_GROUPS)]
    fixed = _ARCHITECTURE | (_OF_CORPUS if self.corpus_file else set())
    fields = [name for name in names if name not in fixed]
    changes: dict[str, Any] = {}
    for word in text.split():
      name, _, value = word.partition('=')
      require(name in fields, 'a recipe field', word, f'FIELD=VALUE of one of {", ".join(fields)}')
      try:
        changes[name] = ast.literal_eval(value)
      except (SyntaxError, ValueError):
        changes[name] = value
    return changes


def _require_drawn_hmms(settings: Settings) -> None:
  require(not settings.given, 'distribution', settings.distribution, "'': the study draws its HMMs")
  require(settings.memory.sizes == (0,), 'memory.sizes', settings.memory.sizes, '(0,): HMMs without a memory')


class BenchmarkSettings(Settings):
  """The settings of prompt_vs_head, whose work is measured, and how."""

  parts: tuple[str, ...] = setting('parts to measure', choices=('smoothing', 'sampling', 'training', 'trial'))
  repeats: int = setting('measurements of each contender; the median counts')
  num_texts: int = setting('texts that are smoothed')
  text_length: int = setting('tokens in each of them')

  def check(self) -> None:
    super().check()
    _require_drawn_hmms(self)
    optimizer = self.pretrain.optimizer
    require(optimizer == 'adamw', 'pretrain.optimizer', optimizer, "'adamw', the optimiser of every library")


class PlateauSettings(Settings):
  """The settings of prompt_vs_head, and where its pretrainings are looked at."""

  checkpoints: tuple[int, ...] = setting('pretraining steps after which the methods are tuned on BERT', least=0)

  def check(self) -> None:
    super().check()
    require(self.models == ('bert',), 'models', self.models, "('bert',), the only pretrained model")
    _require_drawn_hmms(self)
    steps, each = self.checkpoints, self.pretrain.steps_per_call
    fits = steps == tuple(sorted(steps)) and steps[-1] == self.pretrain.num_steps
    valid = f'ascending multiples of pretrain.steps_per_call, {each}, that end with pretrain.num_steps'
    require(fits and not any(step % each for step in steps), 'checkpoints', steps, valid)
