"""A prompt between the [MASK] and the text: Theorem 3.6 without Assumption 3.5.

The input is (MASK, k blank rows, u, x). A blank row is 1 for every state and tells nothing. The row u lies at the state
before the text, which is the state that the label is of. With pi the law of that state, here nu A^(k+1) with
nu = `initial_probs` and rows of A that sum to 1, and

  M_k[h, v] = P[X_mask = v | state of u's row = h],  p = P[state of u's row | x],

the law at the [MASK] is G = M_k^T (u * p) / u^T p: the prompt weighs the labelled states themselves, where one before
the [MASK] weighs only what they follow. Let S = supp(mu), rho = `silent_probs` the prior by which texts are labelled,
D = diag(rho / pi).

- If the rows M_k[S] are independent, u = 1_S and b with M_k[S] b = (D mu)[S] give b^T G = (D mu)^T p / u^T p, a positive
  multiple of the exact score, or 0 = 0 if p(S) = 0. |H| <= |X|, ergodicity and Assumption 3.5 are not needed.
- With two classes and mu their contrast, let b be positive on the rows with mu > 0 and negative on those with mu < 0,
  which exists iff the hulls of the two are disjoint. Then u_h = (D mu)_h / (M_k b)_h is a prompt, up to its scale.
"""

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import float64
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Finding, Thresholds
from hmm_jax.theory.recovery import Construction, require
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.separability import linear_separation


def inner_prompt_condition(hmm: HMM, task_weights: ArrayLike, blanks: int, thresholds: Thresholds) -> Finding:
  """Decide if an inner prompt of k blank rows and one more gives every label: independent rows, or separated hulls.

  Both are sufficient and neither is necessary: in `mask_examples.lumpable_past` both fail and one row is right. Hulls are decided by a linear program, for two classes only
  and only if the rows are dependent; margins up to the rank threshold count as none. Witnesses: `states`, S; `signs`
  [V], the b that separates the hulls. Closeness: those of a rank, and `margin`.

  Args:
    hmm: `initial_probs` is the law of the state of the [MASK].
    task_weights: mu [C, H].
    blanks: k, at least 0.
    thresholds: what counts as zero.

  Raises:
    ValueError: `blanks` is negative, or the rows of mu are equal.

  >>> between = np.array([[1, 0], [0.5, 0.5], [0, 1]])  # state 1 speaks between the other two; the states go round
  >>> hmm, thresholds = HMM(np.ones(3) / 3, np.roll(np.eye(3), 1, axis=1), between), Thresholds(support=0.0, rank=1e-9)
  >>> for mu in [[1, -1, 0], [1, 1, -1], [1, -1, 1]]:
  ...   print(inner_prompt_condition(hmm, [mu, [0, 0, 0]], 2, thresholds).holds)
  True
  True
  False
  """
  weights = assumptions.contrasts(task_weights)
  states = np.flatnonzero(weights.any(0))
  _, rows = mask_given_state(hmm, blanks)
  independent, direction, closeness = assumptions.spectrum(rows[states].T, thresholds)
  of_states = f'the laws of the [MASK] {blanks + 1} steps before the {len(states)} weighed states'
  witness = {'states': states}
  if independent or len(weights) > 2:
    witness |= {} if independent else {'dependence': direction}
    reason = f'{of_states} are {"independent" if independent else "dependent"}'
    return Finding('Inner prompt', independent, reason, witness, closeness, thresholds)
  found = linear_separation(rows[states], np.int32(weights[0, states] < 0), 2, thresholds.rank)
  reason = f'{of_states} are dependent, and hulls by sign of mu are {"disjoint" if found.separable else "not disjoint"}'
  witness |= {'signs': found.head @ [1, -1]} if found.separable else {'dependence': direction}
  return Finding('Inner prompt', found.separable, reason, witness, closeness | {'margin': found.margin}, thresholds)


def inner_prompt(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, blanks: int, thresholds: Thresholds
) -> Construction:
  """The prompt [k + 1, H], k blank rows and u, and the linear head on G at the [MASK] before it, right on every text.

  The prompt stands between the [MASK] and the text, unlike that of `theorem_3_6`.

  Args:
    hmm: `initial_probs` is the law of the state of the [MASK].
    task_weights: mu [C, H].
    silent_probs: rho [H], the prior by which the task labels texts.
    blanks: k, at least 0.
    thresholds: what counts as zero.

  Raises:
    AssumptionError: `inner_prompt_condition` fails.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([[0.5, 0.5, 0], [0, 0.25, 0.75]]))
  >>> inner_prompt(hmm, np.eye(2), hmm.initial_probs, 1, Thresholds(support=0.0, rank=1e-9))['prompt'].tolist()
  [[1.0, 1.0], [1.0, 1.0]]
  """
  finding = inner_prompt_condition(hmm, task_weights, blanks, thresholds)
  require(finding)
  states, u = finding.witness['states'], np.zeros(hmm.num_states)
  law, rows = mask_given_state(hmm, blanks)
  scores = (assumptions.contrasts(task_weights) * float64(silent_probs))[:, states] / law[states]
  if 'signs' in finding.witness:
    b = finding.witness['signs']
    u[states] = scores[0] / (rows[states] @ b)
    weights = np.stack([b, np.zeros_like(b)], axis=1)
  else:
    u[states] = 1
    weights = np.linalg.pinv(rows[states]) @ scores.T
  prompt = np.vstack([np.ones((blanks, len(u))), u / u.max()])
  return {'prompt': prompt, 'head': LinearHead(weights, np.zeros(weights.shape[1]))}


def mask_given_state(hmm: HMM, blanks: int) -> tuple[np.ndarray, np.ndarray]:
  """pi [H] and M_k [H, V], the law of the token k + 1 steps before a state given that state; 0 where pi is."""
  if blanks < 0:
    raise ValueError(f'blanks is {blanks}; valid is at least 0')
  start, A, W = map(float64, hmm)
  steps = np.linalg.matrix_power(A, blanks + 1)
  law = start @ steps
  return law, steps.T @ (start[:, None] * W) / np.where(law == 0, 1, law)[:, None]
