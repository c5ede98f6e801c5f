"""Is ours as fast as other libraries? Each work by ours and by its peers, by turns in one process.

A work is a generator. It yields its name with our call, then the name of each peer with the call of that peer. It
imports the libraries of peers after it yields our call, so that ours is measured without them too.
"""

from collections.abc import Callable, Iterator
import functools
import timeit
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.pipeline import pretraining, trial
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies.settings import BenchmarkSettings
from experiments.studies.study import in_parts, Row, Study
import hmm_jax
from hmm_jax.files import hugging_face
from hmm_jax.models.pretraining import training_calls


def smoothing(settings: BenchmarkSettings, hmm: Any, key: jax.Array) -> Iterator[tuple[str, Any]]:
  """P[H_t | x_{1:T}] of many texts; XLA leaves out the rest of a posterior."""
  tokens = hmm_jax.sample_corpus(key, hmm, settings.num_texts, settings.text_length)

  @jax.jit
  def ours(tokens: jax.Array) -> jax.Array:
    likelihoods = hmm.emission_matrix.T[tokens]
    return hmm_jax.forward_backward(hmm, likelihoods).smoothed_probs

  name = f'smooth {settings.num_texts} x {settings.text_length}, |H| = {hmm.num_states}'
  yield name, lambda: ours(tokens)

  name, model, params = _dynamax(hmm)

  @jax.jit
  @jax.vmap
  def theirs(text: jax.Array) -> jax.Array:
    return model.smoother(params, text[:, None]).smoothed_probs

  yield name, lambda: theirs(tokens)


def sampling(settings: BenchmarkSettings, hmm: Any, key: jax.Array) -> Iterator[tuple[str, Any]]:
  """The corpus of pretraining."""
  count, length = settings.corpus.num_documents, settings.corpus.document_length
  yield f'sample {count} x {length}', lambda: hmm_jax.sample_corpus(key, hmm, count, length)

  name, model, params = _dynamax(hmm)

  @jax.jit
  @jax.vmap
  def theirs(key: jax.Array) -> jax.Array:
    _, tokens = model.sample(params, key, length)
    return tokens

  keys = jax.random.split(key, count)
  yield name, lambda: theirs(keys)


def _dynamax(hmm: Any) -> tuple[str, Any, Any]:
  """The name of dynamax, its model of an HMM and the parameters of this one."""
  import dynamax
  from dynamax.hidden_markov_model import CategoricalHMM

  model = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)  # One emission a step.
  params, _ = model.initialize(**hmm_jax.to_dynamax(hmm))
  return f'dynamax {dynamax.__version__}', model, params


def training(settings: BenchmarkSettings, hmm: Any, key: jax.Array) -> Iterator[tuple[str, Any]]:
  """Steps of pretraining, as many as one call of ours takes, beside Hugging Face's BERT."""
  bert = settings.bert
  steps_per_call = settings.pretrain.steps_per_call
  init, key_params, on_corpus = pretraining.program(pretraining.planned(settings, hmm, key))
  state = init(key_params)
  calls = training_calls(on_corpus(), state, steps_per_call, num_steps=2**31)
  name = f'{steps_per_call} pretraining steps, L{bert.num_layers} D{bert.width}, {bert.dtype}'
  yield name, lambda: next(calls)
  yield from _hugging_face(settings)


def _hugging_face(settings: BenchmarkSettings) -> Iterator[tuple[str, Any]]:
  """The steps of torch, eager and compiled, on one device of the kind that JAX uses.

  One batch does for all: time depends neither on its tokens nor on which of them are corrupted or count in the loss.
  """
  import torch
  import transformers

  p, dtype = settings.pretrain, settings.bert.dtype
  device = 'cuda' if jax.default_backend() == 'gpu' else 'cpu'
  config = transformers.BertConfig(**hugging_face.config_of(settings.bert_module()))
  model: Any = transformers.BertForMaskedLM(config)
  model.to(device)
  optimizer = torch.optim.AdamW(model.parameters(), fused=True)
  tokens = torch.randint(2, (p.batch_size, settings.corpus.chunk_length), device=device)

  def steps(forward: Callable[..., Any]) -> float:
    for _ in range(p.steps_per_call):
      optimizer.zero_grad()
      with torch.autocast(device, getattr(torch, dtype), enabled=dtype != 'float32'):
        loss = forward(input_ids=tokens, labels=tokens).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), p.clip_norm)
      optimizer.step()
    return loss.item()  # Waits for the device.

  name = f'Hugging Face {transformers.__version__}, torch {torch.__version__}'
  yield name, functools.partial(steps, model)
  yield f'{name}, compiled', functools.partial(steps, torch.compile(model))


_WORKS = {'smoothing': smoothing, 'sampling': sampling, 'training': training}


def measure(
  work: Callable[..., Iterator[tuple[str, Any]]], settings: BenchmarkSettings, key: jax.Array, reporter: Reporter
) -> list[Row]:
  """A record for each contender, ours first; each round calls all in turn.

  At the first peer that is not installed or fails, a sentence says that it and those after it are left out.
  """
  hmm = trial.draw_distribution(settings, Point(settings.num_states[-1]), key)
  contenders = work(settings, hmm, key)
  name, ours = next(contenders)
  calls = {'ours': ours}
  try:
    for peer, call in contenders:
      _seconds(call)
      calls[peer] = call
  except Exception as error:  # Compilers and peers raise anything.
    reporter.say(f"{name}: no more peers: {error}. pip install -e '.[bench]' installs the other libraries.")
  # Ours compiles after the imports: dynamax's changes JAX's default precision of products.
  _seconds(ours)
  rows: list[Row] = [{'work': name, 'contender': contender, 'seconds': []} for contender in calls]
  for _ in range(settings.repeats):
    for row, call in zip(rows, calls.values()):
      row['seconds'].append(_seconds(call))
  return rows


def _seconds(call: Callable[[], Any]) -> float:
  return timeit.timeit(lambda: jax.block_until_ready(call()), number=1)


def _tables(records: pd.DataFrame, _: Any) -> dict[str, Table]:
  """The `speed` of every contender."""
  rows, ours = [], dict[str, list[float]]()
  for record in records.itertuples():
    # Ours is the first of its work.
    ratios = np.divide(record.seconds, ours.setdefault(record.work, record.seconds))
    quartiles = np.quantile(ratios, (0.5, 0.25, 0.75))
    row = {
      'work': record.work,
      'contender': record.contender,
      'seconds': f'{np.median(record.seconds):.3g}',
      'ratio': '{:.2f} ({:.2f} to {:.2f})'.format(*quartiles),
    }
    rows.append(row)
  title = 'Median seconds, and ratio to ours in each round, median (quartiles)'
  return {'speed': table(title, rows, num_texts=2)}


STUDY = Study(
  in_parts(lambda settings: {name: functools.partial(measure, _WORKS[name]) for name in settings.parts}),
  _tables,
  check=lambda settings, _: pretraining.check_machine(settings),
)
