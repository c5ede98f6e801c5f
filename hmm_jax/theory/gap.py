"""Where the proof of Lemma C.9 fails: a memory for which beta = -2 at the prompt is not enough.

`docs/gap.md` follows it by hand. The memory holds A, B or C, and the task weighs A and B. State "show" shows which: A
by the words b and c, B by a and c, C by c alone; state "pause" says a or b, whatever the memory holds, and "show"
follows it. Between a and b there must be a pause, or two different ones have been shown: so the text a c b shows its
second word. Whoever says c so often is likely C, of whom the proof takes no account at the prompt's own position.
"""

from fractions import Fraction

import numpy as np

from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.structured import MemoryProblem

VALUES, STATES, TOKENS = ('A', 'B', 'C'), ('show', 'pause'), ('a', 'b', 'c')
# The text that is in R and is labelled wrongly.
TEXT = (0, 2, 1)


def weak_prompt_bias(shared: Fraction = Fraction(1, 4)) -> MemoryProblem:
  """The smallest HMM and task in which -2 fails, M = 3, H = 2, V = 3 and T = 3, of `Fraction`s.

  q^T Theta^(K) is (0, 0, 1 / shared), whatever left inverse one takes, since V = |M*| |H*| + 1. With smaller `shared`
  it exceeds any constant, and q^T Theta^(K) G at the prompt of `TEXT` with it.

  Args:
    shared: the probability with which A and B show c, which C always shows; below 1.
  """
  half, own = Fraction(1, 2), 1 - shared
  pause = [half, half, Fraction(0)]
  show = [[Fraction(0), own, shared], [own, Fraction(0), shared], [Fraction(0), Fraction(0), Fraction(1)]]
  stationary = _array([Fraction(2, 3), Fraction(1, 3)])
  hmm = MemoryHMM(
    memory_probs=_array([Fraction(1, 5), Fraction(1, 20), Fraction(3, 4)]),
    initial_probs=stationary,
    transition_matrix=_array([[half, half], [Fraction(1), Fraction(0)]]),
    cell_index=np.zeros(2, np.int32),
    emission_matrix=_array([[shown, pause] for shown in show]),
  )
  task_weights = _array([[Fraction(1), Fraction(-2), Fraction(0)], [Fraction(0)] * 3])
  return MemoryProblem(hmm, stationary, task_weights, cell=0, drawn=0)


def _array(rows: list) -> np.ndarray:
  return np.array(rows, object)
