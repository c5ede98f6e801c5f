"""Paper scale on one GPU: half precision checked against float32, a step by every road, ensembles.

Runs on any machine, in toy sizes on a CPU too; what the machine cannot do is a line that says so.
"""

from collections.abc import Callable, Iterator
import dataclasses

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.studies.benchmark.measure import BenchmarkCase, Contender, NotHere, Prepared
from experiments.studies.benchmark.settings import TrainingSettings
from experiments.studies.benchmark.training import HUGGING_FACE, Step
from hmm_jax.bert import Bert

# What `--config.deterministic` asks of every program of a process, here of one.
_DETERMINISTIC = {'xla_gpu_exclude_nondeterministic_ops': True}
# A learning rate at which a few steps move the weights, so that gradients matter to the losses behind them.
_MOVING_RATE = 1e-3


def cases(settings: TrainingSettings, key: Array) -> Iterator[BenchmarkCase]:
  """The step first: what a run that is killed has on record is in the order of what matters."""
  step = Step(settings, key)
  contenders = [
    Contender('ours', lambda: step.alone),
    Contender('ours, without dropout', lambda: step.ours(_without_dropout(step))),
    Contender('ours, cuDNN attention, without dropout', lambda: step.ours(_with_cudnn(step))),
    Contender('ours, deterministic', lambda: step.ours(step.bert, options=_DETERMINISTIC)),
    # Its layers start from other draws, so that its loss is another.
    Contender('ours, scanned layers', lambda: step.ours(step.bert.clone(scan_layers=True))._replace(error=None)),
    Contender('Hugging Face, torch.compile, SDPA', lambda: _hugging_face(step), HUGGING_FACE),
    Contender('its matrix products alone', step.products_alone),
  ]
  yield BenchmarkCase('gpu', step.name, contenders)
  yield losses(step)
  yield step.ensembles('gpu')


def _without_dropout(step: Step) -> Bert:
  return step.bert.clone(dropout_rate=0.0)


def _with_cudnn(step: Step) -> Bert:
  """The fused kernel, which JAX gives no dropout."""
  if jax.default_backend() != 'gpu':
    raise NotHere('needs a CUDA device')
  return _without_dropout(step).clone(attention='cudnn')


def _hugging_face(step: Step) -> Prepared:
  import torch

  if not torch.cuda.is_available():
    raise NotHere('torch sees no CUDA device')
  return step.hugging_face(compiled=True, attention='sdpa', device='cuda')


def losses(step: Step) -> BenchmarkCase:
  """The losses of one call of steps from one start, without dropout, against those in float32.

  At full rate from the first step on: a warm-up to a small rate would leave the weights where they are. The distance is
  not a number where a gradient was not finite, unless it was the last, which no loss comes after.
  """
  exact: list[np.ndarray] = []
  moving = dataclasses.replace(step.settings.pretrain, warmup_steps=0, learning_rate=_MOVING_RATE)

  def distance(found: Array) -> float:
    """The largest from the losses in float32, which come first."""
    exact.append(np.asarray(found))
    return float(np.abs(exact[-1] - exact[0]).max())

  def contender(name: str, bert: Callable[[], Bert], precision: str = 'default') -> Contender:
    prepare = lambda: step.ours(bert(), precision=precision, pretrain=moving)._replace(error=distance)
    return Contender(name, prepare)

  contenders = [
    contender('ours, float32', lambda: _without_dropout(step).clone(dtype=jnp.float32), 'highest'),
    contender('ours, bfloat16', lambda: _without_dropout(step)),
    contender('ours, bfloat16, cuDNN attention', lambda: _with_cudnn(step)),
  ]
  return BenchmarkCase('gpu', f'losses of {step.settings.pretrain.steps_per_call} steps, against float32', contenders)
