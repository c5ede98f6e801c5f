"""Speed beside a peer: both in one process, alternating, medians and their ratio.

The peer of smoothing and sampling is dynamax; that of a memory's posterior is our own pass over the flattened chain.
"""

from collections.abc import Callable, Iterator
import functools
import importlib.util
import pathlib
import statistics
import time
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import rich.box
import rich.table

from experiments import report, results
from experiments.environment import environment
from experiments.fields import setting, SettingsError
from experiments.progress import Reporter
from experiments.settings import Experiment
import hmm_jax
from hmm_jax.hmm import Distribution
from hmm_jax.memory_hmm import cell_probs


class BenchmarkSettings(Experiment):
  """The benchmark."""

  num_states: tuple[int, ...] = setting('hidden states |H| of the HMMs that are smoothed', most=4096)
  num_tokens: int = setting('size V of the vocabulary', least=2, most=2**16)
  num_sequences: int = setting('sequences of a batch', most=10**7)
  length: int = setting('tokens of a sequence', most=10**6)
  memory_size: int = setting('values |M| of the memory', most=4096)
  memory_states: int = setting('hidden states beside the memory', most=4096)
  sampling_states: int = setting('hidden states of the HMM that is sampled', most=4096)
  num_documents: int = setting('sampled documents', most=10**7)
  document_length: int = setting('their length', most=10**7)
  repeats: int = setting('measurements, of which the median counts')


SETTINGS = BenchmarkSettings


class Case(NamedTuple):
  """Two ways to one thing, whose results are compared where they must agree."""

  name: str
  num_states: int
  ours: Callable[[], Any]
  peer_name: str
  peer: Callable[[], Any]
  agree: bool = False


def check(settings: BenchmarkSettings) -> None:
  """Raises SettingsError where the peer is not installed."""
  if not importlib.util.find_spec('dynamax'):
    raise SettingsError("experiment is 'benchmark', which needs dynamax; valid is an installation with the extra test")


def run(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Measures anew on every call, since what is measured is this machine now."""
  rows = []
  with reporter.track('benchmark', 2 * len(settings.num_states) + 2) as advance:
    for case in _cases(settings):
      rows.append({'case': case.name, 'num_states': case.num_states, 'peer': case.peer_name})
      rows[-1] |= _alternate(case, settings.repeats)
      advance(len(rows), case.name)
  results.write(workdir, settings, rows, [environment(jax.devices())])


def show(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the medians and the ratios that are on record."""
  table = rich.table.Table(title='Median seconds a call; the ratio is how much faster ours is', box=rich.box.SIMPLE)
  for column in ('case', '|H|', 'ours', 'the peer', 'seconds', 'ratio', 'largest difference'):
    table.add_column(column, justify='left' if column in ('case', 'the peer') else 'right', no_wrap=True)
  for row in results.load(workdir):
    ours, peer = f'{row["ours_seconds"]:.4f}', f'{row["peer_seconds"]:.4f}'
    difference = '' if row['largest_difference'] is None else f'{row["largest_difference"]:.1e}'
    table.add_row(row['case'], str(row['num_states']), ours, row['peer'], peer, f'{row["ratio"]:.2f}', difference)
  reporter.show(report.as_text(table))
  reporter.say(f'records: {workdir / results.FILE_NAME}')


def _alternate(case: Case, repeats: int) -> dict[str, Any]:
  # The first round compiles.
  first = [jax.block_until_ready(call()) for call in (case.ours, case.peer)]
  seconds = [(_seconds(case.ours), _seconds(case.peer)) for _ in range(repeats)]
  ours, peer = map(statistics.median, zip(*seconds))
  return {
    'ours_seconds': ours,
    'peer_seconds': peer,
    'ratio': peer / ours,
    'largest_difference': float(jnp.abs(first[0] - first[1]).max()) if case.agree else None,
    'repeats': repeats,
  }


def _seconds(call: Callable[[], Any]) -> float:
  begun = time.perf_counter()
  jax.block_until_ready(call())
  return time.perf_counter() - begun


def _cases(settings: BenchmarkSettings) -> Iterator[Case]:
  for num_states in settings.num_states:
    yield from _smoothing(settings, num_states)
  yield _sampling(settings)
  yield _memory(settings)


def _rows(settings: BenchmarkSettings, hmm: Distribution) -> Array:
  tokens = hmm_jax.sample_corpus(jax.random.key(settings.seed + 1), hmm, settings.num_sequences, settings.length)
  return hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def _smoothing(settings: BenchmarkSettings, num_states: int) -> Iterator[Case]:
  """Everything, and the smoothed rows alone, beside all that dynamax's smoother tells."""
  from dynamax.hidden_markov_model.inference import hmm_smoother

  hmm = hmm_jax.random_hmm(jax.random.key(settings.seed), num_states, settings.num_tokens)
  rows = _rows(settings, hmm)
  log_rows, size = jnp.log(rows), f'{settings.num_sequences} x {settings.length}'
  peer = jax.jit(jax.vmap(lambda log_row: hmm_smoother(hmm.initial_probs, hmm.transition_matrix, log_row)))
  smoothed = jax.jit(lambda hmm, rows: hmm_jax.forward_backward(hmm, rows).smoothed_probs)
  # dynamax takes a predicted probability near zero for zero, so the two need not agree at large H.
  for name, ours in (('all posteriors', hmm_jax.forward_backward), ('smoothed rows', smoothed)):
    call = functools.partial(ours, hmm, rows)
    yield Case(f'{name}, {size}', num_states, call, 'dynamax', functools.partial(peer, log_rows))


def _sampling(settings: BenchmarkSettings) -> Case:
  from dynamax.hidden_markov_model import CategoricalHMM

  hmm = hmm_jax.random_hmm(jax.random.key(settings.seed), settings.sampling_states, settings.num_tokens)
  count, length = settings.num_documents, settings.document_length
  dynamax_hmm = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)
  params, _ = dynamax_hmm.initialize(**hmm_jax.to_dynamax(hmm))
  key = jax.random.key(settings.seed + 1)
  peer = jax.jit(jax.vmap(lambda key: dynamax_hmm.sample(params, key, length)[1]))
  keys = jax.random.split(key, count)
  ours = lambda: hmm_jax.sample_corpus(key, hmm, count, length)
  return Case(f'sample {count} x {length}', hmm.num_states, ours, 'dynamax', lambda: peer(keys))


def _memory(settings: BenchmarkSettings) -> Case:
  """What a label needs, P[M | x]: by the memory's own structure, and through the flattened chain."""
  sizes = settings.memory_size, settings.memory_states, settings.num_tokens
  hmm = hmm_jax.random_memory_hmm(jax.random.key(settings.seed), *sizes)
  rows, flat = _rows(settings, hmm), hmm_jax.to_hmm(hmm)
  flattened = jax.jit(lambda flat, rows: cell_probs(hmm, hmm_jax.forward_backward(flat, rows).smoothed_probs[:, 0]))
  name = f'posterior of the memory, |M| = {hmm.memory_size}, {settings.num_sequences} x {settings.length}'
  ours = lambda: hmm_jax.cell_posterior(hmm, rows)
  return Case(name, hmm.num_states, ours, 'flattened chain', lambda: flattened(flat, rows), agree=True)
