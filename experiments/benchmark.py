"""Speed beside a peer: both in one process, alternating, medians and their ratio.

The peer of smoothing and sampling is dynamax; that of a memory's posterior is our own pass over the flattened chain.
"""

from collections.abc import Callable
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

from experiments import report
from experiments import results
from experiments.environment import environment
from experiments.progress import Reporter
from experiments.settings import Experiment
from experiments.settings import setting
from experiments.settings import SettingsError
from hmm_jax.hmm import Distribution
from hmm_jax.hmm import HMM
from hmm_jax.hmm import random_hmm
from hmm_jax.hmm import to_dynamax
from hmm_jax.hmm import token_likelihoods
from hmm_jax.inference import forward_backward
from hmm_jax.memory_hmm import cell_posterior
from hmm_jax.memory_hmm import cell_probs
from hmm_jax.memory_hmm import memory_forward_backward
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.memory_hmm import random_memory_hmm
from hmm_jax.memory_hmm import to_hmm
from hmm_jax.sampling import sample_corpus

Timed = Callable[[], Any]


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
  """Two ways to one thing. `compared` takes both results to arrays that must agree, or is None for random ones."""

  name: str
  num_states: int
  ours: Timed
  peer_name: str
  peer: Timed
  compared: Callable[[Any, Any], tuple[Any, Any]] | None


def check(settings: BenchmarkSettings) -> None:
  """Raises SettingsError where the peer is not installed."""
  del settings
  if not importlib.util.find_spec('dynamax'):
    raise SettingsError("experiment is 'benchmark', which needs dynamax; valid is an installation with the extra test")


def run(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Measures anew on every call, since what is measured is this machine now."""
  rows = []
  makers = [
    functools.partial(_smoothing, settings, num_states, wanted)
    for num_states in settings.num_states
    for wanted in ('all posteriors', 'smoothed rows', 'smoothed rows of both')
  ]
  makers += [functools.partial(maker, settings) for maker in (_sampling, _memory, _every_posterior)]
  with reporter.track('benchmark', len(makers)) as advance:
    for index, make in enumerate(makers):
      case = make()
      measured = _alternate(case, settings.repeats)
      rows.append({'case': case.name, 'num_states': case.num_states, 'peer': case.peer_name, **measured})
      advance(index + 1, case.name)
  results.write(workdir, settings, rows, [environment(jax.devices())])


def show(settings: BenchmarkSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the medians and the ratios that are on record."""
  del settings
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
  calls = {'ours': case.ours, 'peer': case.peer}
  # The first round compiles.
  first = {name: jax.block_until_ready(call()) for name, call in calls.items()}
  largest_difference = None
  if case.compared:
    pairs = zip(*map(jax.tree.leaves, case.compared(first['ours'], first['peer'])), strict=True)
    largest_difference = max(float(jnp.abs(one - other).max()) for one, other in pairs)
  seconds: dict[str, list[float]] = {name: [] for name in calls}
  for _ in range(repeats):
    for name, call in calls.items():
      begun = time.perf_counter()
      jax.block_until_ready(call())
      seconds[name].append(time.perf_counter() - begun)
  medians = {name: statistics.median(values) for name, values in seconds.items()}
  return {
    'ours_seconds': medians['ours'],
    'peer_seconds': medians['peer'],
    'ratio': medians['peer'] / medians['ours'],
    'largest_difference': largest_difference,
    'repeats': repeats,
  }


def _rows(settings: BenchmarkSettings, hmm: Distribution) -> Array:
  tokens = sample_corpus(jax.random.key(settings.seed + 1), hmm, settings.num_sequences, settings.length)
  return token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def _smoothing(settings: BenchmarkSettings, num_states: int, wanted: str) -> Case:
  """Everything, or the smoothed rows alone, beside all that dynamax's smoother tells; or the smoothed rows of both."""
  from dynamax.hidden_markov_model.inference import hmm_smoother

  hmm = random_hmm(jax.random.key(settings.seed), num_states, settings.num_tokens)
  rows = _rows(settings, hmm)
  log_rows = jnp.log(rows)
  smoothed = lambda posterior: posterior.smoothed_probs
  everything = lambda posterior: posterior
  ours_of, peer_of = {
    'all posteriors': (everything, everything),
    'smoothed rows': (smoothed, everything),
    'smoothed rows of both': (smoothed, smoothed),
  }[wanted]
  peer_smoother = lambda log_row: peer_of(hmm_smoother(hmm.initial_probs, hmm.transition_matrix, log_row))
  ours = jax.jit(lambda hmm, rows: ours_of(forward_backward(hmm, rows)))
  peer = jax.jit(jax.vmap(peer_smoother))
  name = f'{wanted}, {settings.num_sequences} x {settings.length}'
  # dynamax takes a predicted probability near zero for zero, so the two need not agree at large H.
  return Case(name, num_states, lambda: ours(hmm, rows), 'dynamax', lambda: peer(log_rows), None)


def _sampling(settings: BenchmarkSettings) -> Case:
  from dynamax.hidden_markov_model import CategoricalHMM

  hmm = random_hmm(jax.random.key(settings.seed), settings.sampling_states, settings.num_tokens)
  count, length = settings.num_documents, settings.document_length
  dynamax_hmm = CategoricalHMM(hmm.num_states, 1, hmm.num_tokens)
  params, _ = dynamax_hmm.initialize(**to_dynamax(hmm))
  key = jax.random.key(settings.seed + 1)
  peer = jax.jit(jax.vmap(lambda key: dynamax_hmm.sample(params, key, length)[1]))
  keys = jax.random.split(key, count)
  ours = lambda: sample_corpus(key, hmm, count, length)
  return Case(f'sample {count} x {length}', hmm.num_states, ours, 'dynamax', lambda: peer(keys), None)


def _memory_case(settings: BenchmarkSettings, name: str, ours: Callable[..., Any], peer: Callable[..., Any]) -> Case:
  """`ours(hmm, rows)` beside `peer(hmm, its flattened chain, rows)`."""
  hmm = random_memory_hmm(
    jax.random.key(settings.seed), settings.memory_size, settings.memory_states, settings.num_tokens
  )
  rows, flat = _rows(settings, hmm), to_hmm(hmm)
  ours, peer = jax.jit(ours), jax.jit(peer)
  name = f'{name}, |M| = {hmm.memory_size}, {settings.num_sequences} x {settings.length}'
  call = lambda: ours(hmm, rows)
  return Case(name, hmm.num_states, call, 'flattened chain', lambda: peer(hmm, flat, rows), lambda *results: results)


def _memory(settings: BenchmarkSettings) -> Case:
  """What a label needs: P[M | x]."""

  def flattened(hmm: MemoryHMM, flat: HMM, rows: Array) -> Array:
    return cell_probs(hmm, forward_backward(flat, rows).smoothed_probs[:, 0])

  return _memory_case(settings, 'posterior of the memory', cell_posterior, flattened)


def _every_posterior(settings: BenchmarkSettings) -> Case:
  """Every row of every posterior over (memory, state)."""
  flattened = lambda hmm, flat, rows: forward_backward(flat, rows)
  return _memory_case(settings, 'every posterior', lambda *args: memory_forward_backward(*args).joint, flattened)
