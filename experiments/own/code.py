"""A model, a head or labels of the user's own, MODULE:FUNCTION, which only flags and config files import.

A record, which may come from anybody, can name a function only if this process's command line named it too.
"""

from collections.abc import Callable, Iterable
import hashlib
import pathlib
import pkgutil
import sys
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings.fields import users_program
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models.model import MaskedLM, token_probs
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning import heads, tasks

# Fields of settings that name a function.
FIELDS = ('model', 'own_head', 'label')


class Function(NamedTuple):
  """A function of the user's.

  Attributes:
    call: from (distribution, key) to (model, params), from the number of classes to a head, or from (texts, posteriors)
      to labels.
    digest: the SHA-256 of the file of its module; modules it imports are not covered.
  """

  call: Callable[..., Any]
  digest: str


def imported(grid: Iterable[Any]) -> dict[str, Function]:
  """The functions that settings of any experiment name, by their names.

  Call it once JAX is configured, since a module may compute when it is imported. Raises SettingsError if that fails.
  """
  functions = dict[str, Function]()
  for field, name in ((field, getattr(settings, field, '')) for settings in grid for field in FIELDS):
    if name and name not in functions:
      with users_program(field, name, 'MODULE:FUNCTION of a Python file'):
        call = pkgutil.resolve_name(name)
        source = pathlib.Path(str(sys.modules[name.partition(':')[0]].__file__))
        functions[name] = Function(call, hashlib.sha256(source.read_bytes()).hexdigest())
  return functions


def own_model(build: Function, distribution: Distribution, key: Array) -> tuple[MaskedLM, Any]:
  """The masked language model that a function makes of a distribution, and its parameters on a device of this host.

  Args:
    build: makes a model that is hashable, as a frozen dataclass is, since programs are compiled for it, and its
      parameters, a tree of arrays.
    distribution: an `HMM` or a `MemoryHMM`.
    key: decides what the function draws, so that a trial that is run again has the same model.
  """
  device = jax.local_devices()[0]
  model, params = build.call(*jax.device_put((jax.device_get(distribution), key), device))
  return model, jax.device_put(params, device)


def check_model(trial: Trial, distribution: Distribution) -> None:
  """Raise SettingsError unless the function makes a model of a trial's distribution; the model predicts a few texts.

  A causal one can predict the hidden token of a text only if that is the last. One that is shifted has `decode`.
  """
  settings, num_tokens = trial.settings, distribution.num_tokens
  # So many that some differ in what comes next, however near to deterministic the process is.
  texts, last = np.array([[token, 0] for token in range(min(num_tokens, 10))]), np.array([1])
  settings.require('model', bool(settings.model), 'MODULE:FUNCTION with models=own')
  with users_program('model', settings.model, 'a function to a hashable MaskedLM and its parameters'):
    model, params = own_model(trial.own['model'], distribution, trial.keys().pretraining)
    hash(model)
    is_shifted = any(METHODS[method].shifts for method in trial.methods)
    probs = np.asarray(token_probs(Shifted(model) if is_shifted else model, params, texts, last))
    alone = np.concatenate([token_probs(model, params, text[None])[:, last] for text in texts])
  is_seen = not getattr(model, 'causal', False) or settings.downstream.hidden == 'last'
  settings.require('downstream.hidden', is_seen, "'last' for a causal model")
  shape = len(texts), 1, num_tokens
  valid = f'one whose predictions at one position of {len(texts)} texts have shape {shape}, not {probs.shape}'
  settings.require('model', probs.shape == shape, valid)
  # Predictions for a text that cannot occur are 0.
  totals = probs.sum(-1)
  are_probs = probs.min() >= 0 and np.allclose(totals, totals > 0, atol=1e-3)
  settings.require('model', are_probs, f'one whose predictions are probabilities, not {probs[0, 0].tolist()}')
  valid = 'one whose predictions depend on no other text and not on the positions read'
  valid += ', and are `decode` of `represent`' if is_shifted else ''
  settings.require('model', abs(alone - probs).max() < 1e-3, valid)


def own_head(trial: Trial) -> heads.Head:
  """The head that a function makes of the number of classes."""
  return trial.own['own_head'].call(trial.settings.downstream.num_classes)


def own_labels(trial: Trial) -> tasks.LabelRule:
  """The function of labels; it raises SettingsError unless they are classes of the texts."""

  def labels(texts: np.ndarray, posteriors: np.ndarray) -> np.ndarray:
    with users_program('label', trial.settings.label, 'a function from texts [n, T] and posteriors [n, S] to classes'):
      given = trial.own['label'].call(texts, posteriors)
      return tasks.checked_labels(given, len(texts), trial.settings.downstream.num_classes)

  return labels


def check_head(trial: Trial) -> None:
  """Raise SettingsError unless the function makes a head of the number of classes, for texts as the settings have them.

  The head is hashable, since programs are compiled for it.
  """
  settings = trial.settings
  settings.require('own_head', bool(settings.own_head), 'MODULE:FUNCTION with methods=own_head')
  with users_program('own_head', settings.own_head, 'a function from the number of classes to a hashable Head'):
    head = own_head(trial)
    hash(head)
    length = settings.seen_length('own_head')
    heads.check_head(head, settings.downstream.num_classes, settings.hmm.num_tokens, length)
