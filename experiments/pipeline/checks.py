"""Checks of a grid before anything is written: the user's own things serve, and some trial has tasks."""

import jax

from experiments.own import code, data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import methods, pretraining, trial as trial_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Settings
from experiments.settings.trial import trials


def check_grid(settings: Settings, own: Own = NOTHING) -> None:
  """Raise SettingsError if this machine cannot run a grid of trials, or `check_draws` does."""
  has_other = 'other_bert' in settings.models
  holds = not (has_other and settings.distribution)
  settings.require('models', holds, "without 'other_bert' if distribution is set: it has one draw")
  holds = not settings.pretrained_from or not (settings.checkpoints or has_other)
  settings.require('pretrained_from', holds, "'' with checkpoints or 'other_bert', which are pretrained")
  settings.require('corpus_file', settings.distribution or not settings.corpus_file, "'' unless distribution is set")
  for point in settings.grid():
    holds = not point.memory_size or settings.memory.label_cell < point.num_cells
    settings.require('memory.label_cell', holds, f'below the number of memory cells, {point.num_cells}')
  methods.check(settings)
  pretraining.check_machine(settings)
  check_draws(settings, own)


def check_draws(settings: Settings, own: Own = NOTHING) -> None:
  """Raise SettingsError if something of the user's own does not serve, or no trial has tasks."""
  drawn = trials(settings, own=data.given(own))
  if 'own_head' in settings.used_methods:
    code.check_head(drawn[0])
  if settings.corpus_file:
    distribution = data.plain(trial_lib.distribution_of(drawn[0]))
    data.check_corpus(settings.corpus_file, distribution, drawn[0].own['corpus_file'])
  # As trials run, so that they find its programs.
  with trial_lib.precisely():
    if 'own' in settings.models:
      for trial in drawn[: len(settings.grid())]:
        code.check_model(trial, data.plain(trial_lib.distribution_of(trial)))
    for trial in drawn:
      try:
        trial_lib.tasks_of(trial, trial_lib.distribution_of(trial))
        return
      except SettingsError:
        raise
      except (ValueError, jax.errors.JaxRuntimeError) as error:
        reason = f'at {trial.point}: {error}'
  name = next(name for name in ('label', 'distribution', 'hmm') if getattr(settings, name))
  settings.require(name, False, f'one that gives tasks ({reason})')
