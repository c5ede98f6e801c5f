"""Problems that a theorem can fail on: many sequences in its region, and a task that is balanced on them."""

import math
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings.fields import SettingsError
from experiments.studies.theory.comparison import BalancedProblem, BLOCK_SIZE, compared, predicted, TOLERANCE
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory.exact.algebra import exact
from hmm_jax.theory.exact.constructions import exact_construction, exact_posterior, ExactConstruction
from hmm_jax.theory.exact.problem import generator, Problem, random_weights, small_fractions, StateProblem
from hmm_jax.theory.problems import families, texts
from hmm_jax.theory.problems.families import Sizes
from hmm_jax.theory.theorems import padding, scoring, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes
from hmm_jax.theory.theorems.scoring import Predictions
from hmm_jax.theory.theorems.theorems import Program

# The most of the sequences that may leave nothing that is recovered any probability, as their label is then decided.
_MOST_WITHOUT_MASS = 0.1
# Sequences that are sampled at a time, and the least share of them in the region and new.
_SAMPLED = 512
_LEAST_SHARE = 1 / 4
# Tasks that are drawn for one HMM until one is balanced.
_MOST_TASKS = 60
# A task leaves at most so many sequences to exact arithmetic.
_MOST_TIES = 40


class Theorem(NamedTuple):
  """What one theorem is verified on.

  Attributes:
    name: its number.
    assumptions: the numbers of what its construction needs.
    relaxes: the number of the stronger assumption, of the theorem before it, that its problems need not satisfy.
    with_memory: whether the task is on a memory.
    families: that its problems are drawn from by turns.
  """

  name: str
  assumptions: str
  relaxes: str = ''
  with_memory: bool = False
  families: tuple[str, ...] = ('planted', 'unplanted')


THEOREMS = (
  Theorem('3.3', '3.1, 3.2'),
  Theorem('3.6', '3.2, 3.5', '3.1'),
  Theorem('4.3', '4.2', with_memory=True, families=('planted', 'unplanted', 'planted')),
  Theorem('4.6', '3.2, 4.5', '4.2', with_memory=True, families=('planted', 'unplanted', 'adversarial')),
  Theorem('C.6', '3.2, C.5', '4.2', with_memory=True, families=('planted', 'unplanted', 'adversarial')),
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


def _with_texts(
  settings: TheorySettings, theorem: Theorem, problem: Any, key: Array, rng: np.random.Generator, least: int, tied: bool
) -> BalancedProblem | None:
  """The problem with `least` sequences and a task that is balanced on them, None where it has none."""
  limits, padded = settings.limits, padded_sizes(settings, theorem)
  found = _texts(settings, theorem, problem, key, least)
  if found is None:
    return None
  tokens, enumerated, has_mass = found
  program = theorems.program(theorem.name, problem, settings.verification.length, limits)
  predict = lambda tokens: predicted(problem, program.prompt, program.finding, tokens, padded)
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
  drawn = BalancedProblem(problem, program, predictions, has_mass, enumerated, 0)
  return drawn if _num_off_factor(drawn, padded) <= _MOST_TIES else None


def _sizes(settings: TheorySettings, theorem: Theorem, family: str, index: int) -> Sizes:
  """Values of each size come by turns, each at a pace of its own, but for H of adversarial HMMs.

  Those have the largest: with few states outside H*, keys are hardly ever as large as they ask for.
  """
  v = settings.verification
  in_turn = lambda values, stride: values[index // stride % len(values)]
  num_states = in_turn({'3.3': v.num_states_3_3, '3.6': v.num_states_3_6}.get(theorem.name, v.num_states), 2)
  num_states = max(v.num_states) if family == 'adversarial' else num_states
  num_tokens, num_classes = in_turn(v.num_tokens, 3), in_turn(v.num_classes, 5)
  if not theorem.with_memory:
    return Sizes(num_states, num_tokens, num_classes)
  memory_size = 2 if theorem.name == '4.3' else v.memory_size
  num_recoverable = 1 if index % 8 == 0 else 2
  return Sizes(num_states, num_tokens, num_classes, memory_size, 1 if theorem.name == '4.6' else 2, num_recoverable)


def padded_sizes(settings: TheorySettings, theorem: Theorem) -> PaddedSizes:
  """What the problems of one theorem are filled up to."""
  v = settings.verification
  num_states = max({'3.3': v.num_states_3_3, '3.6': v.num_states_3_6}.get(theorem.name, v.num_states))
  memory_size = 2 if theorem.name == '4.3' else v.memory_size
  return PaddedSizes(num_states, max(v.num_tokens), memory_size, num_outputs=max(num_states, memory_size) + 1)


def _texts(
  settings: TheorySettings, theorem: Theorem, problem: Any, key: Array, least: int
) -> tuple[np.ndarray, int, np.ndarray] | None:
  """That many different sequences in the region, how many of them were enumerated, and which leave something that is
  recovered any probability, as few as a share `_MOST_WITHOUT_MASS` do not; None where they are too rare.
  """
  length, padded = settings.verification.length, padded_sizes(settings, theorem)
  filled_up = padding.chain(problem.hmm, padded)
  finding = theorems.finding(theorems.ON_EMISSIONS[theorem.name], problem, settings.limits)
  states: Any = finding.witness.get('recoverable_states')
  supports = texts.supports(filled_up)
  reaching = _reaching(problem, supports, theorems.what_is_recovered(problem, finding))
  kept = lambda tokens: tokens[texts.in_region(supports, states, tokens)] if theorem.with_memory else tokens
  with_mass = lambda tokens: texts.possible(reaching, tokens)
  sampled = lambda block: kept(texts.sampled(filled_up, jax.random.fold_in(key, block), _SAMPLED, length))
  # Enumerating takes longer than seeing that too few sequences are in the region.
  tokens = sampled(0)
  if with_mass(np.unique(tokens, axis=0)).sum() < min(_SAMPLED, least) * _LEAST_SHARE:
    return None
  every = kept(texts.possible_sequences(supports, length, most=least // 2))
  every = _few_without(every, with_mass(every), int(_MOST_WITHOUT_MASS * least))
  found, seen = [every], {text.tobytes() for text in every}
  without = int((~with_mass(every)).sum())
  for block in range(math.ceil(least / _SAMPLED / _LEAST_SHARE)):
    if len(seen) >= least:
      break
    tokens = sampled(block) if block else tokens
    fresh = list(dict.fromkeys(text for text in map(np.ndarray.tobytes, tokens) if text not in seen))
    fresh_tokens = np.frombuffer(b''.join(fresh), tokens.dtype).reshape(-1, length)
    has_mass = with_mass(fresh_tokens)
    chosen = _few_without(fresh_tokens, has_mass, int(_MOST_WITHOUT_MASS * least) - without)
    without += len(chosen) - int(has_mass.sum())
    seen.update(map(np.ndarray.tobytes, chosen))
    found.append(chosen)
    if len(seen) < least and has_mass.sum() < _SAMPLED * _LEAST_SHARE:
      return None
  if len(seen) < least:
    return None
  tokens = np.concatenate(found)[:least]
  has_mass = with_mass(tokens)
  # What a prompt makes impossible takes the slow arithmetic of logarithms, and so does all that is in a block with it.
  order = np.argsort(~has_mass, kind='stable')
  return tokens[order], len(every), has_mass[order]


def _few_without(tokens: np.ndarray, has_mass: np.ndarray, most: int) -> np.ndarray:
  """The sequences that leave something recovered possible, and no more than `most` of the others, in their order."""
  return tokens[has_mass | (np.cumsum(~has_mass) <= most)]


def _reaching(problem: Any, supports: texts.Supports, recovered: np.ndarray) -> texts.Supports:
  """What is possible if something that is recovered is so."""
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
  rng,
  tied,
) -> np.ndarray | None:
  """mu [C, S] in `Fraction`s whose commonest label is not too common on these sequences, nor on those with mass.

  None if many draws have none. A `tied` task has a sequence whose first and last class tie exactly.
  """
  num_classes, size = problem.task_weights.shape
  posterior = exact_posterior(problem.exact)
  for _ in range(_MOST_TASKS):
    weights: Any = small_fractions(random_weights(rng, num_classes, recovered, size))
    if tied:
      text = text_of(predictions, rng.integers(len(predictions.tokens)), problem)
      weights = _with_tie(weights, posterior(text), recovered)
    if weights is None:
      continue
    scores = predictions.posterior @ weights.T.astype(float)
    labels, largest = scores.argmax(-1), settings.verification.largest_majority
    if max(majority(labels), majority(labels[has_mass])) > largest:
      continue
    num_ties = (has_mass & (scoring.score_gaps(scores) <= settings.margin)).sum()
    if tied <= num_ties <= _MOST_TIES:
      return weights
  return None


def _num_off_factor(drawn: BalancedProblem, padded: PaddedSizes) -> int:
  """On how many sequences float64 gives all that is recovered, but for the factor: what is decided in fractions.

  That is where a position is so nearly attended that rounding hides it. A construction whose factor is wrong elsewhere
  too has no HMM that would do.
  """
  found = compared(drawn, drawn.program.head, drawn.predictions, padded)
  return int((found.has_mass & (found.vector_error > TOLERANCE) & (found.cosine_error <= TOLERANCE**2)).sum())


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


def exactly(theorem: Theorem, problem: Any, program: Program) -> ExactConstruction:
  """The theorem's construction in `Fraction`s, for the things that the program recovers."""
  weights = exact(theorems.identity_weights(problem.task_weights.shape[1], program.recovered))
  return exact_construction(problem.exact._replace(task_weights=weights), theorem.name)


def text_of(predictions: Predictions, index: int, problem: Problem) -> list[int]:
  """The tokens of one sequence, without the [MASK]s after its end."""
  return [token for token in predictions.tokens[index].tolist() if token < problem.hmm.num_tokens]
