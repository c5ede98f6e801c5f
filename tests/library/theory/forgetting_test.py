"""S1 of docs/findings/causal.md in fractions: how far a prefix can move a prediction, and delta by its definition."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import likelihood_rows, token_probs

import hmm_jax as hj
from hmm_jax._support.rational.algebra import as_fractions

# Token 2 comes from state 2 alone, and no state moves to 0 but itself.
TRANSITIONS, EMISSIONS = [[2, 1, 1], [0, 2, 2], [0, 3, 1]], [[3, 1, 0], [2, 2, 0], [0, 2, 2]]
CHAIN = hj.HMM(*(as_fractions(rows) / 4 for rows in ([1, 2, 1], TRANSITIONS, EMISSIONS)))
STARTS = [CHAIN._replace(initial_probs=as_fractions(row)) for row in np.eye(3)]
TEXTS = np.array(list(itertools.product(range(3), repeat=3)))
ROWS = [as_fractions([a, b, 1]) for a in (0, Fraction(1, 4)) for b in (0, 1)]
PREFIXES = [*([row] for row in ROWS), *itertools.product(ROWS, ROWS)]


def moved(law, alone):
  return np.abs(law - alone).sum() / 2 if law.any() and alone.any() else 0


@pytest.mark.parametrize('causal', (True, False))
def test_delta_is_the_most_that_any_prefix_moves(causal):
  """It is the largest distance of a possible start, and bounds every prefix of one row or two, exactly."""
  delta, largest = hj.theory.prefix_bound(CHAIN, TEXTS, causal=causal), 0
  for (number, text), i in itertools.product(enumerate(TEXTS), range(3)):
    rows = likelihood_rows(CHAIN, text[: i + 1] if causal else text)
    alone = token_probs(CHAIN, rows, i)
    exact = max(moved(token_probs(start, rows, i), alone) for start in STARTS)
    assert delta[number, i] == pytest.approx(float(exact), abs=1e-12)
    largest = max(largest, *(moved(token_probs(CHAIN, [*u, *rows], len(u) + i), alone) - exact for u in PREFIXES))
  assert largest == 0


def test_what_never_moves_is_not_forgotten():
  """Delta stays where no state can be left."""
  hmm = hj.HMM(np.full(2, 0.5), np.eye(2), np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25]]))
  np.testing.assert_allclose(hj.theory.prefix_bound(hmm, [[0] * 8]), 0.125)
