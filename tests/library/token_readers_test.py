"""Readers without a model: which tokens are nearest, and what a table of training texts answers."""

import collections

import numpy as np
import pytest

from hmm_jax import token_readers

V, LENGTH = 3, 6
RNG = np.random.default_rng(0)


def _inputs(count, at):
  inputs = RNG.integers(V, size=(count, LENGTH))
  inputs[np.arange(count), at] = V
  return inputs


INPUTS = _inputs(60, RNG.integers(LENGTH, size=60))


def test_tokens_are_ordered_by_their_distance_from_the_mask():
  """Wherever the [MASK] is; of two at the same distance the later one is first."""
  for text, positions in zip(INPUTS.tolist(), token_readers.nearest_first(INPUTS, V).tolist(), strict=True):
    mask = text.index(V)
    others = [position for position in range(LENGTH) if position != mask]
    assert positions == sorted(others, key=lambda position: (abs(position - mask), -position))


def test_all_but_the_nearest_tokens_are_masked():
  nearest = token_readers.nearest_tokens(INPUTS, V)
  for count in range(LENGTH):
    kept = token_readers.keep_nearest(INPUTS, V, count)
    assert ((kept == INPUTS) | (kept == V)).all() and ((kept == V).sum(1) == LENGTH - count).all()
    assert [sorted(text[text < V]) for text in kept] == [sorted(text[:count]) for text in nearest]


@pytest.mark.parametrize('text', [[0, 1, 2], [V, 1, V]])
def test_a_text_without_one_mask_is_refused(text):
  with pytest.raises(ValueError, match='inputs'):
    token_readers.nearest_first([[V, 0, 1], text], V)


def test_a_table_answers_the_majority_of_the_longest_shared_prefix():
  """Ties and unseen tokens go to the next shorter prefix, one of no tokens to the commonest label."""
  train, tokens, labels = RNG.integers(V, size=(40, 4)), RNG.integers(V + 1, size=(50, 4)), RNG.integers(3, size=40)

  def answers(text):
    for length in range(len(text), -1, -1):
      votes = collections.Counter(labels[(train[:, :length] == text[:length]).all(1)].tolist()).most_common()
      if len(votes) == 1 or len(votes) > 1 and votes[0][1] > votes[1][1]:
        yield votes[0][0]

  assert token_readers.table_labels(train, labels, tokens).tolist() == [next(answers(text)) for text in tokens]
