"""Random HMMs with more states than tokens: proofs that no linear head is right, and prompts that repair it.

Two kinds of chain. `sparse`: exact zeros, so that Theorem 3.6 may apply; a construction is tried wherever the search
finds its sets. `paper`: the paper's dense draw, where no support is exact and only training can find a prompt. A proof
is a linear program's dual, confirmed in exact rational arithmetic on the floats of the HMM.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.progress import Reporter
from experiments.theory import problems
from experiments.theory import side_by_side
from experiments.theory.settings import TheorySettings
from hmm_jax import tasks
from hmm_jax.hmm import HMM
from hmm_jax.hmm import random_hmm
from hmm_jax.model import ExactModel
from hmm_jax.theory import certificates
from hmm_jax.theory import recovery
from hmm_jax.theory import scoring
from hmm_jax.theory import separability
from hmm_jax.theory import structured
from hmm_jax.theory.assumptions import AssumptionError

Array = jax.Array
Row = dict[str, Any]


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
    drawn = 0
    found: list[Impossible] = []
    key_kind = jax.random.fold_in(key, len(kind))
    with reporter.track(f'certificates, {kind} draws', settings.impossibility.num_hmms) as advance:
      while len(found) < settings.impossibility.num_hmms and drawn < settings.impossibility.max_draws:
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
    hmm = random_hmm(
      key_hmm,
      s.num_states,
      s.num_tokens,
      transition_temperature=s.transition_temperature,
      initial_temperature=s.initial_temperature,
      emission_temperature=s.emission_temperature,
    )
    drawn = tasks.draw_task_weights(key_task, s.num_states, num_nonzero=s.num_nonzero)
    return jax.tree.map(np.float64, hmm), np.asarray(drawn, np.float64)
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
  tokens = scoring.all_sequences(hmm.num_tokens, settings.impossibility.max_length)
  features, scores, possible = scoring.first_predictions(hmm, task_weights, tokens)
  chosen = possible & (scoring.score_gaps(scores) > settings.impossibility.clear_gap)
  labels = scores.argmax(-1)[chosen]
  if len(set(labels.tolist())) < 2:
    return None
  separation = separability.linear_separation(features[chosen], labels, 2, settings.margin)
  if separation.separable:
    return None
  inputs = np.pad(tokens[chosen], ((0, 0), (1, 0)), constant_values=hmm.num_tokens)
  certified = certificates.is_exact(hmm, hmm.initial_probs, task_weights, tokens[chosen], labels, separation)
  return Impossible(hmm, task_weights, inputs, labels, separation, bool(certified))


def _constructed(settings: TheorySettings, problem: Impossible) -> Row:
  """Whether Theorem 3.6 applies, and whether its prompt and head are then right on every input."""
  hmm, mu = problem.hmm, problem.task_weights
  try:
    built = recovery.theorem_3_6(hmm, mu, hmm.initial_probs, settings.thresholds, settings.max_nodes)
  except AssumptionError as error:
    return {'construction_exists': False, 'construction': None, 'why_not': str(error)}
  result = scoring.evaluate_states(hmm, hmm.initial_probs, mu, built, problem.inputs[:, 1:])
  right = float((result.constructed.argmax(-1) == problem.labels).mean())
  return {'construction_exists': True, 'construction': right, 'why_not': ''}


def _trained(settings: TheorySettings, found: list[Impossible], key: Array, reporter: Reporter) -> list[Row]:
  """The accuracy of a trained head and of a trained prompt with its head on the very inputs they were trained on."""
  s = settings.impossibility
  model = ExactModel(s.num_tokens)
  rng = structured.generator(key)
  # One shape for all: as many inputs for each, drawn again where there are fewer.
  drawn = [rng.permutation(np.resize(np.arange(len(p.labels)), s.num_train)) for p in found]
  frozen, inputs, labels = side_by_side.stacked(
    [(problems.float32(p.hmm), p.inputs[where], p.labels[where]) for p, where in zip(found, drawn)]
  )
  plain = side_by_side.predicted_without_prompt(model, frozen, inputs)
  tuners, schedule = side_by_side.tuners(model, s.prompt_length, s.prompt_scale), s.tuning.schedule
  learn = lambda method, features: side_by_side.train(
    tuners[method], schedule, frozen, features, labels, key, reporter, f'{method} on {len(found)} HMMs'
  )
  *_, head = learn('head', plain)
  *_, prompt = learn('prompt', inputs)
  prompted = side_by_side.predicted_at_mask(model, frozen, inputs, prompt['prompt'])
  of_head = side_by_side.accuracies(head['head'], plain, labels)
  of_prompt = side_by_side.accuracies(prompt['head'], prompted, labels)
  return [{'head': float(one), 'prompt': float(other)} for one, other in zip(of_head, of_prompt)]
