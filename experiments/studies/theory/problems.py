"""Problems that a theorem can fail on: many sequences in its region, and a task that is balanced on them."""

import itertools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings.fields import SettingsError
from experiments.studies.theory.rational_constructions import exact_posterior
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory import families, padding, scoring, texts, theorems
from hmm_jax.theory.comparison import BLOCK_SIZE, compared, predicted, PredictedProblem, TOLERANCE
from hmm_jax.theory.families import Sizes
from hmm_jax.theory.padding import PaddedSizes
from hmm_jax.theory.problem import generator, random_weights, small_fractions
from hmm_jax.theory.scoring import Predictions
from hmm_jax.theory.theorems import Program

# Sizes V of the vocabulary and numbers C of labels, cycled through; Assumption 3.1 needs |H| <= V.
_NUM_TOKENS = (6, 7, 8)
_NUM_CLASSES = (2, 3)
# HMMs drawn in search of one that qualifies, and tasks for each of them.
_MOST_HMMS = 1000
_MOST_TASKS = 60
# Largest share of sequences without mass: all that is recovered has probability 0, which decides their label.
_MOST_WITHOUT_MASS = 0.1
# Sequences sampled at a time, and the fewest of them that must be in the region, new, and have mass.
_SAMPLED = 512
_LEAST_NEW = 128
# The most sequences of a task that exact arithmetic decides.
_MOST_TIES = 40


class Theorem(NamedTuple):
  """The problems on which one theorem is verified.

  Attributes:
    name: its number.
    assumptions: the numbers of what its construction needs.
    relaxes: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
    num_states: |H| by turns.
    num_cells: of the memory that its task is on; 0 without one.
    memory_size: values |M| of a cell; Theorems 4.6 and C.6 weigh two of them.
    families: that its problems are drawn from by turns.
  """

  name: str
  assumptions: str
  relaxes: str = ''
  num_states: tuple[int, ...] = (3, 4, 5)
  num_cells: int = 0
  memory_size: int = 3
  families: tuple[str, ...] = ('planted', 'unplanted', 'adversarial')

  def sizes(self, family: str, index: int) -> Sizes:
    """The sizes of the problem number `index`: each size cycles through its values at its own pace.

    Adversarial HMMs have the largest H: with few states outside H*, keys are rarely as large as these need.
    """
    in_turn = lambda values, stride: values[index // stride % len(values)]
    return Sizes(
      num_states=max(self.num_states) if family == 'adversarial' else in_turn(self.num_states, 2),
      num_tokens=in_turn(_NUM_TOKENS, 3),
      num_classes=in_turn(_NUM_CLASSES, 5),
      memory_size=self.memory_size,
      num_cells=self.num_cells,
      num_recoverable=1 if index % 8 == 0 else 2,
    )

  @property
  def padded(self) -> PaddedSizes:
    """The sizes to which its problems are padded, so that they share a program."""
    largest = max(self.num_states)
    return PaddedSizes(largest, max(_NUM_TOKENS), self.memory_size, num_outputs=max(largest, self.memory_size) + 1)


_BOTH = ('planted', 'unplanted')
THEOREMS = (
  Theorem('3.3', '3.1, 3.2', num_states=(3, 4, 5, 6), families=_BOTH),
  Theorem('3.6', '3.2, 3.5', '3.1', num_states=(6, 7, 8, 9), families=_BOTH),
  Theorem('4.3', '4.2', num_cells=2, memory_size=2, families=(*_BOTH, 'planted')),
  Theorem('4.6', '3.2, 4.5', '4.2', num_cells=1),
  Theorem('C.6', '3.2, C.5', '4.2', num_cells=2),
)


def draw(settings: TheorySettings, theorem: Theorem, key: Array, index: int, mutated: bool) -> PredictedProblem:
  """The problem number `index`, drawn until its region is large and a task balanced.

  Raises:
    SettingsError: none of many HMMs qualifies, or none is as well conditioned.
  """
  v, family = settings.verification, theorem.families[index % len(theorem.families)]
  least = v.num_sequences_mutated if mutated else v.num_sequences
  # With random supports posteriors are rarely uncertain enough for a tie.
  tied = index % 4 >= 2 and family != 'unplanted'
  for number in range(_MOST_HMMS):
    key_draw, key_text, key_task = jax.random.split(jax.random.fold_in(key, number), 3)
    sizes = theorem.sizes(family, index)
    try:
      problem = families.draw(theorem.name, family, key_draw, sizes, settings.criteria, settings.conditioning)
    except ValueError as error:
      raise SettingsError(str(error)) from error
    program = theorems.program(theorem.name, problem, v.length, settings.criteria)
    drawn_texts = _texts(problem, program, theorem.padded, v.length, key_text, least)
    drawn = drawn_texts and _with_task(
      settings, problem, program, theorem.padded, *drawn_texts, generator(key_task), tied
    )
    if drawn:
      return drawn
  valid = f'fewer: none of {_MOST_HMMS} HMMs qualifies for Theorem {theorem.name}'
  raise SettingsError(f'verification.num_sequences is {least}; valid is {valid}')


def _with_task(
  settings: TheorySettings,
  problem: Any,
  program: Program,
  padded: PaddedSizes,
  tokens: np.ndarray,
  has_mass: np.ndarray,
  rng: np.random.Generator,
  tied: bool,
) -> PredictedProblem | None:
  """The problem with a task that is balanced on these sequences, None if it has none."""
  # A part of the sequences shows most HMMs without a balanced task.
  for step in sorted({1, max(len(tokens) // BLOCK_SIZE, 1)}, reverse=True):
    predictions = predicted(problem, program, tokens[::step], padded)
    task: Any = _balanced(settings, problem, program.recovered, predictions, has_mass[::step], rng, tied)
    if task is None:
      return None
  problem = problem._replace(task_weights=task.astype(float), fractions=problem.fractions._replace(task_weights=task))
  drawn = PredictedProblem(problem, program, predictions, has_mass, padded)
  # If rounding hides that a position is only nearly attended, float64 is right but for the factor. A construction
  # whose factor is wrong elsewhere too finds no HMM that qualifies.
  right = compared(drawn, program)
  off_factor = has_mass & (right.vector_error > TOLERANCE) & (right.cosine_error <= TOLERANCE**2)
  return drawn if off_factor.sum() <= _MOST_TIES else None


def _texts(
  problem: Any, program: Program, padded: PaddedSizes, length: int, key: Array, least: int
) -> tuple[np.ndarray, np.ndarray] | None:
  """`least` different sequences in the region, and the mask of those with mass on something that is recovered.

  At most a share `_MOST_WITHOUT_MASS` has none. None where sequences are too rare.
  """
  filled_up = padding.chain(problem.hmm, padded)
  supports, states = texts.supports(filled_up), program.finding.witness.get('recoverable_states')
  reaching = texts.reaching(supports, problem, program.recovered)
  in_region = lambda tokens: tokens if states is None else tokens[texts.in_region(supports, states, tokens)]
  sampled = lambda block: in_region(texts.sampled(filled_up, jax.random.fold_in(key, block), _SAMPLED, length))
  numbers = lambda tokens: (tokens.astype(np.int64) @ (padded.num_tokens + 1) ** np.arange(length)).tolist()
  first = sampled(0)
  # Look first if too few sequences are in the region: enumerating takes longer.
  if len({*numbers(first[texts.possible(reaching, first)])}) < min(_LEAST_NEW, least / 4):
    return None
  enumerated = in_region(texts.possible_sequences(supports, length, most=least // 2))
  blocks = itertools.chain([enumerated, first], map(sampled, itertools.count(1)))
  count, room, parts = 0, int(_MOST_WITHOUT_MASS * least), list[tuple[np.ndarray, np.ndarray]]()
  seen, places = dict[int, int](), itertools.count()
  while count < least:
    tokens = next(blocks)
    # Keep the first occurrence of each sequence.
    tokens = tokens[[seen.setdefault(number, place) == place for number, place in zip(numbers(tokens), places)]]
    has_mass = texts.possible(reaching, tokens)
    kept = has_mass | (np.cumsum(~has_mass) <= room)
    parts.append((tokens[kept], has_mass[kept]))
    count, room = count + kept.sum(), room - (kept & ~has_mass).sum()
    if len(parts) > 1 and has_mass.sum() < _LEAST_NEW and count < least:
      return None
  tokens, has_mass = map(np.concatenate, zip(*parts))
  # Sequences that a prompt makes impossible, and their whole block, take slow arithmetic in logarithms: put them last.
  order = np.argsort(~has_mass[:least], kind='stable')
  return tokens[order], has_mass[order]


def _balanced(
  settings: TheorySettings,
  problem: Any,
  recovered: np.ndarray,
  predictions: Predictions,
  has_mass: np.ndarray,
  rng: np.random.Generator,
  tied: bool,
) -> np.ndarray | None:
  """mu [C, S] in `Fraction`s that is balanced on these sequences and on those with mass.

  None if none of many draws is. A `tied` task has a sequence whose first and last class tie exactly.
  """
  num_classes, size = problem.task_weights.shape
  posterior = exact_posterior(problem.fractions) if tied else None
  for _ in range(_MOST_TASKS):
    weights: Any = small_fractions(random_weights(rng, num_classes, recovered, size))
    if posterior:
      text = text_of(predictions, int(rng.integers(len(predictions.tokens))), problem)
      weights = _with_tie(weights, posterior(text), recovered)
      if weights is None:
        continue
    scores = predictions.posterior @ weights.T.astype(float)
    labels = scores.argmax(-1)
    if max(majority(labels), majority(labels[has_mass])) > settings.verification.largest_majority:
      continue
    num_ties = (has_mass & (scoring.score_gaps(scores) <= settings.margin)).sum()
    if tied <= num_ties <= _MOST_TIES:
      return weights
  return None


def majority(labels: np.ndarray) -> float:
  """The share of the commonest label."""
  return float(np.bincount(labels).max() / len(labels))


def _with_tie(weights: np.ndarray, posterior: np.ndarray, recovered: np.ndarray) -> np.ndarray | None:
  """Move one weight of the first class so that it ties with the last; None if one thing is certain."""
  held = [value for value in recovered if posterior[value]]
  if len(held) < 2:
    return None
  weights[0, held[0]] -= weights[0] @ posterior / posterior[held[0]]
  return weights if weights[:, held[0]].any() else None


def text_of(predictions: Predictions, index: int, problem: Any) -> list[int]:
  """The tokens of one sequence, without the [MASK]s after its end."""
  return [token for token in predictions.tokens[index].tolist() if token < problem.hmm.num_tokens]
