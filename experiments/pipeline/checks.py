"""Checks of a grid before anything is written: the user's own things serve, and some trial has tasks."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax

from experiments.own import code, data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import methods, pretraining, trial as trial_lib
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.trial import Trial, trials
from hmm_jax.distributions.hmm import Distribution


def check_grid(settings: Settings, own: Own = NOTHING) -> None:
  """Raise SettingsError if this machine cannot run a grid of trials, or `check_draws` does."""
  has_other, is_given = 'other_bert' in settings.models, bool(settings.distribution)
  settings.require(
    'models', not (has_other and is_given), "without 'other_bert' if distribution is set: it has one draw"
  )
  is_one = not settings.checkpoints and not has_other
  valid = "'' with checkpoints or 'other_bert', which are pretrained"
  settings.require('pretrained_from', is_one or not settings.pretrained_from, valid)
  for point in settings.grid():
    if point.memory_size:
      valid = f'below the number of memory cells, {point.num_cells}'
      settings.require('memory.label_cell', settings.memory.label_cell < point.num_cells, valid)
  methods.check(settings)
  pretraining.check_machine(settings)
  check_draws(settings, own)


def check_draws(settings: Settings, own: Own = NOTHING) -> None:
  """Raise SettingsError if something of the user's own does not serve, or no process of the grid carries a task."""
  process_of: Callable[[Trial], Distribution] = _drawn
  named: tuple[str, Any] = 'hmm', dataclasses.asdict(settings.hmm)
  if settings.distribution:
    distribution = data.check_process(settings, own)
    process_of, named = lambda _: distribution, ('distribution', settings.distribution)
  drawn = trials(settings, own=own.of)
  if 'own_head' in settings.used_methods:
    code.check_head(drawn[0])
  if 'own' in settings.models:
    for trial in drawn[: len(settings.grid())]:
      code.check_model(trial, data.plain(process_of(trial)))
  try:
    has_tasks = any(_has_tasks(trial, process_of(trial)) for trial in drawn)
  except jax.errors.JaxRuntimeError as error:
    raise SettingsError(f'num_states is {settings.num_states}; valid are fewer ({str(error).partition(".")[0]})')
  num_nonzero = f'downstream.num_nonzero is {settings.downstream.num_nonzero}'
  valid = f'a process whose texts get two labels under some mu ({num_nonzero}); every draw gave one label'
  if settings.label:
    named, valid = ('label', settings.label), 'a function that gives training texts two labels'
  require(has_tasks, *named, valid)


def _drawn(trial: Trial) -> Distribution:
  """The distribution that a trial draws; raises SettingsError if its sizes do not fit each other."""
  try:
    return trial_lib.drawn_distribution(trial)
  except ValueError as error:
    raise SettingsError(f'at {trial.point}: {error}')


def _has_tasks(trial: Trial, distribution: Distribution) -> bool:
  # As trials run, so that they find its programs.
  with trial_lib.precisely():
    try:
      trial_lib.tasks_of(trial, distribution)
    except SettingsError:
      raise
    except ValueError:
      return False
  return True
