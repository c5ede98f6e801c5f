"""Problems that a theorem can fail on: many sequences in its region, and a task that is balanced on them."""

import itertools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
import pandas as pd

from experiments.settings.fields import SettingsError
from experiments.studies.theory.comparison import BalancedProblem, BLOCK_SIZE, compared, predicted, TOLERANCE
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory.exact.constructions import exact_posterior
from hmm_jax.theory.exact.problem import generator, random_weights, small_fractions, StateProblem
from hmm_jax.theory.problems import families, texts
from hmm_jax.theory.problems.families import Sizes
from hmm_jax.theory.theorems import padding, scoring, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes
from hmm_jax.theory.theorems.scoring import Predictions
from hmm_jax.theory.theorems.theorems import Program

# The most of the sequences that may leave nothing that is recovered any probability, as their label is then decided.
_MOST_WITHOUT_MASS = 0.1
# Sequences that are sampled at a time, and the least of them that are in the region, new, and have mass.
_SAMPLED = 512
_LEAST_NEW = 128
# Tasks that are drawn for one HMM until one is balanced.
_MOST_TASKS = 60
# A task leaves at most so many sequences to exact arithmetic.
_MOST_TIES = 40


class Theorem(NamedTuple):
  """The problems on which one theorem is verified.

  Attributes:
    name: its number.
    assumptions: the numbers of what its construction needs.
    relaxes: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
    num_states: the field of the settings that has its |H|.
    num_cells: of the memory that its task is on; 0 without one.
    memory_size: values of a cell; 0 for that of the settings.
    families: that its problems are drawn from by turns.
  """

  name: str
  assumptions: str
  relaxes: str = ''
  num_states: str = 'num_states'
  num_cells: int = 0
  memory_size: int = 0
  families: tuple[str, ...] = ('planted', 'unplanted')


THEOREMS = (
  Theorem('3.3', '3.1, 3.2', num_states='num_states_3_3'),
  Theorem('3.6', '3.2, 3.5', '3.1', num_states='num_states_3_6'),
  Theorem('4.3', '4.2', num_cells=2, memory_size=2, families=('planted', 'unplanted', 'planted')),
  Theorem('4.6', '3.2, 4.5', '4.2', num_cells=1, families=('planted', 'unplanted', 'adversarial')),
  Theorem('C.6', '3.2, C.5', '4.2', num_cells=2, families=('planted', 'unplanted', 'adversarial')),
)


def draw(settings: TheorySettings, theorem: Theorem, key: Array, index: int, mutated: bool) -> BalancedProblem:
  """A problem of the family and the sizes of this number, drawn until its region is large and a task balanced.

  Raises:
    SettingsError: none of `max_draws` HMMs is.
  """
  v, family = settings.verification, theorem.families[index % len(theorem.families)]
  sizes = _sizes(settings, theorem, family, index)
  least = v.num_sequences_mutated if mutated else v.num_sequences
  # Random supports rarely leave a doubt that a tie could balance on.
  tied = index % 4 >= 2 and family != 'unplanted'
  for rejected in range(v.max_draws):
    key_draw, key_text, key_task = jax.random.split(jax.random.fold_in(key, rejected), 3)
    try:
      problem = families.draw(theorem.name, family, key_draw, sizes, settings.limits, settings.conditioning)
    except ValueError as error:
      raise SettingsError(str(error)) from error
    drawn = _with_texts(settings, theorem, problem, key_text, generator(key_task), least, tied)
    if drawn:
      return drawn._replace(rejected=rejected)
  valid = f'more, or fewer sequences: no HMM of so many would do for Theorem {theorem.name}'
  raise SettingsError(f'verification.max_draws is {v.max_draws}; valid is {valid}')


def _sizes(settings: TheorySettings, theorem: Theorem, family: str, index: int) -> Sizes:
  """Values of each size come by turns, each at a pace of its own, but for H of adversarial HMMs.

  Those have the largest: with few states outside H*, keys are hardly ever as large as they ask for.
  """
  v = settings.verification
  in_turn = lambda values, stride: values[index // stride % len(values)]
  num_states = getattr(v, theorem.num_states)
  return Sizes(
    num_states=max(num_states) if family == 'adversarial' else in_turn(num_states, 2),
    num_tokens=in_turn(v.num_tokens, 3),
    num_classes=in_turn(v.num_classes, 5),
    memory_size=theorem.memory_size or v.memory_size,
    num_cells=theorem.num_cells,
    num_recoverable=1 if index % 8 == 0 else 2,
  )


def padded_sizes(settings: TheorySettings, theorem: Theorem) -> PaddedSizes:
  """The sizes to which the problems of one theorem are padded."""
  v = settings.verification
  num_states, memory_size = max(getattr(v, theorem.num_states)), theorem.memory_size or v.memory_size
  return PaddedSizes(num_states, max(v.num_tokens), memory_size, num_outputs=max(num_states, memory_size) + 1)


def _with_texts(
  settings: TheorySettings, theorem: Theorem, problem: Any, key: Array, rng: np.random.Generator, least: int, tied: bool
) -> BalancedProblem | None:
  """The problem with `least` sequences and a task that is balanced on them, None where it has none."""
  length, padded = settings.verification.length, padded_sizes(settings, theorem)
  program = theorems.program(theorem.name, problem, length, settings.limits)
  found = _texts(problem, program, padded, length, key, least)
  if found is None:
    return None
  tokens, enumerated, has_mass = found
  predict = lambda tokens: predicted(problem, program, tokens, padded)
  balanced = lambda seen, has_mass: _balanced(settings, problem, program.recovered, seen, has_mass, rng, tied)
  # Most HMMs without a balanced task are known by a part of the sequences.
  part = slice(None, None, len(tokens) // BLOCK_SIZE)
  if len(tokens) > BLOCK_SIZE and balanced(predict(tokens[part]), has_mass[part]) is None:
    return None
  predictions = predict(tokens)
  task = balanced(predictions, has_mass)
  if task is None:
    return None
  problem = problem._replace(task_weights=task.astype(float), exact=problem.exact._replace(task_weights=task))
  drawn = BalancedProblem(problem, program, predictions, has_mass, padded, enumerated)
  # Float64 gives all that is recovered, but for the factor, where a position is so nearly attended that rounding hides
  # it. A construction whose factor is wrong elsewhere too has no HMM that would do.
  right = compared(drawn, program)
  off_factor = has_mass & (right.vector_error > TOLERANCE) & (right.cosine_error <= TOLERANCE**2)
  return drawn if off_factor.sum() <= _MOST_TIES else None


def _texts(
  problem: Any, program: Program, padded: PaddedSizes, length: int, key: Array, least: int
) -> tuple[np.ndarray, int, np.ndarray] | None:
  """That many different sequences in the region, how many of them were enumerated, and which leave something that is
  recovered any probability, as few as a share `_MOST_WITHOUT_MASS` do not; None where they are too rare.
  """
  filled_up = padding.chain(problem.hmm, padded)
  supports, states = texts.supports(filled_up), program.finding.witness.get('recoverable_states')
  reaching = _reaching(problem, supports, program.recovered)
  in_region = lambda tokens: tokens if states is None else tokens[texts.in_region(supports, states, tokens)]
  sampled = lambda block: in_region(texts.sampled(filled_up, jax.random.fold_in(key, block), _SAMPLED, length))
  # Enumerating takes longer than seeing that too few sequences are in the region.
  if texts.possible(reaching, np.unique(sampled(0), axis=0)).sum() < min(_LEAST_NEW, least / 4):
    return None
  tokens = in_region(texts.possible_sequences(supports, length, most=least // 2))
  enumerated = num_with_mass = 0
  for block in itertools.count():
    has_mass = texts.possible(reaching, tokens)
    is_rare = block and has_mass.sum() - num_with_mass < _LEAST_NEW
    kept = has_mass | (np.cumsum(~has_mass) <= int(_MOST_WITHOUT_MASS * least))
    tokens, has_mass, num_with_mass = tokens[kept], has_mass[kept], has_mass.sum()
    enumerated = enumerated if block else len(tokens)
    if len(tokens) >= least:
      break
    if is_rare:
      return None
    tokens = np.concatenate([tokens, sampled(block)])
    tokens = tokens[~pd.DataFrame(tokens).duplicated().to_numpy()]
  tokens, has_mass = tokens[:least], has_mass[:least]
  # What a prompt makes impossible takes the slow arithmetic of logarithms, and so does all that is in a block with it.
  order = np.argsort(~has_mass, kind='stable')
  return tokens[order], enumerated, has_mass[order]


def _reaching(problem: Any, supports: texts.Supports, recovered: np.ndarray) -> texts.Supports:
  """The sequences on which something that is recovered is possible."""
  hmm = problem.hmm
  if isinstance(problem, StateProblem):
    states = np.zeros(len(supports.moves), bool)
    states[recovered] = problem.silent_probs[recovered] > 0
    return texts.after_silent(supports, states)
  size = round(len(supports.start) ** (1 / hmm.num_cells))
  values = np.indices((size,) * hmm.num_cells).reshape(hmm.num_cells, -1)[problem.cell]
  return texts.holding(supports, np.isin(values, recovered))


def _balanced(
  settings: TheorySettings,
  problem: Any,
  recovered: np.ndarray,
  predictions: Predictions,
  has_mass: np.ndarray,
  rng: np.random.Generator,
  tied: bool,
) -> np.ndarray | None:
  """mu [C, S] in `Fraction`s whose commonest label is not too common on these sequences, nor on those with mass.

  None if many draws have none. A `tied` task has a sequence whose first and last class tie exactly.
  """
  num_classes, size = problem.task_weights.shape
  posterior = exact_posterior(problem.exact)
  for _ in range(_MOST_TASKS):
    weights: Any = small_fractions(random_weights(rng, num_classes, recovered, size))
    if tied:
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
  """Moves one weight of the first class so that it ties with the last; None where one thing is certain."""
  held = [value for value in recovered if posterior[value]]
  if len(held) < 2:
    return None
  weights[0, held[0]] -= weights[0] @ posterior / posterior[held[0]]
  return weights if weights[:, held[0]].any() else None


def text_of(predictions: Predictions, index: int, problem: Any) -> list[int]:
  """The tokens of one sequence, without the [MASK]s after its end."""
  return [token for token in predictions.tokens[index].tolist() if token < problem.hmm.num_tokens]
