"""The study of degradation: each theorem on the exact G made worse, or along the pretraining of BERTs."""

from collections.abc import Callable
import functools
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.pipeline import pretraining
from experiments.runtime.progress import Reporter
from experiments.studies.degradation import methods, models, problems
from experiments.studies.degradation.comparisons import tables
from experiments.studies.degradation.figure import draw
from experiments.studies.degradation.problems import Condition, Damage, DamagedProblem
from experiments.studies.degradation.settings import DegradationSettings
from experiments.studies.study import in_parts, Part, Row, Study
from hmm_jax.models.model import MaskedLM
from hmm_jax.theory.degradation import NoisyModel

# Significant digits of the floats of a record, which keeps it small.
_DIGITS = 7


def parts(settings: DegradationSettings) -> dict[str, Part]:
  """A part for each model and theorem."""
  return {
    f'{model}-{theorem}': functools.partial(_part, model, theorem)
    for model in settings.models
    for theorem in problems.THEOREMS
  }


def _part(model_name: str, theorem: str, s: DegradationSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A record for each condition and HMM; for Theorem 3.6 also one of the control in the first condition."""
  # Both models have the same problems.
  key_problems = jax.random.fold_in(key, problems.THEOREMS[theorem])
  keys = [jax.random.fold_in(key_problems, index) for index in range(s.num_hmms)]
  drawn = [problems.draw(s, theorem, key_hmm) for key_hmm in keys]
  model, conditions, frozen = {'exact': _exact, 'bert': _berts}[model_name](s, theorem, drawn, keys, reporter)
  if theorem == '3.6':
    conditions.append(conditions[0]._replace(kind='control'))
  records = []
  for condition in conditions:
    chosen, is_control = [of[condition.damage, condition.degree] for of in drawn], condition.kind == 'control'
    if is_control:
      chosen = [problems.about_other_states(s, problem, key_hmm) for problem, key_hmm in zip(chosen, keys)]
    rows = methods.measure(s, model, chosen, frozen(condition, chosen), key, reporter, is_control=is_control)
    records += [{**condition._asdict(), 'hmm': index, **row} for index, row in enumerate(rows)]
  return jax.tree.map(lambda x: float(f'{x:.{_DIGITS}g}') if isinstance(x, float) else x, records)


def _exact(
  s: DegradationSettings, theorem: str, drawn: list[dict[Damage, DamagedProblem]], keys: list[Array], reporter: Reporter
) -> tuple[MaskedLM, list[Condition], Callable[[Condition, list[DamagedProblem]], list[Any]]]:
  """The exact G with errors on the HMM as it is, then on each damaged HMM with and without noise.

  Returns:
    The model, the conditions, and a function of a condition and its problems, one for each HMM, that makes parameters.
  """
  whole, *damaged = drawn[0]
  levels = {(whole, 'noise'): s.noise_levels, (whole, 'short_context'): s.short_context_levels}
  levels |= {(damage, 'noise'): s.noise_beside for damage in damaged}
  conditions = [Condition(theorem, *damage, error, kl) for (damage, error), kls in levels.items() for kl in kls]
  salts = [np.asarray(jax.random.bits(key, (), 'uint32')) for key in keys]
  model = NoisyModel(s.num_tokens, s.reach)
  return model, conditions, functools.partial(models.with_error, s, model, salts)


def _berts(
  s: DegradationSettings, theorem: str, drawn: list[dict[Damage, DamagedProblem]], keys: list[Array], reporter: Reporter
) -> tuple[MaskedLM, list[Condition], Callable[[Condition, list[DamagedProblem]], list[Any]]]:
  """The results of `_exact`, of BERTs: at every checkpoint for Theorem 3.3, at the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. The prompt of 3.6 is a row over hidden states, which BERT cannot take.
  """
  whole, steps = problems.UNDAMAGED, s.bert.checkpoints
  pretrained = [models.pretrained(s, versions[whole], key, reporter) for versions, key in zip(drawn, keys)]
  if theorem == '3.6':
    steps = steps[-1:]
    for versions in drawn:
      versions[whole] = versions[whole]._replace(construction=None)
  conditions = [Condition(theorem, *whole, 'bert', step) for step in steps]
  model = pretraining.tuned_model(s.bert.model.module(s.num_tokens))
  return model, conditions, lambda condition, _: [params[condition.level] for params in pretrained]


STUDY = Study(
  in_parts(parts),
  tables,
  figures=lambda records, settings: draw(records, settings.figure),
  check=lambda settings: pretraining.check_attention(settings.bert.model, 'bert.model'),
)
