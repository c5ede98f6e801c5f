"""A prompt between the [MASK] and the text: Theorem 3.6 without Assumption 3.5.

The input is (MASK, k blank rows, u, x). A blank row is 1 for every state and tells nothing. The row u lies at the state
before the text, which is the state that the label is of. Its law is pi = nu A^(k+1), where nu = `initial_probs` and
rows of A sum to 1. With M[h, v] = P[X_mask = v | state of u's row = h] and p = P[state of u's row | x],

  G = M^T (u * p) / u^T p:

the prompt weighs the labelled states themselves, where one before the [MASK] weighs only what they follow. Let S be
supp(mu), rho = `silent_probs` the prior by which texts are labelled, and v = mu * rho / pi.

- If the rows M[S] are independent, u = 1_S and b with M[S] b = v[S] give b^T G = v^T p / u^T p, a positive multiple of
  the exact score, or 0 = 0 if p(S) = 0. |H| <= |X|, ergodicity and Assumption 3.5 are not needed.
- For two classes, and mu their contrast, let b be positive on the rows with mu > 0 and negative on those with mu < 0,
  which exists iff the hulls of the two are disjoint. Then u_h = v_h / (M b)_h > 0 on S gives the same b^T G.

Both are sufficient and neither is necessary: on the lumpable chain of docs/findings/theory.md both fail, and one row is
right.
"""

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import float64
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import AssumptionError, Thresholds
from hmm_jax.theory.masks import masks_as_one_token
from hmm_jax.theory.recovery import Construction
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.separability import linear_separation


def inner_prompt(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, blanks: int, thresholds: Thresholds
) -> Construction:
  """The prompt [k + 1, H], k blank rows and u, and the linear head on G at the [MASK] before it, right on every text.

  The prompt stands between the [MASK] and the text, unlike that of `theorem_3_6`. The hulls are separated by a linear
  program, for two classes and only if the rows are dependent; margins up to the rank threshold count as none.

  Args:
    hmm: H states; `initial_probs` is the law of the state of the [MASK].
    task_weights: mu [C, H].
    silent_probs: rho [H], the prior by which the task labels texts.
    blanks: k, at least 0.
    thresholds: what counts as zero.

  Raises:
    AssumptionError: the rows M[S] are dependent, and there are more than two classes or the hulls meet.
    ValueError: `blanks` is negative.

  Source: the theorem of the inner prompt in docs/findings/theory.md.

  >>> between = np.array([[1, 0], [0.5, 0.5], [0, 1]])  # state 1 speaks between the other two; the states go round
  >>> hmm, thresholds = HMM(np.ones(3) / 3, np.roll(np.eye(3), 1, axis=1), between), Thresholds(support=0.0, rank=1e-9)
  >>> inner_prompt(hmm, [[1, -1, 0], [0, 0, 0]], hmm.initial_probs, 2, thresholds)['prompt'].tolist()  # independent
  [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
  >>> u = inner_prompt(hmm, [[2, 1, -1], [0, 0, 0]], hmm.initial_probs, 2, thresholds)['prompt'][-1]  # disjoint hulls
  >>> bool((u > 0).all())
  True
  >>> for mu in ([[1, -1, 1], [0, 0, 0]], np.eye(3)):  # hulls that meet, three classes on dependent rows
  ...   try:
  ...     inner_prompt(hmm, mu, hmm.initial_probs, 2, thresholds)
  ...   except AssumptionError:
  ...     print('refused')
  refused
  refused
  """
  if blanks < 0:
    raise ValueError(f'blanks is {blanks}; valid is at least 0')
  seen = masks_as_one_token(hmm, blanks + 2, joint=False)
  weights = assumptions.contrasts(task_weights)
  weighed = weights.any(0)
  rows = float64(seen.emission_matrix)[weighed, : hmm.num_tokens]
  scores = (weights * float64(silent_probs))[:, weighed] / float64(seen.initial_probs)[weighed]
  finding = assumptions.non_degeneracy(seen._replace(emission_matrix=rows), thresholds)
  head, u = np.linalg.pinv(rows) @ scores.T, np.ones(len(rows))
  if not finding.holds:
    separation = linear_separation(rows, np.int32(scores[0] < 0), 2, thresholds.rank)
    if len(weights) > 2 or not separation.separable:
      raise AssumptionError(finding)
    head = separation.head - separation.head[:, 1:]
    u = scores[0] / (rows @ head[:, 0])
  prompt = np.ones((blanks + 1, hmm.num_states))
  prompt[-1] = weighed
  prompt[-1, weighed] = u / u.max()
  return {'prompt': prompt, 'head': LinearHead(head, np.zeros(len(weights)))}
