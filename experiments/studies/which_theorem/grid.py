"""The HMMs, inputs and tasks of prompt_vs_head, drawn by the keys of its trials, with the exact G of every input."""

from collections.abc import Callable, Iterable
import pathlib
from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import trial as trial_lib
from experiments.pipeline.downstream import Downstream
from experiments.pipeline.trial import Trial
from experiments.runtime.progress import Reporter
from experiments.studies.study import Part, Row
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM


class SampledTrial(NamedTuple):
  """One HMM of the grid.

  Attributes:
    hmm: numpy, float32 as it was drawn.
    downstream: its inputs, and its tasks with their labels.
    state_probs: P[H_1 | X_{-1}] of every input, [n, H] float64.
    token_probs: the exact G at the [MASK], [n, V] float64.
  """

  hmm: HMM
  downstream: Downstream
  state_probs: np.ndarray
  token_probs: np.ndarray

  def split_rows(self, split: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """The rows of arrays [n, ...] that are a split's."""
    return [array[self.downstream.splits[split]] for array in arrays]


def trials(settings: WhichTheoremSettings) -> list[Trial]:
  """A trial for each HMM, by size; its paths are not used."""
  return [Trial(settings, *draw, pathlib.Path()) for draw in sorted(settings.draws())]


def draw(trial: Trial) -> SampledTrial:
  """The HMM, the inputs and the tasks of `trial`, with the exact G."""
  with trial_lib.precisely():
    hmm, downstream = trial_lib.draw(trial)
    state_probs = tasks.first_state_probs(hmm, downstream.inputs)
  # The last task may only be drawn as the other of a pair.
  downstream = downstream._replace(tasks=downstream.tasks[: trial.settings.tasks_per_trial])
  hmm = jax.tree.map(np.asarray, hmm)
  return SampledTrial(hmm, downstream, state_probs, state_probs @ np.float64(hmm.emission_matrix))


def task_part(rows_of: Callable[[WhichTheoremSettings, SampledTrial], Iterable[Row]]) -> Part:
  """A part with a record for each task; `rows_of` yields those of one HMM, in the order of its tasks."""

  def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
    # `key` is unused, since the trials have their own.
    found, rows = trials(settings), list[Row]()
    with reporter.track('HMMs', len(found)) as advance:
      for number, trial in enumerate(found, 1):
        drawn = draw(trial)
        splits = drawn.downstream.splits
        for index, (task, row) in enumerate(zip(drawn.downstream.tasks, rows_of(settings, drawn))):
          train, test = (task.labels[splits[name]] for name in ('train', 'test'))
          majority = float(tasks.majority_accuracy(train, test))
          # The fields by which a record joins those of prompt_vs_head.
          place = {'num_states': trial.point.num_states, 'trial': trial.trial, 'task': index}
          rows.append({**place, 'majority_accuracy': majority, **row})
        advance(number, f'{trial}')
    return rows

  return run
