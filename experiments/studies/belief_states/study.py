"""The study of belief states: by layer, along pretraining, patched and prompted, beside controls."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.pipeline import checks, pretraining, trial as trial_lib
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies.belief_states import measure, report
from experiments.studies.settings import BeliefSettings
from experiments.studies.study import in_parts, Part, Row, Study
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.processes import NAMED
from hmm_jax.models.model import ExactModel

# Hidden states beside a memory, as in memory_vs_vanilla.
_MEMORY_STATES = 4


def _parts(s: BeliefSettings) -> dict[str, Part]:
  """A part for each pretraining, the first of every process before the second of any."""
  draws = dict[str, Callable[[Array], Distribution]]()
  for size, temperature in zip(s.num_states, s.temperatures):
    of_temperature = _with_hmm(s, emission_temperature=temperature)
    draws[f'H{size}_T{temperature:g}'] = functools.partial(trial_lib.draw_distribution, of_temperature, Point(size))
  for name in s.named:
    draws[name] = functools.partial(_named, name)
  for size in s.memories:
    draws[f'M{size}'] = functools.partial(trial_lib.draw_distribution, s, Point(_MEMORY_STATES, size, 1))
  return {
    f'{name}_{number}': functools.partial(_part, name, number, draw)
    for number in range(s.num_trials)
    for name, draw in draws.items()
  }


def _named(name: str, key: Array) -> Distribution:
  return jax.tree.map(np.float32, NAMED[name]())


def _with_hmm(s: BeliefSettings, **changes: Any) -> BeliefSettings:
  return dataclasses.replace(s, hmm=dataclasses.replace(s.hmm, **changes))


def _part(
  name: str, number: int, draw: Callable[[Array], Distribution], s: BeliefSettings, key: Array, reporter: Reporter
) -> list[Row]:
  """The records of one pretraining."""
  key_hmm, key_pretraining, key_texts, key_probes = jax.random.split(key, 4)
  rows, is_named = list[Row](), name in s.named

  def add(found: measure.Measured, design: str, step: int | None = None) -> None:
    same = {'process': name, 'hmm': number, 'design': design, 'step': step}
    rows.extend({**same, 'measure': what, 'reader': reader, 'value': value} for (what, reader), value in found.items())

  with trial_lib.precisely():
    hmm, probings = draw(key_hmm), dict[str, measure.Probing]()
    for index, design in enumerate(measure.DESIGNS):
      texts = measure.draw(s, hmm, design, -is_named, jax.random.fold_in(key_texts, index))
      is_drawn = is_named and number == 0 and design == 'fixed' and texts.beliefs.shape[1] == 3
      probings[design] = measure.Probing(texts, s.num_texts, key_probes, is_drawn)
      add(measure.controls(probings[design], s.reach), design)
    s = _with_hmm(s, num_tokens=hmm.num_tokens)
    model, ends = pretraining.tuned_model(s.bert_module()), (0, s.checkpoints[-1])
    for step, params in pretraining.params_along(s, hmm, key_pretraining, s.checkpoints, reporter):
      params = jax.device_put(params)
      for design in measure.DESIGNS if step in ends else ('pooled',):
        add(measure.layers(probings[design], model, params), design, step)
    if not isinstance(hmm, MemoryHMM):
      add(measure.patches(probings['fixed'], model, params, hmm), 'patch')
    if name.endswith(f'_T{s.hmm.emission_temperature:g}'):
      add(measure.prompted(probings['fixed'], model, params, hmm, s), 'prompt')
      add(measure.prompted(probings['fixed'], ExactModel(hmm.num_tokens), hmm, hmm, s), 'prompt')
  return rows


STUDY = Study(in_parts(_parts), report.tables, report.figures, checks.check_grid)
