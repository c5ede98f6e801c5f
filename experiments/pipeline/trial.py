"""One trial: settings -> distribution -> corpus -> pretrained model -> tasks -> tuned head and prompt -> records."""

import contextlib
import dataclasses
from typing import Any, NamedTuple

import jax
from jax import Array

from experiments.own import code, data
from experiments.pipeline import distance, downstream as downstream_lib, pretraining, texts, tuning
from experiments.pipeline.job import FrozenModel, Job
from experiments.records import trials
from experiments.records.trials import Name, TrialFolder
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import NONE
from experiments.settings.trial import Trial
import hmm_jax
from hmm_jax._support import float64
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models import model as model_lib, sharding
from hmm_jax.models.model import MaskedLM


class Drawn(NamedTuple):
  """The draws of a trial, and what models of it are measured against."""

  distribution: Distribution
  downstream: downstream_lib.Downstream
  ideals: distance.Ideals


def run(folder: TrialFolder, missing: list[Name], reporter: Reporter) -> None:
  """Add the missing records of a trial to its folder.

  An interrupted run keeps what it had finished. Raises OutOfTime as pretraining does, and Lost if another process has
  taken the trial over.
  """
  trial, settings, clock = folder.trial, folder.trial.settings, reporter.clock
  with precisely():
    drawn = _drawn(trial, reporter)
    for (name, step), numbers_by_method in _pending(missing).items():
      model, params = _model(folder, drawn, name, step, reporter)
      frozen = FrozenModel(name, model, params, drawn.distribution)
      with clock.phase('measuring'):
        gap = distance.measure(model, params, drawn.ideals) if model else distance.UNMEASURED
        if step is not None:
          reporter.say(f'BERT after {step} steps')
          gap = {**gap, 'step': step, 'unigram_gap': distance.unigram_gap(drawn.ideals.at_mask)}
        if model and name == 'bert' and settings.shown_texts and step in (None, settings.pretrain.num_steps):
          shown = texts.shown(settings, drawn.distribution, drawn.downstream, model, params)
          trials.keep_texts(folder, shown)
      for method, numbers in numbers_by_method.items():
        with clock.phase('tuning'):
          outcome = tuning.tune(Job(trial, frozen, method, numbers, drawn.downstream, reporter))
        trials.add(folder, name, method, outcome, gap)


def precisely() -> contextlib.AbstractContextManager[None]:
  """A context with float32 matrix products, in which trials run: some accelerators round them by default."""
  return jax.default_matmul_precision('float32')


def _pending(missing: list[Name]) -> dict[tuple[str, int | None], dict[str, list[int]]]:
  """The numbers of the tasks of missing records, by model and step, and by method."""
  pending: dict[tuple[str, int | None], dict[str, list[int]]] = {}
  for task, model, method, step in missing:
    pending.setdefault((model, step), {}).setdefault(method, []).append(task)
  return pending


def distribution_of(trial: Trial) -> Distribution:
  """The distribution of a trial: the one that the user gives, or else a draw; raises ValueError if sizes do not fit."""
  # Computation follows a committed key: all that is exact runs on `float64_device`.
  device = sharding.float64_device()
  if 'distribution' in trial.own:
    return float64.on_device(trial.own['distribution'], device)
  return draw_distribution(trial.settings, trial.point, jax.device_put(trial.keys().distribution, device))


def draw_distribution(settings: Settings, point: Point, key: Array) -> Distribution:
  """The HMM or memory-augmented HMM drawn for a trial without `settings.distribution`."""
  drawn, memory = dataclasses.asdict(settings.hmm), settings.memory
  if not point.memory_size:
    return hmm_jax.random_hmm(key, point.num_states, **drawn)
  if memory.joint_permutations:
    drawn['num_permutations'] = point.joint_states
  drawn.update(num_cells=point.num_cells, joint_prior=memory.joint_prior)
  return hmm_jax.random_memory_hmm(key, point.memory_size, point.num_states, **drawn)


def _drawn(trial: Trial, reporter: Reporter) -> Drawn:
  """The draws of a trial."""
  distribution = distribution_of(trial)
  downstream = tasks_of(trial, distribution)
  # Labels alone speak of the states of matrices.
  distribution = data.plain(distribution)
  with reporter.clock.phase('measuring'):
    ideals = distance.ideals_of(trial, distribution, downstream)
  return Drawn(distribution, downstream, ideals)


def tasks_of(trial: Trial, distribution: Distribution) -> downstream_lib.Downstream:
  """The inputs and tasks of a trial; raises ValueError as `draw` does."""
  keys = trial.keys()
  rule = code.own_labels(trial) if trial.settings.label else None
  return downstream_lib.draw(trial.settings, distribution, keys.downstream, keys.tasks, rule)


def _model(
  folder: TrialFolder, drawn: Drawn, name: str, step: int | None, reporter: Reporter
) -> tuple[MaskedLM | None, Any]:
  """One of MODELS and its parameters, after `step` steps of its pretraining or at its end; a new one is built here."""
  settings = folder.trial.settings
  if name == NONE:
    return None, None
  if name == 'exact':
    return model_lib.ExactModel(settings.hmm.num_tokens, settings.bert.causal), drawn.distribution
  if name == 'own':
    return code.own_model(folder.trial, drawn.distribution)
  if name == 'other_bert':
    folder = folder._replace(trial=folder.trial.other)
    drawn = _drawn(folder.trial, reporter)
  home = _home(folder, drawn)
  if name == 'untrained':
    return home.model, pretraining.initial_params(home.run)
  return home.model, pretraining.pretrained_params(home, reporter, step)


def _home(folder: TrialFolder, drawn: Drawn) -> pretraining.Home:
  """The pretraining of a trial, and where it leaves its models."""
  settings, own = folder.trial.settings, folder.trial.own
  text = own.get('corpus_file', drawn.distribution)
  run = pretraining.planned(settings, text, folder.trial.keys().pretraining)
  return pretraining.home(settings, run, folder.pretrained_directory, drawn.ideals, own.get('pretrained_from'))
