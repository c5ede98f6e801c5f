"""S1 of docs/findings/causal.md in fractions: how far a prefix can move a prediction, and delta by its definition."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import likelihood_rows, token_probs

import hmm_jax as hj
from hmm_jax._support.rational.algebra import as_fractions

# Token 2 comes from state 2 alone, and no state moves to 0 but itself.
TABLES = [1, 2, 1], [[2, 1, 1], [0, 2, 2], [0, 3, 1]], [[3, 1, 0], [2, 2, 0], [0, 2, 2]]
CHAIN = hj.HMM(*(as_fractions(rows) / 4 for rows in TABLES))
STARTS = [CHAIN._replace(initial_probs=as_fractions(row)) for row in np.eye(3)]
TEXTS = np.array(list(itertools.product(range(3), repeat=3)))
ROWS = [as_fractions([a, b, 1]) for a in (0, Fraction(1, 4)) for b in (0, 1)]


@pytest.mark.parametrize('causal', (True, False))
def test_delta_is_the_most_that_any_prefix_moves(causal):
  """It is the largest distance of a possible start, and bounds every prefix of two rows, exactly."""
  delta = hj.theory.prefix_bound(CHAIN, TEXTS, causal=causal)
  for (text, of_text), i in itertools.product(zip(TEXTS, delta), range(3)):
    rows = likelihood_rows(CHAIN, text[: i + 1] if causal else text)
    alone = token_probs(CHAIN, rows, i)
    moved = lambda law, alone=alone: np.abs(law - alone).sum() / 2 if law.any() else 0
    exact = max(moved(token_probs(start, rows, i)) for start in STARTS)
    assert of_text[i] == pytest.approx(float(exact), abs=1e-12)
    assert max(moved(token_probs(CHAIN, [*u, *rows], 2 + i)) for u in itertools.product(ROWS, ROWS)) <= exact
