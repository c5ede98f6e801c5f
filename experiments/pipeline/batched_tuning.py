"""Problems of one shape, each with a frozen model of its own, tuned side by side in one program."""

import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline.scheduled import followed
from experiments.runtime.progress import Reporter
from experiments.settings.groups import TuneSettings
from hmm_jax._support import compilation
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Linear, LinearHead

# Functions of `tuning` over a leading axis of problems; arguments with axis None are shared.
_epoch = jax.jit(jax.vmap(tuner_lib.tune_epoch, (0, 0, None, None, 0, 0, 0)), static_argnums=(2, 3))
_init = jax.jit(
  jax.vmap(tuner_lib.init_tuning, (0, None, None, 0, 0, None)), static_argnums=(1, 2), compiler_options=compilation.ONCE
)

# Arrays of one problem by name.
Probs = dict[str, np.ndarray]
Heads = dict[str, LinearHead]


def tuned(
  model: MaskedLM,
  prompt: tuner_lib.Prompt,
  settings: TuneSettings,
  params: list[Any],
  inputs: np.ndarray,
  labels: np.ndarray,
  given: dict[str, np.ndarray],
  key: Array,
  reporter: Reporter,
) -> list[tuple[Probs, Heads]]:
  """Train a head without a prompt, and a prompt with a head, on each problem; predict behind each prompt.

  Args:
    model: of all problems.
    prompt: its length and start.
    settings: of every problem.
    params: of the model, for each problem.
    inputs: [problems, N, T], the first token [MASK]; the first n are trained on.
    labels: [problems, n], of two classes.
    given: further prompts [problems, P, E] to predict behind, by name.
    key: decides every start and the order of inputs.
    reporter: follows the epochs.

  Returns:
    For each problem its predictions [N, V] at the [MASK] 'without' a prompt, behind it at its 'start', behind the
    'trained' one and behind those given; and the heads trained 'without' a prompt and with the 'trained' one.
  """
  frozen = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(params))
  head_alone, with_prompt = (tuner_lib.Tuner(model, Linear(2), each) for each in (None, prompt))
  schedule = settings.schedule(labels.shape[1])
  without = features(head_alone, frozen, inputs)
  _, head = train(head_alone, schedule, frozen, without, labels, key, f'head on {model.name}', reporter)
  start, end = train(with_prompt, schedule, frozen, inputs, labels, key, f'prompt on {model.name}', reporter)
  prompts = {'start': start['prompt'], 'trained': end['prompt'], **given}
  probs = {name: prompted(model, frozen, rows, inputs) for name, rows in prompts.items()}
  all_found = {'without': without, **probs}, {'without': head['head'], 'trained': end['head']}
  return [jax.tree.map(lambda leaf: np.float64(leaf[index]), all_found) for index in range(len(labels))]  # noqa: B023


@functools.partial(jax.jit, static_argnums=0)
def features(tuner: tuner_lib.Tuner, frozen: Any, inputs: Array | np.ndarray) -> Array:
  """The tuner's features [problems, n, ...] of inputs [problems, n, T], where each problem has a model of its own."""
  return jax.vmap(tuner.features)(frozen, jnp.asarray(inputs))


@functools.partial(jax.jit, static_argnums=0)
def prompted(model: MaskedLM, frozen: Any, prompts: np.ndarray, inputs: np.ndarray) -> Array:
  """Token probabilities [problems, n, V] at the first of inputs [problems, n, T], each after its prompt [P, E]."""
  first = np.array(prompts.shape[1:2])
  predict = lambda frozen, prompt, inputs: model.predict_prompted(frozen, prompt[None], inputs, first)
  return jax.vmap(predict)(frozen, prompts, inputs)[:, 0, :, 0]


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
  """The trainables of all problems, leading axis problem, at the start and after the last epoch.

  Args:
    tuner: what is trained.
    schedule: of every problem.
    frozen: the model's parameters, leading axis problem.
    features: [problems, N, ...], what the tuner needs of N inputs, of which the first n are trained on.
    labels: [problems, n].
    key: of the starts and the orders; fold_in(key, p) is that of problem p.
    name: what the reporter calls them.
    reporter: follows the epochs.
  """
  num_problems, num_train = labels.shape
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.arange(num_problems))
  orders = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
  names = [f'problem {problem}, {name}' for problem in range(num_problems)]
  # Each problem has one task.
  examples = tuner_lib.Examples(features[:, :num_train], labels[:, None], np.zeros(1, np.int32), names)
  states = tuner_lib.fit((keys, orders), tuner, schedule, frozen, examples, (_init, _epoch))
  epochs = followed(states, schedule.num_epochs, name, reporter)
  fresh, _ = next(epochs)
  # Copied before it is donated to the first epoch.
  start = jax.device_get(fresh.trainable)
  *_, (state, _) = epochs
  return jax.tree.map(lambda leaf: leaf[:, 0], (start, jax.device_get(state.trainable)))
