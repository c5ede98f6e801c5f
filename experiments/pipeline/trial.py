"""One trial: settings -> distribution -> corpus -> pretrained model -> tasks -> tuned head and prompt -> records."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.own import code, data
from experiments.pipeline import distance, downstream as downstream_lib, pretraining, texts, tuning
from experiments.records import trials
from experiments.records.trials import Name, TrialFolder
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import NONE
from experiments.settings.trial import Trial
import hmm_jax
from hmm_jax._support import compilation, float64
from hmm_jax.distributions.files import from_fields
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models import model as model_lib, sharding
from hmm_jax.models.model import MaskedLM

_jit = functools.partial(jax.jit, compiler_options=compilation.UNFUSED)
_random_hmm = _jit(hmm_jax.random_hmm, static_argnames=('num_states', 'num_tokens', 'num_permutations'))
_random_memory_hmm = _jit(
  hmm_jax.random_memory_hmm,
  static_argnames=('memory_size', 'num_states', 'num_tokens', 'num_cells', 'joint_prior', 'num_permutations'),
)


def draw_distribution(settings: Settings, point: Point, key: Array) -> Distribution:
  """The HMM or memory-augmented HMM drawn for a trial without `settings.distribution`."""
  drawn, memory = dataclasses.asdict(settings.hmm), settings.memory
  if not point.memory_size:
    return _random_hmm(key, point.num_states, **drawn)
  if memory.joint_permutations:
    drawn['num_permutations'] = point.joint_states
  drawn.update(num_cells=point.num_cells, joint_prior=memory.joint_prior)
  return _random_memory_hmm(key, point.memory_size, point.num_states, **drawn)


def drawn_distribution(trial: Trial) -> Distribution:
  """The distribution that a trial draws."""
  # Computation follows a committed key: all that is exact runs on `float64_device`.
  key = jax.device_put(trial.keys().distribution, sharding.float64_device())
  return draw_distribution(trial.settings, trial.point, key)


def precisely() -> contextlib.AbstractContextManager[None]:
  """A context with float32 matrix products, in which trials run: some accelerators round them by default."""
  return jax.default_matmul_precision('float32')


def draw(trial: Trial) -> tuple[Distribution, downstream_lib.Downstream]:
  """The distribution that a trial draws, and its inputs and tasks; needs no model."""
  distribution = drawn_distribution(trial)
  return distribution, tasks(trial, distribution)


def distribution_of(folder: TrialFolder) -> Distribution:
  """The distribution of a trial: the one that its workdir has of the user, or else a draw."""
  reference = folder.trial.settings.distribution
  if not reference:
    return drawn_distribution(folder.trial)
  return float64.on_device(from_fields(data.load(folder.workdir, reference)), sharding.float64_device())


def tasks(trial: Trial, distribution: Distribution) -> downstream_lib.Downstream:
  """The inputs and tasks of a trial; raises ValueError if every draw of mu gives all training inputs one label."""
  keys, point = trial.keys(), trial.point
  return downstream_lib.draw(trial.settings, point, trial.methods, distribution, keys.downstream, keys.tasks)


@functools.lru_cache(8)
def _drawn(*draws: Any) -> dict[str, Any]:
  """Tasks and ideals that recent trials with the same draws share, by name."""
  return {}


def _shared(name: str, trial: Trial, make: Callable[[], Any]) -> Any:
  """The result of `make`, or its result for a recent trial that shares the draws of this one."""
  shared = _drawn(trial.draws_id, trial.methods, trial.settings.tasks_per_trial)
  if name not in shared:
    shared[name] = make()
  return shared[name]


def shared_tasks(trial: Trial, distribution: Distribution) -> downstream_lib.Downstream:
  """The `tasks` of a trial, drawn once for trials that share them."""
  return _shared('tasks', trial, lambda: tasks(trial, distribution))


def run(folder: TrialFolder, missing: list[Name], reporter: Reporter) -> None:
  """Add the missing records of a trial to its folder.

  An interrupted run keeps what it had finished. Raises OutOfTime as pretraining does, and Lost if another process has
  taken the trial over.
  """
  trial, settings, clock = folder.trial, folder.trial.settings, reporter.clock
  with precisely():
    distribution = distribution_of(folder)
    downstream = shared_tasks(trial, distribution)
    with clock.phase('measuring'):
      ideals = _shared('ideals', trial, lambda: distance.ideals_of(trial, distribution, downstream))
    for name, step, numbers_by_method in _pending(trial, missing):
      model, params = _model(folder, name, step, distribution, ideals, reporter)
      frozen = tuning.FrozenModel(name, model, params, distribution)
      with clock.phase('measuring'):
        gap = distance.measure(settings, model, params, ideals) if model else distance.UNMEASURED
        if step is not None:
          reporter.say(f'BERT after {step} steps')
          gap = {**gap, 'step': step, 'unigram_gap': distance.unigram_gap(ideals)}
        if model and name == 'bert' and settings.shown_texts and step in (None, settings.pretrain.num_steps):
          trials.keep_texts(folder, texts.shown(settings, distribution, downstream, model, params))
      for method, numbers in numbers_by_method.items():
        with clock.phase('tuning'):
          outcome = tuning.tune(tuning.Job(trial, frozen, method, numbers, downstream), reporter)
        trials.add(folder, name, method, outcome, gap)


def _pending(trial: Trial, missing: list[Name]) -> Iterator[tuple[str, int | None, dict[str, list[int]]]]:
  """Each model and step on which records are missing, with the numbers of their tasks by method."""
  for model in trial.settings.tuned_models:
    for step in trial.settings.steps(model):
      tasks = {
        method: sorted(name.task for name in missing if name[1:] == (model, method, step)) for method in trial.methods
      }
      if any(tasks.values()):
        yield model, step, {method: numbers for method, numbers in tasks.items() if numbers}


def _model(
  folder: TrialFolder,
  name: str,
  step: int | None,
  distribution: Distribution,
  ideals: distance.Ideals,
  reporter: Reporter,
) -> tuple[MaskedLM | None, Any]:
  """One of MODELS and its parameters, after `step` steps of its pretraining or at its end."""
  trial, settings = folder.trial, folder.trial.settings
  if name == NONE:
    return None, None
  if name == 'exact':
    return model_lib.ExactModel(settings.hmm.num_tokens, settings.bert.causal), distribution
  if name == 'own':
    return code.own_model(settings.model, distribution, trial.keys().pretraining)
  return pretraining.tuned_model(settings.bert_module()), _bert(folder, name, step, distribution, ideals, reporter)


def _bert(
  folder: TrialFolder,
  name: str,
  step: int | None,
  distribution: Distribution,
  ideals: distance.Ideals,
  reporter: Reporter,
) -> Any:
  """The parameters of one of the BERTs that a trial is tuned on."""
  trial, settings = folder.trial, folder.trial.settings
  if name == 'untrained':
    return pretraining.initial_params(settings, distribution, trial.keys().pretraining)
  if name == 'other_bert':
    trial = trial.other
    folder = folder._replace(trial=trial)
    distribution, downstream = draw(trial)
    ideals = distance.ideals_of(trial, distribution, downstream)
  text: Distribution | np.ndarray = distribution
  if settings.corpus_file:
    text = data.load(folder.workdir, settings.corpus_file)['tokens']
  key, directory = trial.keys().pretraining, folder.pretrained_directory
  early = step if step != settings.pretrain.num_steps else None
  return pretraining.pretrained_params(settings, text, ideals, key, directory, reporter, early)
