"""Each method of tuning as functions: what it trains, reads and measures, and how it is fitted."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from experiments.own import code
from experiments.pipeline import (
  attention,
  best_heads,
  neighbours,
  optimal_heads,
  prompt_effects,
  scheduled,
  token_readers,
)
from experiments.pipeline.job import Fitted, Job
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, NONE
from experiments.settings.trial import Trial
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning import heads, mask_laws, nonlinear
from hmm_jax.tuning.tuner import frozen_features, Prompt, Tuner


def _linear(trial: Trial) -> heads.Head:
  d = trial.settings.downstream
  return heads.Linear(d.num_classes, d.hidden_position)


def _mlp(trial: Trial) -> heads.Head:
  d = trial.settings.downstream
  return nonlinear.Mlp(d.num_classes, d.hidden_position, trial.settings.mlp.width)


def _attention(trial: Trial, **reads: bool) -> heads.Head:
  """The paper's head, of its sizes, on the token probabilities and the tokens of all positions; or the released one."""
  num_classes, point = trial.settings.downstream.num_classes, trial.point
  if trial.settings.attention.form == 'official':
    return heads.OfficialAttention(num_classes)
  value_size = max(point.memory_size, 1) * point.num_states
  return heads.Attention(num_classes, point.num_states + 1, value_size, **reads)


def _prefix(settings: Settings) -> Prompt:
  """Rows before the text."""
  p = settings.prompt
  return Prompt(p.length, p.init_scale if p.init == 'uniform' else None)


def _inner(settings: Settings) -> Prompt:
  """Rows between the [MASK] and the rest of the text."""
  return dataclasses.replace(_prefix(settings), place=settings.downstream.hidden_position or 1)


def _vector(settings: Settings) -> Prompt:
  """One vector, which is added to the last activation."""
  return dataclasses.replace(_inner(settings), length=1)


def _head_inputs(job: Job) -> Any:
  """The inputs of the head, or the texts if what comes before the head is trained."""
  return frozen_features(job.tuner, job.frozen.params, job.inputs, batch_size=job.settings.measure.batch_size)


def _probs(job: Job) -> np.ndarray:
  """The token probabilities at the [MASK], [n, V]; of the exact model in float64."""
  if job.frozen.name == 'exact':
    return optimal_heads.exact_probs(job.frozen.distribution, optimal_heads.states(job))
  return _head_inputs(job)


def _products(job: Job) -> np.ndarray:
  """All products of two of the token probabilities at the [MASK], [n, V (V + 1) / 2], in float64."""
  return nonlinear.power_features(np.asarray(_probs(job), np.float64), 2)


def _posterior(job: Job) -> np.ndarray:
  """The exact posterior that decides the labels, [n, S]."""
  return job.downstream.label_probs(job.downstream.inputs)


def _marginals(job: Job) -> np.ndarray:
  """The token probabilities at each of k [MASK]s, [n, k V]; of the exact model in float64."""
  frozen, masks = job.frozen, job.settings.masks.number
  if frozen.name == 'exact':
    return optimal_heads.exact_marginals_at_masks(frozen.distribution, job.inputs, masks)
  batch_size = job.settings.measure.batch_size
  return mask_laws.marginals_at_masks(frozen.model, frozen.params, job.inputs, masks, batch_size=batch_size)


class Way(NamedTuple):
  """The way of one of METHODS.

  Attributes:
    head: trial -> the head that is trained.
    prompt: settings -> the prompt that is trained with it, if there is one.
    probes: whether the head reads what the model's prediction is read out of.
    finetunes: whether the model's own parameters are trained with the head.
    read: job -> what the fit reads, arrays with a row for each input.
    fit: (job, what is read) -> the fit to each task of the job.
    measures: functions (job, what is read, the fits) -> further fields of the record of each task.
  """

  head: Callable[[Trial], heads.Head] = _linear
  prompt: Callable[[Settings], Prompt] | None = None
  probes: bool = False
  finetunes: bool = False
  read: Callable[[Job], Any] = _head_inputs
  fit: Callable[[Job, Any], list[Fitted]] = scheduled.one_start
  measures: Sequence[Callable[[Job, Any, list[Fitted]], list[dict[str, Any]]]] = ()


_EFFECTS = (prompt_effects.measured,)
_SIZES = (optimal_heads.sizes,)
_CHANGED = (token_readers.changed_shares,)
_PARAMETERS = (optimal_heads.num_parameters,)
_refitted = functools.partial(scheduled.refitted, scheduled.one_start)
_refitted_best = functools.partial(scheduled.refitted, scheduled.best_start)


def _each(fit: Callable[..., Fitted]) -> Callable[..., list[Fitted]]:
  """A `fit` of one task, for each."""
  return functools.partial(optimal_heads.for_each, fit)


def _fewest(read: Callable[..., Fitted]) -> Callable[..., list[Fitted]]:
  """A reader of tokens that chooses their number, for each task."""
  return _each(functools.partial(token_readers.fewest, read))


_whitened = _each(optimal_heads.whitened_on_model)
_validated = _each(optimal_heads.whitened_head)

WAYS = {
  'head': Way(),
  'own_head': Way(code.own_head),
  'prompt': Way(prompt=_prefix, measures=_EFFECTS),
  'inner_prompt': Way(prompt=_inner, measures=_EFFECTS),
  'shift': Way(prompt=_vector, measures=_EFFECTS),
  'probe': Way(probes=True),
  'finetune': Way(finetunes=True),
  'attention': Way(_attention, measures=(attention.profiles,)),
  'prompt_attention': Way(_attention, _prefix, measures=_EFFECTS),
  'head_best': Way(read=optimal_heads.states, fit=best_heads.fits, measures=_SIZES),
  'head_converged': Way(read=_probs, fit=_each(optimal_heads.converged_head), measures=_SIZES),
  'head_whitened': Way(read=_probs, fit=_whitened, measures=(*_SIZES, optimal_heads.under_noise)),
  'mlp': Way(_mlp, measures=_PARAMETERS),
  'mlp_converged': Way(_mlp, fit=scheduled.best_start, measures=_PARAMETERS),
  'quadratic': Way(read=_products, fit=_validated, measures=_PARAMETERS),
  'posterior': Way(read=_posterior, fit=_validated),
  'neighbours': Way(read=neighbours.nearest, fit=neighbours.fits),
  'probe_converged': Way(probes=True, fit=_whitened),
  'probe_ridge': Way(probes=True, fit=_each(optimal_heads.standardised_head)),
  'attention_converged': Way(_attention, fit=scheduled.best_start),
  'oracle_prompt': Way(prompt=_prefix, fit=scheduled.best_start, measures=_EFFECTS),
  'prompt_refit': Way(prompt=_prefix, fit=_refitted, measures=_EFFECTS),
  'oracle_refit': Way(prompt=_prefix, fit=_refitted_best, measures=_EFFECTS),
  'attention_blind': Way(functools.partial(_attention, reads_tokens=False)),
  'attention_constant': Way(functools.partial(_attention, reads_probs=False)),
  'masks': Way(read=_marginals),
  'masks_converged': Way(read=_marginals, fit=_whitened),
  'table': Way(read=token_readers.nearest, fit=_fewest(token_readers.table), measures=_CHANGED),
  'tokens': Way(read=token_readers.nearest, fit=_fewest(token_readers.logistic), measures=_CHANGED),
  'tokens_ridge': Way(read=token_readers.one_hot, fit=_each(optimal_heads.standardised_head)),
  'window': Way(read=token_readers.nearest, fit=_fewest(token_readers.window), measures=_CHANGED),
  # Pairs of more tokens have more features than there are labelled texts.
  'window_quadratic': Way(
    read=functools.partial(token_readers.nearest, most=3), fit=_fewest(token_readers.pairs), measures=_CHANGED
  ),
}


def tuner_of(method: str, trial: Trial, model: Any) -> Tuner:
  """The tuner of one of METHODS on a model, for a trial."""
  way = WAYS[method]
  model = Shifted(model) if METHODS[method].shifts else model
  prompt = way.prompt(trial.settings) if way.prompt else None
  return Tuner(model, way.head(trial), prompt, way.probes, way.finetunes)


def check(settings: Settings) -> None:
  """Raise SettingsError if one of the methods has no model, no text that it can read, or no schedule."""
  d = settings.downstream
  is_first = d.hidden == 'first'
  settings.require('downstream.num_labels', d.num_labels <= d.num_train, f'at most num_train, {d.num_train}')
  valid = "'last' if bert.causal is True: before the first token there is nothing to see"
  settings.require('downstream.hidden', not (settings.bert.causal and is_first), valid)
  holds = is_first or not settings.downstream.num_positions
  settings.require('downstream.num_positions', holds, "0 if downstream.hidden is 'last'")
  for name in settings.used_methods:
    _check_method(name, settings)


def _check_method(name: str, settings: Settings) -> None:
  """Raise SettingsError as `check` does, for one of METHODS."""
  method, downstream = METHODS[name], settings.downstream
  valid = f'a tuple with {" or ".join(method.models)}, which method {name!r} needs'
  settings.require('models', {*settings.models, NONE}.intersection(method.models), valid)
  valid = f"'paper' for method {name}: the head of the released code reads no tokens"
  settings.require('attention.form', settings.attention.form == 'paper' or not method.is_control, valid)
  is_of_first = 'masks' in method.settings or name == 'head_best'
  valid = f"'first' for method {name}, which reads [MASK]s before a text or knows the law of its first state"
  settings.require('downstream.hidden', downstream.hidden == 'first' or not is_of_first, valid)
  valid = f'0, or at least {settings.num_rows_added(name) + 2}: a prompt or further masks, the [MASK] and one token'
  settings.require('downstream.num_positions', settings.seen_length(name) > 1, valid)
  if method.has_schedule:
    settings.tuning(name).check_num_train(method.settings[0], settings.downstream.num_labelled)
