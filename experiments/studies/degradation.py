"""Theorems 3.3 and 3.6 if G is noisy, W nearly singular, zero probabilities become small, or G is a BERT's.

A record is of an HMM under a condition: the test accuracy of each reader, and for Theorem 3.6 the mass on H* behind
each prompt.
"""

from collections.abc import Iterable, Iterator
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
from experiments.pipeline import batched_tuning, pretraining
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies.settings import DegradationSettings
from experiments.studies.study import in_parts, Part, Row, Study
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.models import sharding
from hmm_jax.models.model import MaskedLM
from hmm_jax.theory import assumptions, families, recovery, theorems
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.degradation import (
  leaking,
  mean_kl,
  Noisy,
  NoisyModel,
  weighted_head,
  with_kl,
  with_smallest_singular_value,
)
from hmm_jax.theory.enumeration import normalised
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.problem import generator, StateProblem
from hmm_jax.theory.theorems import Criteria
from hmm_jax.tuning import tasks
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.optimum import converged_head

# Each theorem with the number that its problems are drawn by.
THEOREMS = {'3.3': 33, '3.6': 36}
# A damage of the HMM, 'singular_value' of W or a 'leak', and its degree.
Damage = tuple[str, float]
UNDAMAGED: Damage = ('', 0.0)

# The predictions at the [MASK] that the head of each reader reads: 'without' a prompt, after the 'trained' prompt, or
# 'built': after the theorem's prompt, which Theorem 3.3 does not have.
READS = {
  'construction': 'built',
  'weighted': 'built',
  'converged_built': 'built',
  'converged_head': 'without',
  'trained_head': 'without',
  'converged_prompt': 'trained',
  'trained_prompt': 'trained',
}
READERS = {
  'construction': "theorem's construction",
  'weighted': 'weighted inverse',
  'converged_built': "theorem's prompt, converged head",
  'converged_head': 'converged head',
  'trained_head': 'trained head',
  'converged_prompt': 'trained prompt, converged head',
  'trained_prompt': 'trained prompt and head',
}
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
# Columns that name a row of a table.
_MODEL, _CONDITION = ['perturbation', 'level'], ['theorem', 'perturbation', 'level']
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
    reader: a [V] with a^T G the mass on H*; zeros for Theorem 3.3.
    inputs: [n, T] int32, the first token [MASK]; training inputs first.
    states: P[H_1 | X_{-1}] of them, [n, H] float64.
  """

  key: Array
  hmm: HMM
  task_weights: np.ndarray
  construction: dict[str, Any]
  inverted_states: np.ndarray
  reader: np.ndarray
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
    if prompt is None:
      return self.states @ self.hmm.emission_matrix
    start = self.hmm.initial_probs
    states = self.states * ((prompt[0] * start) @ self.hmm.transition_matrix / start)
    return normalised(states) @ self.hmm.emission_matrix


def parts(settings: DegradationSettings) -> dict[str, Part]:
  """A part for each model and theorem."""
  return {
    f'{model}-{theorem}': functools.partial(_part, model, theorem) for model in settings.models for theorem in THEOREMS
  }


def _part(name: str, theorem: str, s: DegradationSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A record for each condition and HMM; for Theorem 3.6 also one of the control in the first condition."""
  # Both models have the same problems.
  key_problems = jax.random.fold_in(key, THEOREMS[theorem])
  keys = [jax.random.fold_in(key_problems, index) for index in range(s.num_hmms)]
  drawn = [draw(s, theorem, key_hmm) for key_hmm in keys]
  records: list[Row] = []
  cases = _exact if name == 'exact' else _berts
  for condition, model, problems, frozen in cases(s, theorem, drawn, reporter):
    by_kind = {'task': problems}
    if theorem == '3.6' and not records:
      by_kind['control'] = [about_other_states(s, problem) for problem in problems]
    for kind, chosen in by_kind.items():
      for index, row in enumerate(measure(s, model, chosen, frozen, key, reporter)):
        records.append({'theorem': theorem, 'kind': kind, **condition, 'hmm': index, **row})
  return records


def _exact(
  s: DegradationSettings, theorem: str, drawn: list[dict[Damage, Problem]], reporter: Reporter
) -> Iterator[tuple[Row, MaskedLM, list[Problem], list[Any]]]:
  """The exact G with errors on the HMM as it is, then with noise on each damaged HMM.

  Yields fields of records, the model, the problems, and for each the parameters of its model.
  """
  model = NoisyModel(s.num_tokens, s.reach)
  levels = {UNDAMAGED: {'noise': s.noise_levels, 'short_context': s.short_context_levels}}
  for damage, degree in drawn[0]:
    problems = [versions[damage, degree] for versions in drawn]
    for error, kls in levels.get((damage, degree), {'noise': s.noise_beside}).items():
      for kl in kls:
        condition = {'damage': damage, 'degree': degree, 'error': error, 'level': kl}
        yield condition, model, problems, [with_error(model, problem, error, kl) for problem in problems]


def _berts(
  s: DegradationSettings, theorem: str, drawn: list[dict[Damage, Problem]], reporter: Reporter
) -> Iterator[tuple[Row, MaskedLM, list[Problem], list[Any]]]:
  """Yield the same for BERTs at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. The prompt of 3.6 is a row over hidden states, which BERT cannot take.
  """
  model = pretraining.tuned_model(s.bert.model.module(s.num_tokens))
  problems, steps = [versions[UNDAMAGED] for versions in drawn], s.bert.checkpoints
  berts = [pretrained(s, problem, reporter) for problem in problems]
  if theorem == '3.6':
    problems, steps = [problem._replace(construction={}) for problem in problems], steps[-1:]
  for step in steps:
    condition = {'damage': '', 'degree': 0.0, 'error': 'bert', 'level': step}
    yield condition, model, problems, [params[step] for params in berts]


def draw(s: DegradationSettings, theorem: str, key: Array) -> dict[Damage, Problem]:
  """An HMM with a task, undamaged and with each damage; drawn again until all of these are balanced.

  Every initial probability is above what the largest leak puts into a state, so that a threshold over the leak keeps
  it.

  Raises:
    SettingsError: no draw is balanced.
    ValueError: no HMM is as well conditioned.
  """
  sizes = Sizes({'3.3': s.num_states_3_3, '3.6': s.num_states_3_6}[theorem], s.num_tokens, 2)
  # No memory, so stationarity is not tested.
  criteria = Criteria(Thresholds(support=0.0, rank=s.rank_threshold), tolerance=0.0, max_nodes=s.max_nodes)
  for redraw in range(s.max_draws):
    key_draw, key_text = jax.random.split(jax.random.fold_in(key, redraw))
    drawn = families.draw(theorem, 'planted', key_draw, sizes, criteria, s.conditioning)
    if drawn.hmm.initial_probs.min() > max(s.leaks) / 2:
      versions = _versions(s, theorem, drawn, criteria, key, key_text)
      if all(problem.is_balanced(s) for problem in versions.values()):
        return versions
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: no HMM for Theorem {theorem} has balanced classes')


def _versions(
  s: DegradationSettings, theorem: str, drawn: StateProblem, criteria: Criteria, key: Array, key_text: Array
) -> dict[Damage, Problem]:
  """The problem itself, and made worse, each with text of its own HMM."""
  hmm, mu, thresholds = drawn.hmm, drawn.task_weights, criteria.thresholds
  inverted, reader = np.arange(hmm.num_states), np.zeros(hmm.num_tokens)
  # Each HMM, and up to which probability its supports hold.
  hmms = {UNDAMAGED: (hmm, 0.0)}
  if theorem == '3.3':
    for least in s.singular_values:
      hmms['singular_value', least] = with_smallest_singular_value(hmm, least), 0.0
  else:
    witness = assumptions.relaxed_non_degeneracy(hmm, mu, thresholds, criteria.max_nodes).witness
    inverted = np.asarray(witness['essential_states'])
    reader = recovery.mass_weights(hmm, inverted, thresholds)
    for share in s.leaks:
      leaked = leaking(hmm, witness['prompt_states'], inverted, share)
      hmms['leak', share] = leaked, 1.01 * share / (hmm.num_states - len(inverted))
  versions = {}
  for damage, (damaged, support) in hmms.items():
    over_leak = criteria._replace(thresholds=thresholds._replace(support=support))
    built = theorems.construct(
      theorem, StateProblem(damaged, np.asarray(damaged.initial_probs), mu), s.length, over_leak
    )
    tokens = sample_corpus(key_text, batched_tuning.float32(damaged), s.num_train + s.num_test, s.length)
    inputs = np.asarray(tasks.hide(tokens, s.num_tokens))
    states = tasks.hidden_state_probs(damaged, inputs)
    versions[damage] = Problem(key, damaged, mu, built, inverted, reader, inputs, states)
  return versions


def about_other_states(s: DegradationSettings, problem: Problem) -> Problem:
  """The control of a mass on H*: the same HMM and inputs, with mu on as many states outside H* as H* has.

  Raises SettingsError if no draw of mu is balanced.
  """
  rng, others = generator(problem.key), np.setdiff1d(np.arange(problem.hmm.num_states), problem.inverted_states)
  for _ in range(s.max_draws):
    mu = np.zeros_like(problem.task_weights)
    chosen = rng.choice(others, len(problem.inverted_states), replace=False)
    mu[:, chosen] = rng.standard_normal((len(mu), len(chosen)))
    control = problem._replace(task_weights=mu, construction={})
    if control.is_balanced(s):
      return control
  raise SettingsError(f'max_draws is {s.max_draws}; valid is more: no mu on states outside H* has balanced classes')


def with_error(model: NoisyModel, problem: Problem, error: str, kl: float) -> Noisy:
  """The noisy model's parameters with an error of this KL, or all of the error if that has less."""
  # The noise of an HMM is the same at each level.
  salt = np.asarray(jax.random.bits(problem.key, (), 'uint32'))
  is_noise = np.asarray(error == 'noise', np.float32)
  whole = Noisy(batched_tuning.float32(problem.hmm), is_noise, salt, forgetting=1 - is_noise)
  return with_kl(model, whole, problem.inputs, problem.ideal_after(None), kl)


def pretrained(s: DegradationSettings, problem: Problem, reporter: Reporter) -> dict[int, Any]:
  """BERT's parameters at each checkpoint of a pretraining on the problem's text."""
  b, bert = s.bert, s.bert.model.module(s.num_tokens)
  key_text, key_init, key_steps = jax.random.split(problem.key, 3)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.make_mesh())
  state, hmm = init(key_init), batched_tuning.float32(problem.hmm)
  corpus = jax.device_put(sample_corpus(key_text, hmm, b.num_documents, b.document_length), state.step.sharding)
  call = lambda state: train_steps(state, corpus, key_steps)
  return dict(pretraining.along(call, state, b.checkpoints, b.steps_per_call, reporter))


def measure(
  s: DegradationSettings, model: MaskedLM, problems: list[Problem], frozen: list[Any], key: Array, reporter: Reporter
) -> list[Row]:
  """Train a head and a prompt for each problem, predict behind each prompt, and return the record of each."""
  params, tuners = batched_tuning.stacked(frozen), batched_tuning.tuners(model, s)
  inputs = np.stack([problem.inputs for problem in problems])
  labels = np.stack([problem.labels for problem in problems])

  def trained(name: str, features: np.ndarray) -> tuple[Any, Any]:
    data = params, features[:, : s.num_train], labels[:, : s.num_train]
    return batched_tuning.train(
      tuners[name], s.tuning.schedule(s.num_train), *data, key, f'{name} on {model.name}', reporter
    )

  probs = {'without': batched_tuning.features(tuners['head'], params, inputs)}
  _, of_head = trained('head', probs['without'])
  start, end = trained('prompt', inputs)
  # What each prompt is read with: its trainables.
  by_prompt = {'start': start, 'trained': end}
  if 'prompt' in problems[0].construction:
    built = np.stack([problem.construction['prompt'] for problem in problems])
    by_prompt['built'] = {**end, 'prompt': built[:, None].astype(np.float32)}
  for name, trainables in by_prompt.items():
    probs[name] = batched_tuning.prompted(tuners['prompt'], trainables, params, inputs)
  # Each problem has one task.
  heads = jax.tree.map(lambda leaf: leaf[:, 0], {'trained_head': of_head['head'], 'trained_prompt': end['head']})
  rows = []
  for index, problem in enumerate(problems):
    own_probs, own_heads = jax.tree.map(lambda leaf: np.float64(leaf[index]), (probs, heads))  # noqa: B023
    rows.append(_row(s, problem, own_probs, own_heads))
  return rows


def _row(s: DegradationSettings, problem: Problem, probs: dict[str, np.ndarray], heads: dict[str, LinearHead]) -> Row:
  """The record of a problem, from predictions [n, V] at the [MASK] and the heads that were trained."""
  train, test, labels = slice(s.num_train), slice(s.num_train, None), problem.labels
  # Theorem 3.3 reads G without a prompt.
  read = {'built': probs['without'], **probs}
  if problem.construction:
    head, columns = problem.construction['head'], np.asarray(problem.hmm.emission_matrix)[problem.inverted_states].T
    errors = (read['built'] - problem.ideal_after(problem.construction.get('prompt')))[train]
    # The covariance of errors has the ridge of the converged heads, in units of its mean diagonal.
    heads = {**heads, 'construction': head, 'weighted': weighted_head(head, columns, errors, s.converged.ridge)}
  accuracy = {}
  for name, reads in READS.items():
    if name.startswith('converged') and reads in probs:
      heads[name] = converged_head(probs[reads][train], labels[train], num_classes=2, **vars(s.converged)).head
    if name in heads:
      scores = read[reads][test] @ heads[name].weights + heads[name].bias
      accuracy[name] = float((scores.argmax(-1) == labels[test]).mean())
  behind = {name: of[test] for name, of in probs.items() if name != 'built' and problem.reader.any()}
  return {
    'kl': mean_kl(problem.ideal_after(None), probs['without']),
    'majority_accuracy': float(tasks.majority_accuracy(labels[train], labels[test])),
    'accuracy': accuracy,
    'mass': {name: float((of @ problem.reader).mean()) for name, of in behind.items()},
  }


def prepared(records: pd.DataFrame) -> pd.DataFrame:
  """The records with their `perturbation` in words: the damage of the HMM if there is one, otherwise the error of G."""
  error = records['error'].replace('bert', 'BERT steps')
  damage = records['damage'] + ' ' + records['degree'].map('{:g}'.format)
  return records.assign(perturbation=error.where(records['damage'] == '', damage).str.replace('_', ' '))


def accuracies(records: pd.DataFrame) -> pd.DataFrame:
  """Accuracies in percent on the theorems' tasks, a row for each condition and HMM, a column for each reader."""
  own = select(prepared(records), kind='task').set_index([*_CONDITION, 'hmm'])
  shares = pd.DataFrame(list(own['accuracy']), own.index, [*READERS]).rename(columns=READERS)
  return 100 * shares.rename_axis(columns='reader').assign(majority=own['majority_accuracy'])


def masses(records: pd.DataFrame) -> pd.DataFrame:
  """Masses on H* in percent, of models with a control: a row for each HMM, a column for each prompt."""
  whole = select(prepared(records), theorem='3.6', damage='').set_index([*_MODEL, 'hmm', 'kind'])
  by_kind = pd.DataFrame(list(whole['mass']), whole.index).unstack('kind')[[*PROMPTS]].dropna()
  return 100 * by_kind.set_axis(pd.Index(PROMPTS.values(), name='prompt'), axis=1)


def tables(records: pd.DataFrame, settings: DegradationSettings) -> dict[str, Table]:
  """Accuracies and masses on H*, and their paired differences: of readers, of perturbations and of prompts."""
  percent, mass = accuracies(records), masses(records)
  own = select(prepared(records), kind='task')
  kl = means(own, _CONDITION, 'kl', ['hmm'], lambda values: f'{values.mean():z.3f}')
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
  """Accuracy against the error of the model for each theorem, and the mass on H* behind each prompt."""
  same: dict[str, Any] = dict(unit=['hmm'], over='HMMs', cell=interval, panel='panel')
  of_caption = records[['experiment', 'scale', 'seed']].iloc[0]
  shown = accuracies(records)[[*_STYLES]].stack().rename('accuracy').reset_index()
  shown = shown[shown['perturbation'].isin(['noise', 'BERT steps'])]
  shown = shown.assign(**of_caption, panel='Theorem ' + shown['theorem'] + ', ' + shown['perturbation'])
  mass = masses(records).stack().rename('mass').reset_index()
  mass = mass.assign(
    **of_caption,
    panel=mass['perturbation'] + ' = ' + mass['level'].map('{:g}'.format),
    prompt=mass['prompt'].str.replace(' ', '\n', n=1),
  )
  drawn = {
    'degradation': figures_lib.lines(
      shown,
      settings.figure,
      'Accuracy on a model with an error',
      x='level',
      by='reader',
      style=lambda name: dict(label=name, **_STYLES[name]),
      xlabel='KL(G || model) at the [MASK] in nats; of a BERT, steps',
      **same,
    ),
    'mass': figures_lib.lines(
      mass,
      settings.figure,
      'Posterior mass on H* behind each prompt',
      x='prompt',
      by='panel',
      field='mass',
      style=lambda name: dict(label=f'_{name}', color='#CC79A7', marker='P', linestyle='none'),
      xlabel='prompt',
      ylabel='posterior mass (%)',
      **same,
    ),
  }
  return {name: figure for name, figure in drawn.items() if figure}


STUDY = Study(in_parts(parts), tables, figures)
