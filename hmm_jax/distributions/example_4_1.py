"""The paper's Example 4.1, "The cow in the pasture rolled on the grass happily", as a memory-augmented HMM.

A document is about one memory: who (subject), where (location) and in which mood (sentiment). The hidden state is
the part of speech, and its cell says what the word is about. Some words are said of several values (a toy cow is at
times called a cow) and some in several parts of speech ("rolled" describes the subject or the mood), so that a
posterior sharpens word by word.
"""

from typing import NamedTuple

from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax.distributions.memory_hmm import MemoryHMM

SENTENCE = 'The cow in the pasture rolled on the grass happily.'
FULL_STOP = '.'

_ANY = 'any value'


class Vocabulary(NamedTuple):
  """The names of the example's tokens, cells and values.

  Attributes:
    words: [V], the word of each token.
    cells: [N], the name of each memory cell.
    values: [N][M], the name of each value of each cell.
  """

  words: tuple[str, ...]
  cells: tuple[str, ...]
  values: tuple[tuple[str, ...], ...]


class _State(NamedTuple):
  """A hidden state: the cell it reads, its words for each value there (or for _ANY), what may follow it."""

  cell: str
  words: dict[str, dict[str, float]]
  then: dict[str, float]


_SUBJECT_PROBS = {'cow': 0.3, 'toy': 0.2, 'child': 0.5}
# P[location | subject], so that the location is evidence about the subject.
_LOCATION_PROBS = {
  'cow': {'pasture': 0.5, 'garden': 0.3, 'kitchen': 0.2},
  'toy': {'pasture': 0.2, 'garden': 0.35, 'kitchen': 0.45},
  'child': {'pasture': 0.3, 'garden': 0.4, 'kitchen': 0.3},
}
_SENTIMENT_PROBS = {'happy': 0.4, 'calm': 0.35, 'sad': 0.25}
_VALUES = dict(subject=tuple(_SUBJECT_PROBS), location=tuple(_LOCATION_PROBS['cow']), sentiment=tuple(_SENTIMENT_PROBS))

_PREDICATE = {'subject verb': 0.7, 'mood verb': 0.3}
_AFTER_VERB = {'ground preposition': 0.5, 'adverb': 0.35, 'full stop': 0.15}

_STATES = {
  'subject article': _State('subject', {_ANY: {'the': 0.7, 'a': 0.3}}, {'subject noun': 1}),
  'subject noun': _State(
    'subject',
    {
      'cow': {'cow': 0.6, 'creature': 0.3, 'friend': 0.1},
      'toy': {'cow': 0.4, 'creature': 0.1, 'friend': 0.1, 'toy': 0.4},
      'child': {'creature': 0.05, 'friend': 0.3, 'child': 0.65},
    },
    {'place preposition': 0.4, 'subject verb': 0.42, 'mood verb': 0.18},
  ),
  'place preposition': _State('location', {_ANY: {'in': 0.7, 'near': 0.3}}, {'place article': 1}),
  'place article': _State('location', {_ANY: {'the': 0.8, 'a': 0.2}}, {'place noun': 1}),
  'place noun': _State(
    'location',
    {
      'pasture': {'pasture': 0.5, 'field': 0.35, 'garden': 0.15},
      'garden': {'pasture': 0.15, 'field': 0.15, 'garden': 0.6, 'kitchen': 0.1},
      'kitchen': {'garden': 0.15, 'kitchen': 0.85},
    },
    _PREDICATE,
  ),
  'subject verb': _State(
    'subject',
    {
      'cow': {'grazed': 0.35, 'rolled': 0.35, 'slept': 0.15, 'stood': 0.15},
      'toy': {'rolled': 0.2, 'slept': 0.1, 'stood': 0.5, 'danced': 0.2},
      'child': {'rolled': 0.1, 'slept': 0.2, 'danced': 0.25, 'jumped': 0.35, 'wept': 0.1},
    },
    _AFTER_VERB,
  ),
  'mood verb': _State(
    'sentiment',
    {
      'happy': {'rolled': 0.25, 'danced': 0.4, 'jumped': 0.35},
      'calm': {'rolled': 0.1, 'slept': 0.5, 'stood': 0.4},
      'sad': {'rolled': 0.05, 'stood': 0.3, 'wept': 0.65},
    },
    _AFTER_VERB,
  ),
  'ground preposition': _State('location', {_ANY: {'on': 0.75, 'beside': 0.25}}, {'ground article': 1}),
  'ground article': _State('location', {_ANY: {'the': 1}}, {'ground noun': 1}),
  'ground noun': _State(
    'location',
    {
      'pasture': {'grass': 0.55, 'hay': 0.3, 'path': 0.15},
      'garden': {'grass': 0.35, 'hay': 0.1, 'path': 0.45, 'rug': 0.1},
      'kitchen': {'path': 0.05, 'rug': 0.3, 'floor': 0.65},
    },
    {'adverb': 0.6, 'full stop': 0.4},
  ),
  'adverb': _State(
    'sentiment',
    {
      'happy': {'happily': 0.7, 'quietly': 0.2, 'slowly': 0.1},
      'calm': {'happily': 0.2, 'quietly': 0.5, 'slowly': 0.3},
      'sad': {'quietly': 0.2, 'slowly': 0.2, 'sadly': 0.6},
    },
    {'full stop': 1},
  ),
  'full stop': _State('sentiment', {_ANY: {FULL_STOP: 1}}, {'subject article': 1}),
}


def cow_in_the_pasture() -> tuple[MemoryHMM, Vocabulary]:
  """The distribution of Example 4.1 (section 4 of the paper) and the names of what is in it.

  N = 3 cells of M = 3 values, H = 12 states. Articles, prepositions and the full stop do not depend on the memory.
  After a full stop the next sentence is about the same memory.

  >>> hmm, vocabulary = cow_in_the_pasture()
  >>> hmm.num_cells, hmm.memory_size, hmm.num_states, vocabulary.values[0]
  (3, 3, 12, ('cow', 'toy', 'child'))
  """
  cells = tuple(_VALUES)
  of_states = [
    [state.words.get(_ANY) or state.words[value] for value in _VALUES[state.cell]] for state in _STATES.values()
  ]
  words = tuple(dict.fromkeys(word for rows in of_states for row in rows for word in row))
  matrix = lambda rows, names: np.array([[row.get(name, 0) for name in names] for row in rows])
  subject, sentiment = list(_SUBJECT_PROBS.values()), list(_SENTIMENT_PROBS.values())
  location = matrix(_LOCATION_PROBS.values(), _VALUES['location'])
  hmm = MemoryHMM(
    memory_probs=np.einsum('s,sl,m->slm', subject, location, sentiment),
    initial_probs=np.eye(len(_STATES))[0],  # A text begins with the article of its subject.
    transition_matrix=matrix([state.then for state in _STATES.values()], _STATES),
    cell_index=np.array([cells.index(state.cell) for state in _STATES.values()]),
    emission_matrix=np.stack([matrix(rows, words) for rows in of_states], axis=1),
  )
  return MemoryHMM(*map(jnp.asarray, hmm)), Vocabulary(words, cells, tuple(_VALUES.values()))


def encode(sentence: str, vocabulary: Vocabulary) -> Array:
  """The tokens [T] of a text, int32. A full stop is a word, and capitals do not matter.

  >>> _, vocabulary = cow_in_the_pasture()
  >>> [vocabulary.words[token] for token in encode('The cow rolled.', vocabulary)]
  ['the', 'cow', 'rolled', '.']

  Raises:
    ValueError: a word is not in the vocabulary; it is named.
  """
  words = sentence.lower().replace(FULL_STOP, f' {FULL_STOP} ').split()
  unknown = [word for word in words if word not in vocabulary.words]
  if unknown:
    raise ValueError(f'{unknown[0]!r} is not a word of the example; valid are {" ".join(sorted(vocabulary.words))}')
  return jnp.array([vocabulary.words.index(word) for word in words], jnp.int32)
