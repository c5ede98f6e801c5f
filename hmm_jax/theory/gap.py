"""The gap in the proof of Lemma C.9: a memory for which beta = -2 at the prompt is not enough.

The proof is that of the first arXiv version. `docs/findings/theory.md` follows it by hand. The memory holds 1, 2 or 3,
and the task weighs 1 and 2. State "show" emits b or c for 1, a or c for 2, and c for 3; state "pause" emits a or b,
whatever the memory holds, and "show" follows it. In the text a c b at least one of a and b comes from a pause, since no
memory shows both: so its second word is shown. A frequent c makes 3 likely, which the proof ignores at the prompt's own
position.
"""

from fractions import Fraction

import numpy as np

from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.theory.problem import MemoryProblem, small_fractions

# The text that is in R and is labelled wrongly.
TEXT = (0, 2, 1)
# P[M]; 3 always shows c, and the proof ignores 3.
_LIKELY_3 = [0.2, 0.05, 0.75]


def weak_prompt_bias(shared: Fraction = Fraction(1, 4)) -> MemoryProblem:
  """The smallest HMM and task in which -2 fails for every left inverse: M = 3, H = 2, V = 3 and T = 3.

  q^T Theta^(K) is (0, 0, 1 / shared) for every left inverse, since V = |M*| |H*| + 1. As `shared` falls it exceeds any
  constant, and so does q^T Theta^(K) G at the prompt of `TEXT`.

  Args:
    shared: the probability with which memories 1 and 2 show c, which 3 always shows; below 1.

  >>> from hmm_jax.theory.rational_constructions import exact_posterior
  >>> print(*exact_posterior(weak_prompt_bias())(TEXT))
  4/29 1/29 24/29
  """
  own = 1 - shared
  show, pause = [[0, own, shared], [own, 0, shared], [0, 0, 1]], [0.5, 0.5, 0]
  return _problem(_LIKELY_3, [[shown, pause] for shown in show], [1, -2, 0])


def weak_prompt_bias_in_two_words() -> tuple[MemoryProblem, tuple[int, ...]]:
  """A memory, and a text of T = 2, with V = 4, H = 2 and the Moore-Penrose inverse; only a pause emits word 0.

  Three columns in four dimensions leave Theta free, and with another left inverse -2 is enough here.
  """
  show, pause = [[0, 0.75, 0, 0.25], [0, 0, 0.75, 0.25], [0, 0, 0, 1]], [1 / 16, 15 / 16, 0, 0]
  return _problem(_LIKELY_3, [[shown, pause] for shown in show], [1, -5, 0]), (0, 3)


def weak_prompt_bias_in_one_word() -> tuple[MemoryProblem, tuple[int, ...]]:
  """A memory and a text with H = 1, T = 1, V = 81: many words for memory 1 or 2 alone, and word 0, the only one for 3.

  The Moore-Penrose inverse weighs word 0 most, since memories 1 and 2 share no other; 1^T would be a sum of rows of
  Theta too.
  """
  own, none = [9 / 400] * 40, [0] * 40
  emissions = [[[0.1] + own + none], [[0.1] + none + own], [[1] + none + none]]
  two_states = _problem(_LIKELY_3, emissions, [1, -2, 0])
  sure = np.array([Fraction(1)], object)
  hmm = two_states.hmm._replace(initial_probs=sure, transition_matrix=sure[None], cell_index=np.zeros(1, np.int32))
  return two_states._replace(hmm=hmm, silent_probs=sure), (0,)


def more_positions() -> tuple[MemoryProblem, tuple[int, ...]]:
  """A memory, and a text in which the prompt makes an uncertain position certain.

  "Pause" emits words 0 and 1; "show" emits 2 and 3, and with memory 3 also 1. Next to 0 every memory shows, next to 1
  only memories 1 and 2: the first position of the text is sure only with the prompt, which rules 3 out.
  """
  show, pause = [[0, 0, 0.75, 0.25], [0, 0, 0.25, 0.75], [0, 0.5, 0.25, 0.25]], [0.5, 0.5, 0, 0]
  return _problem([1 / 3] * 3, [[shown, pause] for shown in show], [1, -1, 0]), (2, 1, 2, 0)


def _problem(memory_probs: list, emissions: list, weights: list) -> MemoryProblem:
  """The problem with states "show" and "pause" and one cell, its numbers rounded to `small_fractions`.

  The chain shows or pauses after showing, and shows after a pause; H_0 has its stationary law (2/3, 1/3).

  Args:
    memory_probs: [M].
    emissions: [M, H, V], "show" before "pause".
    weights: mu [M] of the first class; the second has zeros.
  """
  numbers = memory_probs, [2 / 3, 1 / 3], [[0.5, 0.5], [1, 0]], emissions, [weights, [0] * 3]
  of_memory, stationary, moves, emission_matrix, task_weights = map(small_fractions, numbers)
  hmm = MemoryHMM(of_memory, stationary, moves, np.zeros(2, np.int32), emission_matrix)
  return MemoryProblem(hmm, stationary, task_weights, cell=0)
