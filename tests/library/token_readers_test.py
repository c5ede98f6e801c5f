"""Readers without a model: which tokens are nearest, and what a table of training texts answers."""

import numpy as np
import pytest

from hmm_jax.tuning import token_readers

V, RNG = 3, np.random.default_rng(0)


@pytest.mark.parametrize(('mask', 'order'), [(0, [0, 1, 2, 3]), (-2, [2, 3, 1, 0]), (1, [1, 2, 0, 3])])
def test_positions_nearest_the_mask_come_first(mask, order):
  """Wherever the [MASK] is; of two at the same distance the later one is first."""
  assert token_readers.nearest_first(4, mask).tolist() == order


def test_a_table_answers_the_majority_of_the_longest_shared_prefix():
  """Ties and unseen tokens go to the next shorter prefix, one of no tokens to the commonest label."""
  train, labels, tokens = RNG.integers(V, size=(40, 4)), RNG.integers(V, size=40), RNG.integers(V, size=(50, 4))
  for text, answer in zip(tokens, token_readers.table_labels(train, labels, tokens), strict=True):
    votes = [np.bincount(labels[(train[:, :k] == text[:k]).all(1)], minlength=V) for k in range(5)]
    assert answer == [of_k.argmax() for of_k in votes if (of_k == of_k.max()).sum() == 1][-1]
