"""The claims, lemmas and theorems of appendix C; see `hmm_jax.theory.claims.lemmas`."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hmm_jax.theory.claims.lemmas import (
  Differences,
  indicator,
  messages_are_joint_laws,
  outside,
  over,
  possible,
  prompted_table,
  state_law,
)
from hmm_jax.theory.claims.tables import (
  apply,
  Case,
  left_inverse,
  normalised,
  off_span,
  Table,
  table,
  token_at,
  token_law,
)


def value_and_state(case: Case, of: Table, at: int) -> np.ndarray:
  """P[M_j* = m, H = h at one place of the path | evidence] [M, H, texts]."""
  memory_size, num_states, _ = case.emission_matrix.shape
  laws = normalised(of.by(of.values * num_states + of.states[:, at], memory_size * num_states))
  return laws.reshape(memory_size, num_states, *laws.shape[1:])


def memory_score(case: Case, of: Table) -> np.ndarray:
  """mu^T P[M_j* | evidence] [texts]."""
  return apply(case.task_weights, normalised(of.by(of.values, len(case.task_weights))))


def recovery(case: Case, values: np.ndarray) -> np.ndarray:
  """Theta^(2, h) of Claims C.3 and C.10, [values, H*, V]: a left inverse that is 0 on the span V-bar."""
  W = np.moveaxis(case.emission_matrix, -1, 0)
  reads_cell = case.cell_index == case.cell
  chosen = np.isin(np.arange(W.shape[1]), values)[:, None] | ~reads_cell
  others = W[:, chosen & ~np.isin(np.arange(W.shape[2]), case.states)]
  own = W[:, values][:, :, case.states].reshape(len(W), -1)
  return left_inverse(off_span(others) @ own).reshape(len(values), len(case.states), -1)


def keys(case: Case, theta: np.ndarray) -> np.ndarray:
  """Theta^(1) [H* and, where there is one, a state outside it, V]; its rows sum to 1^T."""
  rows = theta.sum(0)
  return np.concatenate([rows, 1 - rows.sum(0, keepdims=True)]) if case.others.size else rows


def values_read(case: Case, theta: np.ndarray, values: np.ndarray, G: np.ndarray, position: int, length: int) -> Any:
  """(Theta^(V) G_i) * e(x_i), summed over states, [values, texts]: V(G_i, e(x_i)) of Lemmas C.4 and C.13 before mu."""
  emitted = case.emission_matrix[np.ix_(values, np.array(case.states))]
  return (apply(theta, G) * token_at(np.moveaxis(emitted, -1, 0), position, length)).sum(1)


def region(case: Case, plain: Table) -> list[np.ndarray]:
  """Where each position is in I: x_-i possible and P[H_i not in H* | x_-i] = 0, [texts] each."""
  left = [plain.without(i) for i in range(plain.length)]
  return [possible(of) & (outside(case, of, i) == 0) for i, of in enumerate(left)]


def in_region(case: Case, plain: Table) -> np.ndarray:
  """Which texts are in R (4.3)."""
  return np.logical_or.reduce(np.broadcast_arrays(*region(case, plain))) & possible(plain)


# Section 4, appendix C.1.


def claim_c_3(case: Case, length: int) -> Differences:
  """Theta^(2, h) G_i = P[M_j*, H_i = h | x_-i] on H*, Theta^(1) its sum, and the norm of Theta^(1) G_i is 1."""
  of, theta = table(case, case.first_probs, length), recovery(case, np.arange(len(case.task_weights)))
  for i in range(length):
    yield from _recovers(case, of, i, i, theta, np.arange(len(theta)))


def _recovers(case: Case, of: Table, i: int, at: int, theta: np.ndarray, values: np.ndarray) -> Differences:
  left, G = of.without(i), token_law(of.text_probs, i)
  may, joint = possible(left), value_and_state(case, left, at)[:, list(case.states)]
  yield (apply(theta, G) - joint[values])[:, :, may]
  yield (np.abs(apply(keys(case, theta), G)).sum(0) - 1)[may]


def lemma_c_2(case: Case, length: int) -> Differences:
  """q^T K(G_i) = P[H_i in H* | x_-i], so that it is 1 where i is in I, and less elsewhere: I-hat = I."""
  of, theta = table(case, case.first_probs, length), recovery(case, np.arange(len(case.task_weights)))
  for i in range(length):
    left = of.without(i)
    logits = apply(theta.sum((0, 1)), token_law(of.text_probs, i))
    yield (logits - 1 + outside(case, left, i))[possible(left)]


def lemma_c_4(case: Case, length: int) -> Differences:
  """V(G_i, e(x_i)) = Pr(x_i | x_-i) mu^T P[M_j* | x] at every i in I, for every x that can occur."""
  of, values = table(case, case.first_probs, length), np.arange(len(case.task_weights))
  theta, score = recovery(case, values), memory_score(case, of)
  for i, inside in enumerate(region(case, of)):
    r = over(of.text_probs, of.without(i).text_probs)
    at = apply(case.task_weights, values_read(case, theta, values, token_law(of.text_probs, i), i, length))
    yield (at - r * score)[inside & possible(of)]


# Section 4.2, appendices C.2 and C.3.


def lemma_c_7(case: Case, length: int) -> Differences:
  """Lemma B.1 with a memory, (C.3) and (C.5), for the prompt (C.6)."""
  yield from messages_are_joint_laws(case, length, indicator(case).reshape(-1, len(case.silent_probs)), masks=0)


def proposition_c_8(case: Case, length: int) -> Differences:
  """P[M, H_i, X_{i+1:i+T}] = P[M, H_0, X_{1:T}]; i = 1, 2."""
  size = case.memory_probs.size * len(case.silent_probs)
  joint = lambda of, at: of.by(of.memories * len(case.silent_probs) + of.states[:, at], size)
  now = table(case, case.silent_probs, length, silent=1)
  for i in (1, 2):
    yield joint(table(case, case.silent_probs, length, silent=1 + i), i) - joint(now, 0)


def proposition_c_11(case: Case, length: int) -> Differences:
  """After the prompt M_j* has no value outside supp(mu)."""
  of, forbidden = prompted_table(case, length), case.task_weights == 0
  for i in range(length):
    left = of.without(i)
    yield normalised(left.by(left.values, len(forbidden)))[forbidden]


def claim_c_10(case: Case, length: int) -> Differences:
  """Claim C.3 after the prompt, i > 1, with the columns over supp(mu) alone."""
  of, theta = prompted_table(case, length), recovery(case, case.weighed)
  for i in range(length):
    yield from _recovers(case, of, i, 1 + i, theta, case.weighed)


def claim_c_10_at_the_prompt(case: Case, length: int) -> Differences:
  """The same at i = 1, the prompt's own position, which Lemma C.9 uses and the claim does not say."""
  of, theta = table(case, case.first_probs, 1 + length), recovery(case, case.weighed)
  yield from _recovers(case, of, 0, 0, theta, case.weighed)


def claim_c_12(case: Case, length: int) -> Differences:
  """supp(P[H_i | X-hat_-i]) lies in supp(P[H_{i-1} | x_-(i-1)])."""
  for with_prompt, without_prompt in _posteriors(case, length):
    yield with_prompt * (without_prompt == 0)


def _posteriors(case: Case, length: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """P[H_i | X-hat_-i] and P[H_{i-1} | x_-(i-1)] [H, texts], where x_-i can follow the prompt."""
  plain, of = table(case, case.first_probs, length), prompted_table(case, length)
  for i in range(length):
    left, may = plain.without(i), possible(of.without(i))
    of_plain, of_prompted = (
      state_law(each, at, len(case.silent_probs)) for each, at in ((left, i), (of.without(i), 1 + i))
    )
    yield of_prompted[:, may], of_plain[:, may]


def logit_at_the_prompt(case: Case, length: int) -> np.ndarray:
  """q^T Theta^(K) G_1 [texts], without beta, of x in R; 0 for others."""
  of, attention = table(case, case.first_probs, 1 + length), recovery(case, case.weighed).sum((0, 1))
  return apply(attention, token_law(of.text_probs, 0)[:, 0]) * in_region(case, table(case, case.first_probs, length))


def lemma_c_9_of_the_paper(case: Case, length: int) -> Differences:
  """q^T (K(G_1) + beta_1) <= -1 with beta_1 = -2, for x in R."""
  yield np.maximum(logit_at_the_prompt(case, length) - 1, 0)


def lemma_c_9_corrected(case: Case, length: int) -> Differences:
  """The same with beta_1 = -1 - max_v (q^T Theta^(K))_v."""
  yield np.maximum(logit_at_the_prompt(case, length) + corrected_bias(case) + 1, 0)


def corrected_bias(case: Case) -> Any:
  """-1 - max_v (q^T Theta^(K))_v; that maximum is at least 1."""
  return -1 - recovery(case, case.weighed).sum((0, 1)).max()


def lemma_c_9_after_the_prompt(case: Case, length: int) -> Differences:
  """q^T K(G_i) = P[H_i in H* | X-hat_-i], so it is 1 for i in (C.8), and the largest."""
  of, attention = prompted_table(case, length), recovery(case, case.weighed).sum((0, 1))
  for i, inside in enumerate(region(case, table(case, case.first_probs, length))):
    left = of.without(i)
    logits, may = apply(attention, token_law(of.text_probs, i)), possible(left)
    yield (logits - 1 + outside(case, left, 1 + i))[may]
    yield (logits - 1)[inside & may]


def lemma_c_9_precisely(case: Case, length: int) -> Differences:
  """No position is attended to that is not in (C.8): P[H_{i-1} not in H* | x_-(i-1)] at the others that are."""
  plain, of = table(case, case.first_probs, length), prompted_table(case, length)
  may = [possible(of.without(i)) for i in range(length)]
  in_z = np.logical_and.reduce(np.broadcast_arrays(*may))
  some = in_region(case, plain) & in_z
  for i in range(length):
    attended = may[i] & (outside(case, of.without(i), 1 + i) == 0)
    yield outside(case, plain.without(i), i) * attended * some


def lemma_c_13(case: Case, length: int) -> Differences:
  """V(G_i, e(x_i)) = r_{x,i} mu^T P[M_j* | x], r = Pr(x) / Pr(X-hat_-i), where X-hat_-i puts H_i in H*; and it is 0 at
  every position where (z~, x) is impossible."""
  plain, of = table(case, case.first_probs, length), prompted_table(case, length)
  theta, score, contradicts = recovery(case, case.weighed), memory_score(case, plain), ~possible(of)
  for i in range(length):
    left = of.without(i)
    inside = possible(left) & (outside(case, left, 1 + i) == 0)
    read = values_read(case, theta, case.weighed, token_law(of.text_probs, i), i, length)
    at = apply(case.task_weights[case.weighed], read)
    r = over(plain.text_probs, left.text_probs)
    yield (at - r * score)[inside & possible(plain)]
    yield at[contradicts & possible(plain)]


def claim_c_14(case: Case, length: int) -> Differences:
  """mu^T P[M_j* | z~, x] = mu^T P[M_j* | x] / Pr(z~ | x)."""
  plain, of = table(case, case.first_probs, length), prompted_table(case, length)
  share = over(of.text_probs, table(case, case.first_probs, length, silent=1).text_probs)
  yield (memory_score(case, of) * share - memory_score(case, plain))[possible(of)]


def claim_c_15(case: Case, length: int) -> Differences:
  """Where (z~, x) is impossible and x is not, mu^T P[M_j* | x] = 0."""
  plain, of = table(case, case.first_probs, length), prompted_table(case, length)
  yield memory_score(case, plain)[possible(plain) & ~possible(of)]


def scaled_prompt(case: Case) -> np.ndarray:
  """(C.6) times P[H_0] / P[H_1], for a start that is not stationary."""
  return indicator(case) * over(case.silent_probs, case.first_probs)


def built_parts(case: Case, length: int, bias: Any, prompt: np.ndarray) -> np.ndarray:
  """What prompt and head of Theorem C.6 give each text for each value of supp(mu), [|M*|, texts], beta_1 = bias.

  With mu it is the score: the construction is linear in it.
  """
  of, theta = prompted_table(case, length, prompt), recovery(case, case.weighed)
  first = token_law(table(case, case.first_probs, 1 + length).text_probs, 0)[:, 0]
  Gs = [token_law(of.text_probs, i) for i in range(length)]
  attention = theta.sum((0, 1))
  logits = np.broadcast_arrays(apply(attention, first) + bias, *(apply(attention, G) for G in Gs))
  # States of H* read the cell of the task, so that their phi(u) (C.4) is the mean of u over the other cells.
  others = tuple(axis for axis in range(case.memory_probs.ndim) if axis != case.cell)
  phi = prompt.sum(others)[np.ix_(case.weighed, np.array(case.states))] / len(case.task_weights) ** len(others)
  values = [(apply(theta, first) * phi.reshape(phi.shape + (1,) * length)).sum(1)]
  values += [values_read(case, theta, case.weighed, G, i, length) for i, G in enumerate(Gs)]
  attended = [logit >= np.maximum.reduce(logits) - rounding(case) for logit in logits]
  total = sum(value * at for value, at in zip(np.broadcast_arrays(*values), attended, strict=True))
  return total / sum(at * 1 for at in attended)


def rounding(case: Case) -> float:
  """What counts as equal: nothing but that in `Fraction`s."""
  return 0 if case.emission_matrix.dtype.kind == 'O' else 1e-9


def wrong_labels(case: Case, length: int, bias: Any) -> tuple[np.ndarray, np.ndarray]:
  """By how much the label 1(score >= 0) of each x in R is wrong.

  Returns:
    The lesser of the two scores where the exact one is not 0; and |built| where it is, and the label 1 by definition.
  """
  plain = table(case, case.first_probs, length)
  exact = memory_score(case, plain)
  built = apply(case.task_weights[case.weighed], built_parts(case, length, bias, indicator(case)))
  built = np.where(np.abs(built) <= rounding(case), 0, built)
  wrong = ((exact >= 0) != (built >= 0)) & in_region(case, plain)
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
  plain = table(case, case.first_probs, length)
  prompt = indicator(case) * over(case.silent_probs, case.first_probs)
  built = built_parts(case, length, corrected_bias(case), prompt)
  built = np.where(np.abs(built) <= rounding(case), 0, built)
  exact = normalised(plain.by(plain.values, len(case.task_weights)))[case.weighed]
  yield (normalised(built) - normalised(exact))[:, in_region(case, plain)]


def smallest_gap(case: Case, length: int) -> Any:
  """The least 1 - q^T K(G_i) at a position of x in R that is not attended to: what argmax leaves softmax to resolve."""
  of = table(case, case.first_probs, length)
  some, gaps = in_region(case, of), []
  for i, at in enumerate(region(case, of)):
    mass = np.broadcast_to(outside(case, of.without(i), i), some.shape)
    gaps.append(mass[some & ~at].min(initial=1))
  return min(gaps)
