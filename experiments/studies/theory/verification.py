"""Verification of each theorem on many HMMs: its construction against the exact posterior, sequence by sequence.

A right label is not enough: the construction must return all that its theorem recovers, up to the factor of the proof.
Exact fractions decide what float64 does not: near ties, and errors above the rounding bound. Wrong constructions must
fail the same checks.
"""

import concurrent.futures
import functools
import os
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory.problems import draw, majority, text_of, Theorem
from experiments.studies.theory.rational_constructions import exact_construction
from experiments.studies.theory.settings import TheorySettings
from experiments.studies.theory.wrong_constructions import wrong_constructions
from hmm_jax._support.rational.algebra import as_fractions
from hmm_jax.theory import theorems
from hmm_jax.theory.comparison import compared, Comparison, PredictedProblem, TOLERANCE
from hmm_jax.theory.theorems import Program

# The name of the right construction among the wrong ones.
CONTROL = 'nothing (control)'
# The rounding bound: G is off by some 1e-16 in float64, and a head weighs it by some tens.
_ROUNDING = 1e-14
# The most sequences of an HMM that a softmax reads.
_SOFTENED = 1280


def verify(theorem: Theorem, settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A row for each HMM, and for the first of them one for each wrong construction that must be detected.

  HMMs are worked on side by side, one per core; a row is a function of the key and its number only.
  """
  v, rows = settings.verification, list[Record]()
  verify_one = functools.partial(_verify_one, settings, theorem, key)
  with (
    reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance,
    concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
  ):
    # The first one compiles for all.
    rows += verify_one(0)
    for index, rows_of_hmm in enumerate(pool.map(verify_one, range(1, v.num_hmms)), 1):
      rows += rows_of_hmm
      advance(index + 1, f'{rows_of_hmm[0]["wrong"]} wrong in the last HMM')
  return rows


def _verify_one(settings: TheorySettings, theorem: Theorem, key: Array, index: int) -> list[Record]:
  """The records of HMM number `index`: right construction, wrong ones if it is among the first, and softmaxes."""
  v = settings.verification
  mutated = index < v.num_mutated
  drawn = draw(settings, theorem, jax.random.fold_in(key, index), index, mutated)
  rows = [row_of(settings, theorem, drawn)]
  if mutated:
    wrong = wrong_constructions(theorem.name, drawn.problem, drawn.program, v.length, settings.criteria)
    programs = {CONTROL: drawn.program, **wrong}
    rows += [{'mutant': name, **detections(settings, drawn, program)} for name, program in programs.items()]
    rows += _softened(v.temperatures, drawn) if theorem.num_cells else []
  return [{'theorem': theorem.name, 'hmm': index, **row} for row in rows]


def row_of(settings: TheorySettings, theorem: Theorem, drawn: PredictedProblem) -> Record:
  """The record of the right construction: the number of sequences it is wrong on, and its errors."""
  problem, program, has_mass = drawn.problem, drawn.program, drawn.has_mass
  comparison = compared(drawn, program)
  is_near = has_mass & (comparison.gap <= settings.margin)
  # Flag errors above the rounding bound in direction, or in a label that no near tie explains; and any output where the
  # posterior has no mass. NaN counts as an error.
  off_vector, off_direction = ~(comparison.vector_error <= TOLERANCE), ~(comparison.cosine_error <= TOLERANCE**2)
  refuted = ~(comparison.error <= _ROUNDING) & (off_direction | comparison.off_label & ~is_near)
  refuted |= off_vector & ~has_mass
  refuted |= (drawn.predictions.posterior[:, program.recovered] > 0).any(-1) != has_mass
  doubtful = is_near | off_vector | off_direction | comparison.off_label
  verdicts = _decided(theorem, drawn, comparison, np.flatnonzero(doubtful & ~refuted))
  trusted = has_mass & ~refuted & ~doubtful
  is_relaxed = theorem.relaxes and not theorems.finding(theorem.relaxes, problem, settings.criteria).holds
  return {
    'assumptions': theorem.assumptions,
    'num_tokens': problem.hmm.num_tokens,
    'num_classes': len(problem.task_weights),
    **(_memory(problem) if theorem.num_cells else {}),
    'violates': theorem.relaxes if is_relaxed else '',
    'num_essential': len(program.finding.witness.get('recoverable_states', program.recovered)),
    'sequences': len(has_mass),
    'majority': max(majority(comparison.label), majority(comparison.label[has_mass])),
    'no_mass': int((~has_mass).sum()),
    'near_ties': int(is_near.sum()),
    'exact_ties': sum(is_tie for _, is_tie in verdicts),
    'decided_exactly': len(verdicts),
    'wrong': int(refuted.sum()) + sum(not is_right for is_right, _ in verdicts),
    'largest_cosine_error': float(comparison.cosine_error[trusted].max(initial=0)),
    'largest_vector_error': float(comparison.vector_error[trusted].max(initial=0)),
  }


def _memory(problem: Any) -> Record:
  """Fields of a record on how draws of a memory differ."""
  memory = problem.hmm.memory_probs
  product = np.outer(memory.sum(1), memory.sum(0)) if memory.ndim > 1 else memory
  return {
    'full_memory': bool((memory > 0).all()),
    'dependent_cells': not np.allclose(product, memory, rtol=0, atol=1e-9),
    'stationary': np.allclose(problem.silent_probs, problem.hmm.initial_probs, rtol=0, atol=1e-12),
  }


def _decided(
  theorem: Theorem, drawn: PredictedProblem, comparison: Comparison, undecided: np.ndarray
) -> list[tuple[bool, bool]]:
  """Decide if the construction is right on each of these sequences, and if its two best exact scores are equal.

  Posterior, G, prompt and head are in `Fraction`s. Right means all that is recovered, up to one positive factor. If the
  factor in float64 is not the proof's, rounding has to explain it, or a position whose logit is within TOLERANCE of the
  largest.
  """
  if not undecided.size:
    return []
  recovered, problem, verdicts = drawn.program.recovered, drawn.problem.fractions, []
  weights = as_fractions(theorems.identity_weights(problem.task_weights.shape[1], recovered))
  by_fractions: Any = exact_construction(problem._replace(task_weights=weights), theorem.name)
  mu = problem.task_weights[:, recovered]
  for index in undecided:
    text = text_of(drawn.predictions, index, problem)
    posterior, constructed = (scores[:-1] for scores in by_fractions.scores(text))
    total, built = posterior.sum(), constructed.sum()
    is_multiple = (constructed * total == posterior * built).all() and posterior.any() == constructed.any()
    # A positive multiple has the same label, whatever mu is.
    is_right = bool(is_multiple and built >= 0)
    if is_right and comparison.vector_error[index] > TOLERANCE:
      of_proof = drawn.predictions.factor[index] * float(total)
      is_right = abs(float(built) - of_proof) <= TOLERANCE * of_proof and comparison.error[index] <= _ROUNDING
      if not is_right and theorem.num_cells:
        logits = by_fractions.logits(by_fractions.predicted(text))
        is_right = any(0 < max(logits) - logit <= TOLERANCE for logit in logits)
    *_, second, first = sorted(mu @ posterior)
    verdicts.append((is_right, first == second))
  return verdicts


def _softened(temperatures: tuple[float, ...], drawn: PredictedProblem) -> list[Record]:
  """The accuracy of the construction with a softmax of each temperature, on sequences of full length."""
  is_full = (drawn.predictions.tokens < drawn.problem.hmm.num_tokens).all(-1)
  predictions, has_mass = jax.tree.map(lambda leaf: leaf[is_full][:_SOFTENED], (drawn.predictions, drawn.has_mass))
  rows = list[Record]()
  for temperature in temperatures if has_mass.any() else ():
    comparison = compared(drawn._replace(predictions=predictions, has_mass=has_mass), drawn.program, temperature)
    labels, accuracy = comparison.label[has_mass], float((~comparison.off_label[has_mass]).mean())
    rows.append({'temperature': temperature, 'majority': majority(labels), 'accuracy': accuracy})
  return rows


def detections(settings: TheorySettings, drawn: PredictedProblem, program: Program) -> Record:
  """Count the sequences that show a construction to be wrong: by label, by direction, by the factor of the proof."""
  comparison = compared(drawn, program)
  is_large = comparison.error > _ROUNDING
  by_label = is_large & drawn.has_mass & (comparison.gap > settings.margin) & comparison.off_label
  return {
    'sequences': len(comparison.label),
    'by_label': int(by_label.sum()),
    'by_direction': int((is_large & (comparison.cosine_error > TOLERANCE**2)).sum()),
    'by_factor': int((is_large & (comparison.vector_error > TOLERANCE)).sum()),
  }
