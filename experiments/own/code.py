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
import numpy as np

from experiments.settings.fields import users_program
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial
from hmm_jax._support.arguments import check_probs
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
  for settings in grid:
    for field in FIELDS:
      if name := getattr(settings, field, ''):
        with users_program(field, name, 'MODULE:FUNCTION of a Python file'):
          call = pkgutil.resolve_name(name)
          source = pathlib.Path(str(sys.modules[name.partition(':')[0]].__file__))
          functions[name] = Function(call, hashlib.sha256(source.read_bytes()).hexdigest())
  return functions


def own_model(trial: Trial, distribution: Distribution) -> tuple[MaskedLM, Any]:
  """The masked language model that the function makes of a distribution, and its parameters on a device of this host.

  The model is hashable, as a frozen dataclass is, since programs are compiled for it; its parameters are a tree of
  arrays. The key decides what the function draws, so that a trial that is run again has the same model.
  """
  device = jax.local_devices()[0]
  given = jax.device_get(distribution), trial.keys().pretraining
  model, params = trial.own['model'].call(*jax.device_put(given, device))
  return model, jax.device_put(params, device)


def check_model(trial: Trial, distribution: Distribution) -> None:
  """Raise SettingsError unless the function makes a model of a trial's distribution, which predicts a few texts.

  A causal one can predict the hidden token of a text only if that is the last. One that is shifted has `decode`.
  """
  d = trial.settings.downstream
  texts, _ = tasks.draw_texts(
    trial.keys().downstream, distribution, 10, 0, length=d.seen_length(0), hidden=d.hidden_position
  )
  with users_program('model', trial.settings.model, 'MODULE:FUNCTION to a hashable MaskedLM and its parameters'):
    model, params = own_model(trial, distribution)
    hash(model)
    if model.causal and d.hidden == 'first':
      raise ValueError("it is causal; valid is downstream.hidden='last' for a causal model")
    read = Shifted(model) if any(METHODS[method].shifts for method in trial.methods) else model
    probs = token_probs(read, params, texts, np.array([d.hidden_position % texts.shape[1]]))
    check_probs('what it predicts at the [MASK]', probs, len(texts), 1, distribution.num_tokens, within=1e-3)
    alone = [token_probs(model, params, text[None])[0, d.hidden_position] for text in texts]
    if not np.allclose(probs[:, 0], alone, atol=1e-3):
      raise ValueError(
        'predictions change; valid are those that depend on no other text and not on the positions read, and with the '
        'method shift are `decode` of `represent`'
      )


def own_head(trial: Trial) -> heads.Head:
  """The head that a function makes of the number of classes."""
  return trial.own['own_head'].call(trial.settings.downstream.num_classes)


def check_head(trial: Trial) -> None:
  """Raise SettingsError unless the function makes a head of the number of classes, for texts as the settings have them.

  The head is hashable, since programs are compiled for it.
  """
  settings = trial.settings
  with users_program('own_head', settings.own_head, 'MODULE:FUNCTION to a hashable Head'):
    head, length = own_head(trial), settings.seen_length('own_head')
    hash(head)
    heads.check_head(head, settings.downstream.num_classes, settings.hmm.num_tokens, length)


def own_labels(trial: Trial) -> tasks.LabelRule:
  """The function of labels; it raises SettingsError unless they are classes of the texts."""

  def labels(texts: np.ndarray, posteriors: np.ndarray) -> np.ndarray:
    with users_program('label', trial.settings.label, 'a function from texts [n, T] and posteriors [n, S] to classes'):
      given = trial.own['label'].call(texts, posteriors)
      return tasks.checked_labels(given, len(texts), trial.settings.downstream.num_classes)

  return labels
