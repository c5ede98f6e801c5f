"""How recovery degrades where the theorems say nothing: a noisy G, a nearly singular W, supports that leak, a BERT.

Three ways to the label on the same inputs: the theorem's construction, a trained head, a trained prompt with its head.
Problems of one shape, each with a frozen model of its own, are tuned side by side in one program.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments import pretraining, side_by_side
from experiments.fields import SettingsError
from experiments.progress import Reporter
from experiments.theory.settings import DegradationSettings, TheorySettings
from hmm_jax import sharding, tasks
from hmm_jax.heads import LinearHead
from hmm_jax.hmm import HMM
from hmm_jax.model import MaskedLM
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory import assumptions, families, recovery, theorems
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.degradation import leaking, Noisy, NoisyModel, with_smallest_singular_value
from hmm_jax.theory.families import Sizes

Row = dict[str, Any]

# Each theorem with the number that its problems are drawn by.
_THEOREMS = (('3.3', 33), ('3.6', 36))


class Problem(NamedTuple):
  """A chain, a task on its masked first state, and what a theorem constructs for it; then a model that it is put to.

  Attributes:
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6; None where the model has no place for it.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    labels: [n] int32.
    ideal: G at the [MASK], [n, V] float64.
    reader: a [V] with a^T G the mass on H*, where that is followed while a prompt is trained; else zeros.
    frozen: the model's parameters.
    fields: of its records.
  """

  hmm: HMM
  task_weights: np.ndarray
  construction: recovery.Construction | None
  inputs: np.ndarray
  labels: np.ndarray
  ideal: np.ndarray
  reader: np.ndarray
  frozen: Any = None
  fields: Row | None = None


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (study, HMM, level, method): accuracy on test inputs, and the KL(G || model) at the [MASK]."""
  s, rows = settings.degradation, []
  model = NoisyModel(s.num_tokens)
  for theorem, number in _THEOREMS:
    problems, targets = [], []
    for index in range(s.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      salt = np.asarray(jax.random.bits(key_hmm, (), 'uint32'))
      for problem, kl, study, level in _levels(settings, theorem, key_hmm):
        if theorem == '3.6' and study == 'noise' and level == 0:
          problem = _following_mass(settings, problem)
        noisy = Noisy(side_by_side.float32(problem.hmm), np.asarray(np.sqrt(2 * kl), np.float32), salt)
        fields = {'theorem': theorem, 'hmm': index, 'model': 'exact', 'study': study, 'level': level}
        problems.append(problem._replace(frozen=noisy, fields=fields))
        targets.append(kl)
    rows += _evaluate(s, model, _calibrated(s, model, problems, np.array(targets)), key, reporter)
  return rows


def run_bert(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """Rows as of `run` on a pretrained BERT: at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. For 3.6 the mass on H* is followed while a prompt is trained; the theorem's
  own prompt is a row over hidden states, which BERT has no place for.
  """
  s, rows = settings.degradation, []
  for theorem, number in _THEOREMS:
    problems = []
    for index in range(settings.bert.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      problem = _draw(settings, theorem, key_hmm)
      checkpoints = list(_pretrained(settings, problem, key_hmm, reporter))
      if theorem == '3.6':
        problem, checkpoints = _following_mass(settings, problem)._replace(construction=None), checkpoints[-1:]
      for step, params in checkpoints:
        fields = {'theorem': theorem, 'hmm': index, 'model': 'bert', 'study': 'bert', 'level': step}
        problems.append(problem._replace(frozen=params, fields=fields))
    rows += _evaluate(s, pretraining.tuned_model(settings.bert.model.module(s.num_tokens)), problems, key, reporter)
  return rows


def _pretrained(settings: TheorySettings, problem: Problem, key: Array, reporter: Reporter) -> Iterator[tuple]:
  """(step, parameters) at each checkpoint of one pretraining on the problem's text."""
  b, s = settings.bert, settings.degradation
  key_text, key_init, key_steps = jax.random.split(key, 3)
  bert = b.model.module(s.num_tokens)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.data_mesh(1))
  state = init(key_init)
  corpus = jax.device_put(
    sample_corpus(key_text, side_by_side.float32(problem.hmm), b.num_documents, s.length), state.step.sharding
  )
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
  sizes = Sizes({'3.3': s.num_states_3_3, '3.6': s.num_states_3_6}[theorem], s.num_tokens, 2)
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    drawn = families.draw(theorem, 'planted', key_draw, sizes, settings.limits, settings.conditioning)
    if drawn.hmm.initial_probs.min() <= max(s.leaks) / 2:
      continue
    # The label speaks of the masked first state itself.
    drawn = drawn._replace(silent_probs=drawn.hmm.initial_probs)
    built = theorems.construct(theorem, drawn, s.length, settings.limits)
    problem = _with_inputs(s, drawn.hmm, drawn.task_weights, built, key_text)
    if np.bincount(problem.labels).max() <= s.largest_majority * problem.labels.size:
      return problem
  most = f'{s.largest_majority:.0%}'
  valid = f'more, for Theorem {theorem}: one class was above {most} in each draw, or a start below a leak'
  raise SettingsError(f'degradation.max_draws is {s.max_draws}; valid is {valid}')


def _with_inputs(s: DegradationSettings, hmm: HMM, task_weights, built: recovery.Construction, key: Array) -> Problem:
  """The problem with inputs from the chain, and labels of their masked first state in float64."""
  tokens = sample_corpus(key, side_by_side.float32(hmm), s.num_train + s.num_test, s.length)
  inputs = tasks.mask_first(tokens, hmm.num_tokens)
  states = np.asarray(tasks.first_state_probs(hmm, inputs))
  labels = (states @ assumptions.contrasts(task_weights).T).argmax(-1).astype(np.int32)
  ideal, reader = states @ hmm.emission_matrix, np.zeros(hmm.num_tokens)
  return Problem(hmm, task_weights, built, np.asarray(inputs), labels, ideal, reader)


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
  witness = theorems.finding('3.5', problem, settings.limits).witness
  essential = witness['essential_states']
  for leak in s.leaks:
    worse = leaking(hmm, witness['prompt_states'], essential, leak)
    over_leak = Thresholds(1.01 * leak / (hmm.num_states - len(essential)), epsilon.rank)
    built = recovery.theorem_3_6(worse, mu, start, over_leak, settings.max_nodes)
    levels.append((_with_inputs(s, worse, mu, built, key), 0.0, 'leak', leak))
  return levels


def _following_mass(settings: TheorySettings, problem: Problem) -> Problem:
  """The problem with what reads the mass on H* (`recovery.mass_weights`)."""
  states = theorems.finding('3.5', problem, settings.limits).witness['essential_states']
  return problem._replace(reader=recovery.mass_weights(problem.hmm, states, settings.thresholds))


def _calibrated(s: DegradationSettings, model: MaskedLM, problems: list[Problem], targets: np.ndarray) -> list[Problem]:
  """The problems with noise of the given KL at the [MASK], to a percent or so."""
  head, inputs = side_by_side.tuners(model, s)['head'], np.stack([problem.inputs for problem in problems])
  for _ in range(s.num_calibrations):
    measured = _kls(
      problems, side_by_side.features(head, side_by_side.stacked([problem.frozen for problem in problems]), inputs)
    )
    factors = np.sqrt(np.divide(targets, measured, out=np.zeros_like(targets), where=targets > 0))
    scaled = [p.frozen._replace(scale=np.float32(p.frozen.scale * factor)) for p, factor in zip(problems, factors)]
    problems = [problem._replace(frozen=frozen) for problem, frozen in zip(problems, scaled)]
  return problems


def _kls(problems: list[Problem], token_probs: np.ndarray) -> np.ndarray:
  """KL(G || model) at the [MASK] of all inputs, in nats, [problems]."""
  ideal = np.stack([problem.ideal for problem in problems])
  probs = np.maximum(np.float64(token_probs), np.finfo(np.float32).tiny)
  return scipy.special.rel_entr(ideal, probs).sum(-1).mean(-1)


def _evaluate(
  s: DegradationSettings, model: MaskedLM, problems: list[Problem], key: Array, reporter: Reporter
) -> list[Row]:
  """Rows of all three methods for problems of one shape, and of the mass on H* along the training of the prompt."""
  frozen, inputs, labels, readers = side_by_side.stacked([(p.frozen, p.inputs, p.labels, p.reader) for p in problems])
  train, test, methods = slice(s.num_train), slice(s.num_train, None), side_by_side.tuners(model, s)
  # What the model predicts, or the tokens that a prompt is put before.
  seen = {method: side_by_side.features(tuner, frozen, inputs) for method, tuner in methods.items()}
  kls, majorities = _kls(problems, seen['head']), tasks.majority_accuracy(labels[:, train], labels[:, test])
  fields = [
    {**(problem.fields or {}), 'kl': float(kl), 'majority_accuracy': float(majority)}
    for problem, kl, majority in zip(problems, kls, majorities)
  ]

  def learn(method):
    name = f'{method} on {len(problems)} problems of {model.name} G'
    data = frozen, seen[method][:, train], labels[:, train]
    return side_by_side.train(methods[method], s.tuning.schedule, *data, key, name, reporter)

  def on_test_inputs(method, trainable):
    """The accuracy of each problem, and its mean mass on H*, which a column of the head reads."""
    head = trainable['head']
    weights = np.concatenate([head.weights, readers[:, None, :, None]], axis=-1, dtype=np.float32)
    reading = LinearHead(weights, np.pad(head.bias, ((0, 0), (0, 0), (0, 1))))
    found = side_by_side.scores(methods[method], {**trainable, 'head': reading}, frozen, seen[method][:, test])
    return (found[..., :-1].argmax(-1) == labels[:, test]).mean(-1), found[..., -1].mean(-1)

  def rows_of(method, accuracies):
    return [{**row, 'method': method, 'accuracy': float(value)} for row, value in zip(fields, accuracies)]

  *_, trained = learn('head')
  accuracies, without = on_test_inputs('head', trained)
  rows, followed = rows_of('head', accuracies), readers.any(-1)
  for epoch, trained in enumerate(learn('prompt')):
    if followed.any() or epoch == s.tuning.num_epochs:
      accuracies, masses = on_test_inputs('prompt', trained)
      for index in np.flatnonzero(followed):
        measured = dict(mass_without=without, mass_with=masses, accuracy=accuracies)
        values = {name: float(value[index]) for name, value in measured.items()}
        rows.append({**fields[index], 'study': 'concentration', 'epoch': epoch, **values})
  rows += rows_of('prompt', accuracies)
  if problems[0].construction is None:
    return rows
  constructions = side_by_side.stacked([problem.construction for problem in problems])
  built = jax.tree.map(lambda leaf: leaf[:, None].astype(np.float32), constructions)
  return rows + rows_of('construction', on_test_inputs('prompt' if 'prompt' in built else 'head', built)[0])
