"""Verification of each theorem on many HMMs: its construction beside the exact posterior, sequence by sequence.

With mu the identity on what a theorem recovers, its scores must be that part of the posterior up to a positive factor.
That implies the label of every task, ties included, so no task is drawn. Wrong constructions must fail the same check.
"""

import functools
import itertools
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
from hmm_jax.theory.scoring import Predictions
from hmm_jax.theory.theorems import Program

# The name of the right construction among the wrong ones.
RIGHT = 'right'
# Relative errors up to this are rounding: float64 takes masses on H* that differ by 4e-11 for ties of the attention.
TOLERANCE = 1e-7
# All sequences up to this length are tested.
_SHORT = 4
# Of a block of sampled sequences so many must be new, in the region and with mass, or else the HMM is drawn again.
_LEAST_NEW = scoring.BLOCK_SIZE // 4
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
  """A problem and the exact model's predictions on its sequences.

  Attributes:
    problem: the problem.
    program: its theorem's.
    predictions: of all sequences behind the prompt of the program.
    is_tested: [n], the first occurrence of each sequence of the region.
    names: fields of its records.
  """

  problem: Any
  program: Program
  predictions: Predictions
  is_tested: np.ndarray
  names: Record


def verify(theorem: Theorem, settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A record for each HMM, and for the first of them one for each wrong construction, which must be detected."""
  v, records = settings.verification, list[Record]()
  with reporter.track(f'Theorem {theorem.name}', v.num_hmms) as advance:
    for index in range(v.num_hmms):
      drawn = draw(theorem, settings, jax.random.fold_in(key, index), index)
      programs = {RIGHT: drawn.program}
      if index < v.num_mutated:
        programs |= wrong_constructions(theorem.name, drawn.problem, drawn.program)
      for name, program in programs.items():
        records.append({**drawn.names, 'construction': name, **checked(drawn, program)})
      advance(index + 1, f'last HMM drawn {1 + drawn.names["redraws"]} times')
  return records


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
    predictions, is_tested = _predicted(v, problem, program, key_text)
    if (is_tested & has_mass(predictions, program)).sum() < v.num_sequences:
      continue
    is_relaxed = theorem.relaxes and not theorems.finding(theorem.relaxes, problem, settings.criteria).holds
    names = {
      'theorem': theorem.name,
      'assumptions': theorem.assumptions,
      'hmm': index,
      'family': family,
      'violates': theorem.relaxes if is_relaxed else '',
      'num_essential': len(program.finding.witness.get('recoverable_states', program.recovered)),
      'redraws': redraws,
    }
    return Drawn(problem, program, predictions, is_tested, names)
  valid = f'fewer: none of {_MOST_DRAWS} HMMs has as many for Theorem {theorem.name}'
  raise SettingsError(f'verification.num_sequences is {v.num_sequences}; valid is {valid}')


def _predicted(v: VerificationSettings, problem: Any, program: Program, key: Array) -> tuple[Predictions, np.ndarray]:
  """Predictions on all short sequences and on sampled ones, and the mask of those that are tested.

  It samples until `num_sequences` with mass are tested, or a block brings few of them.
  """
  predict = functools.partial(scoring.predict, problem, program.prompt, program.finding)
  short = texts.all_sequences(problem.hmm.num_tokens, min(_SHORT, v.length), v.length)
  predictions, count = predict(short), 0
  for block in itertools.count():
    is_tested = predictions.in_region & ~pd.DataFrame(predictions.tokens).duplicated().to_numpy()
    before, count = count, (is_tested & has_mass(predictions, program)).sum()
    if count >= v.num_sequences or block and count - before < _LEAST_NEW:
      break
    sampled = texts.sampled(problem.hmm, jax.random.fold_in(key, block), scoring.BLOCK_SIZE, v.length)
    both = predictions, predict(sampled)
    predictions = jax.tree.map(lambda *parts: np.concatenate(parts), *both)
  return predictions, is_tested


def has_mass(predictions: Predictions, program: Program) -> np.ndarray:
  """Mask [n] of the sequences on which something that is recovered has positive probability; else all scores are 0."""
  return predictions.posterior[:, program.recovered].any(-1)


def checked(drawn: Drawn, program: Program) -> Record:
  """Compare a prompt and a head, right or wrong, with the posterior of the tested sequences."""
  predictions = drawn.predictions
  if program.prompt is not drawn.program.prompt:
    behind = scoring.predict(drawn.problem, program.prompt, program.finding, predictions.tokens)
    predictions = predictions._replace(token_probs=behind.token_probs)
  scores = scoring.read(predictions, program.head)
  errors = scoring.relative_errors(predictions, program.recovered, scores)[drawn.is_tested]
  with_mass = has_mass(predictions, program)[drawn.is_tested]
  return {
    'sequences': int(with_mass.sum()),
    'no_mass': int((~with_mass).sum()),
    # Not a number is wrong, too.
    'wrong': int((~(errors <= TOLERANCE)).sum()),
    'largest_error': float(errors.max()),
  }
