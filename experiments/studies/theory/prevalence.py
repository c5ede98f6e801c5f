"""Shares of the paper's own draws on which its assumptions hold, by size: of plain chains, and with a memory.

A transition matrix that mixes H permutations has exact zeros, so that assumptions on supports are decided exactly. The
draws are in float64: in float32 the weight of a permutation may underflow to another zero.
"""

import functools
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory.settings import PrevalenceSettings, TheorySettings
from hmm_jax._support import compilation
from hmm_jax.distributions.hmm import HMM, random_hmm
from hmm_jax.distributions.memory_hmm import MemoryHMM, random_memory_hmm
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Finding, Thresholds
from hmm_jax.tuning import tasks


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A record for each draw: the assumptions that hold at each threshold."""
  s, records = settings.prevalence, []
  key_chain, key_memory = jax.random.split(key)
  for text, sizes, key_text, examined in (
    ('chain', s.num_states, key_chain, _of_chain),
    ('memory', s.memory_sizes, key_memory, _of_memory),
  ):
    for size in sizes:
      keys = jax.random.split(jax.random.fold_in(key_text, size), s.num_draws)
      for number, key_draw in enumerate(keys):
        with jax.enable_x64(True):
          drawn = jax.tree.map(np.asarray, draw(s, text, size, key_draw))
        records.append({'text': text, 'size': size, 'draw': number, **examined(settings, *drawn)})
  return records


# One program a size; it draws a few small matrices.
@functools.partial(jax.jit, static_argnames=('s', 'text', 'size'), compiler_options=compilation.ONCE)
def draw(s: Any, text: str, size: int, key: Array) -> tuple[HMM | MemoryHMM, Array]:
  """The paper's chain of `size` states, or its memory of `size` values, and mu."""
  key_hmm, key_task = jax.random.split(key)
  if text == 'chain':
    hmm: HMM | MemoryHMM = random_hmm(key_hmm, size, s.num_tokens)
  else:
    hmm = random_memory_hmm(key_hmm, size, s.num_memory_states, s.num_tokens)
  return hmm, tasks.draw_task_weights(key_task, size)


def _of_chain(settings: TheorySettings, hmm: HMM, task_weights: np.ndarray) -> Record:
  """Assumptions 3.1 by rank, 3.2, and 3.5 by support and rank, with 3.5's search and the zeros of the transitions."""
  s, covers = settings.prevalence, {}
  exact = Thresholds(0.0, s.rank_levels[0])
  rank = assumptions.non_degeneracy(hmm, exact)
  for level in s.support_levels:
    thresholds = exact._replace(support=level)
    covers[str(level)] = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, s.max_nodes)
  return {
    'zeros': float((hmm.transition_matrix == 0).mean()),
    'smallest_singular_value': rank.closeness['smallest_singular_value'],
    '3.1': _by_rank(rank, s),
    '3.2': assumptions.regularity(hmm, exact).holds,
    '3.5': {level: _by_rank(cover, s) for level, cover in covers.items()},
    'exhaustive': {level: cover.witness.get('exhaustive', True) for level, cover in covers.items()},
  }


def _by_rank(finding: Finding, s: PrevalenceSettings) -> dict[str, bool]:
  """Independence of the columns of a finding, by the share of the largest singular value that counts as 0.

  For 3.5 they are the columns of the best cover; another may be better conditioned, so this is a lower bound.
  """
  condition_number = finding.closeness.get('condition_number', np.inf)
  return {str(level): 1 / condition_number > level for level in s.rank_levels}


def _of_memory(settings: TheorySettings, hmm: MemoryHMM, task_weights: np.ndarray) -> Record:
  """Assumptions 4.2 and 4.5 by rank, and 4.4 with how far the first law is from the stationary one."""
  full, relaxed = {}, {}
  for level in settings.prevalence.rank_levels:
    thresholds = Thresholds(0.0, level)
    full[str(level)] = assumptions.recoverable_hidden_states(hmm, 0, thresholds).holds
    relaxed[str(level)] = assumptions.relaxed_recoverable_hidden_states(hmm, 0, task_weights, thresholds).holds
  stationary = assumptions.stationarity(hmm, Thresholds(0.0, 0.0), settings.stationarity_tolerance)
  return {
    '4.2': full,
    '4.5': relaxed,
    '4.4': stationary.holds,
    'stationarity_error': stationary.closeness['stationarity_error'],
  }
