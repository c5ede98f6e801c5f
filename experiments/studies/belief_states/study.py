"""The study of belief states: by layer, along pretraining, patched and prompted, beside controls."""

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
import hmm_jax as hj
from hmm_jax.distributions.processes import mess3
from hmm_jax.models.model import ExactModel

# |H| and |M| as in memory_vs_vanilla.
_MEMORY = Point(4, 5, 1)


def _parts(s: BeliefSettings) -> dict[str, Part]:
  """A part for each pretraining, the first of every process before the second of any."""
  with_hmm = lambda **changes: dataclasses.replace(s, hmm=dataclasses.replace(s.hmm, **changes))
  processes: dict[str, tuple[Any, ...]] = {
    f'H{size}_T{temperature:g}': (with_hmm(emission_temperature=temperature), Point(size))
    for size, temperature in zip(s.num_states, s.temperatures)
  }
  processes |= {'mess3': (with_hmm(num_tokens=3), None), 'memory': (s, _MEMORY)}
  return {
    f'{name}_{number}': functools.partial(_part, name, number, *process)
    for number in range(s.num_trials)
    for name, process in processes.items()
  }


def _part(
  name: str, number: int, s: BeliefSettings, point: Point | None, of_all: BeliefSettings, key: Array, reporter: Reporter
) -> list[Row]:
  """The records of one pretraining on texts of a point, or on mess3."""
  key_hmm, key_pretraining, key_texts, key_probes = jax.random.split(key, 4)
  rows = list[Row]()

  def add(found: measure.Measured, design: str, step: int | None = None) -> None:
    same = {'process': name, 'hmm': number, 'design': design, 'step': step}
    rows.extend({**same, 'reader': reader, **fields} for reader, fields in found.items())

  with trial_lib.precisely():
    hmm = trial_lib.draw_distribution(s, point, key_hmm) if point else jax.tree.map(np.float32, mess3())
    texts = {
      design: measure.draw(s, hmm, design, 0 if point else -1, jax.random.fold_in(key_texts, index))
      for index, design in enumerate(measure.DESIGNS)
    }
    for design, drawn in texts.items():
      add(measure.exact(drawn) | measure.scores(measure.controls, drawn, key_probes), design)
    model, ends = pretraining.tuned_model(s.bert_module()), (0, s.checkpoints[-1])
    for step, params in pretraining.params_along(s, hmm, key_pretraining, (0, *s.checkpoints), reporter):
      params = jax.device_put(params)
      read = functools.partial(measure.layers, model, params)
      for design in texts if step in ends else ('pooled',):
        found = measure.prediction(texts[design], model, params) | measure.scores(read, texts[design], key_probes)
        add(found, design, step)
    fixed = texts['fixed']
    if point != _MEMORY:
      for layer, found in measure.patches(fixed, model, params, hmm, key_probes).items():
        add(found, f'{layer} patched')
    if point and s.hmm == of_all.hmm and point != _MEMORY:
      d, schedule = s.downstream, s.schedule('prompt')
      task = hj.draw_task(hmm, key_probes, length=d.length, num_train=d.num_train, num_test=d.num_test)
      for reader, its_params in (model, params), (ExactModel(hmm.num_tokens), hmm):
        tuned = hj.tune(reader, its_params, hmm, task, prompt_length=s.prompt.length, schedule=schedule)
        add(measure.prompted(fixed, reader, its_params, tuned.prompt), 'prompt')
  return rows


STUDY = Study(in_parts(_parts), report.tables, report.figures, checks.check_grid)
