"""Tuning one method on one frozen model for the tasks of a trial, and what is measured of the result."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import Array
import numpy as np
import scipy.stats

from experiments.pipeline import optimal_heads
from experiments.pipeline.downstream import Downstream
from experiments.records.trial_records import by_name, Tuned
from experiments.runtime import nan_guard, signals
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS, OF_SEQUENCE
from hmm_jax import compilation, heads, tasks as tasks_lib, tuning
from hmm_jax.model import MaskedLM

# state -> (state, losses).
Epoch = Callable[[tuning.TuneState], tuple[tuning.TuneState, Array]]

_PROFILE_BINS = 10
# A gap between class scores that float32 token probabilities do not show.
_NEAR_TIE = 1e-6
# Above the number of any task.
_START_STRIDE = 2**16
NO_PROFILE = {'attention_by': None, 'attention_profile': None, 'attention_rank_correlation': None}


_init_tuning = jax.jit(tuning.init_tuning, static_argnames=('tuner', 'schedule'), compiler_options=compilation.ONCE)


def _tuner(settings: Settings, point: Point, model: MaskedLM, method: str) -> tuning.Tuner:
  p, a, num_classes, chosen = settings.prompt, settings.attention, settings.downstream.num_classes, METHODS[method]
  head: heads.Head = heads.Linear(num_classes)
  if chosen.reads == 'sequence' and a.form == 'official':
    head = heads.OfficialAttention(num_classes)
  elif chosen.reads in OF_SEQUENCE:
    value_size = a.value_size or max(point.memory_size, 1) * point.num_states
    reads = dict(reads_probs=chosen.reads != 'tokens', reads_tokens=chosen.reads != 'probs')
    head = heads.Attention(num_classes, a.key_size or point.num_states + 1, value_size, a.temperature, **reads)
  prompt = tuning.Prompt(p.length, p.init_scale if p.init == 'uniform' else None) if chosen.prompt else None
  return tuning.Tuner(model, head, prompt, probes=chosen.reads == 'representation', finetunes=chosen.finetunes)


def tune(
  settings: Settings,
  point: Point,
  model: MaskedLM,
  frozen: Any,
  method: str,
  tasks: list[int],
  downstream: Downstream,
  key: Array,
  reporter: Reporter,
  in_float64: Callable[[np.ndarray], np.ndarray] | None = None,
) -> list[Tuned]:
  """Tunes `method` on the frozen model for all `tasks`, on the device that holds the model.

  What is fitted in float64 reads token probabilities at the [MASK] of inputs by `in_float64`, of a model that has it.
  Raises Diverged where a loss or a tuned number is not finite.
  """
  fit, name, splits = METHODS[method].fit, f'{method} on {model.name}', downstream.splits
  labels, profiles = downstream.labels(tasks), [NO_PROFILE] * len(tasks)
  if fit == 'on_test':
    found = optimal_heads.heads_on_test(settings, frozen, downstream, tasks)
  else:
    tuner = _tuner(settings, point, model, method)
    inputs = downstream.inputs[:, : settings.seen_length(method)]
    if fit == 'converged' and in_float64:
      features = in_float64(inputs)
    else:
      features = tuning.frozen_features(tuner, frozen, inputs, batch_size=settings.measure.batch_size)
    if fit == 'converged':
      found = [optimal_heads.converged_head(settings, features, y, splits) for y in labels]
    else:
      data = frozen, features, labels, splits
      found = _trained(settings, tuner, method, tasks, *data, key, name, reporter)
    if method == 'attention':
      profiles = _attention_profiles(settings, tuner, found, frozen, features, downstream)
  accuracy = np.mean([one.is_right[splits['test']].mean() for one in found])
  reporter.say(f'{name}: accuracy {100 * accuracy:.1f}% over {len(tasks)} tasks')
  outcome = []
  for task, one, profile in zip(tasks, found, profiles):
    nan_guard.check_values(f'{name}, task {task}:', by_name(one.trainable))
    measured = _measured(downstream.tasks[task], one, splits)
    outcome.append(Tuned(task, one.trainable, {**measured, **profile, **optimal_heads.NOT_FITTED, **one.fields}))
  return outcome


def _trained(
  settings: Settings,
  tuner: tuning.Tuner,
  method: str,
  tasks: list[int],
  frozen: Any,
  features: Any,
  labels: np.ndarray,
  splits: dict[str, slice],
  key: Array,
  name: str,
  reporter: Reporter,
) -> list[optimal_heads.Fitted]:
  """The fit of a method's schedule to each task; of several starts, trained side by side, the best on validation.

  Start r of a task is drawn as that of a task numbered r 2^16 higher, so that start 0 is the only one of the method
  without restarts.
  """
  schedule, num_starts, train = settings.schedule(method), settings.num_starts(method), splits['train']
  device = jax.tree.leaves(frozen)[0].sharding
  tuner, frozen = tuner.after_features(frozen)
  numbers = np.add.outer(np.arange(num_starts, dtype=np.int32) * _START_STRIDE, np.array(tasks, np.int32)).ravel()
  taught_to = np.tile(labels, (num_starts, 1))
  shown, taught = jax.device_put((_at(features, train), taught_to[:, train]), device)
  key_init, key_order = jax.random.split(key)
  state = _init_tuning(key_init, tuner, schedule, frozen, shown, numbers)
  # Committed to its device from the first call on, as it is after it, so that the epoch compiles once.
  state = jax.device_put(state, taught.sharding)
  epoch = lambda state: tuning.tune_epoch(state, key_order, tuner, schedule, frozen, shown, taught)
  members = [f'task {task} from start {start}' for start, task in zip(*divmod(numbers, _START_STRIDE))]
  *_, (state, losses) = epochs(epoch, state, schedule.num_epochs, name, members, reporter)
  how = dict(batch_size=settings.measure.batch_size)
  is_right = np.asarray(tuning.predictions(tuner, state.trainable, frozen, features, **how)) == taught_to
  losses, trainable = np.asarray(losses), jax.device_get(state.trainable)
  found = []
  for index in range(len(tasks)):
    starts = np.arange(index, len(numbers), len(tasks))
    accuracies = is_right[starts, splits['validation']].mean(1)
    chosen = _best_start(accuracies, losses[starts])
    several = {'restart': chosen, 'restart_accuracies': accuracies.tolist()}
    which = starts[chosen]
    fields = several if METHODS[method].fit == 'restarts' else {}
    found.append(optimal_heads.Fitted(_at(trainable, which), is_right[which], float(losses[which]), fields))
  return found


def _at(tree: Any, where: slice | int) -> Any:
  return jax.tree.map(lambda x: x[where], tree)


def _measured(task: tasks_lib.Task, one: optimal_heads.Fitted, splits: dict[str, slice]) -> dict[str, Any]:
  test, is_right = splits['test'], one.is_right
  is_clear = task.margins[test] >= _NEAR_TIE
  return {
    'accuracy': float(is_right[test].mean()),
    'validation_accuracy': float(is_right[splits['validation']].mean()),
    'train_accuracy': float(is_right[splits['train']].mean()),
    'train_loss': one.loss,
    'majority_accuracy': float(tasks_lib.majority_accuracy(task.labels[splits['train']], task.labels[test])),
    'redraws': task.redraws,
    'smallest_margin': float(task.margins.min()),
    'near_tie_share': float((~is_clear).mean()),
    'clear_accuracy': float(is_right[test][is_clear].mean()) if is_clear.any() else None,
  }


def epochs(
  epoch: Epoch, state: tuning.TuneState, count: int, name: str, members: Sequence[str], reporter: Reporter
) -> Iterator[Any]:
  """Yields (state, losses) after each of `count` epochs; a state is donated to the next one.

  Raises Diverged at the first epoch in which the loss of one of `members`, whose losses these are, is not finite, and
  Stopped between two epochs if the run has received a signal.
  """
  with reporter.track(name, count) as advance:
    for done in range(1, count + 1):
      signals.check()
      state, losses = epoch(state)
      nan_guard.check_members(losses, members, done, name)
      advance(done, f'loss {np.mean(losses):.3f}')
      yield state, losses


def _best_start(accuracies: np.ndarray, losses: np.ndarray) -> int:
  """The start of most accuracy on validation; of several the one of least loss, and then the first."""
  return int(np.lexsort((losses, -accuracies))[0])


def _attention_profiles(
  settings: Settings,
  tuner: tuning.Tuner,
  found: list[optimal_heads.Fitted],
  frozen: Any,
  features: Any,
  downstream: Downstream,
) -> list[dict[str, Any]]:
  tuner, frozen = tuner.after_features(frozen)
  trainable = jax.tree.map(lambda *leaves: np.stack(leaves), *(one.trainable for one in found))
  of_test, batch_size = _at(features, downstream.splits['test']), settings.measure.batch_size
  weights = tuning.attention(tuner, trainable, frozen, of_test, batch_size=batch_size)
  return [_attention_profile(weights_nxT, downstream) for weights_nxT in np.asarray(weights)]


def _attention_profile(weights: np.ndarray, downstream: Downstream) -> dict[str, Any]:
  """Attention against concentration, over all positions of the test inputs.

  The profile has a row for each bin of concentration: the means of both, null where the bin is empty, and the share of
  positions in it. Weights are in units of the uniform one, 1 / T. The correlation is Spearman's, of values rounded to
  1e-6: ranks would else tell nearly certain states apart by their last digits.
  """
  relative = weights.ravel() * weights.shape[1]
  assert downstream.concentration is not None, 'drawn where attention is a method'
  concentration = downstream.concentration.ravel()
  bins = np.minimum((concentration / downstream.most_concentration * _PROFILE_BINS).astype(int), _PROFILE_BINS - 1)
  profile = []
  for where in (bins == index for index in range(_PROFILE_BINS)):
    means = [float(x[where].mean()) for x in (concentration, relative)] if where.any() else [None, None]
    profile.append([*means, float(where.mean())])
  ranked = np.round(concentration, 6), np.round(relative, 6)
  varies = all(np.ptp(values) > 0 for values in ranked)
  return {
    'attention_by': downstream.concentration_name,
    'attention_profile': profile,
    'attention_rank_correlation': float(scipy.stats.spearmanr(*ranked).statistic) if varies else None,
  }
