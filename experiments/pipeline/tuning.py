"""Tuning one method on one frozen model for the tasks of a trial, and measuring the result."""

from collections.abc import Iterator
import functools
import itertools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import scipy.stats

from experiments.own import code
from experiments.pipeline import optimal_heads, prompt_effects
from experiments.pipeline.downstream import Downstream
from experiments.records.files import by_name
from experiments.records.trials import TunedTask
from experiments.runtime import signals
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS, NONE, OF_SEQUENCE
from experiments.settings.trial import Trial
from hmm_jax._support import nan_guard
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models.model import MaskedLM
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning import heads, mask_laws, tasks as tasks_lib, tuner as tuner_lib

_PROFILE_BINS = 10
# Smaller gaps between class scores count as near ties.
NEAR_TIE = 1e-6
# Above the number of any task.
_START_STRIDE = 2**16


class FrozenModel(NamedTuple):
  """A frozen model that methods are tuned on.

  Attributes:
    name: one of MODELS.
    model: a MaskedLM, exact or pretrained; None for methods that need none.
    params: its parameters, on the device where tuning is to run.
    distribution: of the text, whose exact G float64 fits read.
  """

  name: str
  model: Any
  params: Any
  distribution: Distribution


class Job(NamedTuple):
  """Tasks of a trial, by their numbers, that a method is tuned for side by side on one frozen model."""

  trial: Trial
  frozen: FrozenModel
  method: str
  tasks: list[int]
  downstream: Downstream

  def __str__(self) -> str:
    return f'{self.method} on {self.frozen.name}'


def check(settings: Settings) -> None:
  """Raise SettingsError if one of the methods has no model, no text that it can read, or no schedule."""
  d, form = settings.downstream, settings.attention.form
  is_first = d.hidden == 'first'
  valid = "'last' if bert.causal is True: before the first token there is nothing to see"
  require(not (settings.bert.causal and is_first), 'downstream.hidden', d.hidden, valid)
  valid = "0 if downstream.hidden is 'last'"
  require(is_first or not d.num_positions, 'downstream.num_positions', d.num_positions, valid)
  for name in settings.used_methods:
    method, models = METHODS[name], settings.models
    valid = f'a tuple with {" or ".join(method.models)}, which method {name!r} needs'
    require({*models, NONE}.intersection(method.models), 'models', models, valid)
    reads_all = method.reads not in ('probs', 'tokens')
    valid = f"'paper' for method {name}: the head of the released code reads no tokens"
    require(form == 'paper' or reads_all, 'attention.form', form, valid)
    valid = f"'first' for method {name}, which reads [MASK]s before a text or knows the law of its first state"
    require(is_first or (method.reads != 'masks' and name != 'head_best'), 'downstream.hidden', d.hidden, valid)
    valid = f'0, or at least {settings.num_rows_added(name) + 2}: a prompt or further masks, the [MASK] and one token'
    require(settings.seen_length(name) > 1, 'downstream.num_positions', d.num_positions, valid)
    if method.has_schedule:
      settings.tuning(name).check_num_train(method.settings[0], d.num_train)


def build(settings: Settings, point: Point, model: MaskedLM, method: str) -> tuner_lib.Tuner:
  """The head of one of METHODS, by what it reads, and what is trained with it. A new kind of method is built here."""
  chosen, num_classes, prompt = METHODS[method], settings.downstream.num_classes, None
  hidden = settings.downstream.hidden_position
  head: heads.Head = heads.Linear(num_classes, hidden)
  if method == 'own_head':
    head = code.own_head(settings)
  if chosen.reads in OF_SEQUENCE:
    # The paper's sizes.
    key_size, value_size = point.num_states + 1, max(point.memory_size, 1) * point.num_states
    reads = dict(reads_probs=chosen.reads != 'tokens', reads_tokens=chosen.reads != 'probs')
    head = heads.Attention(num_classes, key_size, value_size, temperature=1.0, **reads)
    if settings.attention.form == 'official':
      head = heads.OfficialAttention(num_classes)
  if chosen.prompt:
    p = settings.prompt
    model, length = (Shifted(model), 1) if chosen.shifts else (model, p.length)
    place = (hidden or 1) if method == 'inner_prompt' or chosen.shifts else 0
    prompt = tuner_lib.Prompt(length, p.init_scale if p.init == 'uniform' else None, place)
  return tuner_lib.Tuner(model, head, prompt, probes=chosen.reads == 'representation', finetunes=chosen.finetunes)


def tune(job: Job, reporter: Reporter) -> list[TunedTask]:
  """Tune a method for all tasks of a job, on the device that holds the model.

  Raises Diverged if a loss or a tuned number is not finite, and Stopped if the run has received a signal.
  """
  signals.raise_if_stopped()
  trial, frozen, method, tasks, downstream = job
  settings, chosen, splits = trial.settings, METHODS[method], downstream.splits
  fit, is_exact, hidden = chosen.fit, frozen.name == 'exact', settings.downstream.hidden_position
  if fit == 'on_test':
    fits = optimal_heads.heads_on_test(settings, frozen.params, downstream, tasks)
  elif chosen.reads == 'nearest':
    fits = optimal_heads.nearest_readers(settings, downstream, tasks, fit)
  else:
    tuner = build(settings, trial.point, frozen.model, method)
    inputs = downstream.inputs[:, : settings.seen_length(method)]
    if chosen.reads == 'masks':
      features = _marginals_at_masks(job, inputs)
    elif is_exact and not chosen.has_schedule:
      features = optimal_heads.exact_probs(frozen.distribution, inputs, hidden)
    else:
      features = tuner_lib.frozen_features(tuner, frozen.params, inputs, batch_size=settings.measure.batch_size)
    if fit == 'converged':
      fits = [optimal_heads.converged_head(settings, features, y, splits) for y in downstream.labels(tasks)]
    elif fit == 'whitened':
      fits = [optimal_heads.whitened_head(settings, features, y, splits, is_exact) for y in downstream.labels(tasks)]
    else:
      fits = [*_trained_in_blocks(job, tuner, features, reporter)]
    if chosen.prompt and settings.measure.prompts:
      tuned, test = [fitted.trainable['prompt'] for fitted in fits], inputs[splits['test']]
      effects = prompt_effects.measured(
        trial, tuner, frozen.params, frozen.distribution, tuned, test[: settings.measure.num_inputs]
      )
      for fitted, fields in zip(fits, effects):
        fitted.fields.update(fields)
    if fit == 'whitened' and frozen.name == 'bert' and chosen.reads == 'mask':
      exact = optimal_heads.exact_probs(frozen.distribution, inputs, hidden)
      for fitted, y in zip(fits, downstream.labels(tasks)):
        fitted.fields['noise_accuracies'] = optimal_heads.noise_accuracies(settings, features, exact, y, splits)
  accuracy = np.mean([fitted.is_right[splits['test']].mean() for fitted in fits])
  reporter.say(f'{job}: accuracy {100 * accuracy:.1f}% over {len(tasks)} tasks')
  outcome = []
  for task, fitted in zip(tasks, fits):
    nan_guard.check_values(f'{job}, task {task}:', by_name(fitted.trainable))
    measured = _measured(downstream.tasks[task], fitted, splits)
    if not chosen.has_schedule and chosen.reads == 'mask':
      fitted.fields['head_size'] = optimal_heads.head_size(
        fitted.trainable['head'], downstream.tasks[task].task_weights
      )
    outcome.append(TunedTask(task, fitted.trainable, {**measured, **optimal_heads.NO_FIELDS, **fitted.fields}))
  return outcome


def _marginals_at_masks(job: Job, inputs: np.ndarray) -> np.ndarray:
  """The predicted marginals at the [MASK]s that a method reads, [n, k V]; the exact ones for fits in float64."""
  settings, frozen = job.trial.settings, job.frozen
  masks = settings.masks.number
  if frozen.name == 'exact':
    return optimal_heads.exact_marginals_at_masks(frozen.params, inputs, masks)
  batch_size = settings.measure.batch_size
  return mask_laws.marginals_at_masks(frozen.model, frozen.params, inputs, masks, batch_size=batch_size)


def _trained_in_blocks(
  job: Job, tuner: tuner_lib.Tuner, features: Any, reporter: Reporter
) -> Iterator[optimal_heads.Fitted]:
  """The fit of each task, trained beside the others of its block of `tasks_at_a_time`.

  Rounding depends on the number of tasks side by side. So a block is trained whole and each task keeps its place; the
  first one that is asked for stands in for those that are not.
  """
  size = job.trial.settings.tasks_at_a_time
  for block, group in itertools.groupby(job.tasks, lambda task: task - task % size):
    tasks = [*group]
    whole = [task if task in tasks else tasks[0] for task in range(block, block + size)]
    fitted = _best_fits(job._replace(tasks=whole), tuner, features, reporter)
    yield from (fitted[task - block] for task in tasks)


class _Trained(NamedTuple):
  """R starts of K tasks after training, [R, K, ...], or one of them, from `_at`.

  Attributes:
    trainable: arrays of each start.
    losses: mean cross-entropy of the last epoch in nats.
    predicted: [..., n], the predicted class of each input.
    head_inputs: [..., n, F], for a head that replaces the trained one; None unless the method refits.
    attention: [..., n_test, P + T], weights on the test inputs; None unless the method profiles attention.
  """

  trainable: Any
  losses: np.ndarray
  predicted: np.ndarray
  head_inputs: Any
  attention: Any


def _best_fits(job: Job, tuner: tuner_lib.Tuner, features: Any, reporter: Reporter) -> list[optimal_heads.Fitted]:
  """The fit to each task that is best on validation, of all starts of the method's schedule."""
  starts = _train_starts(job, tuner, features, reporter)
  is_right_RxKxn = starts.predicted == job.downstream.labels(job.tasks)
  accuracies_RxK = is_right_RxKxn[..., job.downstream.splits['validation']].mean(-1)
  fits = []
  for index, start in enumerate(best_starts(accuracies_RxK, starts.losses)):
    fitted = _fit_of_task(job, job.tasks[index], _at(starts, (start, index)))
    if METHODS[job.method].fit == 'restarts':
      fitted.fields.update(restart=int(start), restart_accuracies=accuracies_RxK[:, index].tolist())
    fits.append(fitted)
  return fits


def _train_starts(job: Job, tuner: tuner_lib.Tuner, features: Any, reporter: Reporter) -> _Trained:
  """Train all starts of all tasks side by side by the method's schedule, and predict every input.

  Start r of a task is drawn like the start of a task numbered r 2^16 higher, so that start 0 is the start of the method
  without restarts.
  """
  trial, frozen, method, tasks, downstream = job
  settings, splits, name = trial.settings, downstream.splits, str(job)
  schedule, train = settings.schedule(method), splits['train']
  num_starts = settings.restarts.number if METHODS[method].fit == 'restarts' else 1
  # Start by start, [R K].
  drawn_as = np.add.outer(np.arange(num_starts, dtype=np.int32) * _START_STRIDE, np.array(tasks, np.int32)).ravel()
  examples = tuner_lib.Examples(
    features=_at(features, train),
    labels=np.tile(downstream.labels(tasks)[:, train], (num_starts, 1)),
    tasks=drawn_as,
    names=[f'task {task} from start {start}, {name}' for start, task in zip(*divmod(drawn_as, _START_STRIDE))],
  )
  states = tuner_lib.fit(jax.random.split(trial.keys().tuning), tuner, schedule, frozen.params, examples)
  *_, (state, losses) = followed(states, schedule.num_epochs, name, reporter)
  tuner, params = tuner.after_features(frozen.params)
  trained, batch_size = (tuner, state.trainable, params), settings.measure.batch_size
  head_inputs = attention = None
  if METHODS[method].refits:
    head_inputs = tuner_lib.inputs_of_heads(*trained, features, batch_size=batch_size)
  if METHODS[method].profiles:
    attention = tuner_lib.attention(*trained, _at(features, splits['test']), batch_size=batch_size)
  predicted = tuner_lib.predictions(*trained, features, batch_size=batch_size)
  on_host = jax.device_get(_Trained(state.trainable, losses, predicted, head_inputs, attention))
  return jax.tree.map(lambda x: x.reshape(num_starts, len(tasks), *x.shape[1:]), on_host)


def _fit_of_task(job: Job, number: int, trained: _Trained) -> optimal_heads.Fitted:
  """The fit of one start to a task, with its head replaced if the method refits."""
  downstream, method = job.downstream, METHODS[job.method]
  # Tasks are compared in pairs: (0, 1), (2, 3), ...
  splits, labels, other_labels = downstream.splits, *downstream.labels([number, number ^ 1])
  fields = attention_profile(trained.attention, downstream) if method.profiles else {}
  fitted = optimal_heads.Fitted(trained.trainable, trained.predicted == labels, float(trained.losses), fields)
  is_other_label = trained.predicted == other_labels
  if method.refits:
    refit = functools.partial(optimal_heads.refitted_head, job.trial.settings, fitted, trained.head_inputs)
    fitted, is_other_label = refit(labels, splits), refit(other_labels, splits).is_right
  fitted.fields['other_task_accuracy'] = float(is_other_label[splits['test']].mean())
  return fitted


def _at(tree: Any, index: Any) -> Any:
  return jax.tree.map(lambda x: x[index], tree)


def _measured(task: tasks_lib.Task, fitted: optimal_heads.Fitted, splits: dict[str, slice]) -> dict[str, Any]:
  """The fields of a record that say how a head did; 'clear_accuracy' leaves out near ties, None if all are."""
  test, is_right = splits['test'], fitted.is_right
  is_clear = task.margins[test] >= NEAR_TIE
  accuracies = {name: float(is_right[where].mean()) for name, where in splits.items()}
  return {
    'accuracy': accuracies['test'],
    'validation_accuracy': accuracies['validation'],
    'train_accuracy': accuracies['train'],
    'train_loss': fitted.loss,
    'majority_accuracy': float(tasks_lib.majority_accuracy(task.labels[splits['train']], task.labels[test])),
    'redraws': task.redraws,
    'smallest_margin': float(task.margins.min()),
    'near_tie_share': float((~is_clear).mean()),
    'clear_accuracy': float(is_right[test][is_clear].mean()) if is_clear.any() else None,
  }


def followed(
  states: Iterator[tuple[tuner_lib.TuneState, Array | None]], count: int, name: str, reporter: Reporter
) -> Iterator[tuple[tuner_lib.TuneState, Any]]:
  """The states of `fit`, with progress; raises Stopped between two epochs if the run has received a signal."""
  with reporter.track(name, count) as advance:
    for done, (state, losses) in enumerate(states):
      if losses is not None:
        advance(done, f'loss {np.asarray(losses).mean():.3f}')
      yield state, losses
      # Trained arrays are measured and kept first.
      if done < count:
        signals.raise_if_stopped()


def best_starts(accuracies_RxK: np.ndarray, losses_RxK: np.ndarray) -> np.ndarray:
  """The start of best validation accuracy for each task; ties go to the least loss, then to the first."""
  return np.lexsort((losses_RxK, -accuracies_RxK), axis=0)[0]


def attention_profile(weights: np.ndarray, downstream: Downstream) -> dict[str, Any]:
  """Attention against concentration, over all positions of the test inputs.

  The profile has a row for each bin of concentration: the means of both, null where the bin is empty, and the share of
  positions in it. Weights are in units of the uniform one, 1 / T. The correlation is Spearman's, of values rounded to
  1e-6: otherwise ranks would order nearly certain states by their last digits.
  """
  relative = weights.ravel() * weights.shape[1]
  assert downstream.concentration is not None, 'concentration is drawn for attention methods'
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
