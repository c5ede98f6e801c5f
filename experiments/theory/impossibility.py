"""Random HMMs with more states than tokens: proofs that no linear head is right, and prompts that repair it.

Two kinds of chain. `sparse`: exact zeros in transitions and emissions, drawn so that Theorem 3.6 may apply. `paper`:
the paper's draw, whose transition matrix, a mixture of permutations, has exact zeros too. A construction is tried on
both, wherever the search finds its sets. A proof is a linear program's dual, confirmed in exact rational arithmetic on
the floats of the HMM.
"""

from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments import side_by_side
from experiments.progress import Reporter
from experiments.theory.settings import TheorySettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM, random_hmm
from hmm_jax.model import ExactModel
from hmm_jax.theory import certificates, scoring, separability, structured, texts, theorems
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.structured import StateProblem

Row = dict[str, Any]


class Impossible(NamedTuple):
  """A problem on the masked first state for which, by exact arithmetic, no linear head on G_1 gives the labels.

  Attributes:
    problem: float64; its label speaks of P[H_1].
    inputs: [n, 1 + T], (MASK, x) for the x whose label no near tie decides.
    labels: [n].
    separation: the proof.
  """

  problem: StateProblem
  inputs: np.ndarray
  labels: np.ndarray
  separation: separability.Separation


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each certified HMM: the certificate, and how often construction, trained head and prompt are right."""
  rows = []
  for kind in ('sparse', 'paper'):
    drawn = 0
    found: list[Impossible] = []
    key_kind = jax.random.fold_in(key, len(kind))
    with reporter.track(f'certificates, {kind} draws', settings.impossibility.num_hmms) as advance:
      while len(found) < settings.impossibility.num_hmms and drawn < settings.impossibility.max_draws:
        found += _certified(settings, kind, jax.random.fold_in(key_kind, drawn))
        drawn += 1
        advance(len(found), f'{drawn} drawn')
    trained = _trained(settings, found, key_kind, reporter) if found else []
    for index, (one, accuracies) in enumerate(zip(found, trained)):
      rows.append(
        {
          'kind': kind,
          'hmm': index,
          'drawn': drawn,
          'sequences': len(one.labels),
          'certificate_size': len(one.separation.weights),
          'residual': one.separation.residual,
          'majority_accuracy': float(np.bincount(one.labels).max() / len(one.labels)),
          **_constructed(settings, one),
          **accuracies,
        }
      )
  return rows


def _draw(settings: TheorySettings, kind: str, key: Array) -> StateProblem:
  s = settings.impossibility
  if kind == 'paper':
    key_hmm, key_task = jax.random.split(key)
    drawn = random_hmm(key_hmm, s.num_states, s.num_tokens, **s.temperatures)
    mu = tasks.draw_task_weights(key_task, s.num_states, num_nonzero=s.num_nonzero)
    hmm, task_weights = jax.tree.map(np.float64, (drawn, mu))
  else:
    rng = structured.generator(key)
    hmm = HMM(
      rng.dirichlet(np.ones(s.num_states)),
      structured.sparse_probs(rng, s.num_states, s.num_states).astype(float),
      structured.sparse_probs(rng, s.num_states, s.num_tokens).astype(float),
    )
    weighed = rng.choice(s.num_states, s.num_weighed, replace=False)
    task_weights = np.zeros((2, s.num_states))
    task_weights[0, weighed] = rng.standard_normal(s.num_weighed)
  return StateProblem(hmm, hmm.initial_probs, task_weights, drawn=1)


def _certified(settings: TheorySettings, kind: str, key: Array) -> list[Impossible]:
  """One draw; none where the labels are all one, a linear head exists, or the proof is not exact."""
  problem = _draw(settings, kind, key)
  tokens = texts.all_sequences(problem.hmm.num_tokens, settings.impossibility.max_length)
  features, scores, possible = scoring.first_predictions(problem, tokens)
  chosen = possible & (scoring.score_gaps(scores) > settings.impossibility.clear_gap)
  labels = scores.argmax(-1)[chosen]
  if len(set(labels.tolist())) < 2:
    return []
  separation = separability.linear_separation(features[chosen], labels, 2, settings.margin)
  if separation.separable or not certificates.is_exact(problem, tokens[chosen], labels, separation):
    return []
  inputs = np.pad(tokens[chosen], ((0, 0), (1, 0)), constant_values=problem.hmm.num_tokens)
  return [Impossible(problem, inputs, labels, separation)]


def _constructed(settings: TheorySettings, found: Impossible) -> Row:
  """Whether Theorem 3.6 applies, and whether its prompt and head are then right on every input."""
  tokens = found.inputs[:, 1:]
  try:
    result = theorems.evaluator('3.6', found.problem, tokens.shape[1], settings.limits)(tokens)
  except AssumptionError as error:
    return {'construction_exists': False, 'construction': None, 'why_not': str(error)}
  right = float((result.constructed.argmax(-1) == found.labels).mean())
  return {'construction_exists': True, 'construction': right, 'why_not': ''}


def _trained(settings: TheorySettings, found: list[Impossible], key: Array, reporter: Reporter) -> list[Row]:
  """The accuracy of a trained head and of a trained prompt with its head on the very inputs they were trained on."""
  s, rng = settings.impossibility, structured.generator(key)
  # One shape for all: as many inputs for each, drawn again where there are fewer.
  drawn = [rng.permutation(np.resize(np.arange(len(one.labels)), s.num_train)) for one in found]
  frozen, inputs, labels = side_by_side.stacked(
    [(side_by_side.float32(one.problem.hmm), one.inputs[where], one.labels[where]) for one, where in zip(found, drawn)]
  )
  accuracies = {}
  for method, tuner in side_by_side.tuners(ExactModel(s.num_tokens), s).items():
    seen = side_by_side.features(tuner, frozen, inputs)
    name = f'{method} on {len(found)} HMMs'
    *_, trained = side_by_side.train(tuner, s.tuning.schedule, frozen, seen, labels, key, name, reporter)
    accuracies[method] = (side_by_side.scores(tuner, trained, frozen, seen).argmax(-1) == labels).mean(-1)
  return [{method: float(values[index]) for method, values in accuracies.items()} for index in range(len(found))]
