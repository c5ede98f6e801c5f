"""What a prefix can move, S1 of docs/findings/causal.md, in fractions: the theorem, and delta by its definition."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import likelihood_rows, token_probs

import hmm_jax as hj
from hmm_jax._support.rational.algebra import as_fractions

T = 3
# Token 2 comes from state 2 alone, and no state moves to 0 but itself.
CHAIN = hj.HMM(
  *map(
    as_fractions,
    (
      [0.25, 0.5, 0.25],
      [[0.5, 0.25, 0.25], [0, 0.5, 0.5], [0, 0.75, 0.25]],
      [[0.75, 0.25, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]],
    ),
  )
)
TEXTS = np.array(list(itertools.product(range(3), repeat=T)))
STARTS = [CHAIN._replace(initial_probs=as_fractions(row)) for row in np.eye(3)]


def predicted(hmm, prefix, text, position, causal):
  """The law of the token at this position of a text, behind the rows of a prefix."""
  rows = [*prefix, *likelihood_rows(hmm, text[: position + 1] if causal else text)]
  return token_probs(hmm, rows, len(prefix) + position)


def variation(first, second):
  return np.abs(first - second).sum() / 2


@pytest.mark.parametrize('causal', (True, False))
def test_delta_is_the_most_that_any_prefix_moves(causal):
  """It is the largest distance of a possible start, and bounds every prefix of one row or two, exactly."""
  delta = hj.theory.prefix_bound(CHAIN, TEXTS, causal=causal)
  prefixes = [[np.array([Fraction(a, 4), Fraction(b, 4), Fraction(1)])] for a in range(3) for b in (0, 3)]
  prefixes += [[first[0], second[0]] for first, second in zip(prefixes, prefixes[::-1])]
  largest = 0
  for (number, text), position in itertools.product(enumerate(TEXTS), range(T)):
    alone = predicted(CHAIN, [], text, position, causal)
    from_starts = [predicted(start, [], text, position, causal) for start in STARTS]
    exact = max((variation(law, alone) for law in from_starts if law.any()), default=0) if alone.any() else 0
    assert delta[number, position] == pytest.approx(float(exact), abs=1e-12)
    for prefix in prefixes:
      law = predicted(CHAIN, prefix, text, position, causal)
      assert not law.any() or variation(law, alone) <= exact
      largest = max(largest, variation(law, alone) if law.any() else 0)
  assert largest > Fraction(1, 20)


def test_a_prediction_behind_a_prefix_is_a_mixture_over_starts():
  """The weights are the law of the first state behind the prefix times the probability of the text from there."""
  prefix, text = [as_fractions([0.5, 1, 0.25])], [0, 1, 2]
  after = (CHAIN.initial_probs * prefix[0]) @ CHAIN.transition_matrix
  makes = []
  for start in STARTS:
    state = start.initial_probs
    for token in text[:2]:
      state = (state * CHAIN.emission_matrix[:, token]) @ CHAIN.transition_matrix
    makes.append(state.sum())
  weights = after * makes / (after @ np.array(makes))
  laws = np.array([predicted(start, [], text, 2, True) for start in STARTS])
  assert (weights @ laws == predicted(CHAIN, prefix, text, 2, True)).all()


def test_what_never_moves_is_never_forgotten():
  """Two processes side by side, neither of which can be left: after any number of uniform tokens delta stays."""
  hmm = hj.HMM(np.full(2, 0.5), np.eye(2), np.array([[0.5, 0.5, 0, 0], [0.5, 0.25, 0.25, 0]]))
  texts = np.zeros((1, 8), int)
  delta = hj.theory.prefix_bound(hmm, texts)[0]
  np.testing.assert_allclose(delta, 0.125)
  mixing = hmm._replace(transition_matrix=np.full((2, 2), 0.5))
  np.testing.assert_allclose(hj.theory.prefix_bound(mixing, texts)[0], [0.125, *[0] * 7], atol=1e-12)
