"""Is ours as fast as other libraries? Each work by ours and by every installed peer, by turns in one process."""

from collections.abc import Callable
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import tempfile
import time
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
import pandas as pd

from experiments.analysis.table import format_number, Table, table
from experiments.pipeline import checks, pretraining, trial as trial_lib
from experiments.records import trials
from experiments.records.trials import TrialFolder
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.trial import Trial
from experiments.studies.settings import BenchmarkSettings
from experiments.studies.study import in_parts, Part, Row, Study
import hmm_jax
from hmm_jax.distributions.hmm import HMM
from hmm_jax.models import sharding
from hmm_jax.models.pretraining import training_calls

OURS = 'ours'
_LIBRARIES = ('jax', 'dynamax', 'hmmlearn', 'torch', 'transformers')
# Peak dense bf16 FLOP/s by JAX's name for the chip. NVIDIA: data sheets of H100, H200 and A100, whose numbers with
# sparsity are twice these; Google: cloud.google.com/tpu/docs/v4, v5e, v5p and v6e.
_PEAK_FLOPS = {
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H100 NVL': 835e12,
  'NVIDIA H200': 989e12,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
}
# One measurement, which may return before its work is done.
Call = Callable[[], Any]


def measure(
  settings: BenchmarkSettings,
  reporter: Reporter,
  work: str,
  ours: Call,
  peers: dict[str, Callable[[], Call]],
  units: int = 1,
  flops: float | None = None,
) -> list[Row]:
  """A record for each contender, ours first: each round calls all in turn, and the first round does not count.

  A peer that is not installed or fails is skipped, in a sentence.

  Args:
    work: its name, with its size.
    peers: by name, functions that import the library of a peer and return its call.
    units: how many times one call does the work.
    flops: FLOPs of the work.
  """
  calls = {OURS: ours}
  for name, prepare in peers.items():
    try:
      call = prepare()
      _seconds(call)
      calls[name] = call
    except Exception as error:  # Compilers and peers raise anything.
      reporter.say(f"{work}: skipped {name}: {error}. pip install -e '.[bench]' installs the other libraries.")
  # Ours compiles in the first round, after the imports: dynamax's changes JAX's default precision of products.
  _, *rounds = [{name: _seconds(call) / units for name, call in calls.items()} for _ in range(settings.repeats + 1)]
  return [_record(settings, work, name, [each[name] for each in rounds], flops) for name in calls]


def _seconds(call: Call) -> float:
  begun = time.perf_counter()
  jax.block_until_ready(call())
  return time.perf_counter() - begun


def _record(settings: BenchmarkSettings, work: str, contender: str, seconds: list[float], flops: float | None) -> Row:
  """The record of a contender: the seconds of each round, FLOPs, devices and the versions of libraries."""
  mesh = sharding.make_mesh(*settings.mesh.sizes(jax.device_count()))
  return {
    'work': work,
    'contender': contender,
    'seconds': seconds,
    'flops': flops,
    'devices': [device.device_kind for device in mesh.devices.flat],
    'versions': {name: importlib.metadata.version(name) for name in _LIBRARIES if importlib.util.find_spec(name)},
  }


def smoothing(settings: BenchmarkSettings, key: Array, reporter: Reporter) -> list[Row]:
  """Seconds of P[H_t | x_{1:T}] of many texts, by the number of states: ours, also by vmap, dynamax and hmmlearn."""
  rows = list[Row]()
  for num_states in settings.num_states:
    hmm: Any = trial_lib.draw_distribution(settings, Point(num_states), key)
    tokens = hmm_jax.sample_corpus(key, hmm, settings.num_texts, settings.text_length)
    likelihoods = hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))
    by_vmap = jax.vmap(hmm_jax.forward_backward, (None, 0))
    rows += measure(
      settings,
      reporter,
      f'smooth {settings.num_texts} x {settings.text_length}, |H| = {num_states}',
      _smoother(hmm_jax.forward_backward, hmm, likelihoods),
      {
        'ours, by jax.vmap': functools.partial(_smoother, by_vmap, hmm, likelihoods),
        'dynamax': functools.partial(_dynamax_smoother, hmm, likelihoods),
        'hmmlearn, float64': functools.partial(_hmmlearn_smoother, hmm, tokens),
      },
    )
  return rows


def _smoother(posterior: Callable[[HMM, Array], Any], hmm: HMM, rows: Array) -> Call:
  """Compiled only for smoothed rows: XLA leaves out the rest of a posterior."""
  return functools.partial(jax.jit(lambda hmm, rows: posterior(hmm, rows).smoothed_probs), hmm, rows)


def _dynamax_smoother(hmm: HMM, rows: Array) -> Call:
  """The smoothed posteriors of dynamax, from likelihood rows [S, T, H]."""
  from dynamax.hidden_markov_model.inference import hmm_smoother

  smoother = jax.vmap(hmm_smoother, (None, None, 0))
  return _smoother(lambda hmm, rows: smoother(hmm.initial_probs, hmm.transition_matrix, rows), hmm, jnp.log(rows))


def _hmmlearn_smoother(hmm: HMM, tokens: Array) -> Call:
  """The smoothed posteriors of hmmlearn, scaled as ours, from tokens [S, T]."""
  from hmmlearn.hmm import CategoricalHMM

  model = CategoricalHMM(hmm.num_states, n_features=hmm.num_tokens, implementation='scaling')
  vars(model).update(hmm_jax.to_hmmlearn(hmm))
  # One column for all texts, which it tells apart by their lengths.
  column, lengths = np.asarray(tokens, np.int64).reshape(-1, 1), [tokens.shape[1]] * len(tokens)
  return functools.partial(model.predict_proba, column, lengths)


def sampling(settings: BenchmarkSettings, key: Array, reporter: Reporter) -> list[Row]:
  """Seconds of sampling the corpus of pretraining: ours and dynamax."""
  hmm: Any = trial_lib.draw_distribution(settings, Point(settings.num_states[-1]), key)
  count, length = settings.corpus.num_documents, settings.corpus.document_length
  ours = jax.jit(lambda key, hmm: hmm_jax.sample_corpus(key, hmm, count, length))

  def dynamax() -> Call:
    from dynamax.hidden_markov_model import CategoricalHMM

    model = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)  # One emission a step.
    params, _ = model.initialize(**hmm_jax.to_dynamax(hmm))
    sample = jax.jit(jax.vmap(lambda key: model.sample(params, key, length)[1]))
    return functools.partial(sample, jax.random.split(key, count))

  name = f'sample {count} x {length}, |H| = {hmm.num_states}'
  return measure(settings, reporter, name, functools.partial(ours, key, hmm), {'dynamax': dynamax})


def training(settings: BenchmarkSettings, key: Array, reporter: Reporter) -> list[Row]:
  """Seconds and FLOPs of a step of pretraining: ours and Hugging Face's, eager and compiled."""
  p, bert, length = settings.pretrain, settings.bert, settings.corpus.chunk_length
  hmm: Any = trial_lib.draw_distribution(settings, Point(settings.num_states[-1]), key)
  init, key_params, on_corpus = pretraining.program(settings, hmm, key)
  start = jax.device_get(init(key_params).params)
  calls = training_calls(on_corpus(), init(key_params), p.steps_per_call, num_steps=2**31)
  return measure(
    settings,
    reporter,
    f'pretraining step, L{bert.num_layers} D{bert.width} T{length} B{p.batch_size}, {bert.dtype}',
    lambda: next(calls),
    {
      'Hugging Face': lambda: _hugging_face_steps(settings, start, compiled=False),
      'Hugging Face, torch.compile': lambda: _hugging_face_steps(settings, start, compiled=True),
    },
    p.steps_per_call,
    step_flops(settings),
  )


def _hugging_face_steps(settings: BenchmarkSettings, params: Any, compiled: bool) -> Call:
  """As many steps of torch as one call of ours takes, on one device of the kind that JAX uses.

  One batch does for all: time depends neither on its tokens nor on which of them are corrupted or count in the loss.
  """
  import torch

  from experiments.studies import hugging_face

  torch.set_num_threads(os.cpu_count() or 1)
  device, p = 'cuda' if jax.default_backend() == 'gpu' else 'cpu', settings.pretrain
  model: Any = hugging_face.model_of(settings.bert_module(), params).train().to(device)
  forward = torch.compile(model) if compiled else model
  inputs = torch.randint(settings.hmm.num_tokens, (p.batch_size, settings.corpus.chunk_length), device=device)
  weights, dtype = model.parameters, getattr(torch, settings.bert.dtype)
  optimizer = torch.optim.AdamW(weights(), p.learning_rate, (0.9, p.b2), weight_decay=p.weight_decay, fused=True)

  def call() -> float:
    for _ in range(p.steps_per_call):
      optimizer.zero_grad(set_to_none=True)
      with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        loss = forward(input_ids=inputs, labels=inputs).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(weights(), p.clip_norm)
      optimizer.step()
    return loss.item()  # Waits for the device.

  return call


def _trial(settings: BenchmarkSettings, key: Array, reporter: Reporter) -> list[Row]:
  """The seconds of a whole trial, compilation included, and the FLOPs of its pretraining; `key` is unused."""
  point = Point(settings.num_states[0])
  with tempfile.TemporaryDirectory() as scratch:
    folder = TrialFolder(Trial(settings, point, 0), pathlib.Path(scratch))
    seconds = _seconds(lambda: trial_lib.run(folder, trials.plan(folder, reporter), reporter))
  return [_record(settings, f'a trial, {point}', OURS, [seconds], settings.pretrain.num_steps * step_flops(settings))]


def step_flops(s: Settings) -> int:
  """FLOPs of a step of pretraining, by the usual count: 6 for each parameter and token (Kaplan et al. 2020)."""
  params = jax.eval_shape(s.bert_module().init, jax.random.key(0), jnp.zeros((1, 1), int))
  return 6 * sum(leaf.size for leaf in jax.tree.leaves(params)) * s.pretrain.batch_size * s.corpus.chunk_length


_PARTS: dict[str, Part] = {'smoothing': smoothing, 'sampling': sampling, 'training': training, 'trial': _trial}


def _tables(records: pd.DataFrame, settings: BenchmarkSettings) -> dict[str, Table]:
  """The `speed` of every contender."""
  ours, seconds = records.groupby('work')['seconds'].transform('first'), records['seconds'].map(np.median)
  ratios = [np.quantile(np.divide(*pair), (0.25, 0.5, 0.75)) for pair in zip(records['seconds'], ours)]
  peaks = [sum(_PEAK_FLOPS.get(kind, np.nan) for kind in kinds) for kinds in records['devices']]
  columns = {
    'work': records['work'],
    'contender': records['contender'],
    'seconds': seconds.map('{:.3g}'.format),
    'ratio': ['{1:.2f} ({0:.2f} to {2:.2f})'.format(*quartiles) for quartiles in ratios],
    'of peak': [format_number(share, '.0%') for share in records['flops'].astype(float) / seconds / peaks],
  }
  title = (
    'Median seconds; ratio to ours in each round, median (quartiles); 6 FLOPs for each parameter and token, as a share '
    f'of the bf16 peak. Measured on {records["devices"][0][0]} of {records["cpu"][0]}'
  )
  return {'speed': table(title, pd.DataFrame(columns), num_texts=2)}


STUDY = Study(
  in_parts(lambda settings: {name: _PARTS[name] for name in settings.parts}), _tables, check=checks.check_grid
)
