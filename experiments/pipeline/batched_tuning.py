"""Problems of one shape, each with a frozen model of its own, tuned side by side in one program."""

import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline.tuning import epochs
from experiments.runtime.progress import Reporter
from hmm_jax import compilation, tuning
from hmm_jax.heads import Linear, LinearHead
from hmm_jax.hmm import HMM
from hmm_jax.model import MaskedLM


def float32(hmm: HMM) -> HMM:
  """The parameters as the models of tuning have them."""
  return jax.tree.map(jnp.float32, hmm)


def tuners(model: MaskedLM, settings: Any) -> dict[str, tuning.Tuner]:
  """The head, and the prompt with its head, that are trained; binary labels."""
  prompt = tuning.Prompt(settings.prompt_length, settings.prompt_scale)
  return {'head': tuning.Tuner(model, Linear(2)), 'prompt': tuning.Tuner(model, Linear(2), prompt)}


def stacked(trees: list[Any]) -> Any:
  """Trees of one structure as one, with a leading axis."""
  return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(trees))


def features(tuner: tuning.Tuner, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """The tuner's features [problems, n, ...] of inputs [problems, n, T], where each problem has a model of its own."""
  return np.asarray(_features(tuner, frozen, inputs)) if tuner.trains_head_alone else inputs


def train(
  tuner: tuning.Tuner,
  schedule: tuning.Schedule,
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
  tuner, frozen = tuner.after_features(frozen)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.arange(len(labels)))
  state = _init(keys, tuner, schedule, frozen, features)
  start = jax.device_get(state.trainable)
  orders = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
  epoch = lambda state: _epoch(state, orders, tuner, schedule, frozen, features, labels[:, None])
  problems = [f'problem {problem}' for problem in range(len(labels))]
  *_, (state, _) = epochs(epoch, state, schedule.num_epochs, name, problems, reporter)
  return start, jax.device_get(state.trainable)


def scores(tuner: tuning.Tuner, trainables: Any, frozen: Any, features: np.ndarray) -> np.ndarray:
  """Class scores [problems, n, C] by trainables as `train` yields them."""
  tuner, frozen = tuner.after_features(frozen)
  return np.asarray(_scores(tuner, trainables, frozen, features))[:, 0]


def prompted(tuner: tuning.Tuner, prompts: np.ndarray, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """Token probabilities [problems, n, V] at the [MASK] of inputs [problems, n, T] after prompts [problems, P, E]."""
  assert tuner.model is not None
  count, num_tokens = len(prompts), tuner.model.num_tokens
  identity = np.tile(np.eye(num_tokens, dtype=np.float32), (count, 1, 1, 1))
  reading = LinearHead(identity, np.zeros((count, 1, num_tokens), np.float32))
  return scores(tuner, {'prompt': np.asarray(prompts, np.float32)[:, None], 'head': reading}, frozen, inputs)


@functools.partial(jax.jit, static_argnames='tuner')
def _features(tuner: tuning.Tuner, frozen: Any, inputs: Array) -> Any:
  return jax.vmap(tuner.features)(frozen, inputs)


@functools.partial(jax.jit, static_argnames='tuner')
def _scores(tuner: tuning.Tuner, trainables: Any, frozen: Any, features: Any) -> Array:
  return jax.vmap(tuner.scores)(trainables, frozen, features)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'), compiler_options=compilation.ONCE)
def _init(keys: Array, tuner: tuning.Tuner, schedule: tuning.Schedule, frozen: Any, features: Any) -> tuning.TuneState:
  init_one = lambda key, *data: tuning.init_tuning(key, tuner, schedule, *data, np.zeros(1, np.int32))
  return jax.vmap(init_one)(keys, frozen, features)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'))
def _epoch(
  state: tuning.TuneState,
  keys: Array,
  tuner: tuning.Tuner,
  schedule: tuning.Schedule,
  frozen: Any,
  features: Any,
  labels: Array,
) -> tuple[tuning.TuneState, Array]:
  tune_one = lambda state, key, *data: tuning.tune_epoch(state, key, tuner, schedule, *data)
  return jax.vmap(tune_one)(state, keys, frozen, features, labels)
