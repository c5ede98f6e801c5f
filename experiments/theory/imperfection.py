"""How recovery degrades where the theorems say nothing: a noisy G, a nearly singular W, supports that leak.

Three ways to the label on the same inputs: the theorem's construction, a trained head, a trained prompt with its head.
All problems of one shape train side by side, one compiled program.
"""

from collections.abc import Callable, Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.progress import Reporter
from experiments.theory.settings import ImperfectionSettings
from experiments.theory.settings import TheorySettings
from hmm_jax import pretrain
from hmm_jax import tasks
from hmm_jax import tuning
from hmm_jax.hmm import HMM
from hmm_jax.hmm import sample_corpus
from hmm_jax.model import MaskedLM
from hmm_jax.theory import assumptions
from hmm_jax.theory import recovery
from hmm_jax.theory import structured
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.imperfect import leaking
from hmm_jax.theory.imperfect import Noisy
from hmm_jax.theory.imperfect import noisy_model
from hmm_jax.theory.imperfect import with_smallest_singular_value

Array = jax.Array
Row = dict[str, Any]

_MAX_REDRAWS = 100


class Problem(NamedTuple):
  """A chain, a task on its masked first state, its inputs, and what a theorem constructs for it.

  Attributes:
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6.
    inputs: [n, T], the first token [MASK]; training inputs first.
    labels: [n].
  """

  hmm: HMM
  task_weights: np.ndarray
  construction: recovery.Construction
  inputs: Array
  labels: Array


class Case(NamedTuple):
  """A problem under a model.

  Attributes:
    problem: what is asked.
    frozen: the model's parameters.
    fields: of its records.
    reader: a [V] with a^T G the mass on H*, where that is followed while a prompt is trained; else zeros.
  """

  problem: Problem
  frozen: Any
  fields: Row
  reader: np.ndarray


def make_problem(
  settings: ImperfectionSettings, hmm: HMM, task_weights: np.ndarray, construct: Callable, key: Array
) -> Problem:
  """Inputs from the chain, labels of their masked first state in float64: P[H_0] of the theorems is `initial_probs`."""
  tokens = sample_corpus(key, float32(hmm), settings.num_train + settings.num_test, settings.length)
  inputs = tasks.mask_first(tokens, hmm.num_tokens)
  scores = np.asarray(tasks.first_state_probs(hmm, inputs)) @ assumptions.contrasts(task_weights).T
  return Problem(hmm, task_weights, construct(hmm, task_weights), inputs, jnp.array(scores.argmax(-1), jnp.int32))


def draw_problem(settings: TheorySettings, theorem: str, key: Array) -> Problem:
  """A structured problem of Theorem '3.3' or '3.6' whose largest class is not too large."""
  s, thresholds = settings.imperfection, settings.thresholds
  for redraw in range(_MAX_REDRAWS):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    if theorem == '3.3':
      sizes = structured.Sizes(s.num_states_3_3, s.num_tokens, 2, 0, 0)
      drawn = structured.for_theorem_3_3(key_draw, sizes, thresholds, settings.conditioning)
    else:
      sizes = structured.Sizes(s.num_states_3_6, s.num_tokens, 2, 0, 0)
      drawn = structured.for_theorem_3_6(key_draw, sizes, thresholds, settings.conditioning, settings.max_nodes)
    if drawn.hmm.initial_probs.min() <= max(s.leaks) / drawn.hmm.num_states * 2:
      continue
    problem = make_problem(s, drawn.hmm, drawn.task_weights, constructor(settings, theorem, thresholds), key_text)
    if np.bincount(np.asarray(problem.labels)).max() <= s.largest_majority * problem.labels.size:
      return problem
  raise ValueError(f'{_MAX_REDRAWS} draws for Theorem {theorem} had one class above {s.largest_majority:.0%}')


def constructor(settings: TheorySettings, theorem: str, thresholds: Thresholds) -> Callable:
  """(hmm, task_weights) -> the construction of Theorem '3.3' or '3.6' for the masked first state."""
  if theorem == '3.3':
    return lambda hmm, mu: recovery.theorem_3_3(hmm, mu, hmm.initial_probs, thresholds)
  return lambda hmm, mu: recovery.theorem_3_6(hmm, mu, hmm.initial_probs, thresholds, settings.max_nodes)


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (study, HMM, level, method): accuracy on test inputs, and the KL(G || model) at the [MASK]."""
  rows = []
  for theorem in ('3.3', '3.6'):
    cases = []
    for index in range(settings.imperfection.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), 33 if theorem == '3.3' else 36)
      problem = draw_problem(settings, theorem, key_hmm)
      cases += _cases(settings, theorem, problem, index, key_hmm)
    rows += evaluate(settings.imperfection, noisy_model(settings.imperfection.num_tokens), cases, key, reporter)
  return rows


def _cases(settings: TheorySettings, theorem: str, problem: Problem, index: int, key: Array) -> list[Case]:
  s = settings.imperfection
  fields = {'theorem': theorem, 'hmm': index}
  followed = {0.0: mass_reader(settings, problem)} if theorem == '3.6' else {}
  cases = [
    _noisy_case(s, problem, kl, {**fields, 'study': 'noise', 'level': kl}, key, followed.get(kl))
    for kl in s.noise_levels
  ]
  if theorem == '3.3':
    for level in s.singular_values:
      construct = constructor(settings, theorem, settings.thresholds._replace(rank=0.0))
      hmm = with_smallest_singular_value(problem.hmm, level)
      worse = make_problem(s, hmm, problem.task_weights, construct, key)
      for kl in (0.0, s.noise_beside):
        cases.append(_noisy_case(s, worse, kl, {**fields, 'study': 'singular_value', 'level': level}, key))
    return cases
  finding = _essential(settings, problem)
  essential, starts = finding.witness['essential_states'], finding.witness['prompt_states']
  for level in s.leaks:
    hmm = leaking(problem.hmm, starts, essential, level)
    leak = Thresholds(1.01 * level / (hmm.num_states - len(essential)), settings.thresholds.rank)
    worse = make_problem(s, hmm, problem.task_weights, constructor(settings, theorem, leak), key)
    cases.append(_noisy_case(s, worse, 0.0, {**fields, 'study': 'leak', 'level': level}, key))
  return cases


def _noisy_case(
  s: ImperfectionSettings, problem: Problem, kl: float, fields: Row, key: Array, reader: np.ndarray | None = None
) -> Case:
  """The problem under a G that is noisy by `kl` nats at the [MASK], to a percent or so."""
  model = noisy_model(s.num_tokens)
  hmm = float32(problem.hmm)
  ideal = pretrain.ideal_at_mask(hmm, problem.inputs[s.num_train :])
  noisy = Noisy(hmm, jnp.float32(np.sqrt(2 * kl)), jax.random.bits(key, (), jnp.uint32))
  measured = 0.0
  for _ in range(4 if kl else 0):
    measured = float(pretrain.measure_gap(model, noisy, ideal, batch_size=s.num_test).kl)
    noisy = noisy._replace(scale=noisy.scale * jnp.float32(np.sqrt(kl / measured)))
  reader = np.zeros(s.num_tokens) if reader is None else reader
  return Case(problem, noisy, {**fields, 'model': 'exact', 'kl': measured}, reader)


def evaluate(s: ImperfectionSettings, model: MaskedLM, cases: list[Case], key: Array, reporter: Reporter) -> list[Row]:
  """Rows of all three methods for cases of one shape, and of the mass on H* along the training of the prompt."""
  frozen, inputs, labels = stacked([(case.frozen, case.problem.inputs, case.problem.labels) for case in cases])
  readers = jnp.stack([jnp.float32(case.reader) for case in cases])
  train_on, test_on = [(inputs[:, some], labels[:, some]) for some in (slice(s.num_train), slice(s.num_train, None))]
  tuners = tuners_of(model, s.prompt_length, s.prompt_scale)
  rows = []
  for method, tuner in tuners.items():
    history = train(s.tuning.schedule, tuner, frozen, *train_on, key, reporter, f'{method} on {len(cases)} problems')
    for epoch, trained in enumerate(history):
      right = accuracies(tuner, trained, frozen, *test_on)
      if method == 'prompt' and readers.any():
        rows += _masses(model, cases, epoch, trained['prompt'][:, 0], frozen, test_on[0], readers, right)
    rows += _rows(method, cases, right)
  constructions = [case.problem.construction for case in cases]
  if all(model.name != 'bert' or 'prompt' not in construction for construction in constructions):
    # A prompt of Theorem 3.6 is a row over hidden states, which BERT has no place for.
    built = stacked([jax.tree.map(lambda x: jnp.float32(x)[None], construction) for construction in constructions])
    rows += _rows(
      'construction', cases, accuracies(tuners['prompt' if 'prompt' in built else 'head'], built, frozen, *test_on)
    )
  return rows


def _rows(method: str, cases: list[Case], accuracies: np.ndarray) -> list[Row]:
  return [{**case.fields, 'method': method, 'accuracy': float(value)} for case, value in zip(cases, accuracies)]


def _masses(model, cases, epoch, prompts, frozen, inputs, readers, accuracies) -> list[Row]:
  """The mean mass on H* at the [MASK] with and without the prompt, of the cases that are followed."""
  masses = [_mass(model, frozen, inputs, readers, some) for some in (prompts[:, :0], prompts)]
  rows = []
  for case, without, with_prompt, accuracy in zip(cases, *masses, accuracies):
    if case.reader.any():
      values = {'mass_without': float(without), 'mass_with': float(with_prompt), 'accuracy': float(accuracy)}
      rows.append({**case.fields, 'study': 'concentration', 'epoch': epoch, **values})
  return rows


@functools.partial(jax.jit, static_argnames='model')
def _mass(model: MaskedLM, frozen: Any, inputs: Array, readers: Array, prompts: Array) -> Array:
  def of_one(frozen, inputs, reader, prompt):
    embeddings = tuning.prepend(prompt, model.embed(frozen, inputs))
    return (model.predict(frozen, embeddings)[:, prompt.shape[0]] @ reader).mean()

  return jax.vmap(of_one)(frozen, inputs, readers, prompts)


def mass_reader(settings: TheorySettings, problem: Problem) -> np.ndarray:
  """a [V] with a^T G the mass on the H* of the problem (`recovery.mass_weights`)."""
  finding = _essential(settings, problem)
  return recovery.mass_weights(problem.hmm, finding.witness['essential_states'], settings.thresholds)


def _essential(settings: TheorySettings, problem: Problem) -> assumptions.Finding:
  return assumptions.relaxed_non_degeneracy(problem.hmm, problem.task_weights, settings.thresholds, settings.max_nodes)


@functools.cache
def tuners_of(model: MaskedLM, prompt_length: int, prompt_scale: float) -> dict[str, tuning.Tuner]:
  """The head and the prompt that are trained."""
  init_prompt = lambda key, frozen: tuning.uniform_prompt(key, model, frozen, prompt_length, prompt_scale)
  return {'head': tuning.head_tuner(model, 2), 'prompt': tuning.prompt_tuner(model, 2, init_prompt)}


def train(
  schedule: tuning.Schedule,
  tuner: tuning.Tuner,
  frozen: Any,
  inputs: Array,
  labels: Array,
  key: Array,
  reporter: Reporter,
  name: str,
) -> Iterator[Any]:
  """Yields the trainables of all problems at the start and after every epoch.

  Args:
    schedule: of every problem.
    tuner: what is trained.
    frozen: the model's parameters, leading axis problem.
    inputs: [problems, n, T].
    labels: [problems, n].
    key: of the start and the order, the same for all problems.
    reporter: follows the epochs.
    name: what it calls them.

  Yields:
    Trainables with leading axes problem and K = 1.
  """
  states = _init(key, tuner, schedule, frozen, num_inputs=inputs.shape[1])
  features = _features(tuner, frozen, inputs)
  key_order = jax.random.fold_in(key, 1)
  yield states.trainable
  with reporter.track(name, schedule.num_epochs) as advance:
    for epoch in range(schedule.num_epochs):
      states, losses = _epoch(states, key_order, tuner, schedule, frozen, features, labels[:, None])
      advance(epoch + 1, f'loss {float(losses.mean()):.3f}')
      yield states.trainable


def accuracies(tuner: tuning.Tuner, trainables: Any, frozen: Any, inputs: Array, labels: Array) -> np.ndarray:
  """The share of each problem's inputs that get their label, [problems]."""
  return np.asarray((_predictions(tuner, trainables, frozen, inputs) == labels).mean(-1))


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule', 'num_inputs'))
def _init(key, tuner, schedule, frozen, *, num_inputs):
  task = jnp.zeros(1, jnp.int32)
  start = lambda frozen: tuning.init_tuning(key, tuner, schedule, frozen, tasks=task, num_inputs=num_inputs)
  return jax.vmap(start)(frozen)


@functools.partial(jax.jit, static_argnames='tuner')
def _features(tuner, frozen, inputs):
  return jax.vmap(tuner.features)(frozen, inputs)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'))
def _epoch(states, key, tuner, schedule, frozen, features, labels):
  epoch = lambda state, *data: tuning.tune_epoch(state, key, tuner, schedule, *data)
  return jax.vmap(epoch)(states, frozen, features, labels)


@functools.partial(jax.jit, static_argnames='tuner')
def _predictions(tuner, trainables, frozen, inputs):
  scores = lambda trainable, frozen, inputs: tuner.scores(trainable, frozen, tuner.features(frozen, inputs))[0]
  return jax.vmap(scores)(trainables, frozen, inputs).argmax(-1)


def stacked(trees: list[Any]) -> Any:
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def float32(hmm: HMM) -> HMM:
  return jax.tree.map(jnp.float32, hmm)
