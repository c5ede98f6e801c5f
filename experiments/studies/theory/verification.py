"""Each theorem on many HMMs: what its construction recovers beside the exact posterior, sequence by sequence.

A sequence does not pass by its label alone: the construction has to return all that its theorem recovers, up to the
factor that its proof names. What float64 does not decide, a near tie or an error above what rounding makes, is decided
in exact fractions. And wrong constructions are put to the same checks, which have to see them.
"""

import concurrent.futures
import itertools
import os
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.studies.theory import wrong_constructions
from experiments.studies.theory.comparison import (
  BalancedProblem,
  BLOCK_SIZE,
  compared,
  Comparison,
  predicted_behind,
  read,
  TOLERANCE,
)
from experiments.studies.theory.problems import draw, exactly, majority, padded_sizes, text_of, Theorem
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory.theorems import theorems

Row = dict[str, Any]

# The name of the right construction among the wrong ones.
CONTROL = 'nothing (control)'
# The largest error that rounding makes: G is off by some 1e-16 in float64, and a head weighs it by some tens.
_ROUNDING = 1e-14


def verify(settings: TheorySettings, theorem: Theorem, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each HMM, and for the first of them one for each wrong construction that must be seen.

  HMMs are worked on side by side, one per core; a row is a function of the key and its number alone.
  """
  v, rows = settings.verification, []
  verify_one = lambda index: _verify_one(settings, theorem, key, index)
  with (
    reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance,
    concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
  ):
    # The first one compiles for all.
    for done, found in enumerate(itertools.chain([verify_one(0)], pool.map(verify_one, range(1, v.num_hmms))), 1):
      rows += found
      advance(done, f'{sum(row["sequences"] for row in rows if "assumptions" in row):,} sequences')
  return rows


def _verify_one(settings: TheorySettings, theorem: Theorem, key: Array, index: int) -> list[Row]:
  mutated = index < settings.verification.num_mutated
  drawn = draw(settings, theorem, jax.random.fold_in(key, index), index, mutated)
  named = {'theorem': theorem.name, 'hmm': index}
  rows = [{**named, 'assumptions': theorem.assumptions, **_row(settings, theorem, drawn)}]
  if mutated:
    wrong = {CONTROL: wrong_constructions.Mutant(drawn.program.prompt, drawn.program.head)}
    wrong |= wrong_constructions.wrong_constructions(
      theorem.name, drawn.problem, drawn.program, settings.verification.length, settings.limits
    )
    rows += [{**named, 'mutant': name, **_caught(settings, theorem, drawn, mutant)} for name, mutant in wrong.items()]
  if mutated and theorem.with_memory:
    rows += [{**named, **row} for row in _softened(settings, theorem, drawn)]
  return rows


def _row(settings: TheorySettings, theorem: Theorem, drawn: BalancedProblem) -> Row:
  problem, found = (
    drawn.problem,
    compared(drawn, drawn.program.head, drawn.predictions, padded_sizes(settings, theorem)),
  )
  is_near = found.has_mass & (found.gap <= settings.margin)
  # No rounding excuses an error above what it makes, another label that no near tie explains, or anything where there
  # is nothing.
  is_large, off_direction = ~(found.error <= _ROUNDING), ~(found.cosine_error <= TOLERANCE**2)
  off_label = found.label != found.built_label
  refuted = is_large & (off_direction | off_label & ~is_near)
  refuted |= ~(found.vector_error <= TOLERANCE) & ~found.has_mass
  refuted |= (drawn.predictions.posterior[:, drawn.program.recovered] > 0).any(-1) != found.has_mass
  off_factor = (found.vector_error > TOLERANCE) & ~refuted
  undecided = np.flatnonzero((is_near | off_factor | off_direction | off_label) & ~refuted)
  verdicts = _decided(theorem, drawn, found, undecided)
  trusted = found.has_mass & ~refuted
  trusted[undecided] = False
  witness = drawn.program.finding.witness
  essential = witness.get('recoverable_states', witness.get('essential_states', np.arange(problem.hmm.num_states)))
  violates = theorem.relaxes and not theorems.finding(theorem.relaxes, problem, settings.limits).holds
  return {
    **_drawn_as(problem),
    'draws': problem.drawn,
    'rejected': drawn.rejected,
    'violates': theorem.relaxes if violates else '',
    'num_essential': len(essential),
    'recovered': len(drawn.program.recovered),
    'sequences': len(found.label),
    'enumerated': drawn.enumerated,
    'majority': max(majority(found.label), majority(found.label[found.has_mass])),
    'no_mass': int((~found.has_mass).sum()),
    'near_ties': int(is_near.sum()),
    'exact_ties': sum(verdict.is_tie for verdict in verdicts),
    'decided_exactly': len(verdicts),
    'wrong': int(refuted.sum()) + sum(not verdict.is_right for verdict in verdicts),
    'largest_cosine_error': float(found.cosine_error[trusted].max(initial=0)),
    'largest_vector_error': float(found.vector_error[trusted].max(initial=0)),
    'smallest_gap': float(found.gap[trusted].min(initial=np.inf)),
  }


def _drawn_as(problem: Any) -> Row:
  """What the draw of a problem varies."""
  hmm = problem.hmm
  fields = {'num_states': hmm.num_states, 'num_tokens': hmm.num_tokens, 'num_classes': len(problem.task_weights)}
  if not hasattr(hmm, 'memory_probs'):
    return fields
  marginal = hmm.memory_probs.sum(0) if hmm.num_cells > 1 else hmm.memory_probs
  product = np.multiply.outer(hmm.memory_probs.sum(1), marginal) if hmm.num_cells > 1 else hmm.memory_probs
  return fields | {
    'full_memory': bool((hmm.memory_probs > 0).all()),
    'dependent_cells': bool(np.abs(product - hmm.memory_probs).max() > 1e-9),
    'stationary': bool(np.abs(problem.silent_probs - hmm.initial_probs).max() < 1e-12),
  }


class Verdict(NamedTuple):
  """Of one sequence, in exact fractions.

  Attributes:
    is_right: the label, and all that is recovered up to one positive factor; where float64 had another factor also that
      rounding explains it.
    is_tie: the two best exact scores are equal.
  """

  is_right: bool
  is_tie: bool


def _decided(theorem: Theorem, drawn: BalancedProblem, found: Comparison, undecided: np.ndarray) -> list[Verdict]:
  """Posterior, G, prompt and head, all in `Fraction`s."""
  if not undecided.size:
    return []
  by_fractions = exactly(theorem, drawn.problem, drawn.program)
  mu = drawn.problem.exact.task_weights[:, drawn.program.recovered]
  verdicts = []
  for index in undecided:
    text = text_of(drawn.predictions, index, drawn.problem)
    posterior, constructed = (scores[:-1] for scores in by_fractions.scores(text))
    first, second, *_ = sorted(mu @ posterior, reverse=True)
    is_right = _first_best(mu @ posterior) == _first_best(mu @ constructed) and _is_multiple(constructed, posterior)
    if is_right and found.vector_error[index] > TOLERANCE:
      of_proof = drawn.predictions.factor[index] * float(posterior.sum())
      has_factor = abs(float(constructed.sum()) - of_proof) <= TOLERANCE * of_proof
      is_rounding = has_factor and found.error[index] <= _ROUNDING
      is_right = is_rounding or theorem.with_memory and _is_nearly_attended(by_fractions, text)
    verdicts.append(Verdict(is_right, first == second))
  return verdicts


def _is_nearly_attended(by_fractions: Any, text: list[int]) -> bool:
  """Whether the exact score of a position is below the largest by less than float64 is trusted with."""
  logits = by_fractions.logits(by_fractions.predicted(text))
  return any(0 < max(logits) - logit <= TOLERANCE for logit in logits)


def _first_best(scores: np.ndarray) -> int:
  return max(range(len(scores)), key=lambda place: (scores[place], -place))


def _is_multiple(constructed: np.ndarray, posterior: np.ndarray) -> bool:
  """By one positive factor; both zero where one is."""
  if not posterior.any() or not constructed.any():
    return not posterior.any() and not constructed.any()
  return constructed.sum() > 0 and bool((constructed * posterior.sum() == posterior * constructed.sum()).all())


def _softened(settings: TheorySettings, theorem: Theorem, drawn: BalancedProblem) -> list[Row]:
  """The accuracy of the construction with a softmax of each temperature, on sequences of full length."""
  is_full = (drawn.predictions.tokens < padded_sizes(settings, theorem).num_tokens).all(-1)
  whole = jax.tree.map(lambda leaf: leaf[is_full][:BLOCK_SIZE], drawn.predictions)
  recovered, rows = drawn.program.recovered, []
  mu = drawn.problem.task_weights[:, recovered].T
  has_mass, labels = drawn.has_mass[is_full][:BLOCK_SIZE], (whole.posterior[:, recovered] @ mu).argmax(-1)
  if not has_mass.any():
    return []
  for temperature in settings.verification.temperatures:
    scores = read(whole, drawn.program.head, padded_sizes(settings, theorem), BLOCK_SIZE, temperature)
    right = (scores[:, : len(recovered)] @ mu).argmax(-1) == labels
    row = {'temperature': temperature, 'sequences': int(has_mass.sum()), 'majority': majority(labels[has_mass])}
    rows.append(row | {'accuracy': float(right[has_mass].mean())})
  return rows


def _caught(
  settings: TheorySettings, theorem: Theorem, drawn: BalancedProblem, mutant: wrong_constructions.Mutant
) -> Row:
  """How many sequences see that a construction is wrong: by label, by direction, by the factor of the proof."""
  predictions, program, padded = drawn.predictions, drawn.program, padded_sizes(settings, theorem)
  if mutant.prompt is not program.prompt:
    predictions = predicted_behind(drawn.problem, mutant.prompt, predictions, padded)
  found = compared(drawn, mutant.head, predictions, padded)
  is_large = found.error > _ROUNDING
  by_label = is_large & found.has_mass & (found.gap > settings.margin) & (found.label != found.built_label)
  by_direction = is_large & (found.cosine_error > TOLERANCE**2)
  by_vector = is_large & (found.vector_error > TOLERANCE)
  return {
    'sequences': len(found.label),
    'majority': majority(found.label),
    'by_label': int(by_label.sum()),
    'by_direction': int(by_direction.sum()),
    'by_factor': int(by_vector.sum()),
  }
