"""Verification of each theorem on many HMMs: its construction beside the exact posterior, sequence by sequence.

With mu the identity on what a theorem recovers, its scores must be that part of the posterior up to a positive factor.
That implies the label of every task, ties included, so no task is drawn. Wrong constructions must fail the same check.
"""

import itertools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import pandas as pd

from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory.settings import TheorySettings
from experiments.studies.theory.wrong_constructions import wrong_constructions
from hmm_jax.theory import enumeration, families, scoring, theorems
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.scoring import Answers
from hmm_jax.theory.theorems import Program
from hmm_jax.tuning.tasks import draw_texts

# The name of the right construction among the wrong ones.
RIGHT = 'right'
# Relative errors up to this are rounding. Attention in float64 takes a position for sure whose state lies outside of H*
# with probability 4e-11; left inverses amplify this, and so do small scores.
TOLERANCE = 1e-6
# All sequences up to this length are tested.
_SHORT = 4
# So many sampled sequences are looked at first. If the share of different ones in the region and with mass is smaller,
# the HMM is drawn again.
_FIRST = 256
_LEAST_SHARE = 0.3


class Theorem(NamedTuple):
  """The problems on which one theorem is verified; all have one size, so that each program compiles once.

  Attributes:
    name: its number.
    sizes: of its problems.
    families: that its problems are drawn from by turns.
  """

  name: str
  sizes: Sizes
  families: tuple[str, ...] = ('planted', 'unplanted')


_ALL = ('planted', 'unplanted', 'adversarial')
# Assumption 3.1 needs H <= V: Theorem 3.6 does without.
THEOREMS = (
  Theorem('3.3', Sizes(num_states=5, num_tokens=6, num_classes=2)),
  Theorem('3.6', Sizes(num_states=8, num_tokens=6, num_classes=2)),
  Theorem('4.3', Sizes(4, 6, 2, memory_size=2, num_cells=2, num_recoverable=2)),
  Theorem('4.6', Sizes(4, 6, 2, memory_size=3, num_cells=1, num_recoverable=2), _ALL),
  Theorem('C.6', Sizes(4, 6, 2, memory_size=3, num_cells=2, num_recoverable=2), _ALL),
)


def verify(theorem: Theorem, settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A record for each HMM, and for the first of them one for each wrong construction, which must be detected."""
  v, records = settings.verification, []
  with reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance:
    for index in range(v.num_hmms):
      problem, program, answers, redraws = draw(theorem, settings, jax.random.fold_in(key, index), index)
      programs = {RIGHT: program}
      if index < v.num_mutated:
        programs |= wrong_constructions(problem, program)
      common = {'theorem': theorem.name, 'hmm': index, 'redraws': redraws, 'sequences': len(answers.tokens)}
      common['no_mass'] = int((~_has_mass(answers, program)).sum())
      for name, errors in errors_of(problem, program, answers, programs).items():
        records.append({**common, 'construction': name, **judged(errors)})
      advance(index + 1, f'{redraws} redrawn before the last HMM')
  return records


def draw(theorem: Theorem, settings: TheorySettings, key: Array, index: int) -> tuple[Any, Program, Answers, int]:
  """The problem number `index`, drawn until sampled sequences lie in its region often enough.

  Returns it with its program, the exact answers on different sequences of the region, those with mass on something that
  is recovered first, and the number of HMMs before it.
  """
  v, family = settings.verification, theorem.families[index % len(theorem.families)]
  for redraws in itertools.count():
    key_hmm, key_text = jax.random.split(jax.random.fold_in(key, redraws))
    problem = families.draw(theorem.name, family, key_hmm, theorem.sizes, settings.criteria, settings.conditioning)
    program = theorems.program(theorem.name, problem, v.length, settings.criteria)
    sampled = np.asarray(draw_texts(key_text, problem.hmm, 0, int(v.num_sequences / _LEAST_SHARE), v.length)[1])
    first = _tested(problem, program, sampled[:_FIRST])
    share = _has_mass(first, program).sum() / _FIRST
    if share >= _LEAST_SHARE:
      break
  short = enumeration.all_sequences(problem.hmm.num_tokens, _SHORT, v.length)
  short = short[scoring.answer(problem, short).loglik > -np.inf]
  enough = max(int(v.num_sequences / share) - len(short), _FIRST)
  answers = _tested(problem, program, np.concatenate([short, sampled[:enough]]))
  return problem, program, answers, redraws


def _tested(problem: Any, program: Program, tokens: np.ndarray) -> Answers:
  """The answers on different sequences of the region, those with mass on something that is recovered first."""
  different = pd.DataFrame(tokens).drop_duplicates().to_numpy()
  answers = scoring.answer(problem, different)
  in_region = scoring.in_region(problem, program.finding, answers)
  has_mass = in_region & _has_mass(answers, program)
  # Sequences without mass may contradict the prompt; their block takes slow arithmetic in logarithms. So they are few.
  without = np.flatnonzero(in_region & ~has_mass)
  tested = np.append(np.flatnonzero(has_mass), without[: has_mass.sum() // 10])
  return jax.tree.map(lambda array: array[tested], answers)


def _has_mass(answers: Answers, program: Program) -> np.ndarray:
  """Mask [n] of the sequences on which something that is recovered has positive probability; else all scores are 0."""
  return answers.posterior[:, program.recovered].max(-1) > 0


def errors_of(problem: Any, right: Program, answers: Answers, programs: dict[str, Program]) -> dict[str, np.ndarray]:
  """The relative error [n] of each program, right or wrong, on each sequence."""
  behind_right = scoring.predict(problem, right.prompt, right.finding, answers)
  expected = behind_right.factor[:, None] * answers.posterior[:, right.recovered]
  found = {}
  for name, program in programs.items():
    predictions = behind_right
    if program.prompt is not right.prompt:
      predictions = scoring.predict(problem, program.prompt, program.finding, answers)
    found[name] = scoring.relative_errors(scoring.read(predictions, program.head)[:, :-1], expected)
  return found


def judged(errors: np.ndarray) -> Record:
  """How many errors are above the tolerance, not a number among them, and the largest."""
  return {'wrong': int((~(errors <= TOLERANCE)).sum()), 'largest_error': float(errors.max(initial=0))}
