"""Two small distributions in which a linear head fails and the paper's prompt or attention head succeeds.

`docs/findings/theory.md` follows the first by hand. A text x is seen as x' = (MASK, x), by both heads.

The first is as small as such an HMM can be. With two states, or one token, a linear head is always right. If the
columns of W are independent, by Theorem 3.3; if they are equal, since the text is no evidence and the label is
constant. The second has one state and one token more than it must: two states and three tokens suffice, with longer
texts and larger fractions.
"""

import numpy as np

from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.theory.problem import MemoryProblem, StateProblem


def head_fails_prompt_succeeds() -> StateProblem:
  """Irony says "good", as praise does: |H| = 3, |X| = 2, Assumption 3.5 holds, 3.1 does not.

  Was the sentence before the text rather praise or a complaint? Praise and complaints repeat themselves or turn into
  irony, and irony turns into one of them. The prompt of Theorem 3.6 says that irony came before, so that the masked
  sentence is not ironic. The chain starts from its stationary law, so that P[H_0] = P[H_1].

  >>> head_fails_prompt_succeeds().hmm.num_states  # praise, complaint, irony
  3
  """
  hmm = HMM(
    initial_probs=np.array([1, 1, 1]) / 3,
    transition_matrix=np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]]) / 2,
    # Columns are "good" and "bad".
    emission_matrix=np.array([[2, 1], [0, 3], [3, 0]]) / 3,
  )
  return StateProblem(hmm, silent_probs=np.array([1, 1, 1]) / 3, task_weights=np.eye(3)[:2])


def head_fails_attention_succeeds() -> MemoryProblem:
  """Before "the" there is a verb: N = 1, M = 2, |H| = 3, |X| = 4, and Assumption 4.2 holds with H* = {noun}.

  Is the text about a cow or a toy? Only nouns depend on it: cows are at times called toys, and toys cows. If the text
  starts with "the", the masked token is a verb whatever the memory holds, so that G_1 is no evidence. The noun after
  "the" is, and the attention head reads it there. The chain starts from its stationary law.

  >>> head_fails_attention_succeeds().hmm.num_states  # article, noun, verb
  3
  """
  # Columns are "the", "cow", "toy" and "rolled".
  article, verb = [4, 0, 0, 0], [0, 0, 0, 4]
  nouns = [0, 3, 1, 0], [0, 1, 3, 0]
  hmm = MemoryHMM(
    memory_probs=np.array([2, 1]) / 3,
    initial_probs=np.array([1, 2, 1]) / 4,
    transition_matrix=np.array([[0, 2, 0], [0, 1, 1], [2, 0, 0]]) / 2,
    cell_index=np.zeros(3, np.int32),
    emission_matrix=np.array([[article, noun, verb] for noun in nouns]) / 4,
  )
  return MemoryProblem(hmm, silent_probs=np.array([1, 2, 1]) / 4, task_weights=np.eye(2), cell=0)
