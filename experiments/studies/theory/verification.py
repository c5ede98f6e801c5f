"""Verification of each theorem on many HMMs: its construction beside the exact posterior, sequence by sequence.

With mu the identity on what a theorem recovers, its scores must be that part of the posterior up to a positive factor.
That implies the label of every task, ties included, so no task is drawn. Wrong constructions must fail the same check.
"""

from collections.abc import Sequence
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import pandas as pd

from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies.theory.settings import TheorySettings, VerificationSettings
from experiments.studies.theory.wrong_constructions import wrong_constructions
from hmm_jax.theory import families, scoring, texts, theorems
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.scoring import Answers
from hmm_jax.theory.theorems import Program

# The name of the right construction among the wrong ones.
RIGHT = 'right'
# Relative errors up to this are rounding: float64 takes masses on H* that differ by 4e-11 for ties of the attention.
TOLERANCE = 1e-7
# All sequences up to this length are tested.
_SHORT = 4
# Sequences sampled at a time: so many of them must be new, in the region and with mass, or the HMM is drawn again.
_SAMPLED = 256
_LEAST_NEW = 64
_MOST_DRAWS = 1000


class Theorem(NamedTuple):
  """The problems on which one theorem is verified; all have one size, so that each program compiles once.

  Attributes:
    name: its number.
    assumptions: the numbers of what its construction needs.
    sizes: of its problems.
    relaxes: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
    families: that its problems are drawn from by turns.
  """

  name: str
  assumptions: str
  sizes: Sizes
  relaxes: str = ''
  families: tuple[str, ...] = ('planted', 'unplanted')


_ALL = ('planted', 'unplanted', 'adversarial')
# Assumption 3.1 needs H <= V, and fails if H > V.
THEOREMS = (
  Theorem('3.3', '3.1, 3.2', Sizes(num_states=5, num_tokens=6, num_classes=2)),
  Theorem('3.6', '3.2, 3.5', Sizes(num_states=8, num_tokens=6, num_classes=2), '3.1'),
  Theorem('4.3', '4.2', Sizes(5, 6, 2, memory_size=2, num_cells=2)),
  Theorem('4.6', '3.2, 4.5', Sizes(5, 6, 2, memory_size=3, num_cells=1), '4.2', _ALL),
  Theorem('C.6', '3.2, C.5', Sizes(5, 6, 2, memory_size=3, num_cells=2), '4.2', _ALL),
)


class Drawn(NamedTuple):
  """A problem with the exact answers on the sequences that are tested.

  Attributes:
    problem: the problem.
    program: its theorem's.
    answers: on different sequences of the region, those with mass on something that is recovered first.
    redraws: the number of HMMs before it whose region has too few sequences.
  """

  problem: Any
  program: Program
  answers: Answers
  redraws: int


def verify(theorem: Theorem, settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A record for each HMM, and for the first of them one for each wrong construction, which must be detected."""
  v, records = settings.verification, list[Record]()
  with reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance:
    for index in range(v.num_hmms):
      drawn = draw(theorem, settings, jax.random.fold_in(key, index), index)
      programs = {RIGHT: drawn.program}
      if index < v.num_mutated:
        programs |= wrong_constructions(theorem.name, drawn.problem, drawn.program)
      found = compared(drawn, programs)
      names = {'theorem': theorem.name, 'hmm': index, **described(theorem, settings, drawn)}
      records += [{**names, 'construction': name, **counts} for name, counts in found.items()]
      advance(index + 1, f'{found[RIGHT]["wrong"]} wrong in the last HMM')
  return records


def described(theorem: Theorem, settings: TheorySettings, drawn: Drawn) -> Record:
  """Fields of the records of an HMM."""
  violates = ''
  if theorem.relaxes and not theorems.finding(theorem.relaxes, drawn.problem, settings.criteria).holds:
    violates = theorem.relaxes
  has_mass = _has_mass(drawn.answers, drawn.program)
  return {
    'assumptions': theorem.assumptions,
    'violates': violates,
    'num_essential': len(drawn.program.finding.witness.get('recoverable_states', drawn.program.recovered)),
    'redraws': drawn.redraws,
    'sequences': int(has_mass.sum()),
    'no_mass': int((~has_mass).sum()),
  }


def draw(theorem: Theorem, settings: TheorySettings, key: Array, index: int) -> Drawn:
  """The problem number `index`, drawn until its region has enough sequences.

  Raises:
    SettingsError: none of many HMMs has them, or none is as well conditioned.
  """
  v, family = settings.verification, theorem.families[index % len(theorem.families)]
  # One or two states of H* by turns, in each family.
  sizes = theorem.sizes._replace(num_recoverable=1 + index // len(theorem.families) % 2)
  for redraws in range(_MOST_DRAWS):
    key_hmm, key_text = jax.random.split(jax.random.fold_in(key, redraws))
    try:
      problem = families.draw(theorem.name, family, key_hmm, sizes, settings.criteria, settings.conditioning)
    except ValueError as error:
      raise SettingsError(str(error)) from error
    program = theorems.program(theorem.name, problem, v.length, settings.criteria)
    answers = _answers(v, problem, program, key_text)
    if answers is not None:
      return Drawn(problem, program, answers, redraws)
  valid = f'fewer: none of {_MOST_DRAWS} HMMs has as many for Theorem {theorem.name}'
  raise SettingsError(f'verification.num_sequences is {v.num_sequences}; valid is {valid}')


def _answers(v: VerificationSettings, problem: Any, program: Program, key: Array) -> Answers | None:
  """Answers on sampled sequences, `num_sequences` with mass at least, and on all short ones.

  None if a block of sampled ones brings few that are new.
  """
  answer = functools.partial(scoring.answer, problem, program.finding)
  parts, count = list[Answers](), 0
  while count < v.num_sequences:
    parts.append(answer(texts.sampled(problem.hmm, jax.random.fold_in(key, len(parts)), _SAMPLED, v.length)))
    before, count = count, _has_mass(_tested(parts, program), program).sum()
    if count < v.num_sequences and count - before < _LEAST_NEW:
      return None
  parts.append(answer(texts.possible_sequences(problem.hmm, min(_SHORT, v.length), v.length)))
  return _tested(parts, program)


def _tested(parts: Sequence[Answers], program: Program) -> Answers:
  """The answers on the different sequences of the region, those with mass first.

  Others may contradict the prompt, and their whole block takes slow arithmetic in logarithms.
  """
  answers = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
  is_new = ~pd.DataFrame(answers.tokens).duplicated().to_numpy()
  tested = np.flatnonzero(is_new & answers.in_region)
  order = np.argsort(~_has_mass(answers, program)[tested], kind='stable')
  return jax.tree.map(lambda array: array[tested[order]], answers)


def _has_mass(answers: Answers, program: Program) -> np.ndarray:
  """Mask [n] of the sequences on which something that is recovered has positive probability; else all scores are 0."""
  return answers.posterior[:, program.recovered].any(-1)


def compared(drawn: Drawn, programs: dict[str, Program]) -> dict[str, Record]:
  """The sequences on which each program, right or wrong, differs from the posterior, and its largest error."""
  problem, answers, right = drawn.problem, drawn.answers, drawn.program
  predictions = scoring.predict(problem, right.prompt, right.finding, answers)
  expected = predictions.factor[:, None] * answers.posterior[:, right.recovered]
  found = {}
  for name, program in programs.items():
    behind = predictions
    if program.prompt is not right.prompt:
      behind = scoring.predict(problem, program.prompt, program.finding, answers)
    errors = scoring.relative_errors(scoring.read(behind, program.head)[:, :-1], expected)
    # Not a number is wrong, too.
    found[name] = {'wrong': int((~(errors <= TOLERANCE)).sum()), 'largest_error': float(errors.max())}
  return found
