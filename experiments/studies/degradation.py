"""Theorems 3.3 and 3.6 if G is noisy, W nearly singular, zero probabilities become small, or G is a BERT's.

A record is of an HMM under a condition: the test accuracy of each reader, and for Theorem 3.6 the mass on H* behind
each prompt.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import interval
from experiments.analysis.tables import contrasts, means, paired, select, Table, table, tested
from experiments.pipeline import pretraining
from experiments.pipeline.scheduled import followed
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies.settings import DegradationSettings
from experiments.studies.study import in_parts, Part, Row, Study
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.models import sharding
from hmm_jax.models.model import MaskedLM
from hmm_jax.theory import degradation, families, recovery, theorems
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.enumeration import normalised
from hmm_jax.theory.problem import generator, StateProblem
from hmm_jax.tuning import tasks, tuner as tuner_lib
from hmm_jax.tuning.heads import Linear, LinearHead
from hmm_jax.tuning.optimum import converged_head
from hmm_jax.tuning.tuner import Prompt, Tuner

# Each theorem with the number that its problems are drawn by.
THEOREMS = {'3.3': 33, '3.6': 36}
# What makes the HMM of each worse, in degrees.
DAMAGES = {'3.3': 'singular_value', '3.6': 'leak'}

READERS = {
  'construction': "theorem's construction",
  'weighted': 'weighted inverse',
  'converged_built': "theorem's prompt, converged head",
  'converged_head': 'converged head',
  'trained_head': 'trained head',
  'converged_prompt': 'trained prompt, converged head',
  'trained_prompt': 'trained prompt and head',
}
# Readers whose converged heads read predictions behind a prompt.
CONVERGED = {'converged_built': 'built', 'converged_head': 'without', 'converged_prompt': 'trained'}
# Prompts whose mass on H* is measured, each tuned for a kind of task.
PROMPTS = {
  ('without', 'task'): 'no prompt',
  ('start', 'task'): 'untrained prompt',
  ('trained', 'task'): 'trained, mu on H*',
  ('trained', 'control'): 'trained, elsewhere',
}
# Pairs that are compared on the same inputs of the same HMM.
_READER_PAIRS = (
  "weighted inverse - theorem's construction",
  "converged head - theorem's construction",
  "theorem's prompt, converged head - theorem's construction",
  "trained prompt, converged head - theorem's construction",
  'trained prompt, converged head - converged head',
  'converged head - trained head',
  'trained prompt, converged head - trained prompt and head',
)
_PROMPT_PAIRS = (
  'trained, mu on H* - no prompt',
  'trained, mu on H* - untrained prompt',
  'trained, mu on H* - trained, elsewhere',
  'trained, elsewhere - no prompt',
)
# Readers that are drawn, and compared across perturbations.
_STYLES = {
  "theorem's construction": dict(color='#000000', marker='^', linestyle=':'),
  'weighted inverse': dict(color='#009E73', marker='D', linestyle='-.'),
  'converged head': figures_lib.style_of('head'),
  'trained prompt, converged head': figures_lib.style_of('prompt'),
}
# Columns that name a row of a table, and those of the caption of a figure.
_MODEL = ['perturbation', 'level']
_CONDITION = ['theorem', *_MODEL]
_RUN = ['experiment', 'scale', 'seed']
_TITLES = {
  'accuracy': 'Test accuracy in percent, mean ± 95% over HMMs; level: KL in nats, or steps',
  'differences': 'Paired differences of readers in points; all tests are one family',
  'conditions': 'Accuracy minus that on the unchanged HMM with noise of the same level, in points',
  'mass': 'Mean posterior mass on H* in percent, computed from predictions',
  'mass_differences': 'Differences of this mass; all tests are one family',
}


class Problem(NamedTuple):
  """An HMM, a task on its masked first state, and what a theorem constructs for it.

  Attributes:
    key: of the HMM, decides the noise in its G and the pretraining of its BERT.
    hmm: float64.
    task_weights: mu [C, H].
    construction: of Theorem 3.3 or 3.6; empty if the model has no place for its prompt.
    inverted_states: whose columns of W the construction inverts: all, or H*.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    states: P[H_1 | X_{-1}] of them, [n, H] float64.
  """

  key: Array
  hmm: HMM
  task_weights: np.ndarray
  construction: dict[str, Any]
  inverted_states: np.ndarray
  inputs: np.ndarray
  states: np.ndarray

  @property
  def labels(self) -> np.ndarray:
    """Labels of the masked first state, [n] int32."""
    return tasks.labelled(self.task_weights, self.states).labels

  def is_balanced(self, s: DegradationSettings) -> bool:
    return np.bincount(self.labels).max() <= s.largest_majority * len(self.inputs)

  def ideal_after(self, prompt: np.ndarray | None) -> np.ndarray:
    """G at the [MASK] without a prompt or after one of one row u, [n, V].

    P[H_2 | u, x] is proportional to A(u * P[H_1]) * P[x | its state], the latter to P[H_1 | x] / P[H_1] (Lemma B.1).
    """
    states = self.states
    if prompt is not None:
      start = self.hmm.initial_probs
      reached = (prompt[0] * start) @ self.hmm.transition_matrix
      states = normalised(states * (reached / start))
    return states @ self.hmm.emission_matrix


def parts(settings: DegradationSettings) -> dict[str, Part]:
  """A part for each model and theorem."""
  cases = {'exact': _exact, 'bert': _bert}
  return {
    f'{name}-{theorem}': functools.partial(_part, cases[name], theorem)
    for name in settings.models
    for theorem in THEOREMS
  }


def _part(
  cases: Callable[..., Iterable['Case']], theorem: str, s: DegradationSettings, key: Array, reporter: Reporter
) -> list[Row]:
  """A record for each HMM and condition; for Theorem 3.6 also one of the control in the first condition."""
  key_problems = jax.random.fold_in(key, THEOREMS[theorem])
  records: list[Row] = []
  for index in range(s.num_hmms):
    degrees = draw(s, theorem, jax.random.fold_in(key_problems, index))
    key_tuning = jax.random.fold_in(key, index)
    for number, case in enumerate(cases(s, theorem, degrees, reporter)):
      kinds = {'task': case.problem}
      if theorem == '3.6' and number == 0:
        kinds['control'] = about_other_states(s, case.problem)
      for kind, problem in kinds.items():
        row = measure(s, case._replace(problem=problem), key_tuning, reporter)
        records.append({'theorem': theorem, 'kind': kind, **case.condition, 'hmm': index, **row})
  return records


# Problems of one HMM by the degree of its damage.
_Degrees = dict[float, Problem]
# Heads by name, each with the prompt behind which it reads.
_Heads = dict[str, tuple[LinearHead, str]]


class Case(NamedTuple):
  """A model with an error, of one HMM.

  Attributes:
    condition: fields of records.
    problem: of the HMM.
    model: that head and prompt are tuned on.
    params: of the model.
  """

  condition: Row
  problem: Problem
  model: MaskedLM
  params: Any


def _exact(s: DegradationSettings, theorem: str, degrees: _Degrees, _: Reporter) -> Iterator[Case]:
  """The exact G with noise on the HMM as it is, then on each damaged HMM."""
  model = degradation.NoisyModel(s.num_tokens)
  for degree, problem in degrees.items():
    damage = DAMAGES[theorem] if degree else ''
    for kl in s.noise_beside if degree else s.noise_levels:
      condition = {'damage': damage, 'degree': degree, 'error': 'noise', 'level': kl}
      yield Case(condition, problem, model, noisy(model, problem, kl))


def _bert(s: DegradationSettings, theorem: str, degrees: _Degrees, reporter: Reporter) -> Iterator[Case]:
  """A BERT at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. The prompt of 3.6 is a row over hidden states, which BERT cannot take.
  """
  problem, steps = degrees[0.0], s.bert.checkpoints
  if theorem == '3.6':
    problem, steps = problem._replace(construction={}), steps[-1:]
  model = pretraining.tuned_model(s.bert.model.module(s.num_tokens))
  params = pretrained(s, problem, reporter)
  for step in steps:
    condition = {'damage': '', 'degree': 0.0, 'error': 'bert', 'level': step}
    yield Case(condition, problem, model, params[step])


def draw(s: DegradationSettings, theorem: str, key: Array) -> _Degrees:
  """An HMM with a task, undamaged at degree 0 and at each degree of damage; drawn again until all are balanced.

  Every initial probability is above what the largest leak puts into a state, so that a threshold over the leak keeps
  it.

  Raises:
    SettingsError: no draw is balanced.
    ValueError: no HMM is as well conditioned.
  """
  num_states = s.num_states_3_3 if theorem == '3.3' else s.num_states_3_6
  sizes = families.Sizes(num_states, s.num_tokens, num_classes=2)
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    drawn = families.draw(theorem, 'planted', key_draw, sizes, _criteria(s), s.conditioning)
    if drawn.hmm.initial_probs.min() > max(s.leaks) / 2:
      degrees = _degrees(s, theorem, drawn, key, key_text)
      if all(problem.is_balanced(s) for problem in degrees.values()):
        return degrees
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: no HMM for Theorem {theorem} has balanced classes')


def _criteria(s: DegradationSettings, support: float = 0.0) -> theorems.Criteria:
  # No memory, so stationarity is not tested.
  return theorems.Criteria(Thresholds(support, s.rank_threshold), tolerance=0.0, max_nodes=s.max_nodes)


def _degrees(s: DegradationSettings, theorem: str, drawn: StateProblem, key: Array, key_text: Array) -> _Degrees:
  """The problem by the degree of its damage, each with text of its own HMM."""
  found = theorems.finding(theorems.ON_EMISSIONS[theorem], drawn, _criteria(s))
  # All, or H*.
  inverted = np.asarray(found.witness.get('essential_states', np.arange(drawn.hmm.num_states)))
  problems = {}
  for degree in (0.0, *(s.singular_values if theorem == '3.3' else s.leaks)):
    hmm, zero = _damaged(drawn.hmm, found, inverted, degree)
    task = StateProblem(hmm, np.asarray(hmm.initial_probs), drawn.task_weights)
    built = theorems.construct(theorem, task, s.length, _criteria(s, zero))
    inputs, _ = tasks.draw_texts(key_text, hmm, s.num_train + s.num_test, 0, s.length)
    states = tasks.hidden_state_probs(hmm, inputs)
    problems[degree] = Problem(key, hmm, task.task_weights, built, inverted, np.asarray(inputs), states)
  return problems


def _damaged(hmm: HMM, found: theorems.Finding, inverted: np.ndarray, degree: float) -> tuple[HMM, float]:
  """An HMM damaged to a degree, 0 for none, and the largest probability that then counts as zero."""
  prompt_states = found.witness.get('prompt_states')
  if prompt_states is not None:
    outside = hmm.num_states - len(inverted)
    return degradation.leaking(hmm, prompt_states, inverted, degree), 1.01 * degree / outside
  if degree:
    hmm = degradation.with_smallest_singular_value(hmm, degree)
  return hmm, 0.0


def about_other_states(s: DegradationSettings, problem: Problem) -> Problem:
  """The control of a mass on H*: the same HMM and inputs, with mu on as many states outside H* as H* has.

  Raises SettingsError if no draw of mu is balanced.
  """
  rng = generator(problem.key)
  others = np.setdiff1d(np.arange(problem.hmm.num_states), problem.inverted_states)
  for _ in range(s.max_draws):
    chosen = rng.choice(others, len(problem.inverted_states), replace=False)
    mu = np.zeros_like(problem.task_weights)
    mu[:, chosen] = rng.standard_normal((len(mu), len(chosen)))
    control = problem._replace(task_weights=mu, construction={})
    if control.is_balanced(s):
      return control
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: no mu on states outside H* has balanced classes')


def noisy(model: degradation.NoisyModel, problem: Problem, kl: float) -> degradation.Noisy:
  """The noisy model's parameters with noise of this KL; the noise of an HMM is the same at each level."""
  params = degradation.Noisy(problem.hmm, np.ones((), np.float32), jax.random.bits(problem.key, (), 'uint32'))
  return degradation.with_kl(model, params, problem.inputs, problem.ideal_after(None), kl)


def pretrained(s: DegradationSettings, problem: Problem, reporter: Reporter) -> dict[int, Any]:
  """BERT's parameters at each checkpoint of a pretraining on the problem's text."""
  b, bert = s.bert, s.bert.model.module(s.num_tokens)
  key_text, key_init, key_steps = jax.random.split(problem.key, 3)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.make_mesh())
  state = init(key_init)
  documents = sample_corpus(key_text, problem.hmm, b.num_documents, b.document_length)
  corpus = jax.device_put(documents, state.step.sharding)
  call = lambda state: train_steps(state, corpus, key_steps)
  return dict(pretraining.along(call, state, b.checkpoints, b.steps_per_call, reporter))


def measure(s: DegradationSettings, case: Case, key: Array, reporter: Reporter) -> Row:
  """Train a head and a prompt on a problem; the record of all readers."""
  problem, test = case.problem, slice(s.num_train, None)
  probs, heads = tuned(s, case, key, reporter)
  heads |= _converged(s, problem, probs) | _built(s, problem, probs)
  labels, inverted = problem.labels, problem.inverted_states
  row: Row = {
    'kl': degradation.mean_kl(problem.ideal_after(None), probs['without']),
    'majority_accuracy': float(tasks.majority_accuracy(labels[: s.num_train], labels[test])),
    'accuracy': {},
    'mass': {},
  }
  for name, (head, prompt) in heads.items():
    scores = probs[prompt][test] @ head.weights + head.bias
    row['accuracy'][name] = float((scores.argmax(-1) == labels[test]).mean())
  if len(inverted) < problem.hmm.num_states:
    reader = recovery.mass_weights(problem.hmm, inverted, _criteria(s).thresholds)
    for prompt in ('without', 'start', 'trained'):
      row['mass'][prompt] = float((probs[prompt][test] @ reader).mean())
  return row


def tuned(
  s: DegradationSettings, case: Case, key: Array, reporter: Reporter
) -> tuple[dict[str, np.ndarray], dict[str, tuple[LinearHead, str]]]:
  """Train a head without a prompt, and a prompt with a head; predict behind each prompt.

  Returns:
    Predictions [n, V] at the [MASK] 'without' a prompt, behind it at its 'start', behind the 'trained' one and behind
    that 'built' by the theorem, if it has one; and each trained head with the prompt behind which it reads.
  """
  inputs, count = case.problem.inputs, len(case.problem.inputs)
  alone = Tuner(case.model, Linear(2))
  behind = Tuner(case.model, Linear(2), Prompt(s.prompt_length, s.prompt_scale))
  without = tuner_lib.frozen_features(alone, case.params, inputs, batch_size=count)
  *_, head = _trained(s, case, alone, without, key, reporter)
  start, *_, end = _trained(s, case, behind, inputs, key, reporter)
  probs = {'without': np.asarray(without, np.float64)}
  prompts = {'start': start['prompt'], 'trained': end['prompt']}
  if 'prompt' in case.problem.construction:
    prompts['built'] = np.float32(case.problem.construction['prompt'])
  for name, prompt in prompts.items():
    trainable = jax.tree.map(lambda x: x[None], end | {'prompt': prompt})
    read = tuner_lib.inputs_of_heads(behind, trainable, case.params, inputs, batch_size=count)
    probs[name] = np.asarray(read[0], np.float64)
  return probs, {'trained_head': (head['head'], 'without'), 'trained_prompt': (end['head'], 'trained')}


def _trained(
  s: DegradationSettings, case: Case, tuner: Tuner, features: np.ndarray, key: Array, reporter: Reporter
) -> list[Any]:
  """What is trained, at the start and after each epoch."""
  name = f'{"prompt" if tuner.prompt else "head"} on {case.model.name}'
  train = slice(s.num_train)
  labels = case.problem.labels[None, train]
  examples = tuner_lib.Examples(features[train], labels, np.zeros(1, np.int32), [name])
  keys = key, jax.random.fold_in(key, 1)
  schedule = s.tuning.schedule(s.num_train)
  states = tuner_lib.fit(keys, tuner, schedule, case.params, examples)
  trained = []
  for state, _ in followed(states, schedule.num_epochs, name, reporter):
    # Of the one task.
    trainable = jax.tree.map(lambda x: x[0], state.trainable)
    trained.append(jax.device_get(trainable))
  return trained


def _converged(s: DegradationSettings, problem: Problem, probs: dict[str, np.ndarray]) -> _Heads:
  """The converged heads."""
  train, found = slice(s.num_train), {}
  for name, prompt in CONVERGED.items():
    if prompt in probs:
      fit = converged_head(probs[prompt][train], problem.labels[train], num_classes=2, **vars(s.converged))
      found[name] = fit.head, prompt
  return found


def _built(s: DegradationSettings, problem: Problem, probs: dict[str, np.ndarray]) -> _Heads:
  """The theorem's head and its weighted inverse; none without a construction."""
  built = problem.construction
  if not built:
    return {}
  # Theorem 3.3 has no prompt.
  prompt = 'built' if 'built' in probs else 'without'
  errors = probs[prompt] - problem.ideal_after(built.get('prompt'))
  columns = np.asarray(problem.hmm.emission_matrix)[problem.inverted_states].T
  # The covariance of errors has the ridge of the converged heads, in units of its mean diagonal.
  weighted = degradation.weighted_head(built['head'], columns, errors[: s.num_train], s.converged.ridge)
  return {'construction': (built['head'], prompt), 'weighted': (weighted, prompt)}


def prepared(records: pd.DataFrame) -> pd.DataFrame:
  """The records with their `perturbation` in words: the damage of the HMM if there is one, otherwise the error of G."""
  damage = records['damage'] + records['degree'].map(' {:g}'.format)
  error = records['error'].replace('bert', 'BERT steps')
  perturbation = error.where(records['damage'] == '', damage)
  return records.assign(perturbation=perturbation.str.replace('_', ' '))


def accuracies(records: pd.DataFrame) -> pd.DataFrame:
  """Accuracies in percent on the theorems' tasks, a row for each condition and HMM, a column for each reader."""
  own = select(records, kind='task').set_index([*_RUN, *_CONDITION, 'hmm'])
  shares = pd.DataFrame(list(own['accuracy']), own.index, [*READERS]).rename(columns=READERS)
  return 100 * shares.rename_axis(columns='reader').assign(majority=own['majority_accuracy'])


def masses(records: pd.DataFrame) -> pd.DataFrame:
  """Masses on H* in percent, of models with a control: a row for each HMM, a column for each prompt."""
  whole = select(records, theorem='3.6', damage='').set_index([*_MODEL, 'hmm', 'kind'])
  by_kind = pd.DataFrame(list(whole['mass']), whole.index).unstack('kind')[[*PROMPTS]].dropna()
  return 100 * by_kind.set_axis([*PROMPTS.values()], axis=1)


def tables(records: pd.DataFrame, settings: DegradationSettings) -> dict[str, Table]:
  """Accuracies and masses on H*, and their paired differences: of readers, of perturbations and of prompts."""
  records = prepared(records)
  percent, mass = accuracies(records), masses(records)
  kl = means(select(records, kind='task'), _CONDITION, 'kl', ['hmm'], lambda values: f'{values.mean():z.3f}')
  by_perturbation = percent[[*_STYLES]].stack().unstack('perturbation', sort=False)
  from_noise = [f'{name} - noise' for name in by_perturbation if name != 'noise']
  frames = {
    'accuracy': kl.to_frame('KL').join(percent.groupby(level=_CONDITION, sort=False).agg(interval)),
    'differences': _tested(percent, _READER_PAIRS, _CONDITION),
    'conditions': _tested(by_perturbation, from_noise, ['theorem', 'reader', 'level']),
    'mass': mass.groupby(level=_MODEL, sort=False).agg(interval),
    'mass_differences': _tested(mass, _PROMPT_PAIRS, _MODEL),
  }
  return {name: table(_TITLES[name], frame) for name, frame in frames.items() if len(frame)}


def _tested(values: pd.DataFrame, pairs: Iterable[str], rows: list[str]) -> pd.DataFrame:
  """The mean over HMMs of the difference of each pair of columns; all tests are one family."""
  return tested(contrasts(paired(values, pairs), rows, ['hmm']))


def figures(records: pd.DataFrame, settings: DegradationSettings) -> dict[str, Figure]:
  """Accuracy against the error of the model for each theorem."""
  shown = accuracies(prepared(records))[[*_STYLES]].stack().rename('accuracy').reset_index()
  shown = shown[shown['perturbation'].isin(['noise', 'BERT steps'])]
  drawn = figures_lib.lines(
    shown.assign(panel='Theorem ' + shown['theorem'] + ', ' + shown['perturbation']),
    settings.figure,
    'Accuracy on a model with an error',
    x='level',
    by='reader',
    unit=['hmm'],
    over='HMMs',
    style=lambda name: dict(label=name, **_STYLES[name]),
    xlabel='KL(G || model) at the [MASK] in nats; of a BERT, steps',
    cell=interval,
    panel='panel',
  )
  return {'degradation': drawn} if drawn else {}


STUDY = Study(in_parts(parts), tables, figures)
