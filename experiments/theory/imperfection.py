"""How recovery degrades where the theorems say nothing: a noisy G, a nearly singular W, supports that leak.

Three ways to the label on the same inputs: the theorem's construction, a trained head, a trained prompt with its head.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.special

from experiments.progress import Reporter
from experiments.theory import problems
from experiments.theory import side_by_side
from experiments.theory.problems import Problem
from experiments.theory.settings import DegradationSettings
from experiments.theory.settings import TheorySettings
from hmm_jax.model import MaskedLM
from hmm_jax.theory import recovery
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.degradation import leaking
from hmm_jax.theory.degradation import Noisy
from hmm_jax.theory.degradation import NoisyModel
from hmm_jax.theory.degradation import with_smallest_singular_value

Array = jax.Array
Row = dict[str, Any]


class Case(NamedTuple):
  """A problem under a model.

  Attributes:
    problem: what is asked.
    frozen: the model's parameters.
    construction: of the theorem, as this model takes it; None, in all cases of one shape, where it has no place for it.
    fields: of its records.
    reader: a [V] with a^T G the mass on H*, where that is followed while a prompt is trained; else zeros.
  """

  problem: Problem
  frozen: Any
  construction: recovery.Construction | None
  fields: Row
  reader: np.ndarray


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (study, HMM, level, method): accuracy on test inputs, and the KL(G || model) at the [MASK]."""
  s, rows = settings.degradation, []
  for theorem, number in (('3.3', 33), ('3.6', 36)):
    cases, targets = [], []
    for index in range(s.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      for problem, kl, fields in _levels(settings, theorem, key_hmm):
        salt = np.asarray(jax.random.bits(key_hmm, (), 'uint32'))
        noisy = Noisy(problems.float32(problem.hmm), np.asarray(np.sqrt(2 * kl), np.float32), salt)
        followed = theorem == '3.6' and fields == {'study': 'noise', 'level': 0.0}
        reader = problems.mass_reader(settings, problem) if followed else np.zeros(s.num_tokens)
        fields = {'theorem': theorem, 'hmm': index, 'model': 'exact', **fields}
        cases.append(Case(problem, noisy, problem.construction, fields, reader))
        targets.append(kl)
    model = NoisyModel(s.num_tokens)
    rows += evaluate(s, model, _calibrated(s, model, cases, np.array(targets)), key, reporter)
  return rows


def _levels(settings: TheorySettings, theorem: str, key: Array) -> list[tuple[Problem, float, Row]]:
  """(problem, KL of the noise, study and level) of one HMM: each study from its mildest level on."""
  s = settings.degradation
  problem = problems.draw(settings, theorem, key)
  levels = [(problem, kl, {'study': 'noise', 'level': kl}) for kl in s.noise_levels]
  if theorem == '3.3':
    construct = problems.constructor(settings, theorem, settings.thresholds._replace(rank=0.0))
    for level in s.singular_values:
      hmm = with_smallest_singular_value(problem.hmm, level)
      worse = problems.make(s, hmm, problem.task_weights, construct, key)
      levels += [(worse, kl, {'study': 'singular_value', 'level': level}) for kl in (0.0, s.noise_beside)]
    return levels
  witness = problems.essential(settings, problem).witness
  for level in s.leaks:
    hmm = leaking(problem.hmm, witness['prompt_states'], witness['essential_states'], level)
    leak = 1.01 * level / (hmm.num_states - len(witness['essential_states']))
    construct = problems.constructor(settings, theorem, Thresholds(leak, settings.thresholds.rank))
    worse = problems.make(s, hmm, problem.task_weights, construct, key)
    levels.append((worse, 0.0, {'study': 'leak', 'level': level}))
  return levels


def _calibrated(s: DegradationSettings, model: MaskedLM, cases: list[Case], targets: np.ndarray) -> list[Case]:
  """The cases with noise of the given KL at the [MASK], to a percent or so."""
  for _ in range(s.num_calibrations):
    measured = _kls(cases, side_by_side.predicted_without_prompt(model, *_data(cases)[:2]))
    factors = np.sqrt(np.divide(targets, measured, out=np.zeros_like(targets), where=targets > 0))
    cases = [
      case._replace(frozen=case.frozen._replace(scale=np.float32(case.frozen.scale * factor)))
      for case, factor in zip(cases, factors)
    ]
  return cases


def _data(cases: list[Case]) -> tuple[Any, np.ndarray, np.ndarray]:
  """The parameters, inputs and labels of all cases, leading axis case."""
  return side_by_side.stacked([(case.frozen, case.problem.inputs, case.problem.labels) for case in cases])


def _kls(cases: list[Case], token_probs: np.ndarray) -> np.ndarray:
  """KL(G || model) at the [MASK] of all inputs, in nats, [cases]."""
  ideal = np.stack([case.problem.ideal for case in cases])
  probs = np.maximum(np.float64(token_probs), np.finfo(np.float32).tiny)
  return scipy.special.rel_entr(ideal, probs).sum(-1).mean(-1)


def evaluate(s: DegradationSettings, model: MaskedLM, cases: list[Case], key: Array, reporter: Reporter) -> list[Row]:
  """Rows of all three methods for cases of one shape, and of the mass on H* along the training of the prompt."""
  frozen, inputs, labels = _data(cases)
  train, test = slice(s.num_train), slice(s.num_train, None)
  plain = side_by_side.predicted_without_prompt(model, frozen, inputs)
  for case, kl in zip(cases, _kls(cases, plain)):
    case.fields['kl'] = float(kl)
  tuners, schedule = side_by_side.tuners(model, s.prompt_length, s.prompt_scale), s.tuning.schedule
  name = f'on {len(cases)} problems of {model.name} G'
  learn = lambda method, features: side_by_side.train(
    tuners[method], schedule, frozen, features[:, train], labels[:, train], key, reporter, f'{method} {name}'
  )
  *_, trained = learn('head', plain)
  rows = _rows('head', cases, side_by_side.accuracies(trained['head'], plain[:, test], labels[:, test]))
  followed = any(case.reader.any() for case in cases)
  for epoch, trained in enumerate(learn('prompt', inputs)):
    if followed or epoch == schedule.num_epochs:
      prompted = side_by_side.predicted_at_mask(model, frozen, inputs[:, test], trained['prompt'])
      right = side_by_side.accuracies(trained['head'], prompted, labels[:, test])
      rows += _masses(cases, epoch, plain[:, test], np.asarray(prompted), right)
  rows += _rows('prompt', cases, right)
  if cases[0].construction is None:
    return rows
  built = jax.tree.map(np.float32, side_by_side.stacked([case.construction for case in cases]))
  if 'prompt' in built:
    predicted = side_by_side.predicted_at_mask(model, frozen, inputs[:, test], built['prompt'])
  else:
    predicted = plain[:, test]
  return rows + _rows('construction', cases, side_by_side.accuracies(built['head'], predicted, labels[:, test]))


def _rows(method: str, cases: list[Case], accuracies: np.ndarray) -> list[Row]:
  return [{**case.fields, 'method': method, 'accuracy': float(value)} for case, value in zip(cases, accuracies)]


def _masses(cases: list[Case], epoch: int, plain: np.ndarray, prompted: np.ndarray, accuracies: np.ndarray):
  """The mean mass on H* at the [MASK] with and without the prompt, of the cases that are followed."""
  rows = []
  for case, without, with_prompt, accuracy in zip(cases, plain, prompted, accuracies):
    if case.reader.any():
      masses = {'mass_without': without @ case.reader, 'mass_with': with_prompt @ case.reader}
      values = {name: float(mass.mean()) for name, mass in masses.items()} | {'accuracy': float(accuracy)}
      rows.append({**case.fields, 'study': 'concentration', 'epoch': epoch, **values})
  return rows
