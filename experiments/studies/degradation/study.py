"""The study of degradation: each theorem on the exact G made worse, or along the pretraining of BERTs."""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.analysis import figures
from experiments.analysis.report import show as show_text
from experiments.pipeline import pretraining
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.studies import runner as parts_lib
from experiments.studies.degradation import methods, models, problems, report
from experiments.studies.degradation.problems import Damage, Problem, UNDAMAGED
from experiments.studies.degradation.settings import DegradationSettings

Row = dict[str, Any]
# Of the floats of a record, which keeps it small.
_DIGITS = 7


class Condition(NamedTuple):
  """What was made worse: the HMM's own structure, and the model's G.

  Attributes:
    damage: of the HMM.
    error: of the model: 'noise', 'short_context', or 'bert'.
    level: the KL that the error is of, in nats, or the steps of pretraining.
  """

  damage: Damage
  error: str
  level: float

  def fields(self) -> Row:
    """Of a record."""
    return {'damage': self.damage.kind, 'degree': self.damage.degree, 'error': self.error, 'level': self.level}


def check(settings: DegradationSettings) -> None:
  """Raises SettingsError where this machine lacks what the settings ask for."""
  pretraining.check(settings.bert.model, 'bert.model')


def run(settings: DegradationSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs each model with each theorem that is missing."""
  makers = {'exact': exact_part, 'bert': bert_part}
  parts: dict[str, parts_lib.Part] = {
    f'{model}-{theorem}': functools.partial(_rounded, functools.partial(makers[model], theorem))
    for model in settings.models
    for theorem in problems.THEOREMS
  }
  parts_lib.run(settings, parts, workdir, reporter)


def show(settings: DegradationSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records and draws their figure."""
  records = results.load(workdir)
  show_text(report.render(records), workdir, reporter)
  reporter.say(figures.saved(report.draw(records, settings.figure), workdir / 'degradation'))


def conditions(s: DegradationSettings, theorem: str) -> list[Condition]:
  """Errors of the model on the HMM as it is, then each damage of the HMM with and without noise."""
  damages = {'3.3': ('singular_value', s.singular_values), '3.6': ('leak', s.leaks)}
  kind, degrees = damages[theorem]
  return [
    *(Condition(UNDAMAGED, 'noise', kl) for kl in s.noise_levels),
    *(Condition(UNDAMAGED, 'short_context', kl) for kl in s.short_context_levels),
    *(Condition(Damage(kind, degree), 'noise', kl) for degree in degrees for kl in s.noise_beside),
  ]


def exact_part(theorem: str, s: DegradationSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (condition, HMM); for Theorem 3.6 a control for each HMM too."""
  drawn, keys = _drawn(s, theorem, key)
  salts = [np.asarray(jax.random.bits(key, (), 'uint32')) for key in keys]
  model, rows = models.noisy_model(s), list[Row]()
  for condition in conditions(s, theorem):
    chosen = [versions[condition.damage] for versions in drawn]
    frozen = models.with_error(s, chosen, salts, condition.error, condition.level)
    rows += _labelled(theorem, condition, methods.measure(s, model, chosen, frozen, key, reporter))
  if theorem == '3.6':
    exact = Condition(UNDAMAGED, 'noise', 0.0)
    controls = [problems.about_other_states(s, versions[UNDAMAGED], key) for versions, key in zip(drawn, keys)]
    frozen = models.with_error(s, controls, salts, exact.error, exact.level)
    rows += _labelled(theorem, exact, methods.measure_prompt(s, model, controls, frozen, key, reporter), 'control')
  return rows


def bert_part(theorem: str, s: DegradationSettings, key: Array, reporter: Reporter) -> list[Row]:
  """Rows on BERTs: at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6, with the control.

  For 3.3 the theorem's head reads BERT's G. The prompt of 3.6 is a row over hidden states, which BERT has no place for.
  """
  drawn, keys = _drawn(s, theorem, key)
  chosen = [versions[UNDAMAGED] for versions in drawn]
  pretrained = [models.pretrained(s, problem, key, reporter) for problem, key in zip(chosen, keys)]
  model, rows = pretraining.tuned_model(s.bert.model.module(s.num_tokens)), list[Row]()
  if theorem == '3.6':
    chosen = [problem._replace(construction=None) for problem in chosen]
  for step in s.bert.checkpoints if theorem == '3.3' else s.bert.checkpoints[-1:]:
    frozen, condition = [params[step] for params in pretrained], Condition(UNDAMAGED, 'bert', step)
    rows += _labelled(theorem, condition, methods.measure(s, model, chosen, frozen, key, reporter))
    if theorem == '3.6':
      controls = [problems.about_other_states(s, problem, key) for problem, key in zip(chosen, keys)]
      measured = methods.measure_prompt(s, model, controls, frozen, key, reporter)
      rows += _labelled(theorem, condition, measured, 'control')
  return rows


def _drawn(s: DegradationSettings, theorem: str, key: Array) -> tuple[list[dict[Damage, Problem]], list[Array]]:
  """Every version of each HMM, and the keys that they were drawn by."""
  of_theorem = jax.random.fold_in(key, problems.THEOREMS[theorem])
  keys = [jax.random.fold_in(of_theorem, index) for index in range(s.num_hmms)]
  return [problems.draw(s, theorem, key) for key in keys], keys


def _labelled(theorem: str, condition: Condition, measured: list[Row], kind: str = 'task') -> list[Row]:
  """The rows of one condition, one for each HMM; `kind` says whether the task is the theorem's own or the control."""
  of = {'theorem': theorem, 'kind': kind, **condition.fields()}
  return [{**of, 'hmm': index, **row} for index, row in enumerate(measured)]


def _rounded(part: Any, *arguments: Any) -> list[Row]:
  """The rows with floats of so many digits as keeps records small."""
  return jax.tree.map(lambda x: float(f'{x:.{_DIGITS}g}') if isinstance(x, float) else x, part(*arguments))
