"""Settings of the studies that are a module each, apart from what plots and fits, which `--help` need not import."""

import dataclasses
from typing import Any

from experiments.pipeline import cost
from experiments.settings.fields import require, setting, SettingsError
from experiments.settings.grid import Point, Settings
from experiments.settings.groups import Experiment, FigureSettings

BASE = 'base'
# What a recipe may change; the rest makes the task.
_GROUPS = ('pretrain', 'corpus', 'bert')
# Of `bert`, since the rest is the architecture.
_OF_BERT = ('dropout_rate', 'init_stddev', 'max_positions', 'dtype', 'attention', 'scan_layers')
_BOOLS = {'True': True, 'False': False}


class ExampleSettings(Experiment):
  """The paper's Example 4.1."""

  sentence: str = setting('any that the example can say')
  num_documents: int = setting('sampled documents', most=1000)
  document_length: int = setting('words of each, of which the last, unfinished sentence is left out', most=10**5)
  figure: FigureSettings


class RecipeSettings(Settings):
  """A grid of trials, each pretrained by the config's own recipe and by its variants."""

  variants: tuple[str, ...] = setting(
    f'recipes beside {BASE}, the config as it is: FIELD=VALUE of {", ".join(_GROUPS)}, or several with blanks between',
    may_be_empty=True,
  )
  num_measurements: int = setting('measurements of the distance from the ideal model along a pretraining', most=1000)

  def check(self) -> None:
    super().check()
    require(self.models == ('bert',), 'models', self.models, "('bert',), which alone is pretrained")
    for text in self.variants:
      try:
        require(bool(text.split()), 'a variant', text, f'FIELD=VALUE, since the config as it is is {BASE}')
        self.recipe(text)
      except SettingsError as error:
        raise SettingsError(f'variants has {text!r}: {error}')
    if self.variants:
      # Or two trials would train one model, perhaps at the same time.
      models = {recipe.pretraining_id(Point(self.num_states[0]), 0) for recipe in self.recipes().values()}
      valid = f'recipes that differ from {BASE} and from each other in more than when they are measured'
      require(len(models) == 1 + len(self.variants), 'variants', self.variants, valid)

  def recipes(self) -> dict[str, 'RecipeSettings']:
    """The settings of each recipe by its name, the base first."""
    return {BASE: self.recipe('')} | {text: self.recipe(text) for text in self.variants}

  def recipe(self, text: str) -> 'RecipeSettings':
    """The settings with the fields of `text`, and as many steps as the base's operations pay for.

    The warm-up is the same share of the steps. Both hold unless `text` itself names `num_steps` or `warmup_steps`.
    """
    changes = self._changes(text)
    groups = {name: dataclasses.replace(getattr(self, name), **fields) for name, fields in changes.items()}
    changed = dataclasses.replace(self, variants=(), **groups)
    p, named = changed.pretrain, changes['pretrain']
    ratio = 1.0 if 'num_steps' in named else cost.pretraining_step(self) / cost.pretraining_step(changed)
    calls = max(int(p.num_steps * ratio / p.steps_per_call + 1e-9), 1)
    num_steps = calls * p.steps_per_call
    warmup_steps = (
      p.warmup_steps if 'warmup_steps' in named else round(p.warmup_steps * num_steps / self.pretrain.num_steps)
    )
    every = max(round(calls / self.num_measurements), 1) * p.steps_per_call
    steps: dict[str, Any] = dict(
      num_steps=num_steps, warmup_steps=warmup_steps, measure_every=every, checkpoint_every=every
    )
    return dataclasses.replace(changed, pretrain=dataclasses.replace(p, **steps))

  def _changes(self, text: str) -> dict[str, dict[str, Any]]:
    """The changed fields of each group; raises SettingsError for what is no field or no value of it."""
    kinds: dict[str, Any] = {
      f'{name}.{field.name}': field.type
      for name in _GROUPS
      for field in dataclasses.fields(getattr(self, name))
      if name != 'bert' or field.name in _OF_BERT
    }
    changes: dict[str, dict[str, Any]] = {name: {} for name in _GROUPS}
    for word in text.split():
      name, _, value = word.partition('=')
      require(name in kinds, 'a change', word, f'FIELD=VALUE of one of {", ".join(kinds)}')
      group, _, field = name.partition('.')
      require(field not in changes[group], 'a change', word, f'one change of {name}')
      try:
        changes[group][field] = _BOOLS[value] if kinds[name] is bool else kinds[name](value)
      except (KeyError, ValueError):
        kind = ' or '.join(_BOOLS) if kinds[name] is bool else kinds[name].__name__
        require(False, name, value, f'{kind}, as it is in the config')
    return changes
