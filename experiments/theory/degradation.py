"""How recovery degrades where the theorems say nothing: a noisy G, a nearly singular W, supports that leak, a BERT.

Three ways to the label on the same inputs: the theorem's construction, a trained head, a trained prompt with its head.
Problems of one shape, each with a frozen model of its own, are tuned side by side in one program.
"""

from collections.abc import Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from experiments import pretraining
from experiments import tuned
from experiments.progress import Reporter
from experiments.theory import verification
from experiments.theory.settings import DegradationSettings
from experiments.theory.settings import TheorySettings
from hmm_jax import compilation
from hmm_jax import sharding
from hmm_jax import tasks
from hmm_jax import tuning
from hmm_jax.bert import BertModel
from hmm_jax.heads import Linear
from hmm_jax.heads import LinearHead
from hmm_jax.hmm import HMM
from hmm_jax.model import MaskedLM
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory import assumptions
from hmm_jax.theory import recovery
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.degradation import leaking
from hmm_jax.theory.degradation import Noisy
from hmm_jax.theory.degradation import NoisyModel
from hmm_jax.theory.degradation import with_smallest_singular_value
from hmm_jax.theory.structured import Sizes

Array = jax.Array
Row = dict[str, Any]

# Each theorem with the number that its problems are drawn by.
_THEOREMS = (('3.3', 33), ('3.6', 36))


class Problem(NamedTuple):
  """A chain, a task on its masked first state, what a theorem constructs for it, and inputs.

  Attributes:
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6; None where a model has no place for it.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    labels: [n] int32.
    ideal: G at the [MASK], [n, V] float64.
  """

  hmm: HMM
  task_weights: np.ndarray
  construction: recovery.Construction | None
  inputs: np.ndarray
  labels: np.ndarray
  ideal: np.ndarray


class Case(NamedTuple):
  """A problem under a model.

  Attributes:
    problem: what is asked.
    frozen: the model's parameters.
    reader: a [V] with a^T G the mass on H*, where that is followed while a prompt is trained; else zeros.
    fields: of its records.
  """

  problem: Problem
  frozen: Any
  reader: np.ndarray
  fields: Row


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (study, HMM, level, method): accuracy on test inputs, and the KL(G || model) at the [MASK]."""
  s, rows = settings.degradation, []
  model = NoisyModel(s.num_tokens)
  for theorem, number in _THEOREMS:
    cases, targets = [], []
    for index in range(s.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      salt = np.asarray(jax.random.bits(key_hmm, (), 'uint32'))
      for problem, kl, study, level in _levels(settings, theorem, key_hmm):
        noisy = Noisy(float32(problem.hmm), np.asarray(np.sqrt(2 * kl), np.float32), salt)
        followed = theorem == '3.6' and study == 'noise' and level == 0
        reader = _mass_reader(settings, problem) if followed else np.zeros(s.num_tokens)
        fields = {'theorem': theorem, 'hmm': index, 'model': 'exact', 'study': study, 'level': level}
        cases.append(Case(problem, noisy, reader, fields))
        targets.append(kl)
    rows += _evaluate(s, model, _calibrated(s, model, cases, np.array(targets)), key, reporter)
  return rows


def run_bert(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """Rows as of `run` on a pretrained BERT: at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. For 3.6 the mass on H* is followed while a prompt is trained; the theorem's
  own prompt is a row over hidden states, which BERT has no place for.
  """
  s, rows = settings.degradation, []
  for theorem, number in _THEOREMS:
    cases = []
    for index in range(settings.bert.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      problem, reader = _draw(settings, theorem, key_hmm), np.zeros(s.num_tokens)
      checkpoints = list(_pretrained(settings, problem, key_hmm, reporter))
      if theorem == '3.6':
        problem, reader = problem._replace(construction=None), _mass_reader(settings, problem)
        checkpoints = checkpoints[-1:]
      for step, params in checkpoints:
        fields = {'theorem': theorem, 'hmm': index, 'model': 'bert', 'study': 'bert', 'level': step}
        cases.append(Case(problem, params, reader, fields))
    rows += _evaluate(s, BertModel(settings.bert.model.module(s.num_tokens)), cases, key, reporter)
  return rows


def _pretrained(settings: TheorySettings, problem: Problem, key: Array, reporter: Reporter) -> Iterator[tuple]:
  """(step, parameters) at each checkpoint of one pretraining on the problem's text."""
  b, s = settings.bert, settings.degradation
  key_text, key_init, key_steps = jax.random.split(key, 3)
  bert = b.model.module(s.num_tokens)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.data_mesh(1))
  state = init(key_init)
  corpus = jax.device_put(sample_corpus(key_text, float32(problem.hmm), b.num_documents, s.length), state.step.sharding)
  with reporter.track('pretraining', b.checkpoints[-1]) as advance:
    for done in range(0, b.checkpoints[-1] + 1, b.steps_per_call):
      if done:
        state, losses = train_steps(state, corpus, key_steps)
        advance(done, f'loss {float(losses.mean()):.3f}')
      if done in b.checkpoints:
        yield done, jax.device_get(state.params)


def _draw(settings: TheorySettings, theorem: str, key: Array) -> Problem:
  """A structured problem of Theorem '3.3' or '3.6', redrawn until no class holds more than `largest_majority`.

  Every state has a start above the supports' largest leak, so that a threshold over the leak takes it for possible.
  """
  s = settings.degradation
  sizes = Sizes({'3.3': s.num_states_3_3, '3.6': s.num_states_3_6}[theorem], s.num_tokens, 2, 0, 0)
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    drawn = verification.draw(theorem, sizes, key_draw, settings)
    if drawn.hmm.initial_probs.min() <= max(s.leaks) / 2:
      continue
    # The label speaks of the masked first state itself.
    drawn = drawn._replace(silent_probs=drawn.hmm.initial_probs)
    built = verification.construct(theorem, drawn, s.length, settings)
    problem = _with_inputs(s, drawn.hmm, drawn.task_weights, built, key_text)
    if np.bincount(problem.labels).max() <= s.largest_majority * problem.labels.size:
      return problem
  raise ValueError(f'{s.max_draws} draws for Theorem {theorem} had one class above {s.largest_majority:.0%}')


def _with_inputs(s: DegradationSettings, hmm: HMM, task_weights, built: recovery.Construction, key: Array) -> Problem:
  """The problem with inputs from the chain, and labels of their masked first state in float64."""
  tokens = sample_corpus(key, float32(hmm), s.num_train + s.num_test, s.length)
  inputs = tasks.mask_first(tokens, hmm.num_tokens)
  states = np.asarray(tasks.first_state_probs(hmm, inputs))
  labels = (states @ assumptions.contrasts(task_weights).T).argmax(-1).astype(np.int32)
  return Problem(hmm, task_weights, built, np.asarray(inputs), labels, states @ hmm.emission_matrix)


def _levels(settings: TheorySettings, theorem: str, key: Array) -> list[tuple[Problem, float, str, float]]:
  """(problem, KL of the noise, study, level) of one HMM: each study from its mildest level on."""
  s, epsilon = settings.degradation, settings.thresholds
  problem = _draw(settings, theorem, key)
  hmm, mu, start = problem.hmm, problem.task_weights, problem.hmm.initial_probs
  levels = [(problem, kl, 'noise', kl) for kl in s.noise_levels]
  if theorem == '3.3':
    for value in s.singular_values:
      worse = with_smallest_singular_value(hmm, value)
      built = recovery.theorem_3_3(worse, mu, start, epsilon._replace(rank=0.0))
      problem = _with_inputs(s, worse, mu, built, key)
      levels += [(problem, kl, 'singular_value', value) for kl in (0.0, s.noise_beside)]
    return levels
  witness = verification.finding('3.5', problem, settings).witness
  essential = witness['essential_states']
  for leak in s.leaks:
    worse = leaking(hmm, witness['prompt_states'], essential, leak)
    over_leak = Thresholds(1.01 * leak / (hmm.num_states - len(essential)), epsilon.rank)
    built = recovery.theorem_3_6(worse, mu, start, over_leak, settings.max_nodes)
    levels.append((_with_inputs(s, worse, mu, built, key), 0.0, 'leak', leak))
  return levels


def _mass_reader(settings: TheorySettings, problem: Problem) -> np.ndarray:
  """a [V] with a^T G the mass on H* (`recovery.mass_weights`)."""
  states = verification.finding('3.5', problem, settings).witness['essential_states']
  return recovery.mass_weights(problem.hmm, states, settings.thresholds)


def float32(hmm: HMM) -> HMM:
  """The parameters as the models of tuning have them."""
  return jax.tree.map(jnp.float32, hmm)


def _calibrated(s: DegradationSettings, model: MaskedLM, cases: list[Case], targets: np.ndarray) -> list[Case]:
  """The cases with noise of the given KL at the [MASK], to a percent or so."""
  head = tuners(model, s)['head']
  inputs = np.stack([case.problem.inputs for case in cases])
  for _ in range(s.num_calibrations):
    measured = _kls(cases, features(head, stacked([case.frozen for case in cases]), inputs))
    factors = np.sqrt(np.divide(targets, measured, out=np.zeros_like(targets), where=targets > 0))
    cases = [
      case._replace(frozen=case.frozen._replace(scale=np.float32(case.frozen.scale * factor)))
      for case, factor in zip(cases, factors)
    ]
  return cases


def _kls(cases: list[Case], token_probs: np.ndarray) -> np.ndarray:
  """KL(G || model) at the [MASK] of all inputs, in nats, [cases]."""
  ideal = np.stack([case.problem.ideal for case in cases])
  probs = np.maximum(np.float64(token_probs), np.finfo(np.float32).tiny)
  return scipy.special.rel_entr(ideal, probs).sum(-1).mean(-1)


def _evaluate(s: DegradationSettings, model: MaskedLM, cases: list[Case], key: Array, reporter: Reporter) -> list[Row]:
  """Rows of all three methods for cases of one shape, and of the mass on H* along the training of the prompt."""
  parts = [(case.frozen, case.problem.inputs, case.problem.labels, case.reader) for case in cases]
  frozen, inputs, labels, readers = stacked(parts)
  train, test = slice(s.num_train), slice(s.num_train, None)
  methods = tuners(model, s)
  # What each method sees: what the model predicts, or the tokens that a prompt is put before.
  seen = {'head': features(methods['head'], frozen, inputs), 'prompt': inputs}
  fields = [
    {**case.fields, 'kl': float(kl), 'majority_accuracy': float(majority)}
    for case, kl, majority in zip(
      cases, _kls(cases, seen['head']), tasks.majority_accuracy(labels[:, train], labels[:, test])
    )
  ]

  def learn(method):
    name = f'{method} on {len(cases)} problems of {model.name} G'
    data = frozen, seen[method][:, train], labels[:, train]
    return side_by_side(methods[method], s.tuning.schedule, *data, key, name, reporter)

  def tested(method, trainable):
    """The accuracy of each case, and its mean mass on H*, which a column of the head reads."""
    head = trainable['head']
    weights = np.concatenate([head.weights, readers[:, None, :, None]], axis=-1, dtype=np.float32)
    reading = LinearHead(weights, np.pad(head.bias, ((0, 0), (0, 0), (0, 1))))
    found = scores(methods[method], {**trainable, 'head': reading}, frozen, seen[method][:, test])
    return (found[..., :-1].argmax(-1) == labels[:, test]).mean(-1), found[..., -1].mean(-1)

  def rows_of(method, accuracies):
    return [{**row, 'method': method, 'accuracy': float(value)} for row, value in zip(fields, accuracies)]

  *_, trained = learn('head')
  accuracies, without = tested('head', trained)
  rows, followed = rows_of('head', accuracies), readers.any(-1)
  for epoch, trained in enumerate(learn('prompt')):
    if followed.any() or epoch == s.tuning.num_epochs:
      accuracies, masses = tested('prompt', trained)
      for case in np.flatnonzero(followed):
        values = {'mass_without': without[case], 'mass_with': masses[case], 'accuracy': accuracies[case]}
        values = {name: float(value) for name, value in values.items()}
        rows.append({**fields[case], 'study': 'concentration', 'epoch': epoch, **values})
  rows += rows_of('prompt', accuracies)
  if cases[0].problem.construction is None:
    return rows
  built = jax.tree.map(lambda leaf: np.float32(leaf)[:, None], stacked([case.problem.construction for case in cases]))
  return rows + rows_of('construction', tested('prompt' if 'prompt' in built else 'head', built)[0])


def tuners(model: MaskedLM, settings: Any) -> dict[str, tuning.Tuner]:
  """The head, and the prompt with its head, that are trained; binary labels."""
  prompt = tuning.Prompt(settings.prompt_length, settings.prompt_scale)
  return {'head': tuning.Tuner(model, Linear(2)), 'prompt': tuning.Tuner(model, Linear(2), prompt)}


def stacked(trees: list[Any]) -> Any:
  """Trees of one structure as one, with a leading axis."""
  return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(trees))


def features(tuner: tuning.Tuner, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """What the tuner needs of the inputs [problems, n, T] of problems that each have a model, [problems, n, ...]."""
  return np.asarray(_features(tuner, frozen, inputs))


def side_by_side(
  tuner: tuning.Tuner,
  schedule: tuning.Schedule,
  frozen: Any,
  features: np.ndarray,
  labels: np.ndarray,
  key: Array,
  name: str,
  reporter: Reporter,
) -> Iterator[Any]:
  """Yields the trainables of all problems, leading axes problem and K = 1, at the start and after every epoch.

  Args:
    tuner: what is trained.
    schedule: of every problem.
    frozen: the model's parameters, leading axis problem.
    features: [problems, n, ...], what the tuner needs of the training inputs.
    labels: [problems, n].
    key: of the start and the order, the same for all problems.
    name: what the reporter calls them.
    reporter: follows the epochs.
  """
  tuner, frozen = tuner.after_features(frozen)
  state = _init(key, tuner, schedule, frozen, features)
  yield jax.device_get(state.trainable)
  key_order = jax.random.fold_in(key, 1)
  epoch = lambda state: _epoch(state, key_order, tuner, schedule, frozen, features, labels[:, None])
  for after, _ in tuned.epochs(epoch, state, schedule.num_epochs, name, reporter):
    yield jax.device_get(after.trainable)


def scores(tuner: tuning.Tuner, trainables: Any, frozen: Any, features: np.ndarray) -> np.ndarray:
  """Class scores [problems, n, C] by trainables as `side_by_side` yields them."""
  tuner, frozen = tuner.after_features(frozen)
  return np.asarray(_scores(tuner, trainables, frozen, features))[:, 0]


@functools.partial(jax.jit, static_argnames='tuner')
def _features(tuner, frozen, inputs):
  return jax.vmap(tuner.features)(frozen, inputs)


@functools.partial(jax.jit, static_argnames='tuner')
def _scores(tuner, trainables, frozen, features):
  return jax.vmap(tuner.scores)(trainables, frozen, features)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'), compiler_options=compilation.ONCE)
def _init(key, tuner, schedule, frozen, features):
  of_one = lambda *data: tuning.init_tuning(key, tuner, schedule, *data, np.zeros(1, np.int32))
  return jax.vmap(of_one)(frozen, features)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'))
def _epoch(state, key, tuner, schedule, frozen, features, labels):
  of_one = lambda state, *data: tuning.tune_epoch(state, key, tuner, schedule, *data)
  return jax.vmap(of_one)(state, frozen, features, labels)
