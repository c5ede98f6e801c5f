"""What each method of tuning does: what it trains, reads and measures, and how it is fitted."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from experiments.own import code
from experiments.pipeline import best_heads, optimal_heads, prompt_effects, scheduled, token_readers
from experiments.pipeline.job import Fitted, Job
from experiments.settings.fields import require
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS, NONE
from hmm_jax.models.model import MaskedLM
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning import heads, mask_laws
from hmm_jax.tuning.tuner import frozen_features, Prompt, Tuner


def linear(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  """A linear head on the token probabilities at the [MASK]."""
  d = settings.downstream
  return Tuner(model, heads.Linear(d.num_classes, d.hidden_position))


def _own_head(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  return Tuner(model, code.own_head(settings))


def _probe(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  """A linear head on what the prediction at the [MASK] is read out of."""
  return dataclasses.replace(linear(settings, point, model), probes=True)


def _finetuned(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  return dataclasses.replace(linear(settings, point, model), finetunes=True)


def _attention(settings: Settings, point: Point, model: MaskedLM, **reads: bool) -> Tuner:
  """The paper's head, of its sizes, on the token probabilities and the tokens of all positions; or the released one."""
  num_classes = settings.downstream.num_classes
  if settings.attention.form == 'official':
    return Tuner(model, heads.OfficialAttention(num_classes))
  value_size = max(point.memory_size, 1) * point.num_states
  return Tuner(model, heads.Attention(num_classes, point.num_states + 1, value_size, temperature=1.0, **reads))


def _prompt(settings: Settings, length: int, place: int) -> Prompt:
  p = settings.prompt
  return Prompt(length, p.init_scale if p.init == 'uniform' else None, place)


def _prefixed(build: Callable[..., Tuner], settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  """What `build` trains, and a prompt before the text."""
  return dataclasses.replace(build(settings, point, model), prompt=_prompt(settings, settings.prompt.length, 0))


def _inner_prompt(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  """A linear head and a prompt between the [MASK] and the rest of the text."""
  prompt = _prompt(settings, settings.prompt.length, settings.downstream.hidden_position or 1)
  return dataclasses.replace(linear(settings, point, model), prompt=prompt)


def _shift(settings: Settings, point: Point, model: MaskedLM) -> Tuner:
  """A linear head and one vector that is added to the last activation."""
  prompt = _prompt(settings, 1, settings.downstream.hidden_position or 1)
  return dataclasses.replace(linear(settings, point, Shifted(model)), prompt=prompt)


def _head_inputs(job: Job, tuner: Tuner) -> Any:
  """The inputs of the head, or the texts if what comes before the head is trained."""
  return frozen_features(tuner, job.frozen.params, job.inputs, batch_size=job.settings.measure.batch_size)


def _probs(job: Job, tuner: Tuner) -> np.ndarray:
  """The token probabilities at the [MASK], [n, V]; of the exact model in float64."""
  if job.frozen.name == 'exact':
    return optimal_heads.exact_probs(job)
  return _head_inputs(job, tuner)


def _marginals(job: Job, tuner: Tuner) -> np.ndarray:
  """The token probabilities at each of k [MASK]s, [n, k V]; of the exact model in float64."""
  frozen, masks = job.frozen, job.settings.masks.number
  if frozen.name == 'exact':
    return optimal_heads.exact_marginals_at_masks(frozen.distribution, job.inputs, masks)
  batch_size = job.settings.measure.batch_size
  return mask_laws.marginals_at_masks(frozen.model, frozen.params, job.inputs, masks, batch_size=batch_size)


class Way(NamedTuple):
  """The way of one of METHODS.

  Attributes:
    build: (settings, point, model) -> what is trained.
    read: (job, what is trained) -> what the fit reads, arrays with a row for each input.
    fit: (job, what is trained, what is read) -> the fit to each task of the job.
    measures: functions (job, what is trained, what is read, the fits) -> further fields of the record of each task.
  """

  build: Callable[[Settings, Point, Any], Tuner] = linear
  read: Callable[[Job, Tuner], Any] = _head_inputs
  fit: Callable[[Job, Tuner, Any], list[Fitted]] = scheduled.one_start
  measures: tuple[Callable[[Job, Tuner, Any, list[Fitted]], list[dict[str, Any]]], ...] = ()


_best_start, _profile, _effects = scheduled.best_start, scheduled.attention_profiles, prompt_effects.measured
_refitted = functools.partial(scheduled.refitted, scheduled.one_start)
_refitted_best = functools.partial(scheduled.refitted, _best_start)
_prompted = functools.partial(_prefixed, linear)
_prompted_attention = functools.partial(_prefixed, _attention)

WAYS = {
  'head': Way(),
  'own_head': Way(_own_head),
  'prompt': Way(_prompted, measures=(_effects,)),
  'inner_prompt': Way(_inner_prompt, measures=(_effects,)),
  'shift': Way(_shift, measures=(_effects,)),
  'probe': Way(_probe),
  'finetune': Way(_finetuned),
  'attention': Way(_attention, measures=(_profile,)),
  'prompt_attention': Way(_prompted_attention, measures=(_profile, _effects)),
  'head_best': Way(read=best_heads.states, fit=best_heads.fits, measures=(optimal_heads.sizes,)),
  'head_converged': Way(read=_probs, fit=optimal_heads.converged, measures=(optimal_heads.sizes,)),
  'head_whitened': Way(
    read=_probs, fit=optimal_heads.whitened, measures=(optimal_heads.sizes, optimal_heads.under_noise)
  ),
  'probe_converged': Way(_probe, fit=optimal_heads.whitened),
  'attention_converged': Way(_attention, fit=_best_start),
  'oracle_prompt': Way(_prompted, fit=_best_start, measures=(_effects,)),
  'prompt_refit': Way(_prompted, fit=_refitted, measures=(_effects,)),
  'oracle_refit': Way(_prompted, fit=_refitted_best, measures=(_effects,)),
  'attention_blind': Way(functools.partial(_attention, reads_tokens=False)),
  'attention_constant': Way(functools.partial(_attention, reads_probs=False)),
  'masks': Way(read=_marginals),
  'masks_converged': Way(read=_marginals, fit=optimal_heads.whitened),
  'table': Way(read=token_readers.nearest, fit=token_readers.tables, measures=(token_readers.changed_shares,)),
  'tokens': Way(read=token_readers.nearest, fit=token_readers.logistic, measures=(token_readers.changed_shares,)),
}


def check(settings: Settings) -> None:
  """Raise SettingsError if one of the methods has no model, no text that it can read, or no schedule."""
  d = settings.downstream
  is_first = d.hidden == 'first'
  valid = "'last' if bert.causal is True: before the first token there is nothing to see"
  require(not (settings.bert.causal and is_first), 'downstream.hidden', d.hidden, valid)
  valid = "0 if downstream.hidden is 'last'"
  require(is_first or not d.num_positions, 'downstream.num_positions', d.num_positions, valid)
  for name in settings.used_methods:
    _check_method(name, settings)


def _check_method(name: str, settings: Settings) -> None:
  """Raise SettingsError as `check` does, for one of METHODS."""
  d, method, form, models = settings.downstream, METHODS[name], settings.attention.form, settings.models
  valid = f'a tuple with {" or ".join(method.models)}, which method {name!r} needs'
  require({*models, NONE}.intersection(method.models), 'models', models, valid)
  valid = f"'paper' for method {name}: the head of the released code reads no tokens"
  require(form == 'paper' or not method.is_control, 'attention.form', form, valid)
  is_of_first = 'masks' in method.settings or name == 'head_best'
  valid = f"'first' for method {name}, which reads [MASK]s before a text or knows the law of its first state"
  require(d.hidden == 'first' or not is_of_first, 'downstream.hidden', d.hidden, valid)
  valid = f'0, or at least {settings.num_rows_added(name) + 2}: a prompt or further masks, the [MASK] and one token'
  require(settings.seen_length(name) > 1, 'downstream.num_positions', d.num_positions, valid)
  if method.has_schedule:
    settings.tuning(name).check_num_train(method.settings[0], d.num_train)
