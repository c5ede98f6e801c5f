"""Each theorem as a program: the prompt and the head that its proof constructs.

A construction is exactly what a tuner trains (`hmm_jax.tuning.tuner`): a dictionary of `head` and, for some theorems,
`prompt`, for one task. So a tuner can score it on any model, start from it, or be compared with it. Arrays are float64;
A = transition_matrix.T and W = emission_matrix.T, as in the paper; `inference.passes` has the textbook's A[i, j] =
P[next j | now i]. Equation numbers are those of appendices A to C of the first arXiv version.

The paper writes one weight vector mu and F* = 1(mu^T P >= 0). Here mu has a row for each class, F* is the argmax, and a
construction has a column for each class: every step of the proofs is linear in mu, and every scale r_x is common to the
classes, so the argmax is kept. `contrasts` takes mu relative to the last class, whose column is 0.

The exact model starts at the first emitting state: `hmm.initial_probs` is P[H_1]. `silent_probs` is the law of the
state that the label is of: a silent H_0, or the masked first state itself, with `silent_probs` = P[H_1].
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
import scipy.linalg

from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, reverse_lift
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import AssumptionError, Finding, Thresholds
from hmm_jax.tuning.heads import AttentionHead, LinearHead

Construction = dict[str, Any]


def theorem_3_3(hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, thresholds: Thresholds) -> Construction:
  """The linear head b on G_1(x'), x' = (MASK, x), of Theorem 3.3; a trainable of a `Tuner` with `Linear`.

  By Claim A.1, P[H_1 | X_{2:T+1} = x] = r_x D P[H_0 | X_{1:T} = x] with D = diag(P[H_1] / P[H_0]), so that
  P[H_0 | x] = B G_1(x') / r_x with B = D^-1 W^+ (A.1), and b = mu B.

  Args:
    hmm: the model's chain, H states and V tokens.
    task_weights: mu [C, H].
    silent_probs: P[H_0] [H].
    thresholds: what counts as zero.

  Raises:
    AssumptionError: Assumption 3.1 fails, or 3.2.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.75, 0.25], [0.25, 0.75]]))
  >>> head = theorem_3_3(hmm, np.eye(2), hmm.initial_probs, Thresholds(support=0.0, rank=1e-9))['head']
  >>> print((hmm.emission_matrix @ head.weights).round(6))  # scores of G where the state is sure
  [[ 1.  0.]
   [-1.  0.]]
  """
  silent_probs = float64(silent_probs)
  require(assumptions.non_degeneracy(hmm, thresholds))
  require(regularity(hmm, silent_probs, thresholds))
  W = float64(hmm.emission_matrix).T
  D = float64(hmm.initial_probs) / silent_probs
  B = np.linalg.pinv(W) / D[:, None]
  return {'head': _linear_head(assumptions.contrasts(task_weights) @ B)}


def theorem_3_6(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, thresholds: Thresholds, max_nodes: int
) -> Construction:
  """The prompt u and the linear head b on G_2(u, MASK, x) of Theorem 3.6; a trainable of a `Tuner` with a prompt.

  u is the indicator of B (Assumption 3.5). By Lemmas B.1 and B.2, P[H_2 | prompt, x] = r_x D v with
  v = A(u * P[H_1]) * P[H_0 | x], supported on H*, and D = diag(1 / P[H_0]): (3.3). So W^+ of the columns in H* alone
  recovers it, a scaling by P[H_0] / A(u * P[H_1]) leaves P[H_0 | x] on H*, and mu is 0 elsewhere. Where prompt and text
  contradict each other, G_2 = 0 and mu^T P[H_0 | x] = 0.

  Args:
    hmm: the model's chain, H states and V tokens.
    task_weights: mu [C, H].
    silent_probs: P[H_0] [H].
    thresholds: what counts as zero.
    max_nodes: of the search for H*.

  Raises:
    AssumptionError: Assumption 3.5 fails, or 3.2.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> task, thresholds = head_fails_prompt_succeeds(), Thresholds(support=0.0, rank=1e-9)
  >>> built = theorem_3_6(task.hmm, task.task_weights, task.silent_probs, thresholds, max_nodes=1000)
  >>> built['prompt'].tolist()  # irony came before
  [[0.0, 0.0, 1.0]]
  """
  silent_probs = float64(silent_probs)
  finding = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, max_nodes)
  require(finding)
  require(regularity(hmm, silent_probs, thresholds))
  essential, starts = finding.witness['essential_states'], finding.witness['prompt_states']
  A, W = (float64(matrix).T for matrix in hmm[1:])
  u = np.isin(np.arange(hmm.num_states), starts).astype(float)
  reached = A @ (u * float64(hmm.initial_probs))
  B = np.zeros((hmm.num_states, hmm.num_tokens))
  B[essential] = (silent_probs / positive_or_one(reached))[essential, None] * np.linalg.pinv(W[:, essential])
  return {'prompt': u[None], 'head': _linear_head(assumptions.contrasts(task_weights) @ B)}


def theorem_4_3(
  hmm: MemoryHMM, task_weights: ArrayLike, cell: int, length: int, thresholds: Thresholds
) -> Construction:
  """The attention head on G(x) of Theorem 4.3, right for x in R (4.3); a trainable of a `Tuner` with `Attention`.

  Keys (Lemma C.2): Theta^(K) recovers P[H_i = h | x_{-i}] for h in H*, and q adds them up, so that the positions whose
  state surely lies in H* score 1 and all others less; beta = 0. Values (Lemma C.4): at those positions Theta^(V) G_i =
  P[M_{J_i}, H_i | x_{-i}], times e(x_i) = W[x_i] (ones for a [MASK]) it is the joint with X_i, and b sums it with mu
  over the states that read cell j*: r_{x,i} mu^T P[M_{j*} | x].

  Args:
    hmm: the model's distribution, E = M^N H.
    task_weights: mu [C, M].
    cell: j*.
    length: T.
    thresholds: what counts as zero.

  Raises:
    AssumptionError: Assumption 4.2 fails. The statement assumes 3.2 too, which its proof never uses: it divides by no
      P[H_i], since G is a conditional of tokens and not of a prompt.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> task, thresholds = head_fails_attention_succeeds(), Thresholds(support=0.0, rank=1e-9)
  >>> theorem_4_3(task.hmm, task.task_weights, 0, 5, thresholds)['head'].key_weights.shape
  (4, 4)
  """
  finding = assumptions.recoverable_hidden_states(hmm, cell, thresholds)
  require(finding)
  head = _attention_head(hmm, task_weights, cell, finding, np.zeros((0, hmm.joint_initial_probs.size)), length)
  return {'head': head}


def theorem_4_6(
  hmm: MemoryHMM,
  task_weights: ArrayLike,
  silent_probs: ArrayLike,
  cell: int,
  length: int,
  thresholds: Thresholds,
  tolerance: float,
) -> Construction:
  """The prompt and the attention head of Theorem 4.6, and with several cells of C.6 (D.6 in the later text).

  A trainable of a `Tuner` with `Attention` and a prompt. The prompt excludes values of cell j* outside supp(mu), (C.6)
  and Proposition C.11, and gives its state the law P[H_0]: u = 1(m_{j*} in supp(mu)) P[H_0] / P[H_1], scaled to at most
  1. So what follows it has the law of x. Under Assumption 4.4 u is the indicator (C.6); the assumption is not needed,
  as the remark on it says. Keys and values are those of `theorem_4_3` with the columns of W over supp(mu) alone (Claim
  C.10, Lemma C.13). The prompt's own embedding is phi(u), the reverse lifting (C.4).

  beta is 0 but at the prompt, where it is -1 - max_v (q^T Theta^(K))_v on the last key, so that the prompt is never
  attended to. The first arXiv version has -2 (Lemma C.9), which can fail: Claim C.10 bounds q^T Theta^(K) G_i by 1 only
  after the prompt. At its own position G leaves the prompt out, and the memory is not confined to supp(mu). See
  docs/findings/theory.md.

  The head attends to every position that the prompted posterior puts in H*. The proof of Lemma C.9 says that these are
  the positions (C.8) of the posterior without the prompt; by Claim C.12 they contain those, and at each the value is
  right.

  Args:
    hmm: the model's distribution, E = M^N H.
    task_weights: mu [C, M].
    silent_probs: P[H_0] [H], or [M, ..., M, H] if it depends on the memory: P[H_1] = A P[H_0]. P[H_1] where the
      start is stationary.
    cell: j*.
    length: T, the prompt not counted.
    thresholds: what counts as zero.
    tolerance: the largest error of P[H_1] = A P[H_0] that counts as equal, absolute.

  Raises:
    AssumptionError: Assumption 4.5 (C.5) fails, or `assumptions.silent_start`.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> task, thresholds = head_fails_attention_succeeds(), Thresholds(support=0.0, rank=1e-9)
  >>> built = theorem_4_6(task.hmm, task.task_weights, task.hmm.initial_probs, 0, 5, thresholds, 1e-9)
  >>> built['prompt'].shape, built['head'].positions.shape
  ((1, 6), (6, 4))
  """
  finding = assumptions.relaxed_recoverable_hidden_states(hmm, cell, task_weights, thresholds)
  require(finding)
  silent_probs = float64(silent_probs)
  require(assumptions.silent_start(hmm, silent_probs, thresholds, tolerance))
  # [M, ..., M], the memories that the prompt allows.
  in_support = np.isin(np.indices(hmm.memory_probs.shape)[cell], assumptions.weighted_states(task_weights))
  initial_probs = float64(hmm.initial_probs)
  ratios = np.divide(silent_probs, initial_probs, out=np.zeros_like(silent_probs), where=initial_probs > 0)
  u = (in_support[..., None] * ratios).reshape(1, -1)
  u /= max(u.max(), np.finfo(np.float64).tiny)
  return {'prompt': u, 'head': _attention_head(hmm, task_weights, cell, finding, u, length)}


def recoverable_positions(hmm: MemoryHMM, leave_one_out_probs: ArrayLike, finding: Finding) -> np.ndarray:
  """Mask [..., T] of positions whose state surely is in H*, by posteriors [..., T, H]; x is in R (4.3) if any is.

  Args:
    hmm: the distribution.
    leave_one_out_probs: P[H_i | x_{-i}], of `memory_forward_backward`.
    finding: of Assumption 4.2, 4.5 or C.5; mass up to its support threshold counts as none.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> hmm = head_fails_attention_succeeds().hmm
  >>> finding = assumptions.recoverable_hidden_states(hmm, 0, Thresholds(support=0.0, rank=1e-9))
  >>> recoverable_positions(hmm, np.array([[0, 1.0, 0], [0.5, 0.5, 0]]), finding).tolist()  # H* is state 1
  [True, False]
  """
  outside = ~np.isin(np.arange(hmm.num_states), finding.witness['recoverable_states'])
  probs = np.asarray(leave_one_out_probs)
  return (probs[..., outside] <= finding.thresholds.support).all(-1) & (probs.sum(-1) > 0)


def mass_weights(hmm: HMM, states: ArrayLike, thresholds: Thresholds) -> np.ndarray:
  """a [V] with a^T G_i = P[H_i in H* | x_{-i}] for every x: the mass on H* by any model's predictions.

  By Proposition 3.4 G = W p, so that a^T G is the mass of p on H* exactly where W^T a is the indicator of H*.

  Raises:
    ValueError: no such a exists; two posteriors with other mass on H* predict the same.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.eye(2), np.array([[0.75, 0.25], [0.25, 0.75]]))
  >>> weights = mass_weights(hmm, [0], Thresholds(support=0.0, rank=1e-9))
  >>> print((hmm.emission_matrix @ weights).round(6) + 0.0)
  [1. 0.]
  """
  emission_matrix = float64(hmm.emission_matrix)
  indicator = np.isin(np.arange(hmm.num_states), states).astype(float)
  weights = np.linalg.lstsq(emission_matrix, indicator, rcond=thresholds.rank)[0]
  error = np.abs(emission_matrix @ weights - indicator).max()
  if error > math.sqrt(np.finfo(np.float64).eps):
    raise ValueError(f'states is {states!r}; valid are states whose mass is linear in G')
  return weights


def require(finding: Finding) -> None:
  """Raise AssumptionError if the assumption fails."""
  if not finding.holds:
    raise AssumptionError(finding)


def regularity(hmm: HMM, silent_probs: ArrayLike, thresholds: Thresholds) -> Finding:
  """Assumption 3.2 for the law of a silent H_0 and for P[H_1], which is a divisor too."""
  both_laws = np.stack([hmm.initial_probs, silent_probs])
  return assumptions.regularity(hmm._replace(initial_probs=both_laws), thresholds)


def _linear_head(weights_CxV: np.ndarray) -> LinearHead:
  return LinearHead(weights_CxV.T, np.zeros(len(weights_CxV)))


def _attention_head(
  hmm: MemoryHMM, task_weights: ArrayLike, cell: int, finding: Finding, prompt: np.ndarray, length: int
) -> AttentionHead:
  """The head of Lemmas C.2 and C.4 (C.9 and C.13 with a prompt); features are (m, h), number m H + h.

  The output has mu at every state, since values are 0 but at those of H*, which read the cell.
  """
  memory_size, num_states, num_tokens = hmm.emission_matrix.shape
  states, values = finding.witness['recoverable_states'], finding.witness['memory_values']
  recover_MxHxV = np.zeros((memory_size, num_states, num_tokens))
  recover_MxHxV[np.ix_(values, states)] = _recovery(hmm, cell, finding)
  theta_HxV = attention_keys(hmm, cell, finding)
  positions = np.zeros((len(prompt) + length, num_states + 1))
  positions[: len(prompt), -1] = -1 - theta_HxV[states].sum(0).max()
  W = float64(hmm.emission_matrix).reshape(-1, num_tokens).T
  return AttentionHead(
    query=np.append(np.isin(np.arange(num_states), states), len(prompt) > 0).astype(float),
    key_weights=np.vstack([theta_HxV, np.zeros(num_tokens)]),
    positions=positions,
    value_weights=recover_MxHxV.reshape(-1, num_tokens),
    token_embeddings=np.vstack([W, np.ones(W.shape[1])]),
    prompt_embeddings=reverse_lift(hmm, prompt).reshape(len(prompt), W.shape[1]),
    output=np.repeat(assumptions.contrasts(task_weights), num_states, axis=1).T,
  )


def attention_keys(hmm: MemoryHMM, cell: int, finding: Finding) -> np.ndarray:
  """Theta^(1) [H, V] of Claims C.3 and C.10: on G_i the probability of each state of H*.

  1^T B^(h) = 1^T Theta^(2, h), since columns of W sum to 1. Other rows, which the query does not read, are 0.
  """
  theta_HxV = np.zeros((hmm.num_states, hmm.num_tokens))
  theta_HxV[finding.witness['recoverable_states']] = _recovery(hmm, cell, finding).sum(0)
  return theta_HxV


def _recovery(hmm: MemoryHMM, cell: int, finding: Finding) -> np.ndarray:
  """Theta^(2, h) of Claims C.3 and C.10 for all h in H* at once, [|M*|, |H*|, V].

  On W p it gives p at (m, h), m in M* and h in H*: a left inverse of those columns that is 0 on the span of the others.
  """
  states, values = finding.witness['recoverable_states'], finding.witness['memory_values']
  W_VxMxH = np.moveaxis(float64(hmm.emission_matrix), -1, 0)
  others = scipy.linalg.orth(assumptions.columns_outside(hmm, cell, states, values), finding.thresholds.rank)
  off_others = np.eye(hmm.num_tokens) - others @ others.T
  own = W_VxMxH[:, values][:, :, states].reshape(hmm.num_tokens, -1)
  return (np.linalg.pinv(off_others @ own) @ off_others).reshape(len(values), len(states), -1)
