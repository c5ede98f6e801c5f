"""Paper scale on one GPU: half precision checked against float32, and variants of the training step.

Runs on any machine, in toy sizes on a CPU too; it notes what the machine cannot do.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.studies.benchmark.measure import Case, Prepared
from experiments.studies.benchmark.settings import TrainingSettings
from experiments.studies.benchmark.training import Step

# The compiler option of `--config.deterministic`, for one program.
_DETERMINISTIC = {'xla_gpu_exclude_nondeterministic_ops': True}
# A learning rate at which a few steps move the weights, so that gradients matter to the losses behind them.
_MOVING_RATE = 1e-3


def cases(settings: TrainingSettings, key: Array) -> Iterator[Case]:
  """The step, then the losses: most important first, in case the run is killed."""
  step = Step(settings, key)
  yield (
    step.name,
    {
      'ours': step.ours,
      'ours, without dropout': functools.partial(step.ours, dropout_rate=0.0),
      # JAX gives this kernel no dropout.
      'ours, cuDNN attention, without dropout': functools.partial(step.ours, attention='cudnn', dropout_rate=0.0),
      'ours, deterministic': functools.partial(step.ours, options=_DETERMINISTIC),
      'ours, scanned layers': functools.partial(step.ours, scan_layers=True),
      'Hugging Face, torch.compile, SDPA': functools.partial(step.hugging_face, compiled=True, attention='sdpa'),
      'its matrix products alone': step.products_alone,
    },
  )
  yield losses(settings, key)


def losses(settings: TrainingSettings, key: Array) -> Case:
  """The losses of one call of steps from one start, without dropout, against those in float32.

  The learning rate is full from the first step on, since a warm-up would hardly move the weights. A gradient that is
  not finite makes the distance NaN, unless it is the last, which no loss follows.
  """
  moving = dataclasses.replace(settings.pretrain, warmup_steps=0, learning_rate=_MOVING_RATE)
  bert = dataclasses.replace(settings.bert, dropout_rate=0.0)
  step, exact = Step(dataclasses.replace(settings, pretrain=moving, bert=bert), key), list[np.ndarray]()

  def distance(found: Array) -> float:
    """The largest difference from the losses in float32, which come first."""
    exact.append(np.asarray(found))
    return float(np.abs(exact[-1] - exact[0]).max())

  def compared(precision: str = 'default', **changes: Any) -> Prepared:
    with jax.default_matmul_precision(precision):
      return step.ours(**changes)._replace(error=distance)

  return f'losses of {moving.steps_per_call} steps, against float32', {
    'ours, float32': functools.partial(compared, 'highest', dtype=jnp.dtype('float32')),
    'ours, bfloat16': compared,
    'ours, bfloat16, cuDNN attention': functools.partial(compared, attention='cudnn'),
  }
