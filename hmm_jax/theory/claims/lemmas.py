"""Claims, lemmas and proof steps of appendices A to C of the first arXiv version, each as its violation by a case.

A claim is a function of a case and a length that yields differences, zero where it holds; `violation` is the largest.
Everything is computed from tables of P[memory, path, text], for all texts of the length at once. Positions count from 0
here, from 1 in the paper; the paper's silent H_0 is the state before the first token of x.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from hmm_jax.theory.claims.tables import apply, Case, normalised, over, silent_table, Table, table, token_law
from hmm_jax.theory.exact.algebra import left_inverse, memory_left_inverse

Differences = Iterator[np.ndarray]
Claim = Callable[[Case, int], Differences]


def violation(claim: Claim, case: Case, length: int) -> Any:
  """The largest absolute difference that the claim yields, a float or a `Fraction`."""
  return max((np.abs(differences).max() for differences in claim(case, length) if differences.size), default=0)


# Quantities that several claims share.


def state_law(of: Table, position: int) -> np.ndarray:
  """P[H = h at a position | evidence] [H, texts]."""
  return normalised(of.by_state(position))


def outside(of: Table, position: int) -> np.ndarray:
  """P[H not in H* | evidence] [texts]."""
  return state_law(of, position)[of.case.others].sum(0)


def value_law(of: Table) -> np.ndarray:
  """P[M_j* = m | evidence] [M, texts]."""
  return normalised(of.by(of.values, len(of.case.task_weights)))


def memory_score(of: Table) -> np.ndarray:
  """mu^T P[M_j* | evidence] [texts]."""
  return apply(of.case.task_weights, value_law(of))


def indicator(case: Case) -> np.ndarray:
  """The prompt u (C.6) [M, ..., M, H]."""
  u = np.isin(np.indices(case.memory_probs.shape)[case.cell], case.weighed)
  return u[..., None] * (0 * case.silent_probs + 1)


def starting_prompt(case: Case) -> np.ndarray:
  """u of Theorem 3.6, the indicator of B of Assumption 3.5, the states that move into H* alone: [1, H]."""
  return (~(case.transition_matrix[:, case.others] != 0).any(1) * (0 * case.silent_probs + 1))[None]


def prompted_table(case: Case, length: int) -> Table:
  """The paper's X-hat = (z~, x): the prompt (C.6) at the first state of the chain, tokens after it."""
  return table(case, length, silent=1, prompt=indicator(case))


def messages(case: Case, embeddings: list[np.ndarray]) -> list[np.ndarray]:
  """tau_i [C, H, n] of (B.1) and (C.3), 0 / 0 being 0, from embeddings [C, H, n] of n inputs."""
  laws = [(case.memory_probs[..., None] * case.first_probs).reshape(-1, len(case.first_probs))[..., None]]
  move = lambda message, matrix: np.moveaxis(np.tensordot(message, matrix, axes=(1, 0)), -1, 1)
  forward = laws[:]
  for row in embeddings[:-1]:
    laws.append(move(laws[-1], case.transition_matrix))
    forward.append(move(forward[-1] * row, case.transition_matrix))
  backward = laws[-1:]
  for row, then, law in zip(embeddings[:0:-1], laws[:0:-1], laws[-2::-1], strict=True):
    backward.append(law * move(over(backward[-1] * row, then), case.transition_matrix.T))
  return [over(before * after, law) for before, after, law in zip(forward, backward[::-1], laws, strict=True)]


def messages_are_joint_laws(case: Case, length: int, u: np.ndarray, masks: int) -> Differences:
  """tau_i = P[M, H_i, X-hat_-i] after the prompt u [M, ..., M, H] and masks, and its prediction is G_i."""
  _, num_states, num_tokens = case.emission_matrix.shape
  of = table(case, length, 1 + masks, u)
  reads = np.indices(case.memory_probs.shape).reshape(case.memory_probs.ndim, -1)[case.cell_index].T
  emitted = case.emission_matrix[reads, np.arange(num_states)]
  texts = [emitted[..., row] for row in np.indices((num_tokens,) * length).reshape(length, -1)]
  everything = [u.reshape(*reads.shape, 1), *[0 * texts[0] + 1] * masks, *texts]
  for i, (tau, left) in enumerate(zip(messages(case, everything)[1 + masks :], of.left_out)):
    joint = left.by_state(i, left.memories, len(reads))
    yield tau.reshape(reads.size, *of.text_probs.shape) - joint
    law = normalised((tau[:, :, None, :] * emitted[..., None]).sum((0, 1)))
    yield law.reshape(num_tokens, *of.text_probs.shape) - token_law(of, i)


def proposition_3_4(case: Case, length: int) -> Differences:
  """P[X_i | x_-i] = W P[M_J, H_i | x_-i]; with a memory, Proposition C.1."""
  of, W = table(case, length), case.emission_matrix.reshape(-1, case.emission_matrix.shape[-1]).T
  for i, left in enumerate(of.left_out):
    yield token_law(of, i) - apply(W, normalised(left.by_state(i, left.reads[i], len(case.emission_matrix))))


# Appendices A and B.


def claim_a_1(case: Case, length: int) -> Differences:
  """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x], D = diag(P[H_i] / P[H_0]); i = 1, 2."""
  now, law = silent_table(case, length), case.silent_probs
  for i in (1, 2):
    law = law @ case.transition_matrix
    then = silent_table(case, length, 1 + i)
    r_D = over(now.text_probs, then.text_probs).T[..., None] * over(law, case.silent_probs)
    yield (state_law(then, -1) - (r_D * state_law(now, -1).T).T)[:, now.possible]


def equation_a_1(case: Case, length: int) -> Differences:
  """b^T G_1(x') = mu^T P[H_0 | x] / r_x with b = mu D^-1 W^+, so that Theorem 3.3 is right."""
  yield _head_is_right(table(case, 1 + length), case.first_probs, np.arange(len(case.first_probs)))


def _head_is_right(masked: Table, reached: np.ndarray, states: np.ndarray) -> np.ndarray:
  """b^T G = r_x mu^T P[H_0 | x] at a [MASK] whose states have the law `reached`, for the b that recovers them."""
  case, now = masked.case, silent_table(masked.case, masked.length - 1)
  scale = case.task_weights[states] * over(case.silent_probs[states], reached[states])
  scores = apply(scale @ left_inverse(case.emission_matrix[0].T[:, states]), token_law(masked, 0)[:, 0])
  # mu^T P[H_0 | x], and the probability of the text after the mask.
  exact, then = apply(case.task_weights, state_law(now, -1)), masked.text_probs.sum(0)
  # Where the text is impossible after the mask the head scores 0.
  return (scores - np.where(then == 0, exact, exact * over(now.text_probs, then)))[now.possible]


def lemma_b_1(case: Case, length: int) -> Differences:
  """tau_i(u, [MASK], x) = P[H_i, X-hat_-i = (z~, [MASK], x)_-i] and G-bar_i is the law of X-hat_i, for any u."""
  size = len(case.silent_probs)
  shades = (0 * case.silent_probs + 1) * np.arange(1, size + 1) / size
  for u in (starting_prompt(case), shades[None]):
    yield from messages_are_joint_laws(case, length, u, masks=1)


def lemma_b_2(case: Case, length: int) -> Differences:
  """P[H_2 | z~, x] = r_x D (P[z~, H_2] * P[H_0 | x]), D = diag(1 / P[H_0]), and its support lies in H*."""
  now, u = silent_table(case, length), starting_prompt(case)
  of = table(case, length, silent=2, prompt=u)
  joint = (u[0] * case.first_probs) @ case.transition_matrix
  r_D = over(now.text_probs, of.text_probs).T[..., None] * over(1, case.silent_probs)
  yield (state_law(of, -1) - (r_D * joint * state_law(now, -1).T).T)[:, now.possible & of.possible]
  yield outside(of, -1)


def reached_states(case: Case, length: int) -> Differences:
  """supp(A (u * P[H_1])) = H*, "by definition of B" in the proof of Theorem 3.6."""
  reached = (starting_prompt(case)[0] * case.first_probs) @ case.transition_matrix != 0
  yield (reached != np.isin(np.arange(len(reached)), case.states)) * 1


def theorem_3_6(case: Case, length: int) -> Differences:
  """b^T G_2 = r_x mu^T P[H_0 | x], and both are 0 where prompt and text contradict each other."""
  u = starting_prompt(case)
  reached = (u[0] * case.first_probs) @ case.transition_matrix
  yield _head_is_right(table(case, 1 + length, silent=1, prompt=u), reached, np.array(case.states))


# Section 4, appendix C.1.


def recovery(case: Case, values: np.ndarray) -> np.ndarray:
  """Theta^(2, h) of Claims C.3 and C.10, [values, H*, V]: a left inverse that is 0 on the span V-bar."""
  return memory_left_inverse(*case.columns(values)).reshape(len(values), len(case.states), -1)


def attention(case: Case, values: np.ndarray) -> np.ndarray:
  """q^T Theta^(K) [V]."""
  return recovery(case, values).sum((0, 1))


def values_read(case: Case, theta: np.ndarray, values: np.ndarray, G: np.ndarray, position: int) -> np.ndarray:
  """(Theta^(V) G_i) * e(x_i), summed over states, [values, texts]: V(G_i, e(x_i)) of Lemmas C.4 and C.13 before mu."""
  emitted = case.emission_matrix[np.ix_(values, np.array(case.states))]
  # Its last axis is that of the token at the position.
  shape = np.where(np.arange(G.ndim - 1) == position, emitted.shape[-1], 1)
  return (apply(theta, G) * emitted.reshape(*emitted.shape[:2], *shape)).sum(1)


def region(of: Table) -> list[np.ndarray]:
  """Membership of each position in I, [texts] each: x_-i possible and P[H_i not in H* | x_-i] = 0."""
  return [left.possible & (outside(left, i) == 0) for i, left in enumerate(of.left_out)]


def in_region(plain: Table) -> np.ndarray:
  """The texts in R (4.3)."""
  return np.logical_or.reduce(np.broadcast_arrays(*region(plain))) & plain.possible


def every_value(case: Case) -> np.ndarray:
  """All values of the memory."""
  return np.arange(len(case.task_weights))


def claim_c_3(case: Case, length: int) -> Differences:
  """Theta^(2, h) G_i = P[M_j*, H_i = h | x_-i] on H*, Theta^(1) its sum, and the norm of Theta^(1) G_i is 1."""
  yield from _recovers(table(case, length), every_value(case), range(length))


def _recovers(of: Table, values: np.ndarray, positions: Iterable[int]) -> Differences:
  case, theta = of.case, recovery(of.case, values)
  # Theta^(1): a row for each state of H* and, where there is one, for a state outside it; they sum to 1^T.
  keys = theta.sum(0)
  keys = np.concatenate([keys, 1 - keys.sum(0, keepdims=True)]) if case.others.size else keys
  for i in positions:
    left, G = of.without(i), token_law(of, i)
    joint = normalised(left.by_state(i, left.values, len(case.emission_matrix)))
    joint = joint.reshape(-1, len(case.silent_probs), *joint.shape[1:])[:, case.states][values]
    yield (apply(theta, G) - joint)[:, :, left.possible]
    yield (np.abs(apply(keys, G)).sum(0) - 1)[left.possible]


def lemma_c_2(case: Case, length: int) -> Differences:
  """q^T K(G_i) = P[H_i in H* | x_-i], so that it is 1 where i is in I, and less elsewhere: I-hat = I."""
  yield from _logits_are_masses(table(case, length), attention(case, every_value(case)))


def _logits_are_masses(of: Table, keys: np.ndarray) -> Differences:
  for i, left in enumerate(of.left_out):
    yield (apply(keys, token_law(of, i)) - 1 + outside(left, i))[left.possible]


def lemma_c_4(case: Case, length: int) -> Differences:
  """V(G_i, e(x_i)) = Pr(x_i | x_-i) mu^T P[M_j* | x] at every i in I, for every x that can occur."""
  plain = table(case, length)
  yield from _values_are_scores(plain, plain, every_value(case))


def _values_are_scores(plain: Table, of: Table, values: np.ndarray) -> Differences:
  """V(G_i, e(x_i)) of the table `of` is r_{x,i} mu^T P[M_j* | x] on its I, and 0 where x can occur in `plain` alone."""
  case, theta, score = of.case, recovery(of.case, values), memory_score(plain)
  for i, inside in enumerate(region(of)):
    read = apply(case.task_weights[values], values_read(case, theta, values, token_law(of, i), i))
    r = over(plain.text_probs, of.without(i).text_probs)
    yield (read - r * score)[inside & plain.possible]
    yield read[plain.possible & ~of.possible]


# Section 4.2, appendices C.2 and C.3.


def lemma_c_7(case: Case, length: int) -> Differences:
  """Lemma B.1 with a memory, (C.3) and (C.5), for the prompt (C.6)."""
  yield from messages_are_joint_laws(case, length, indicator(case), masks=0)


def proposition_c_8(case: Case, length: int) -> Differences:
  """P[M, H_i, X_{i+1:i+T}] = P[M, H_0, X_{1:T}]; i = 1, 2."""
  now, *later = (silent_table(case, length, 1 + i) for i in range(3))
  joint = lambda of: of.by_state(-1, of.memories, case.memory_probs.size)
  for then in later:
    yield joint(then) - joint(now)


def proposition_c_11(case: Case, length: int) -> Differences:
  """After the prompt M_j* has no value outside supp(mu)."""
  for left in prompted_table(case, length).left_out:
    yield value_law(left)[case.task_weights == 0]


def claim_c_10(case: Case, length: int) -> Differences:
  """Claim C.3 after the prompt, i > 1, with the columns over supp(mu) alone."""
  yield from _recovers(prompted_table(case, length), case.weighed, range(length))


def claim_c_10_at_the_prompt(case: Case, length: int) -> Differences:
  """Claim C.10 at i = 1, the prompt's own position, which Lemma C.9 uses and the claim does not cover."""
  yield from _recovers(table(case, 1 + length), case.weighed, [0])


def claim_c_12(case: Case, length: int) -> Differences:
  """supp(P[H_i | X-hat_-i]) lies in supp(P[H_{i-1} | x_-(i-1)])."""
  plain, of = table(case, length), prompted_table(case, length)
  for i, (left, behind) in enumerate(zip(plain.left_out, of.left_out)):
    yield (state_law(behind, i) * (state_law(left, i) == 0))[:, behind.possible]


def logit_at_the_prompt(case: Case, length: int) -> np.ndarray:
  """q^T Theta^(K) G_1 [texts], without beta, of x in R; 0 for others."""
  logits = apply(attention(case, case.weighed), token_law(table(case, 1 + length), 0)[:, 0])
  return logits * in_region(table(case, length))


def lemma_c_9_of_the_paper(case: Case, length: int) -> Differences:
  """q^T (K(G_1) + beta_1) <= -1 with beta_1 = -2, for x in R."""
  yield np.maximum(logit_at_the_prompt(case, length) - 1, 0)


def lemma_c_9_corrected(case: Case, length: int) -> Differences:
  """The same with beta_1 = -1 - max_v (q^T Theta^(K))_v."""
  yield np.maximum(logit_at_the_prompt(case, length) + corrected_bias(case) + 1, 0)


def corrected_bias(case: Case) -> Any:
  """-1 - max_v (q^T Theta^(K))_v; that maximum is at least 1."""
  return -1 - attention(case, case.weighed).max()


def lemma_c_9_after_the_prompt(case: Case, length: int) -> Differences:
  """q^T K(G_i) = P[H_i in H* | X-hat_-i], so it is 1 for i in (C.8), and the largest."""
  of, keys = prompted_table(case, length), attention(case, case.weighed)
  yield from _logits_are_masses(of, keys)
  for i, inside in enumerate(region(table(case, length))):
    yield (apply(keys, token_law(of, i)) - 1)[inside & of.without(i).possible]


def lemma_c_9_precisely(case: Case, length: int) -> Differences:
  """Only positions in (C.8) are attended to: P[H_{i-1} not in H* | x_-(i-1)] at any other that is."""
  plain, of = table(case, length), prompted_table(case, length)
  may = np.broadcast_arrays(*(behind.possible for behind in of.left_out))
  some = in_region(plain) & np.logical_and.reduce(may)
  for i, (left, attended) in enumerate(zip(plain.left_out, region(of))):
    yield outside(left, i) * attended * some


def lemma_c_13(case: Case, length: int) -> Differences:
  """V(G_i, e(x_i)) = r_{x,i} mu^T P[M_j* | x], r = Pr(x) / Pr(X-hat_-i), where X-hat_-i puts H_i in H*; and it is 0 at
  every position where (z~, x) is impossible."""
  yield from _values_are_scores(table(case, length), prompted_table(case, length), case.weighed)


def claim_c_14(case: Case, length: int) -> Differences:
  """mu^T P[M_j* | z~, x] = mu^T P[M_j* | x] / Pr(z~ | x)."""
  of = prompted_table(case, length)
  share = over(of.text_probs, table(case, length, silent=1).text_probs)
  yield (memory_score(of) * share - memory_score(table(case, length)))[of.possible]


def claim_c_15(case: Case, length: int) -> Differences:
  """mu^T P[M_j* | x] = 0 where (z~, x) is impossible and x is not."""
  plain = table(case, length)
  yield memory_score(plain)[plain.possible & ~prompted_table(case, length).possible]


def built_parts(case: Case, length: int, bias: Any, prompt: np.ndarray) -> np.ndarray:
  """The output of Theorem C.6 with beta_1 = `bias`, for each value of supp(mu) and each text, [|M*|, texts].

  mu^T times it is the score: the construction is linear in mu.
  """
  of, theta = table(case, length, silent=1, prompt=prompt), recovery(case, case.weighed)
  first, Gs = token_law(table(case, 1 + length), 0)[:, 0], [token_law(of, i) for i in range(length)]
  keys = theta.sum((0, 1))
  logits = np.broadcast_arrays(apply(keys, first) + bias, *(apply(keys, G) for G in Gs))
  # States of H* read the cell of the task, so that their phi(u) (C.4) is the mean of u over the other cells.
  others = tuple(axis for axis in range(case.memory_probs.ndim) if axis != case.cell)
  phi = prompt.sum(others)[np.ix_(case.weighed, np.array(case.states))] / len(case.task_weights) ** len(others)
  values = [(apply(theta, first).T * phi.T).T.sum(1)]
  values += [values_read(case, theta, case.weighed, G, i) for i, G in enumerate(Gs)]
  attended = [logit >= np.maximum.reduce(logits) - rounding(case) for logit in logits]
  total = sum(value * at for value, at in zip(np.broadcast_arrays(*values), attended, strict=True))
  return total / sum(at * 1 for at in attended)


def rounding(case: Case) -> float:
  """The largest error that counts as rounding; 0 in `Fraction`s."""
  return 0 if case.emission_matrix.dtype == object else 1e-9


def wrong_labels(case: Case, length: int, bias: Any) -> tuple[np.ndarray, np.ndarray]:
  """The amounts by which the label 1(score >= 0) of each x in R is wrong.

  Returns:
    The lesser |score|, exact or built, of a wrong label; and |built| where the exact score is 0, whose label is 1.
  """
  plain = table(case, length)
  exact = memory_score(plain)
  built = apply(case.task_weights[case.weighed], built_parts(case, length, bias, indicator(case)))
  built = np.where(np.abs(built) <= rounding(case), 0, built)
  wrong = ((exact >= 0) != (built >= 0)) & in_region(plain)
  return np.minimum(np.abs(exact), np.abs(built)) * wrong, np.abs(built) * (wrong & (exact == 0))


def theorem_c_6_of_the_paper(case: Case, length: int) -> Differences:
  """The label on R where mu^T P[M_j* | x] is not 0, with beta_1 = -2."""
  yield wrong_labels(case, length, -2)[0]


def theorem_c_6_of_the_paper_at_0(case: Case, length: int) -> Differences:
  """The label on R where mu^T P[M_j* | x] is 0, with beta_1 = -2."""
  yield wrong_labels(case, length, -2)[1]


def theorem_c_6_corrected(case: Case, length: int) -> Differences:
  """The label on R, with the corrected beta_1."""
  yield from wrong_labels(case, length, corrected_bias(case))


def theorem_c_6_from_any_start(case: Case, length: int) -> Differences:
  """On R the posterior on supp(mu) up to a positive factor, with the prompt times P[H_0] / P[H_1]."""
  plain = table(case, length)
  prompt = indicator(case) * over(case.silent_probs, case.first_probs)
  built = built_parts(case, length, corrected_bias(case), prompt)
  built = np.where(np.abs(built) <= rounding(case), 0, built)
  yield (normalised(built) - normalised(value_law(plain)[case.weighed]))[:, in_region(plain)]


def smallest_gap(case: Case, length: int) -> Any:
  """The least 1 - q^T K(G_i) at a position of x in R that is not attended to: the gap that a softmax must resolve."""
  of = table(case, length)
  some, gaps = in_region(of), []
  for i, (left, at) in enumerate(zip(of.left_out, region(of))):
    gaps.append(np.broadcast_to(outside(left, i), some.shape)[some & ~at].min(initial=1))
  return min(gaps)
