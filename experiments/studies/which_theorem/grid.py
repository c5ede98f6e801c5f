"""The HMMs, inputs and tasks of prompt_vs_head with the exact G of every input, by the very keys of its trials."""

from collections.abc import Iterator
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.pipeline import trial as trial_lib
from experiments.pipeline.downstream import Downstream
from experiments.pipeline.trial import Trial
from experiments.runtime.progress import Reporter
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM


class SampledTrial(NamedTuple):
  """One HMM of the grid.

  Attributes:
    trial: whose it is; its paths are nobody's.
    hmm: numpy, float32 as it was drawn.
    downstream: its inputs, and its tasks with their labels.
    state_probs: P[H_1 | X_{-1}] of every input, [n, H] float64.
    token_probs: the exact G at the [MASK], [n, V] float64.
  """

  trial: Trial
  hmm: HMM
  downstream: Downstream
  state_probs: np.ndarray
  token_probs: np.ndarray

  @property
  def fields(self) -> dict[str, Any]:
    """Of its records."""
    return {'num_states': self.trial.point.num_states, 'trial': self.trial.trial}

  def majority(self, labels: np.ndarray) -> float:
    """The accuracy on test inputs of the commonest of the training labels."""
    return float(tasks.majority_accuracy(*self.split_rows('train', labels), *self.split_rows('test', labels)))

  def split_rows(self, split: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """The rows of arrays [n, ...] that are a split's."""
    return [array[self.downstream.splits[split]] for array in arrays]


def trials(settings: WhichTheoremSettings) -> list[Trial]:
  """A trial for each HMM, by size."""
  return [
    Trial(settings, point, number, pathlib.Path())
    for point in settings.grid()
    for number in range(settings.num_draws(point))
  ]


def each(settings: WhichTheoremSettings, what: str, reporter: Reporter) -> Iterator[SampledTrial]:
  """Every HMM in turn, drawn, with progress."""
  found = trials(settings)
  with reporter.track(what, len(found)) as advance:
    for number, trial in enumerate(found, 1):
      yield draw(trial)
      advance(number, f'{trial}')


def draw(trial: Trial) -> SampledTrial:
  """What `trial` draws, with the exact G."""
  with trial_lib.precisely():
    hmm, downstream = trial_lib.draw(trial)
    state_probs = tasks.first_state_probs(hmm, downstream.inputs)
  hmm = jax.tree.map(np.asarray, hmm)
  return SampledTrial(trial, hmm, downstream, state_probs, state_probs @ np.float64(hmm.emission_matrix))
