"""Random HMMs with more states than tokens: proofs that no linear head is right, and prompts that repair it.

Two kinds of chain. `sparse`: exact zeros, so that Theorem 3.6 may apply; a construction is tried wherever the search
finds its sets. `paper`: the paper's dense draw, where no support is exact and only training can find a prompt. A proof
is a linear program's dual, confirmed in exact rational arithmetic on the floats of the HMM.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.progress import Reporter
from experiments.theory import evaluation
from experiments.theory import imperfection
from experiments.theory.settings import TheorySettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM
from hmm_jax.hmm import random_hmm
from hmm_jax.model import exact_model
from hmm_jax.theory import assumptions
from hmm_jax.theory import rationals
from hmm_jax.theory import recovery
from hmm_jax.theory import separability
from hmm_jax.theory import structured
from hmm_jax.theory.assumptions import AssumptionError

Array = jax.Array
Row = dict[str, Any]

_MAX_DRAWS = 400


class Impossible(NamedTuple):
  """An HMM for which no linear head on G_1 gives the labels of the masked first state.

  Attributes:
    hmm: float64.
    task_weights: mu [2, H].
    inputs: [n, 1 + T], (MASK, x) for the x whose label no near tie decides.
    labels: [n].
    separation: the linear program's answer.
    certified: whether the proof holds in exact arithmetic.
  """

  hmm: HMM
  task_weights: np.ndarray
  inputs: np.ndarray
  labels: np.ndarray
  separation: separability.Separation
  certified: bool


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each certified HMM: the certificate, and how often construction, trained head and prompt are right."""
  rows = []
  for kind in ('sparse', 'paper'):
    found, drawn = [], 0
    key_kind = jax.random.fold_in(key, len(kind))
    with reporter.track(f'certificates, {kind} draws', settings.impossibility.num_hmms) as advance:
      while len(found) < settings.impossibility.num_hmms and drawn < _MAX_DRAWS:
        problem = _examine(settings, kind, jax.random.fold_in(key_kind, drawn))
        drawn += 1
        found += [problem] if problem and problem.certified else []
        advance(len(found), f'{drawn} drawn')
    trained = _trained(settings, found, key_kind, reporter) if found else []
    for index, (problem, accuracies) in enumerate(zip(found, trained)):
      rows.append(
        {
          'kind': kind,
          'hmm': index,
          'drawn': drawn,
          'sequences': len(problem.labels),
          'certificate_size': len(problem.separation.weights),
          'residual': problem.separation.residual,
          'majority_accuracy': float(np.bincount(problem.labels).max() / len(problem.labels)),
          **_constructed(settings, problem),
          **accuracies,
        }
      )
  return rows


def _draw(settings: TheorySettings, kind: str, key: Array) -> tuple[HMM, np.ndarray]:
  s = settings.impossibility
  if kind == 'paper':
    key_hmm, key_task = jax.random.split(key)
    hmm = jax.tree.map(np.float64, random_hmm(key_hmm, s.num_states, s.num_tokens))
    return hmm, np.float64(tasks.draw_task_weights(key_task, s.num_states))
  rng = structured.generator(key)
  hmm = HMM(
    rng.dirichlet(np.ones(s.num_states)),
    structured.sparse_probs(rng, s.num_states, s.num_states),
    structured.sparse_probs(rng, s.num_states, s.num_tokens),
  )
  weighed = rng.choice(s.num_states, s.num_weighed, replace=False)
  task_weights = np.zeros((2, s.num_states))
  task_weights[0, weighed] = rng.standard_normal(s.num_weighed)
  return hmm, task_weights


def _examine(settings: TheorySettings, kind: str, key: Array) -> Impossible | None:
  """None where a linear head exists, or the labels are all one."""
  hmm, task_weights = _draw(settings, kind, key)
  tokens = evaluation.all_sequences(hmm.num_tokens, settings.impossibility.max_length)
  features, scores, possible = evaluation.first_predictions(hmm, task_weights, tokens)
  gaps = np.abs(scores[:, 0] - scores[:, 1])
  chosen = possible & (gaps > settings.impossibility.clear_gap)
  labels = scores.argmax(-1)[chosen]
  if len(set(labels.tolist())) < 2:
    return None
  separation = separability.linear_separation(features[chosen], labels, 2, settings.margin)
  if separation.separable:
    return None
  inputs = np.pad(tokens[chosen], ((0, 0), (1, 0)), constant_values=hmm.num_tokens)
  certified = _certified(hmm, task_weights, inputs, labels, separation)
  return Impossible(hmm, task_weights, inputs, labels, separation, certified)


def _certified(hmm, task_weights, inputs, labels, separation) -> bool:
  """Whether weights, labels and G of the certificate's inputs are right in exact arithmetic."""
  exact = rationals.exact_hmm(hmm)
  mu = rationals.exact(assumptions.contrasts(task_weights))
  chosen = sorted(set(separation.pairs[:, 0].tolist()))
  place = {index: number for number, index in enumerate(chosen)}
  features = []
  for index in chosen:
    rows = rationals.likelihood_rows(exact, inputs[index].tolist())
    states = rationals.state_probs(exact, rows, 0, leave_out=True)
    scores = mu @ states
    if (scores[0] >= scores[1]) != (labels[index] == 0):
      return False
    features.append(states @ exact.emission_matrix)
  pairs = [(place[index], other) for index, other in separation.pairs.tolist()]
  weights = separability.exact_certificate(features, labels[chosen], pairs, 2)
  return weights is not None and sum(weights) == Fraction(1)


def _constructed(settings: TheorySettings, problem: Impossible) -> Row:
  """Whether Theorem 3.6 applies, and whether its prompt and head are then right on every input."""
  hmm, mu = problem.hmm, problem.task_weights
  try:
    built = recovery.theorem_3_6(hmm, mu, hmm.initial_probs, settings.thresholds, settings.max_nodes)
  except AssumptionError as error:
    return {'construction_exists': False, 'construction': None, 'why_not': str(error)}
  result = evaluation.evaluate_states(hmm, hmm.initial_probs, mu, built, problem.inputs[:, 1:])
  right = float((result.constructed.argmax(-1) == problem.labels).mean())
  return {'construction_exists': True, 'construction': right, 'why_not': ''}


def _trained(settings: TheorySettings, problems: list[Impossible], key: Array, reporter: Reporter) -> list[Row]:
  """The accuracy of a trained head and of a trained prompt with its head on the very inputs they were trained on."""
  s = settings.impossibility
  model = exact_model(s.num_tokens)
  rng = structured.generator(key)
  # One shape for all: as many inputs for each, drawn again where there are fewer.
  drawn = [rng.permutation(np.resize(np.arange(len(p.labels)), s.num_train)) for p in problems]
  frozen = imperfection.stacked([imperfection.float32(p.hmm) for p in problems])
  inputs = jnp.stack([jnp.asarray(p.inputs[where], jnp.int32) for p, where in zip(problems, drawn)])
  labels = jnp.stack([jnp.asarray(p.labels[where], jnp.int32) for p, where in zip(problems, drawn)])
  tuners = imperfection.tuners_of(model, s.prompt_length, s.prompt_scale)
  accuracies = {}
  for method, tuner in tuners.items():
    name = f'{method} on {len(problems)} HMMs'
    *_, trained = imperfection.train(s.tuning.schedule, tuner, frozen, inputs, labels, key, reporter, name)
    accuracies[method] = imperfection.accuracies(tuner, trained, frozen, inputs, labels)
  return [{method: float(values[index]) for method, values in accuracies.items()} for index in range(len(problems))]
