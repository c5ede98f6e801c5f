"""Random HMMs with more states than tokens: is any linear head right, what do trained heads and prompts reach?

Two kinds of draw, a fixed number of each. `sparse`: exact zeros, so that Theorem 3.6 may apply. `paper`: the paper's
draw of a chain and of mu at the sizes of the settings. Its transition matrix mixes few permutations, so that much of it
is exactly 0; its first law is dense, and so are its emissions but for those that float32 rounds to 0.

The inputs are all texts of one length, each with its exact probability. Statements on linear heads cover all of them
but near ties. Training sees texts sampled from the HMM. Accuracies are probabilities: of a fresh text, and of one that
training has not seen.
"""

from collections.abc import Iterator
import dataclasses
from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import batched_tuning
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory import prevalence
from experiments.studies.theory.settings import ImpossibilitySettings, TheorySettings
from hmm_jax.distributions.hmm import HMM
from hmm_jax.models.model import ExactModel
from hmm_jax.theory import certificates, enumeration, theorems
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.enumeration import Texts
from hmm_jax.theory.problem import generator, sparse_probs, StateProblem
from hmm_jax.tuning import optimum, separability

# Rounding errors of a constructed head, as a share of its largest entry.
_ROUNDING = 1e-12
# Methods scored: the linear program's head, logistic regression at its optimum, both ways of tuning, Theorem 3.6; and
# where the latter is wrong by more than rounding.
METHODS = ('program', 'converged', 'head', 'prompt', 'construction', 'construction_wrong')


class SampledProblem(NamedTuple):
  """One HMM and its task.

  Attributes:
    problem: its label is about the masked first state, P[H_1].
    texts: all possible ones but near ties.
    numbers: [n], their places among all texts of their length.
    known: fields of the record: its names, and findings on linear heads.
    head: of the linear program.
    sample: [num_train], the training texts, by their places in `texts`.
  """

  problem: StateProblem
  texts: Texts
  numbers: np.ndarray
  known: Record
  head: np.ndarray
  sample: np.ndarray


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A row for each HMM: findings on linear heads and, where labels differ, the accuracy of each method."""
  s, drawn = settings.impossibility, list[SampledProblem]()
  *keys, key_tuning = jax.random.split(key, 3)
  with reporter.track('linear heads', 2 * s.num_hmms) as advance:
    for kind, key_kind in zip(('sparse', 'paper'), keys):
      for number, key_hmm in enumerate(jax.random.split(key_kind, s.num_hmms)):
        pair = _sparse(s, key_hmm) if kind == 'sparse' else prevalence.draw(s, 'chain', s.num_states, key_hmm)
        hmm, task_weights = jax.tree.map(np.float64, pair)
        # The task is on the masked first state itself.
        sampled = StateProblem(hmm, np.asarray(hmm.initial_probs), task_weights)
        drawn.append(_examined(settings, {'kind': kind, 'hmm': number}, sampled, jax.random.fold_in(key_hmm, 1)))
        advance(len(drawn), f'last HMM: {drawn[-1].known["outcome"]}')
  varies = lambda sampled: sampled.known['outcome'] != 'constant'
  tuned = _tuned(s, [*filter(varies, drawn)], key_tuning, reporter)
  return [
    sampled.known | _scored(sampled, _right(settings, sampled, next(tuned)) if varies(sampled) else {})
    for sampled in drawn
  ]


def _sparse(s: ImpossibilitySettings, key: Array) -> tuple[HMM, np.ndarray]:
  """An HMM with exact zeros; mu weighs few states."""
  rng = generator(key)
  hmm = HMM(
    rng.dirichlet(np.ones(s.num_states)),
    sparse_probs(rng, s.num_states, s.num_states),
    sparse_probs(rng, s.num_states, s.num_tokens),
  )
  task_weights = np.zeros((2, s.num_states))
  task_weights[0, rng.choice(s.num_states, s.num_weighed, replace=False)] = rng.standard_normal(s.num_weighed)
  return hmm, task_weights


def _examined(settings: TheorySettings, names: Record, problem: StateProblem, key: Array) -> SampledProblem:
  """The texts of a problem without near ties, a linear head or a proof on them, and training texts drawn by `key`."""
  s = settings.impossibility
  texts = enumeration.possible_texts(problem, s.length)
  is_clear = texts.gaps > settings.margin
  near_ties, texts = texts.probs[~is_clear].sum(), texts.selected(is_clear)
  decision = certificates.decide(problem, texts, settings.margin)
  sample = generator(key).choice(len(texts.probs), s.num_train, p=texts.probs / texts.probs.sum())
  proof = decision.proof
  known = {
    **names,
    'outcome': decision.outcome,
    'near_ties': float(near_ties),
    'proof_texts': len(np.unique(proof.pairs[:, 0])) if proof else None,
    'least_error': decision.least_error if proof else None,
  }
  numbers = texts.tokens @ s.num_tokens ** np.arange(s.length)[::-1]
  return SampledProblem(problem, texts, numbers, known, decision.head, sample)


def _scored(sampled: SampledProblem, right: dict[str, np.ndarray]) -> Record:
  """The accuracy of each method on a fresh text and on one that training has not seen; None if there is none."""
  probs, labels, row = sampled.texts.probs, sampled.texts.labels, Record()
  is_unseen = ~np.isin(np.arange(len(probs)), sampled.sample)
  for scored_on, weights in (('fresh', probs), ('unseen', np.where(is_unseen, probs, 0))):
    total = weights.sum()
    shares = {'probability': float(total / probs.sum())} | dict.fromkeys(('majority', *METHODS))
    if right and total:
      shares['majority'] = float(max(weights[labels == label].sum() for label in (0, 1)) / total)
      shares |= {name: float(weights[is_right].sum() / total) for name, is_right in right.items()}
    row |= {f'{scored_on}_{name}': value for name, value in shares.items()}
  return row


def _right(settings: TheorySettings, sampled: SampledProblem, tuned: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Texts that each method has right, [n], by method."""
  texts, chosen = sampled.texts, sampled.texts.selected(sampled.sample)
  # Logistic regression at its optimum, which training may not have reached.
  optimisation = dataclasses.asdict(settings.impossibility.converged)
  head = optimum.converged_head(chosen.features, chosen.labels, num_classes=2, **optimisation).head
  return {
    **{method: labels[sampled.numbers] == texts.labels for method, labels in tuned.items()},
    'program': separability.surely_right(texts.features, texts.labels, sampled.head),
    'converged': (texts.features @ head.weights + head.bias).argmax(-1) == texts.labels,
    **_constructed(settings, sampled),
  }


def _constructed(settings: TheorySettings, sampled: SampledProblem) -> dict[str, np.ndarray]:
  """Texts on which Theorem 3.6's head is right on the exact G_2 after its prompt, and wrong beyond rounding.

  {} where the theorem does not apply. Scores within rounding are ties, and so of class 0, as they are by definition
  where mu weighs no possible state.
  """
  hmm, length = sampled.problem.hmm, settings.impossibility.length
  try:
    built = theorems.construct('3.6', sampled.problem, length, settings.criteria)
  except AssumptionError:
    return {}
  after_prompt = (built['prompt'][0] * hmm.initial_probs) @ hmm.transition_matrix
  features = enumeration.first_predictions(hmm, after_prompt, length)[sampled.numbers]
  contrast = built['head'].weights @ [1, -1]
  ahead, unsure = features @ contrast, _ROUNDING * np.abs(contrast).max() * features.sum(-1)
  says_one, is_one = ahead < -unsure, sampled.texts.labels == 1
  return {'construction': says_one == is_one, 'construction_wrong': np.where(is_one, ahead > unsure, says_one)}


def _tuned(
  s: ImpossibilitySettings, drawn: list[SampledProblem], key: Array, reporter: Reporter
) -> Iterator[dict[str, np.ndarray]]:
  """For each problem the labels [V^T] of every text, by method tuned on its sample."""
  if not drawn:
    return
  every = np.pad(enumeration.all_texts(s.num_tokens, s.length), ((0, 0), (1, 0)), constant_values=s.num_tokens)
  inputs = np.broadcast_to(every, (len(drawn), *every.shape))
  frozen = batched_tuning.stacked([batched_tuning.float32(sampled.problem.hmm) for sampled in drawn])
  samples = np.stack([sampled.numbers[sampled.sample] for sampled in drawn])
  labels = np.stack([sampled.texts.labels[sampled.sample] for sampled in drawn]).astype(np.int32)
  predicted = {}
  for method, tuner in batched_tuning.tuners(ExactModel(s.num_tokens), s).items():
    features = batched_tuning.features(tuner, frozen, inputs)
    of_samples = np.take_along_axis(features, samples[..., None], axis=1)
    name = f'{method} on {len(drawn)} HMMs'
    _, trained = batched_tuning.train(tuner, s.tuning.schedule, frozen, of_samples, labels, key, name, reporter)
    predicted[method] = batched_tuning.scores(tuner, trained, frozen, features).argmax(-1)
  yield from (dict(zip(predicted, of_problem)) for of_problem in zip(*predicted.values()))
