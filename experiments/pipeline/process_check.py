"""Checks of a grid before anything is written: its processes carry tasks, and the user's own corpus and code serve."""

from collections.abc import Callable
import contextlib
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.pipeline import trial as trial_lib
from experiments.records.trial_records import Trial
from experiments.records.user_data import Given
from experiments.settings import own_code
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
import hmm_jax
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax._support.float64 import float64
from hmm_jax.distributions.files import from_fields
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.processes import reachable
from hmm_jax.inference.posterior import last_filtered
from hmm_jax.tuning import tasks


def check(settings: Settings, given: Given) -> None:
  """Raise SettingsError where no process of a grid carries a task, or what the user has given does not serve.

  Refused are a process with a hidden state that never occurs, a corpus with a document that never occurs, and a model
  or a head of the user's own that fails.
  """
  process_of: Callable[[Trial], HMM | MemoryHMM] = trial_lib.drawn_distribution
  what: tuple[str, Any] = 'hmm', settings.hmm.temperatures
  if settings.distribution:
    distribution = from_fields(given[settings.distribution])
    process_of, what = lambda _: distribution, ('distribution', settings.distribution)
    _check_given(settings, distribution, given)
  if settings.own_head:
    classes, length = settings.downstream.num_classes, settings.seen_length('own_head')
    own_code.check_head(settings.own_head, classes, settings.hmm.num_tokens, length)
  trials = [Trial(settings, *draw, pathlib.Path()) for draw in settings.draws()]
  if settings.model:
    for trial in trials[: len(settings.grid())]:
      own_code.check_model(settings.model, process_of(trial), trial.keys().pretraining)
  try:
    has_tasks = any(_has_tasks(trial, process_of(trial)) for trial in trials)
  except jax.errors.JaxRuntimeError as error:
    raise SettingsError(f'num_states is {settings.num_states}; valid are fewer ({str(error).partition(".")[0]})')
  law = f'some draw of mu, with downstream.num_nonzero {settings.downstream.num_nonzero}'
  require(has_tasks, *what, f'one where {law}, gives texts two labels; here all have one label')


def _has_tasks(trial: Trial, distribution: HMM | MemoryHMM) -> bool:
  # As trials run, so that they find its programs.
  with contextlib.suppress(ValueError), trial_lib.precisely():
    trial_lib.tasks(trial, distribution)
    return True
  return False


def _check_given(settings: Settings, distribution: HMM | MemoryHMM, given: Given) -> None:
  """Raise SettingsError where a hidden state of a process or a document of a corpus never occurs."""
  start = float64(distribution.joint_initial_probs).reshape(-1, distribution.num_states).max(0) > 0
  never = np.flatnonzero(~reachable(float64(distribution.transition_matrix), start)).tolist()
  valid = f'one whose hidden states all occur; states {never[:10]} never occur'
  require(not never, 'distribution', settings.distribution, valid)
  if settings.corpus_file:
    are_possible = possible(distribution, given[settings.corpus_file]['tokens'])
    valid = f'documents of positive probability, unlike document {are_possible.argmin()}, counted from 0'
    require(are_possible.all(), 'corpus_file', settings.corpus_file, valid)


def possible(distribution: HMM | MemoryHMM, documents: np.ndarray) -> np.ndarray:
  """True for each document [S, T] of positive probability."""
  rows = lambda block: hmm_jax.token_likelihoods(distribution, block, block >= 0)
  size = even_size(len(documents), documents.shape[1] * distribution.joint_initial_probs.size, tasks.LABELLED_ENTRIES)
  return in_blocks(lambda block: last_filtered(distribution, rows(block))[1], documents, size) > -np.inf
