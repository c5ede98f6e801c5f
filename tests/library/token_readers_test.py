"""Readers without a model: which tokens are nearest, and what a table of training texts answers."""

import collections

import numpy as np
import pytest

from hmm_jax import token_readers

V, RNG = 3, np.random.default_rng(0)


@pytest.mark.parametrize(('mask', 'order'), [(0, [1, 2, 3, 4]), (3, [4, 2, 1, 0]), (2, [3, 1, 4, 0])])
def test_tokens_nearest_the_mask_come_first_and_are_kept(mask, order):
  """Wherever the [MASK] is; of two at the same distance the later one is first."""
  text = RNG.integers(V, size=5)
  text[mask] = V
  assert token_readers.nearest_tokens(text[None], V).tolist() == [text[order].tolist()]
  kept = token_readers.keep_nearest(text[None], V, 2)[0]
  assert (kept == np.where(np.isin(range(5), order[:2]), text, V)).all()


@pytest.mark.parametrize('text', [[0, 1, 2], [V, 1, V]])
def test_a_text_without_one_mask_is_refused(text):
  with pytest.raises(ValueError, match='inputs'):
    token_readers.nearest_first([[V, 0, 1], text], V)


def test_a_table_answers_the_majority_of_the_longest_shared_prefix():
  """Ties and unseen tokens go to the next shorter prefix, one of no tokens to the commonest label."""
  train, tokens, labels = (RNG.integers(V, size=size) for size in ((40, 4), (50, 4), 40))

  def answers(text):
    for length in range(4, -1, -1):
      votes = collections.Counter(labels[(train[:, :length] == text[:length]).all(1)].tolist())
      (_, first), (_, second) = (*votes.most_common(), (0, 0), (0, 0))[:2]
      if first > second:
        yield votes.most_common()[0][0]

  assert token_readers.table_labels(train, labels, tokens).tolist() == [next(answers(text)) for text in tokens]
