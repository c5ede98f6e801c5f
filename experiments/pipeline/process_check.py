"""Checks of a process before anything is trained: it can carry a task, and the user's own corpus and model fit it."""

from collections.abc import Callable
import contextlib
import pathlib

import jax
import numpy as np

from experiments.pipeline import trial as trial_lib
from experiments.records.trial_records import Trial
from experiments.settings import own_code
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
import hmm_jax
from hmm_jax import tasks
from hmm_jax.blocks import even_size, in_blocks
from hmm_jax.float64 import float64
from hmm_jax.hmm import HMM
from hmm_jax.inference import last_filtered
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.processes import reachable


def check(settings: Settings, distribution: HMM | MemoryHMM, documents: np.ndarray | None = None) -> None:
  """Raise SettingsError where a hidden state of a given process never occurs, or the process carries no task.

  It also raises SettingsError where one of the user's own `documents` [S, T] cannot occur, or the user's own model
  fails on the process.
  """
  start = float64(distribution.joint_initial_probs).reshape(-1, distribution.num_states).max(0) > 0
  never = np.flatnonzero(~reachable(float64(distribution.transition_matrix), start)).tolist()
  valid = f'one whose hidden states all occur; states {never[:10]} never occur'
  require(not never, 'distribution', settings.distribution, valid)
  valid = 'one whose texts reveal the first state or memory; here every draw of mu gives all training inputs one label'
  require(_has_tasks(settings, lambda _: distribution), 'distribution', settings.distribution, valid)
  if documents is not None:
    are_possible = possible(distribution, documents)
    valid = f'documents of positive probability, unlike document {are_possible.argmin()}, counted from 0'
    require(are_possible.all(), 'corpus_file', settings.corpus_file, valid)
  if settings.model:
    own_code.own_model(settings.model, distribution, jax.random.key(settings.seed))


def check_draws(settings: Settings) -> None:
  """Raise SettingsError where no process that the settings draw carries a task."""
  name = f'hmm, with downstream.num_nonzero {settings.downstream.num_nonzero},'
  valid = 'one where some draw of mu gives texts two labels'
  try:
    has_tasks = _has_tasks(settings, trial_lib.drawn_distribution)
  except jax.errors.JaxRuntimeError as error:
    raise SettingsError(f'num_states is {settings.num_states}; valid are fewer ({str(error).partition(".")[0]})')
  require(has_tasks, name, settings.hmm.temperatures, valid)


def _has_tasks(settings: Settings, distribution_of: Callable[[Trial], HMM | MemoryHMM]) -> bool:
  """True if some trial has its tasks."""
  for draw in settings.draws():
    trial = Trial(settings, *draw, pathlib.Path())
    # As trials run, so that they find its programs.
    with contextlib.suppress(ValueError), trial_lib.precisely():
      trial_lib.tasks(trial, distribution_of(trial))
      return True
  return False


def possible(distribution: HMM | MemoryHMM, documents: np.ndarray) -> np.ndarray:
  """True for each document [S, T] of positive probability."""
  rows = lambda block: hmm_jax.token_likelihoods(distribution, block, block >= 0)
  size = even_size(len(documents), documents.shape[1] * distribution.joint_initial_probs.size, tasks.LABELLED_ENTRIES)
  return in_blocks(lambda block: last_filtered(distribution, rows(block))[1], documents, size) > -np.inf
