"""The ways to the label on problems of one shape, each with a frozen model of its own, tuned side by side."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import batched_tuning
from experiments.runtime.progress import Reporter
from experiments.studies.degradation import models
from experiments.studies.degradation.problems import Problem
from experiments.studies.degradation.settings import DegradationSettings
from hmm_jax import converged, tasks
from hmm_jax.heads import LinearHead
from hmm_jax.model import MaskedLM
from hmm_jax.theory.problems.degradation import weighted_head

Row = dict[str, Any]

# Each way as records name it, with what tables and figures call it.
LABELS = {
  'construction': "theorem's construction",
  'weighted': 'weighted inverse',
  'converged_built': "theorem's prompt, converged head",
  'converged_head': 'converged head',
  'trained_head': 'trained head',
  'converged_prompt': 'trained prompt, converged head',
  'trained_prompt': 'trained prompt and head',
}


class Seen(NamedTuple):
  """What a model predicts at the [MASK] of a problem's inputs, each [n, V] float64.

  Attributes:
    plain: of the input as it is.
    after_start: after a prompt as its training starts.
    after_trained: after the trained prompt.
    after_built: after the theorem's prompt; `plain` where it has none.
  """

  plain: np.ndarray
  after_start: np.ndarray
  after_trained: np.ndarray
  after_built: np.ndarray


def measure(
  s: DegradationSettings, model: MaskedLM, problems: list[Problem], frozen: list[Any], key: Array, reporter: Reporter
) -> list[Row]:
  """What every way achieves on the test inputs of each problem."""
  tuner, params = batched_tuning.tuners(model, s)['head'], batched_tuning.stacked(frozen)
  inputs, labels = np.stack([p.inputs for p in problems]), np.stack([p.labels for p in problems])
  plain = batched_tuning.features(tuner, params, inputs)
  name, train = f'head on {len(problems)} {model.name} models', slice(s.num_train)
  data = params, plain[:, train], labels[:, train]
  *_, trained = batched_tuning.train(tuner, s.tuning.schedule, *data, key, name, reporter)
  prompts = list(_tuned_prompts(s, model, problems, frozen, key, reporter))
  built = _after_built(s, model, problems, frozen)
  rows = []
  for index, (problem, (start, after, head)) in enumerate(zip(problems, prompts)):
    first = np.asarray(plain[index], np.float64)
    seen = Seen(first, start, after, first if built is None else built[index])
    rows.append(_row(s, problem, seen, {'trained_head': _head_of(trained, index), 'trained_prompt': head}))
  return rows


def measure_prompt(
  s: DegradationSettings, model: MaskedLM, problems: list[Problem], frozen: list[Any], key: Array, reporter: Reporter
) -> list[Row]:
  """What a trained prompt achieves, and the mass that it leaves on the states of `reader`."""
  rows, test = [], slice(s.num_train, None)
  for problem, (start, after, head) in zip(problems, _tuned_prompts(s, model, problems, frozen, key, reporter)):
    fitted = _converged(s, after, problem)
    heads = {'trained_prompt': head, 'converged_prompt': fitted.head}
    rows.append(
      {
        **_majority_row(s, problem),
        'accuracy': {name: _accuracy(head, after[test], problem.labels[test]) for name, head in heads.items()},
        'mass': {'start': _mass(s, problem, start), 'trained': _mass(s, problem, after)},
      }
    )
  return rows


def _tuned_prompts(
  s: DegradationSettings, model: MaskedLM, problems: list[Problem], frozen: list[Any], key: Array, reporter: Reporter
) -> Iterator[tuple[np.ndarray, np.ndarray, LinearHead]]:
  """Of each problem: predictions after the prompt at the start of its training, and at the end, and the head there."""
  tuner, params = batched_tuning.tuners(model, s)['prompt'], batched_tuning.stacked(frozen)
  inputs, labels = np.stack([p.inputs for p in problems]), np.stack([p.labels for p in problems])
  name, train = f'prompts on {len(problems)} {model.name} models', slice(s.num_train)
  data = params, inputs[:, train], labels[:, train]
  start, *_, trained = batched_tuning.train(tuner, s.tuning.schedule, *data, key, name, reporter)
  before, after = (batched_tuning.prompted(tuner, at['prompt'][:, 0], params, inputs) for at in (start, trained))
  for index in range(len(problems)):
    yield np.asarray(before[index], np.float64), np.asarray(after[index], np.float64), _head_of(trained, index)


def _head_of(trained: Any, index: int) -> LinearHead:
  return jax.tree.map(lambda leaf: np.asarray(leaf[index, 0], np.float64), trained['head'])


def _after_built(s: DegradationSettings, model: MaskedLM, problems: list[Problem], frozen: list[Any]):
  """What the model predicts after the theorem's prompts, [problems, n, V]; None where they are none."""
  if any(problem.construction is None or 'prompt' not in problem.construction for problem in problems):
    return None
  prompts = np.stack([problem.construction['prompt'] for problem in problems if problem.construction])
  tuner, inputs = batched_tuning.tuners(model, s)['prompt'], np.stack([problem.inputs for problem in problems])
  return np.asarray(batched_tuning.prompted(tuner, prompts, batched_tuning.stacked(frozen), inputs), np.float64)


def _row(s: DegradationSettings, problem: Problem, seen: Seen, trained: dict[str, LinearHead]) -> Row:
  train, test = slice(s.num_train), slice(s.num_train, None)
  ways = {'trained_head': (seen.plain, trained['trained_head'])}
  ways['trained_prompt'] = seen.after_trained, trained['trained_prompt']
  fitted = {'converged_head': seen.plain, 'converged_prompt': seen.after_trained}
  if problem.construction is not None:
    head, has_prompt = problem.construction['head'], 'prompt' in problem.construction
    ideal = problem.ideal_after(problem.construction['prompt']) if has_prompt else problem.ideal
    columns = np.asarray(problem.hmm.emission_matrix)[problem.inverted_states].T
    errors = (seen.after_built - ideal)[train]
    ways['construction'] = seen.after_built, head
    ways['weighted'] = seen.after_built, weighted_head(head, columns, errors, s.ridge)
    if has_prompt:
      fitted['converged_built'] = seen.after_built
  optima = {name: _converged(s, probs, problem) for name, probs in fitted.items()}
  ways |= {name: (fitted[name], optimum.head) for name, optimum in optima.items()}
  masses = dict(zip(('without', 'start', 'trained'), (seen.plain, seen.after_start, seen.after_trained)))
  return {
    'kl': models.kl(problem.ideal, seen.plain),
    **_majority_row(s, problem),
    'accuracy': {name: _accuracy(head, probs[test], problem.labels[test]) for name, (probs, head) in ways.items()},
    'mass': {name: _mass(s, problem, probs) for name, probs in masses.items()} if problem.reader.any() else {},
    'gradient_norm': max(optimum.gradient_norm for optimum in optima.values()),
    'num_iterations': max(optimum.num_iterations for optimum in optima.values()),
  }


def _majority_row(s: DegradationSettings, problem: Problem) -> Row:
  labels = problem.labels[: s.num_train], problem.labels[s.num_train :]
  return {'majority_accuracy': float(tasks.majority_accuracy(*labels))}


def _converged(s: DegradationSettings, probs: np.ndarray, problem: Problem) -> converged.Converged:
  return converged.converged_head(
    probs[: s.num_train],
    problem.labels[: s.num_train],
    num_classes=len(problem.task_weights),
    ridge=s.ridge,
    tolerance=s.head_tolerance,
    max_iterations=s.max_head_iterations,
  )


def _accuracy(head: LinearHead, probs: np.ndarray, labels: np.ndarray) -> float:
  return float(((probs @ head.weights + head.bias).argmax(-1) == labels).mean())


def _mass(s: DegradationSettings, problem: Problem, probs: np.ndarray) -> float:
  """The mean mass on H* over test inputs, as the predictions have it."""
  return float((probs[s.num_train :] @ problem.reader).mean())
