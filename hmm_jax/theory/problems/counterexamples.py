"""Two distributions of small fractions in which a linear head fails and what the paper puts in its place succeeds.

They can be followed by hand; `docs/theory.md` does so. A text x is seen as x' = (MASK, x), by both heads.

The first is as small as such an HMM can be. With two states, or one token, a linear head is always right: if the
columns of W are independent by Theorem 3.3, and if they are equal because the text then says nothing and the label is
constant. The second has one state and one token more than it must: with two states and three tokens, too, a linear
head can fail where the attention head is right, but that takes longer texts and larger fractions.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM


class Certificate(NamedTuple):
  """Why no linear head is right: the mixtures of G_1(x') of the two classes are equal, so no half-space parts them.

  Attributes:
    texts: the x, tuples of tokens.
    labels: the class of each.
    weights: a `Fraction` for each, positive; those of each class sum to 1/2. They are the lambda of
      `hmm_jax.theory.limits.separability`.
  """

  texts: tuple[tuple[int, ...], ...]
  labels: tuple[int, ...]
  weights: tuple[Fraction, ...]


class Counterexample(NamedTuple):
  """A task in which a linear head fails: on the state before the text, or on what its memory of one cell holds.

  Attributes:
    hmm: of the text, float64.
    exact_hmm: the same in `Fraction`s, over joint states, number m H + h.
    task_weights: mu [C, H], or [C, M] where there is a memory.
    states: [H], their names.
    tokens: [V], their names.
    classes: [C], their names; of the values of a memory, where there is one.
    certificate: that no linear head is right, of texts in R (4.3) where there is a memory.
    silent_probs: P[H_0] [H], the law of the state before the text; None where there is a memory.
  """

  hmm: HMM | MemoryHMM
  exact_hmm: HMM
  task_weights: np.ndarray
  states: tuple[str, ...]
  tokens: tuple[str, ...]
  classes: tuple[str, ...]
  certificate: Certificate
  silent_probs: np.ndarray | None = None


def head_fails_prompt_succeeds() -> Counterexample:
  """Irony says "good", as praise does: |H| = 3, |X| = 2, Assumption 3.5 holds, 3.1 does not.

  Was the sentence before the text rather praise or a complaint? Praise and complaints repeat themselves or turn into
  irony, and irony turns into one of them. The prompt of Theorem 3.6 says that irony came before, so that the masked
  sentence is none. The chain starts from its stationary law, so that P[H_0] = P[H_1].
  """
  transitions = {
    'praise': {'praise': '1/2', 'irony': '1/2'},
    'complaint': {'complaint': '1/2', 'irony': '1/2'},
    'irony': {'praise': '1/2', 'complaint': '1/2'},
  }
  emissions = {'praise': {'good': '2/3', 'bad': '1/3'}, 'complaint': {'bad': '1'}, 'irony': {'good': '1'}}
  states, tokens, (good, bad) = tuple(transitions), ('good', 'bad'), range(2)
  exact_hmm = HMM(_row(dict.fromkeys(states, '1/3'), states), _rows(transitions, states), _rows(emissions, tokens))
  return Counterexample(
    hmm=HMM(*map(_floats, exact_hmm)),
    exact_hmm=exact_hmm,
    task_weights=np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    states=states,
    tokens=tokens,
    classes=('praise', 'complaint'),
    certificate=Certificate(
      texts=((good, good), (good, bad), (bad, bad)),
      labels=(0, 0, 1),
      weights=(Fraction(4, 15), Fraction(7, 30), Fraction(1, 2)),
    ),
    silent_probs=_floats(exact_hmm.initial_probs),
  )


def head_fails_attention_succeeds() -> Counterexample:
  """Before "the" there is a verb: N = 1, M = 2, |H| = 3, |X| = 4, and Assumption 4.2 holds with H* = {noun}.

  Is the text about a cow or a toy? Nouns tell, as cows are at times called toys and toys cows; articles and verbs do
  not. Where the text starts with "the", what is masked is a verb, whatever the memory holds, so that G_1 tells nothing.
  The noun after "the" tells, and there the attention head looks. The chain starts from its stationary law.
  """
  transitions = {'article': {'noun': '1'}, 'noun': {'noun': '1/2', 'verb': '1/2'}, 'verb': {'article': '1'}}
  nouns = {'cow': {'cow': '3/4', 'toy': '1/4'}, 'toy': {'cow': '1/4', 'toy': '3/4'}}
  values, states, tokens = tuple(nouns), tuple(transitions), ('the', 'cow', 'toy', 'rolled')
  the, cow, toy, _ = range(4)
  memory_probs = _row({'cow': '2/3', 'toy': '1/3'}, values)
  stationary = _row({'article': '1/4', 'noun': '1/2', 'verb': '1/4'}, states)
  transition_matrix = _rows(transitions, states)
  emissions = [{'article': {'the': '1'}, 'noun': nouns[value], 'verb': {'rolled': '1'}} for value in values]
  emission_matrix = np.array([_rows(rows, tokens) for rows in emissions])
  return Counterexample(
    hmm=MemoryHMM(
      memory_probs=_floats(memory_probs),
      initial_probs=_floats(stationary),
      transition_matrix=_floats(transition_matrix),
      cell_index=np.zeros(len(states), np.int32),
      emission_matrix=_floats(emission_matrix),
    ),
    exact_hmm=HMM(
      np.outer(memory_probs, stationary).reshape(-1),
      np.kron(np.eye(len(values), dtype=int) * Fraction(1), transition_matrix),
      emission_matrix.reshape(-1, len(tokens)),
    ),
    task_weights=np.eye(2),
    states=states,
    tokens=tokens,
    classes=values,
    certificate=Certificate(((the, cow), (the, toy)), labels=(0, 1), weights=(Fraction(1, 2), Fraction(1, 2))),
  )


def _row(probs: dict[str, str], names: tuple[str, ...]) -> np.ndarray:
  """Probabilities by name, as `Fraction`s in an array of objects."""
  row: list[Any] = [Fraction(probs.get(name, '0')) for name in names]
  return np.array(row, object)


def _rows(probs: dict[str, dict[str, str]], names: tuple[str, ...]) -> np.ndarray:
  return np.array([_row(row, names) for row in probs.values()])


def _floats(fractions: Any) -> np.ndarray:
  return fractions.astype(np.float64)
