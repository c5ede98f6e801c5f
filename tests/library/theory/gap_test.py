"""The gap in Lemma C.9: the counterexamples of docs/findings/theory.md in exact fractions, and what the bound mends."""

import itertools

import numpy as np
from theory_assumptions_cases import EXACT
from theory_cases import exact_hmm, exact_posterior
from theory_fractions import in_region, read

from hmm_jax._support.rational.algebra import fraction_rows
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions, recovery as constructions
from hmm_jax.theory.problem import MemoryProblem

SHOW = 0


# A stationary chain that shows the memory or pauses, and shows after a pause.
SHOWN = [[0, 3, 1], [3, 0, 1], [0, 0, 1]]
HMM = MemoryHMM(
  memory_probs=fraction_rows([4, 1, 15]),
  initial_probs=fraction_rows([2, 1]),
  transition_matrix=fraction_rows([[1, 1], [1, 0]]),
  cell_index=np.zeros(2, np.int32),
  emission_matrix=fraction_rows([[row, [1, 1, 0]] for row in SHOWN]),
)
OF_PAGE = MemoryProblem(HMM, HMM.initial_probs, np.array([[1, -2, 0], [0, 0, 0]]), 0)


def exact_score(text):
  return OF_PAGE.task_weights[0] @ exact_posterior(OF_PAGE, exact_hmm(OF_PAGE), text)


def test_theorem_4_6_has_the_bound():
  """Its assumptions hold, with H* = {show}; q^T Theta = (0, 0, 4), and beta is -5."""
  floats = MemoryHMM(*(leaf.astype(float) if leaf.dtype == object else leaf for leaf in OF_PAGE.hmm))
  assert assumptions.stationarity(floats, EXACT, 1e-12).holds
  head = constructions.theorem_4_6(floats, OF_PAGE.task_weights, floats.initial_probs, 0, 3, EXACT, 1e-9)['head']
  np.testing.assert_allclose(head.query @ head.key_weights, [0, 0, 4], atol=1e-12)
  np.testing.assert_allclose(head.positions[:, -1], [-5, 0, 0, 0])


def test_minus_2_is_wrong_and_the_bound_is_right():
  """On all texts in R of up to four words the score with -5 has the sign of the exact one; -2 fails on two of three."""
  of_page = exact_score((0, 2, 1)), read(OF_PAGE, SHOW, (0, 2, 1), -2), read(OF_PAGE, SHOW, (0, 2, 1), -5)
  assert [*map(str, of_page)] == ['2/29', '-227/145', '1/10']
  wrong = set()
  for text in itertools.chain(*(itertools.product(range(3), repeat=length) for length in range(1, 5))):
    if in_region(OF_PAGE, exact_hmm(OF_PAGE), [SHOW], text):
      exact, mended = exact_score(text), read(OF_PAGE, SHOW, text, -5)
      assert mended * exact > 0 or mended == exact == 0
      if len(text) == 3 and read(OF_PAGE, SHOW, text, -2) * exact < 0:
        wrong.add(text)
  assert wrong == {(0, 2, 1), (1, 2, 0)}
