"""Problems of one shape, each with a frozen model of its own, tuned side by side in one program."""

from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline.scheduled import followed
from experiments.runtime.progress import Reporter
from hmm_jax._support import compilation
from hmm_jax.distributions.hmm import HMM
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Linear

# Functions of `tuning` over a leading axis of problems; arguments with axis None are shared.
_features = jax.jit(jax.vmap(tuner_lib.Tuner.features, (None, 0, 0)), static_argnums=0)
_read = jax.jit(jax.vmap(tuner_lib.Tuner.read, (None, 0, 0, 0)), static_argnums=0)
_epoch = jax.jit(jax.vmap(tuner_lib.tune_epoch, (0, 0, None, None, 0, 0, 0)), static_argnums=(2, 3))
_init = jax.jit(
  jax.vmap(tuner_lib.init_tuning, (0, None, None, 0, 0, None)), static_argnums=(1, 2), compiler_options=compilation.ONCE
)


def float32(hmm: HMM) -> HMM:
  """The parameters in float32, as tuning needs them."""
  return jax.tree.map(jnp.float32, hmm)


def tuners(model: MaskedLM, settings: Any) -> dict[str, tuner_lib.Tuner]:
  """The tuners of a head and of a prompt with its head, for binary labels."""
  prompt = tuner_lib.Prompt(settings.prompt_length, settings.prompt_scale)
  return {'head': tuner_lib.Tuner(model, Linear(2)), 'prompt': tuner_lib.Tuner(model, Linear(2), prompt)}


def stacked(trees: list[Any]) -> Any:
  """Stack trees of one structure along a new leading axis."""
  return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(trees))


def features(tuner: tuner_lib.Tuner, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """The tuner's features [problems, n, ...] of inputs [problems, n, T], where each problem has a model of its own."""
  return np.asarray(_features(tuner, frozen, inputs)) if tuner.trains_head_alone else inputs


def train(
  tuner: tuner_lib.Tuner,
  schedule: tuner_lib.Schedule,
  frozen: Any,
  features: np.ndarray,
  labels: np.ndarray,
  key: Array,
  name: str,
  reporter: Reporter,
) -> tuple[Any, Any]:
  """The trainables of all problems, leading axes problem and K = 1, at the start and after the last epoch.

  Args:
    tuner: what is trained.
    schedule: of every problem.
    frozen: the model's parameters, leading axis problem.
    features: [problems, n, ...], what the tuner needs of the training inputs.
    labels: [problems, n].
    key: of the starts and the orders; fold_in(key, p) is that of problem p.
    name: what the reporter calls them.
    reporter: follows the epochs.
  """
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.arange(len(labels)))
  orders = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
  names = [f'problem {problem}, {name}' for problem in range(len(labels))]
  examples = tuner_lib.Examples(features, labels[:, None], np.zeros(1, np.int32), names)
  states = tuner_lib.fit((keys, orders), tuner, schedule, frozen, examples, (_init, _epoch))
  epochs = followed(states, schedule.num_epochs, name, reporter)
  fresh, _ = next(epochs)
  # Copied before it is donated to the first epoch.
  start = jax.device_get(fresh.trainable)
  *_, (state, _) = epochs
  return start, jax.device_get(state.trainable)


def prompted(tuner: tuner_lib.Tuner, trainables: Any, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """Token probabilities [problems, n, V] at the [MASK] of inputs [problems, n, T] after the prompts of trainables."""
  return np.asarray(_read(tuner, trainables, frozen, inputs))[:, 0]
