"""One trial: settings -> distribution -> corpus -> pretrained model -> tasks -> tuned head and prompt -> records."""

import contextlib
import dataclasses
import functools
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.pipeline import downstream as downstream_lib, optimal_heads, pretraining, tuning
from experiments.records import trial_records, user_data
from experiments.records.trial_records import Trial
from experiments.runtime.progress import Reporter
from experiments.settings import own_code
from experiments.settings.grid import Point, Settings
from experiments.settings.groups import CorpusSettings
from experiments.settings.methods import NONE
import hmm_jax
from hmm_jax._support import compilation, float64
from hmm_jax.distributions.files import from_fields
from hmm_jax.distributions.hmm import chunk_start, Distribution
from hmm_jax.models import bayes_gap, masking, model as model_lib, sharding
from hmm_jax.models.model import MaskedLM

_jit = functools.partial(jax.jit, compiler_options=compilation.UNFUSED)
_random_hmm = _jit(hmm_jax.random_hmm, static_argnames=('num_states', 'num_tokens', 'num_permutations'))
_random_memory_hmm = _jit(
  hmm_jax.random_memory_hmm,
  static_argnames=('memory_size', 'num_states', 'num_tokens', 'num_cells', 'joint_prior', 'num_permutations'),
)


def draw_distribution(settings: Settings, point: Point, key: Array) -> hmm_jax.HMM | hmm_jax.MemoryHMM:
  """The HMM or memory-augmented HMM of a trial where none is given."""
  drawn, memory = dataclasses.asdict(settings.hmm), settings.memory
  drawn['num_permutations'] = drawn['num_permutations'] or None
  if not point.memory_size:
    return _random_hmm(key, point.num_states, **drawn)
  if memory.joint_permutations:
    drawn['num_permutations'] = point.joint_states
  drawn.update(num_cells=point.num_cells, joint_prior=memory.joint_prior)
  return _random_memory_hmm(key, point.memory_size, point.num_states, **drawn)


def drawn_distribution(trial: Trial) -> hmm_jax.HMM | hmm_jax.MemoryHMM:
  """The distribution that a trial draws."""
  # Computation follows a committed key: all that is exact runs on `exact_device`.
  key = jax.device_put(trial.keys().distribution, sharding.exact_device())
  return draw_distribution(trial.settings, trial.point, key)


def precisely() -> contextlib.AbstractContextManager[None]:
  """A context with float32 matrix products, in which trials run: some accelerators round them by default."""
  return jax.default_matmul_precision('float32')


def draw(trial: Trial) -> tuple[hmm_jax.HMM | hmm_jax.MemoryHMM, downstream_lib.Downstream]:
  """The distribution of a trial, and its inputs and tasks; needs no model."""
  if trial.settings.distribution:
    arrays = user_data.load(trial.workdir, trial.settings.distribution)
    distribution = float64.on_device(from_fields(arrays), sharding.exact_device())
  else:
    distribution = drawn_distribution(trial)
  return distribution, tasks(trial, distribution)


def tasks(trial: Trial, distribution: hmm_jax.HMM | hmm_jax.MemoryHMM) -> downstream_lib.Downstream:
  """The inputs and tasks of a trial; raises ValueError if every draw of mu gives all training inputs one label."""
  keys, point = trial.keys(), trial.point
  return downstream_lib.draw(trial.settings, point, trial.methods, distribution, keys.downstream, keys.tasks)


def run(trial: Trial, reporter: Reporter) -> bool:
  """Add the missing records of `trial` to its directory, and return True if any were missing.

  An interrupted run keeps what it had finished. Raises OutOfTime where pretraining does, and Lost where another process
  has taken the trial over.
  """
  missing = trial_records.plan(trial, reporter)
  if not missing:
    return False
  settings, clock = trial.settings, reporter.clock
  with trial_records.session(trial, reporter), precisely():
    keys = trial.keys()
    distribution, downstream = draw(trial)
    with clock.phase('measuring'):
      ideals = ideals_of(settings, distribution, downstream, keys.measure)
    exact_probs = functools.partial(optimal_heads.exact_probs, distribution)
    for name, tasks_of in trial_records.pending(trial, missing):
      model, params = _model(trial, name, distribution, ideals, reporter)
      frozen = tuning.FrozenModel(name, model, params, exact_probs)
      with clock.phase('measuring'):
        gap = pretraining.measure(settings, model, params, ideals) if model else pretraining.UNMEASURED
      for method, tasks in tasks_of.items():
        with clock.phase('tuning'):
          outcome = tuning.tune(tuning.Problem(trial, frozen, method, tasks, downstream), reporter)
        trial_records.add(trial, name, method, outcome, gap)
  return True


def _model(
  trial: Trial, name: str, distribution: Distribution, ideals: pretraining.Ideals, reporter: Reporter
) -> tuple[MaskedLM | None, Any]:
  """One of MODELS and its parameters."""
  settings = trial.settings
  if name == NONE:
    return None, None
  if name == 'exact':
    return model_lib.ExactModel(settings.hmm.num_tokens), distribution
  if name == 'own':
    return own_code.own_model(settings.model, distribution, trial.keys().pretraining)
  return pretraining.tuned_model(settings.bert_module()), _bert(trial, name, distribution, ideals, reporter)


def _bert(trial: Trial, name: str, distribution: Distribution, ideals: pretraining.Ideals, reporter: Reporter) -> Any:
  """The parameters of one of the BERTs that a trial is tuned on."""
  key = trial.keys().pretraining
  if name == 'untrained':
    return pretraining.initial_params(trial.settings, distribution, key)
  if name == 'other_bert':
    # The previous trial, or trial 1 for trial 0: a grid with several trials needs no extra pretraining.
    trial = trial._replace(trial=abs(trial.trial - 1))
    distribution, downstream = draw(trial)
    ideals, key = ideals_of(trial.settings, distribution, downstream, trial.keys().measure), trial.keys().pretraining
  text: Distribution | np.ndarray = distribution
  if trial.settings.corpus_file:
    text = user_data.load(trial.workdir, trial.settings.corpus_file)['tokens']
  return pretraining.pretrained_params(trial.settings, text, ideals, key, trial.pretrained_directory, reporter)


def ideals_of(
  settings: Settings, distribution: Distribution, downstream: downstream_lib.Downstream, key: Array
) -> pretraining.Ideals:
  """The ideal model's predictions on what pretrained models are measured on."""
  measure = settings.measure
  test_inputs = downstream.inputs[downstream.splits['test']][: measure.num_inputs]
  how = measure.num_chunks, settings.corpus, settings.corruption()
  return (
    jax.device_get(ideal_on_chunks(key, distribution, *how)),
    bayes_gap.ideal_at_mask(distribution, test_inputs, batch_size=measure.batch_size),
    bayes_gap.ideal_one_at_a_time(distribution, downstream.documents, batch_size=measure.batch_size),
  )


@functools.partial(jax.jit, static_argnums=(2, 3, 4), compiler_options=compilation.ONCE)
def ideal_on_chunks(
  key: Array, distribution: Distribution, num_chunks: int, corpus: CorpusSettings, corruption: masking.Corruption
) -> bayes_gap.Ideal:
  """The ideal predictions on corrupted chunks, of the distribution as seen from a chunk's start."""
  at_chunk = chunk_start(distribution, corpus.chunk_length, corpus.chunks_per_document)
  chunks = hmm_jax.sample_corpus(key, at_chunk, num_chunks, corpus.chunk_length)
  return bayes_gap.ideal_under_corruption(jax.random.fold_in(key, 1), at_chunk, corruption, chunks)
