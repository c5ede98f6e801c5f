"""Each theorem on many structured HMMs: its construction beside the exact label, sequence by sequence."""

from collections.abc import Callable
import concurrent.futures
import functools
import itertools
import math
import os
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.progress import Reporter
from experiments.theory.settings import TheorySettings, ThresholdSettings
from hmm_jax.blocks import in_blocks
from hmm_jax.theory import assumptions, recovery, scoring, structured
from hmm_jax.theory.structured import MemoryProblem, Sizes, StateProblem

Row = dict[str, Any]
Problem = StateProblem | MemoryProblem
# tokens [n, T] -> `Evaluation`.
Evaluate = Callable[[np.ndarray], scoring.Evaluation]

# Sequences that are evaluated at a time.
_BLOCK_SIZE = 2048


class Theorem(NamedTuple):
  """What one theorem is verified on.

  Attributes:
    name: its number.
    assumptions: the numbers of what it assumes.
    sizes: of the problems.
    relaxes: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
  """

  name: str
  assumptions: str
  sizes: Sizes
  relaxes: str = ''


def theorems(settings: TheorySettings) -> list[Theorem]:
  """The five that are verified, C.6 with two cells."""
  v = settings.verification
  states = functools.partial(Sizes, num_classes=v.num_classes, memory_size=0, num_cells=0)
  memory = functools.partial(Sizes, v.num_states, v.num_tokens, v.num_classes)
  return [
    Theorem('3.3', '3.1, 3.2', states(v.num_states, v.num_tokens)),
    Theorem('3.6', '3.2, 3.5', states(v.num_states_3_6, v.num_tokens), '3.1'),
    Theorem('4.3', '3.2, 4.2', memory(2, 2)),
    Theorem('4.6', '4.4, 4.5', memory(v.memory_size, 1), '4.2'),
    Theorem('C.6', '4.4, C.5', memory(v.memory_size, 2), '4.2'),
  ]


def verify(settings: TheorySettings, theorem: Theorem, key: Array, reporter: Reporter) -> list[Row]:
  """One row per HMM: what was checked on every possible sequence up to a length, and on sampled long ones.

  HMMs are worked on side by side, one per core; a row is a function of the key and its number alone.
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
  problem = draw(theorem.name, theorem.sizes, key_draw, settings)
  texts = {
    'enumerated': scoring.possible_sequences(problem.hmm, v.max_length),
    'sampled': np.unique(scoring.sampled(problem.hmm, key_text, v.num_sampled, v.sampled_length), axis=0),
  }
  violates = theorem.relaxes and not finding(theorem.relaxes, problem, settings).holds
  row = {
    'theorem': theorem.name,
    'assumptions': theorem.assumptions,
    'hmm': index,
    'draws': problem.drawn,
    'violates': theorem.relaxes if violates else '',
  }
  for kind, tokens in texts.items():
    evaluated = in_blocks(evaluator(theorem.name, problem, tokens.shape[1], settings), tokens, _BLOCK_SIZE)
    counts = scoring.count(evaluated, settings.margin)
    row |= {f'{kind}_{name}': value for name, value in counts._asdict().items()}
    # That of no sequence is infinite.
    row[f'{kind}_smallest_gap'] = counts.smallest_gap if math.isfinite(counts.smallest_gap) else None
  return row


def draw(theorem: str, sizes: Sizes, key: Array, settings: TheorySettings) -> Any:
  """A problem that satisfies the assumptions of the theorem."""
  thresholds, conditioning = settings.thresholds, settings.conditioning
  match theorem:
    case '3.3':
      return structured.for_theorem_3_3(key, sizes, thresholds, conditioning)
    case '3.6':
      return structured.for_theorem_3_6(key, sizes, thresholds, conditioning, settings.max_nodes)
    case '4.3':
      return structured.for_theorem_4_3(key, sizes, thresholds, conditioning)
    case _:
      return structured.for_theorem_4_6(key, sizes, thresholds, conditioning, settings.stationarity_tolerance)


def finding(assumption: str, problem: Any, settings: ThresholdSettings) -> assumptions.Finding:
  """Whether the problem satisfies the assumption of this number; `start` is what Theorem 4.6 needs in place of 4.4."""
  hmm, mu, thresholds = problem.hmm, problem.task_weights, settings.thresholds
  match assumption:
    case '3.1':
      return assumptions.non_degeneracy(hmm, thresholds)
    case '3.2' if isinstance(problem, StateProblem):
      both_laws = np.stack([hmm.initial_probs, problem.silent_probs])
      return assumptions.regularity(hmm._replace(initial_probs=both_laws), thresholds)
    case '3.2':
      return assumptions.regularity(hmm, thresholds)
    case '3.5':
      return assumptions.relaxed_non_degeneracy(hmm, mu, thresholds, settings.max_nodes)
    case '4.2':
      return assumptions.recoverable_hidden_states(hmm, problem.cell, thresholds)
    case '4.4':
      return assumptions.stationarity(hmm, thresholds, settings.stationarity_tolerance)
    case 'start':
      return assumptions.silent_start(hmm, problem.silent_probs, thresholds, settings.stationarity_tolerance)
    case _:
      return assumptions.relaxed_recoverable_hidden_states(hmm, problem.cell, mu, thresholds)


def construct(theorem: str, problem: Any, length: int, settings: ThresholdSettings) -> recovery.Construction:
  """The prompt and the head of the theorem for texts of length T; raises AssumptionError."""
  hmm, mu, thresholds = problem.hmm, problem.task_weights, settings.thresholds
  match theorem:
    case '3.3':
      return recovery.theorem_3_3(hmm, mu, problem.silent_probs, thresholds)
    case '3.6':
      return recovery.theorem_3_6(hmm, mu, problem.silent_probs, thresholds, settings.max_nodes)
    case '4.3':
      return recovery.theorem_4_3(hmm, mu, problem.cell, length, thresholds)
    case _:
      return recovery.theorem_4_6(
        hmm, mu, problem.silent_probs, problem.cell, length, thresholds, settings.stationarity_tolerance
      )


def evaluator(theorem: str, problem: Problem, length: int, settings: ThresholdSettings) -> Evaluate:
  """What scores the construction of the theorem beside the exact label on texts of length T; raises AssumptionError."""
  built = construct(theorem, problem, length, settings)
  if isinstance(problem, StateProblem):
    return functools.partial(scoring.evaluate_states, problem, built)
  recoverable = finding('4.2' if theorem == '4.3' else '4.5', problem, settings)
  return functools.partial(scoring.evaluate_memory, problem, built, recoverable)
