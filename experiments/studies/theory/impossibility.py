"""Random HMMs with more states than tokens: is any linear head right, what do trained heads and prompts reach?

Two kinds of draw, a fixed number of each. `sparse`: exact zeros, so that Theorem 3.6 may apply. `paper`: the paper's
draw of a chain and of mu at the sizes of the settings; a mixture of few permutations leaves much of its transition
matrix exactly 0; its first law is dense, and so are its emissions but for those that float32 rounds to 0.

The inputs are all texts of one length, each with its exact probability. What is said of linear heads speaks of all of
them, near ties apart; training sees texts that the HMM was sampled for; and accuracies are probabilities, of a fresh
text and of one that training has not seen.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import batched_tuning
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory import prevalence
from experiments.studies.theory.settings import ImpossibilitySettings, TheorySettings
from hmm_jax import converged
from hmm_jax.hmm import HMM
from hmm_jax.model import ExactModel
from hmm_jax.theory.exact.problem import generator, sparse_probs, StateProblem
from hmm_jax.theory.limits import certificates, separability
from hmm_jax.theory.problems import enumeration
from hmm_jax.theory.problems.enumeration import Texts
from hmm_jax.theory.theorems import theorems
from hmm_jax.theory.theorems.assumptions import AssumptionError

# Rounding errors of a constructed head, as a share of its largest entry.
_ROUNDING = 1e-12
# What is scored: the linear program's head, logistic regression at its optimum, both ways of tuning, Theorem 3.6; and
# where the latter is wrong by more than rounding.
METHODS = ('program', 'converged', 'head', 'prompt', 'construction', 'construction_wrong')


class SampledProblem(NamedTuple):
  """One HMM and its task.

  Attributes:
    problem: its label speaks of P[H_1], that of the masked first state.
    texts: all that have probability and whose label no near tie decides.
    known: what is known of linear heads on them, as on record.
    head: of the linear program.
    sample: [num_train], the training texts, by their numbers in `texts`.
  """

  problem: StateProblem
  texts: Texts
  known: Record
  head: np.ndarray
  sample: np.ndarray


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A row for each HMM: what is known of linear heads and, where labels differ, how often each method is right."""
  s, drawn, rows = settings.impossibility, list[SampledProblem](), list[Record]()
  key_sparse, key_paper, key_tuning = jax.random.split(key, 3)
  with reporter.track('linear heads', 2 * s.num_hmms) as advance:
    for kind, draw, key_kind in (('sparse', _sparse, key_sparse), ('paper', _paper, key_paper)):
      for number, key_one in enumerate(jax.random.split(key_kind, s.num_hmms)):
        hmm, task_weights = draw(s, key_one)
        # The task is on the masked first state itself.
        problem = StateProblem(hmm, np.asarray(hmm.initial_probs), task_weights, drawn=1)
        drawn.append(_examined(settings, problem, jax.random.fold_in(key_one, 1)))
        rows.append({'kind': kind, 'hmm': number, **drawn[-1].known})
        advance(len(drawn), f'{sum(row["outcome"] == "certified" for row in rows)} certified')
  right = _right(settings, [one for one in drawn if one.known['outcome'] != 'constant'], key_tuning, reporter)
  return [{**row, **_scored(one, {} if row['outcome'] == 'constant' else next(right))} for row, one in zip(rows, drawn)]


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


def _paper(s: ImpossibilitySettings, key: Array) -> tuple[HMM, np.ndarray]:
  """The paper's draw."""
  return jax.tree.map(np.float64, prevalence.draw(s, 'chain', s.num_states, key))


def _examined(settings: TheorySettings, problem: StateProblem, key: Array) -> SampledProblem:
  s = settings.impossibility
  texts = enumeration.possible_texts(problem, s.length)
  is_clear = texts.gaps > settings.margin
  near_ties, texts = texts.probs[~is_clear].sum(), texts.where(is_clear)
  decision = certificates.decide(problem, texts, settings.margin, s.max_proofs)
  sample = generator(key).choice(len(texts.probs), s.num_train, p=texts.probs / texts.probs.sum())
  proof = decision.proof
  known = {
    'outcome': decision.outcome,
    'texts': len(texts.labels),
    'near_ties': float(near_ties),
    'proof_texts': len(np.unique(proof.pairs[:, 0])) if proof else None,
    'least_error': decision.least_error if proof else None,
  }
  return SampledProblem(problem, texts, known, decision.head, sample)


def _scored(one: SampledProblem, right: dict[str, np.ndarray]) -> Record:
  """The accuracy of each method on a fresh text and on one that training has not seen; None where there is none."""
  probs, is_unseen = one.texts.probs, ~np.isin(np.arange(len(one.texts.probs)), one.sample)
  weights = {'fresh': probs, 'unseen': np.where(is_unseen, probs, 0)}
  scored = {scored_on: _shares(one.texts, of_texts, right) for scored_on, of_texts in weights.items()}
  return {f'{scored_on}_{name}': value for scored_on, shares in scored.items() for name, value in shares.items()}


def _shares(texts: Texts, weights: np.ndarray, right: dict[str, np.ndarray]) -> Record:
  """Share of the weight that each method has right, with that of the commonest label and of the weight."""
  total = weights.sum()
  share = lambda part: float(part / total) if right and total else None
  return {
    'probability': float(total / texts.probs.sum()),
    'majority': share(max(weights[texts.labels == label].sum() for label in (0, 1))),
    **{name: share(weights[right[name]].sum()) if name in right else None for name in METHODS},
  }


def _right(
  settings: TheorySettings, drawn: list[SampledProblem], key: Array, reporter: Reporter
) -> Iterator[dict[str, np.ndarray]]:
  """Texts of each problem that each method has right, [n], by method."""
  s = settings.impossibility
  tuned = _tuned(s, drawn, key, reporter) if drawn else {}
  for place, one in enumerate(drawn):
    texts, numbers = one.texts, _numbers(one.texts.tokens, s.num_tokens)
    yield {
      **{method: labels[place, numbers] == texts.labels for method, labels in tuned.items()},
      'program': separability.surely_right(texts.features, texts.labels, one.head),
      'converged': _converged(s, one),
      **_constructed(settings, one),
    }


def _converged(s: ImpossibilitySettings, one: SampledProblem) -> np.ndarray:
  """Labels by the converged head, logistic regression at its optimum, which training may not have reached."""
  texts = one.texts
  found = converged.converged_head(
    texts.features[one.sample],
    texts.labels[one.sample],
    num_classes=2,
    ridge=s.ridge,
    tolerance=s.head_tolerance,
    max_iterations=s.max_head_iterations,
  )
  return (texts.features @ found.head.weights + found.head.bias).argmax(-1) == texts.labels


def _constructed(settings: TheorySettings, one: SampledProblem) -> dict[str, np.ndarray]:
  """Theorem 3.6: where its head is right on the exact G_2 after its prompt, and where it is wrong beyond rounding.

  Nothing where it does not apply. Scores that rounding may have decided are a tie, and so of class 0, as they are by
  definition where mu weighs no possible state.
  """
  try:
    built = theorems.construct('3.6', one.problem, settings.impossibility.length, settings.limits)
  except AssumptionError:
    return {}
  hmm, texts = one.problem.hmm, one.texts
  after_prompt = (built['prompt'][0] * hmm.initial_probs) @ hmm.transition_matrix
  predictions = enumeration.first_predictions(hmm, after_prompt, settings.impossibility.length)
  features = predictions[_numbers(texts.tokens, hmm.num_tokens)]
  contrast = built['head'].weights @ [1, -1]
  ahead, unsure = features @ contrast, _ROUNDING * np.abs(contrast).max() * features.sum(-1)
  says_one, is_one = ahead < -unsure, texts.labels == 1
  return {'construction': says_one == is_one, 'construction_wrong': np.where(is_one, ahead > unsure, says_one)}


def _tuned(
  s: ImpossibilitySettings, drawn: list[SampledProblem], key: Array, reporter: Reporter
) -> dict[str, np.ndarray]:
  """Labels [problems, V^T] of every text, by method, of what was tuned on the sample of each problem."""
  every = np.pad(enumeration.all_texts(s.num_tokens, s.length), ((0, 0), (1, 0)), constant_values=s.num_tokens)
  inputs = np.broadcast_to(every, (len(drawn), *every.shape))
  frozen = batched_tuning.stacked([batched_tuning.float32(one.problem.hmm) for one in drawn])
  samples = np.stack([_numbers(one.texts.tokens[one.sample], s.num_tokens) for one in drawn])
  labels = np.stack([one.texts.labels[one.sample] for one in drawn]).astype(np.int32)
  found = {}
  for method, tuner in batched_tuning.tuners(ExactModel(s.num_tokens), s).items():
    features = batched_tuning.features(tuner, frozen, inputs)
    of_samples = np.take_along_axis(features, samples[..., None], axis=1)
    name = f'{method} on {len(drawn)} HMMs'
    _, trained = batched_tuning.train(tuner, s.tuning.schedule, frozen, of_samples, labels, key, name, reporter)
    found[method] = batched_tuning.scores(tuner, trained, frozen, features).argmax(-1)
  return found


def _numbers(tokens: np.ndarray, num_tokens: int) -> np.ndarray:
  """The place of texts [n, T] among all of their length."""
  return tokens @ num_tokens ** np.arange(tokens.shape[1])[::-1]
