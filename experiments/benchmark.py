"""Speed beside the peer, dynamax: both in one process, alternating, medians and their ratio."""

from collections.abc import Callable
import importlib.util
import json
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import rich.box
import rich.table

from experiments import checkpoints
from experiments import report
from experiments.environment import environment
from experiments.progress import Reporter
from experiments.settings import BenchmarkSettings
from experiments.settings import SettingsError
from hmm_jax.hmm import HMM
from hmm_jax.hmm import random_hmm
from hmm_jax.hmm import sample_corpus
from hmm_jax.hmm import to_dynamax
from hmm_jax.hmm import token_likelihoods
from hmm_jax.inference import batched_forward_backward

FILE_NAME = 'benchmark.jsonl'

Timed = Callable[[], Any]


def check(settings: BenchmarkSettings) -> None:
  """Raises SettingsError where the peer is not installed."""
  del settings
  if not importlib.util.find_spec('dynamax'):
    raise SettingsError("experiment is 'benchmark', which needs dynamax; valid is an installation with the extra test")


def run(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Measures anew on every call, since what is measured is this machine now."""
  rows = []
  cases = [(num_states, _smoothing) for num_states in settings.num_states] + [(settings.sampling_states, _sampling)]
  with reporter.track('benchmark', len(cases)) as advance:
    for index, (num_states, case) in enumerate(cases):
      hmm = random_hmm(jax.random.key(settings.seed), num_states, settings.num_tokens)
      name, ours, peer = case(settings, hmm)
      rows.append({'case': name, 'num_states': num_states, **_alternate(ours, peer, settings.repeats)})
      advance(index + 1, name)
  checkpoints.write_json_lines(workdir / FILE_NAME, rows)
  checkpoints.write_whole(workdir / 'environment.json', json.dumps(environment(), indent=2) + '\n')


def show(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the medians and the ratios that are on record."""
  del settings
  table = rich.table.Table(title='Median seconds a call; the ratio is how much faster ours is', box=rich.box.SIMPLE)
  for column in ('case', '|H|', 'ours', 'dynamax', 'ratio'):
    table.add_column(column, justify='left' if column == 'case' else 'right', no_wrap=True)
  for row in checkpoints.read_json_lines(workdir / FILE_NAME):
    numbers = f'{row["ours_seconds"]:.4f}', f'{row["peer_seconds"]:.4f}', f'{row["ratio"]:.2f}'
    table.add_row(row['case'], str(row['num_states']), *numbers)
  reporter.show(report.as_text(table))
  reporter.say(f'records: {workdir / FILE_NAME}')


def _alternate(ours: Timed, peer: Timed, repeats: int) -> dict[str, float]:
  seconds: dict[str, list[float]] = {'ours': [], 'peer': []}
  for round_ in range(repeats + 1):
    for name, call in (('ours', ours), ('peer', peer)):
      begun = time.perf_counter()
      jax.block_until_ready(call())
      # The first round compiles.
      if round_:
        seconds[name].append(time.perf_counter() - begun)
  medians = {name: statistics.median(values) for name, values in seconds.items()}
  return {
    'ours_seconds': medians['ours'],
    'peer_seconds': medians['peer'],
    'ratio': medians['peer'] / medians['ours'],
    'repeats': repeats,
  }


def _smoothing(settings: BenchmarkSettings, hmm: HMM) -> tuple[str, Timed, Timed]:
  from dynamax.hidden_markov_model.inference import hmm_smoother

  tokens = sample_corpus(jax.random.key(settings.seed + 1), hmm, settings.num_sequences, settings.length)
  rows = token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))
  log_rows = jnp.log(rows)
  peer_smoother = jax.vmap(lambda log_row: hmm_smoother(hmm.initial_probs, hmm.transition_matrix, log_row))
  ours, peer = jax.jit(batched_forward_backward), jax.jit(peer_smoother)
  return f'smooth {settings.num_sequences} x {settings.length}', lambda: ours(hmm, rows), lambda: peer(log_rows)


def _sampling(settings: BenchmarkSettings, hmm: HMM) -> tuple[str, Timed, Timed]:
  from dynamax.hidden_markov_model import CategoricalHMM

  count, length = settings.num_documents, settings.document_length
  dynamax_hmm = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)
  params, _ = dynamax_hmm.initialize(**to_dynamax(hmm))
  key = jax.random.key(settings.seed + 1)
  peer = jax.jit(jax.vmap(lambda key: dynamax_hmm.sample(params, key, length)[1]))
  keys = jax.random.split(key, count)
  return f'sample {count} x {length}', lambda: sample_corpus(key, hmm, count, length), lambda: peer(keys)
