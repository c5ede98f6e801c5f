"""A job of tuning: one method, one frozen model and some tasks of a trial; and what comes of it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.pipeline.downstream import Downstream
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Settings
from experiments.settings.trial import Trial


class FrozenModel(NamedTuple):
  """A frozen model that methods are tuned on.

  Attributes:
    name: one of MODELS.
    model: a MaskedLM, exact or pretrained; None for methods that need none.
    params: its parameters, on the device where tuning is to run.
    distribution: an HMM or a MemoryHMM, of the text, whose exact G float64 fits read.
  """

  name: str
  model: Any
  params: Any
  distribution: Any


class Job(NamedTuple):
  """Tasks of a trial, by their numbers, that a method is tuned for side by side on one frozen model.

  `tuner`, what is trained on the model, is set by `tuning.tune`.
  """

  trial: Trial
  frozen: FrozenModel
  method: str
  tasks: list[int]
  downstream: Downstream
  reporter: Reporter
  tuner: Any = None

  def __str__(self) -> str:
    return f'{self.method} on {self.frozen.name}'

  @property
  def settings(self) -> Settings:
    return self.trial.settings

  @property
  def inputs(self) -> np.ndarray:
    """The texts as the method sees them, [n, T]."""
    return self.downstream.inputs[:, : self.settings.seen_length(self.method)]

  @property
  def labels(self) -> np.ndarray:
    """[K, n], of the tasks."""
    return self.downstream.labels(self.tasks)

  @property
  def other_labels(self) -> np.ndarray:
    """[K, n], of the other task of each task's pair: (0, 1), (2, 3), ..."""
    return self.downstream.labels([task ^ 1 for task in self.tasks])


class Fitted(NamedTuple):
  """A fit to one task.

  Attributes:
    trainable: its arrays.
    is_right: [n], whether each input gets its label.
    loss: mean cross-entropy on the training inputs in nats, of the last epoch if there are epochs; None if another
      objective was minimised.
    fields: of its record.
  """

  trainable: Any
  is_right: np.ndarray
  loss: float | None
  fields: dict[str, Any]


def stacked(fits: list[Fitted]) -> Any:
  """The trainables of the fits side by side, arrays [K, ...]."""
  return jax.tree.map(lambda *leaves: np.stack(leaves), *(fitted.trainable for fitted in fits))
