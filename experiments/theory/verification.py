"""Each theorem on many structured HMMs: its construction beside the exact label, sequence by sequence."""

from collections.abc import Callable
import concurrent.futures
import functools
import itertools
import math
import os
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.progress import Reporter
from experiments.theory.settings import TheorySettings
from hmm_jax.blocks import in_blocks
from hmm_jax.theory import assumptions
from hmm_jax.theory import recovery
from hmm_jax.theory import scoring
from hmm_jax.theory import structured
from hmm_jax.theory.structured import MemoryProblem
from hmm_jax.theory.structured import Sizes
from hmm_jax.theory.structured import StateProblem

Array = jax.Array
Row = dict[str, Any]
# tokens [n, T] -> `Evaluation`.
Evaluate = Callable[[np.ndarray], scoring.Evaluation]

# Sequences that are evaluated at a time.
_BLOCK_SIZE = 2048


class Theorem(NamedTuple):
  """How one theorem is verified.

  Attributes:
    name: its number.
    assumptions: the numbers of what it assumes.
    sizes: of the problems.
    draw: (settings, sizes, key) -> a problem that satisfies the assumptions.
    violates: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
    violated: (settings, problem) -> whether that one fails.
    construct: (settings, problem, T) -> the function that takes tokens [n, T] to the `Evaluation` of its construction.
  """

  name: str
  assumptions: str
  sizes: Sizes
  draw: Callable
  violates: str
  violated: Callable
  construct: Callable


def theorems(settings: TheorySettings) -> list[Theorem]:
  """The five that are verified, C.6 with two cells."""
  v = settings.verification
  states = functools.partial(Sizes, num_classes=v.num_classes, memory_size=0, num_cells=0)
  memory = functools.partial(Sizes, v.num_states, v.num_tokens, v.num_classes)
  return [
    Theorem('3.3', '3.1, 3.2', states(v.num_states, v.num_tokens), _draw_3_3, '', _never, _construct_3_3),
    Theorem('3.6', '3.2, 3.5', states(v.num_states_3_6, v.num_tokens), _draw_3_6, '3.1', _fails_3_1, _construct_3_6),
    Theorem('4.3', '3.2, 4.2', memory(2, 2), _draw_4_3, '', _never, _construct_4_3),
    Theorem('4.6', '4.4, 4.5', memory(v.memory_size, 1), _draw_4_6, '4.2', _fails_4_2, _construct_4_6),
    Theorem('C.6', '4.4, C.5', memory(v.memory_size, 2), _draw_4_6, '4.2', _fails_4_2, _construct_4_6),
  ]


def verify(settings: TheorySettings, theorem: Theorem, key: Array, reporter: Reporter) -> list[Row]:
  """One row an HMM: what was checked on every possible sequence up to a length, and on sampled long ones.

  HMMs are worked on side by side, one a core; a row is a function of the key and its number alone.
  """
  v, rows = settings.verification, []
  verify_one = functools.partial(_verify_one, settings, theorem, key)
  with (
    reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance,
    concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
  ):
    # The first one compiles for all.
    for row in itertools.chain([verify_one(0)], pool.map(verify_one, range(1, v.num_hmms))):
      rows.append(row)
      checked = sum(row['enumerated_in_region'] + row['sampled_in_region'] for row in rows)
      advance(len(rows), f'{checked:,} sequences')
  return rows


def _verify_one(settings: TheorySettings, theorem: Theorem, key: Array, index: int) -> Row:
  v = settings.verification
  key_draw, key_text = jax.random.split(jax.random.fold_in(key, index))
  problem = theorem.draw(settings, theorem.sizes, key_draw)
  texts = {
    'enumerated': scoring.possible_sequences(problem.hmm, v.max_length),
    'sampled': np.unique(scoring.sampled(problem.hmm, key_text, v.num_sampled, v.sampled_length), axis=0),
  }
  row = {
    'theorem': theorem.name,
    'assumptions': theorem.assumptions,
    'hmm': index,
    'draws': problem.drawn,
    'violates': theorem.violates if theorem.violated(settings, problem) else '',
  }
  for kind, tokens in texts.items():
    evaluate = theorem.construct(settings, problem, tokens.shape[1])
    evaluated = in_blocks(evaluate, tokens, _BLOCK_SIZE)
    row |= _fields(kind, scoring.count(evaluated, settings.margin))
  return row


def _fields(kind: str, counts: scoring.Count) -> Row:
  """The counts by name; an infinite gap, that of no sequence, is null."""
  fields = {f'{kind}_{name}': value for name, value in counts._asdict().items()}
  gap = fields[f'{kind}_smallest_gap']
  return {**fields, f'{kind}_smallest_gap': gap if math.isfinite(gap) else None}


def _draw_3_3(settings: TheorySettings, sizes: Sizes, key: Array) -> StateProblem:
  return structured.for_theorem_3_3(key, sizes, settings.thresholds, settings.conditioning)


def _draw_3_6(settings: TheorySettings, sizes: Sizes, key: Array) -> StateProblem:
  return structured.for_theorem_3_6(key, sizes, settings.thresholds, settings.conditioning, settings.max_nodes)


def _draw_4_3(settings: TheorySettings, sizes: Sizes, key: Array) -> MemoryProblem:
  return structured.for_theorem_4_3(key, sizes, settings.thresholds, settings.conditioning)


def _draw_4_6(settings: TheorySettings, sizes: Sizes, key: Array) -> MemoryProblem:
  return structured.for_theorem_4_6(
    key, sizes, settings.thresholds, settings.conditioning, settings.stationarity_tolerance
  )


def _never(settings: TheorySettings, problem: Any) -> bool:
  del settings, problem
  return False


def _fails_3_1(settings: TheorySettings, problem: StateProblem) -> bool:
  return not assumptions.non_degeneracy(problem.hmm, settings.thresholds).holds


def _fails_4_2(settings: TheorySettings, problem: MemoryProblem) -> bool:
  return not assumptions.recoverable_hidden_states(problem.hmm, problem.cell, settings.thresholds).holds


def _construct_3_3(settings: TheorySettings, problem: StateProblem, length: int) -> Evaluate:
  del length
  hmm, silent_probs, mu, _ = problem
  built = recovery.theorem_3_3(hmm, mu, silent_probs, settings.thresholds)
  return functools.partial(scoring.evaluate_states, hmm, silent_probs, mu, built)


def _construct_3_6(settings: TheorySettings, problem: StateProblem, length: int) -> Evaluate:
  del length
  hmm, silent_probs, mu, _ = problem
  built = recovery.theorem_3_6(hmm, mu, silent_probs, settings.thresholds, settings.max_nodes)
  return functools.partial(scoring.evaluate_states, hmm, silent_probs, mu, built)


def _construct_4_3(settings: TheorySettings, problem: MemoryProblem, length: int) -> Evaluate:
  hmm, mu, cell, _ = problem
  finding = assumptions.recoverable_hidden_states(hmm, cell, settings.thresholds)
  built = recovery.theorem_4_3(hmm, mu, cell, length, settings.thresholds)
  return functools.partial(scoring.evaluate_memory, hmm, cell, mu, built, finding)


def _construct_4_6(settings: TheorySettings, problem: MemoryProblem, length: int) -> Evaluate:
  hmm, mu, cell, _ = problem
  finding = assumptions.relaxed_recoverable_hidden_states(hmm, cell, mu, settings.thresholds)
  built = recovery.theorem_4_6(hmm, mu, cell, length, settings.thresholds, settings.stationarity_tolerance)
  return functools.partial(scoring.evaluate_memory, hmm, cell, mu, built, finding)
