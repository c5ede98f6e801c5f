"""The claims and lemmas of appendices A to C on small structured chains, by sums over every memory and hidden path.

The paper's silent H_0 is position 0 of a text whose first token is not seen. Every sum is written from the definition
of a (memory-augmented) HMM; of the library only the exact model's G-bar and the constructions are used, where a lemma
speaks of them.
"""

import functools
import itertools
from typing import NamedTuple

from conftest import contradictory_memory, contradictory_states, in_float64
import jax
import numpy as np
import pytest

from hmm_jax.hmm import conditional_token_probs, HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions, rationals, recovery, structured
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.structured import Sizes

EXACT = Thresholds(support=0.0, rank=1e-9)
CLOSE = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-11)


class Paths(NamedTuple):
  """Every memory and hidden path of positive probability.

  Attributes:
    probs: [n], P[memory, path].
    states: [n, L], the path.
    cells: [n, N], what each cell holds.
    joint: [n, L], the number of the joint state at each position.
    emissions: [n, L, V], P[X_t = v | memory, H_t].
  """

  probs: np.ndarray
  states: np.ndarray
  cells: np.ndarray
  joint: np.ndarray
  emissions: np.ndarray


def paths_of(hmm, length):
  """By the definition of the chain; a plain `HMM` has one cell with one value."""
  if isinstance(hmm, HMM):
    no_cells = np.zeros(hmm.num_states, int)
    hmm = MemoryHMM(np.ones(1), hmm.initial_probs, hmm.transition_matrix, no_cells, hmm.emission_matrix[None])
  found = []
  memories = list(itertools.product(range(hmm.memory_size), repeat=hmm.num_cells))
  for (number, memory), path in itertools.product(
    enumerate(memories), itertools.product(range(hmm.num_states), repeat=length)
  ):
    prob = hmm.memory_probs[memory] * hmm.initial_probs[path[0]]
    for now, then in itertools.pairwise(path):
      prob = prob * hmm.transition_matrix[now, then]
    if prob:
      rows = [hmm.emission_matrix[memory[hmm.cell_index[h]], h] for h in path]
      found.append((prob, path, memory, [number * hmm.num_states + h for h in path], rows))
  return Paths(*map(np.array, zip(*found, strict=True)))


def weights(paths, tokens, prompt=None):
  """P[memory, path, evidence] [n]: tokens by position, None where nothing is seen, and u [E] at position 0."""
  total = paths.probs if prompt is None else paths.probs * prompt[paths.joint[:, 0]]
  for position, token in enumerate(tokens):
    if token is not None:
      total = total * paths.emissions[:, position, token]
  return total


def law(values, total, size):
  """The sums of the weights by value, [size]."""
  return np.bincount(values, total, size)


def normalised(probs):
  """Probs over their sum; zeros where it is 0."""
  return probs / probs.sum() if probs.sum() > 0 else probs


def without(tokens, position):
  """The tokens but one."""
  return [*tokens[:position], None, *tokens[position + 1 :]]


def token_law(paths, tokens, position, prompt=None):
  """P[X_i | X_-i] [V] by the probabilities of all tokens at i."""
  kept = without(tokens, position)
  num_tokens = paths.emissions.shape[-1]
  joint = [weights(paths, [*kept[:position], v, *kept[position + 1 :]], prompt).sum() for v in range(num_tokens)]
  return normalised(np.array(joint))


def texts_of(hmm, length):
  return list(itertools.product(range(hmm.num_tokens), repeat=length))


def state_problems(theorem):
  sizes = Sizes(num_states=3, num_tokens=3, num_classes=3, memory_size=0, num_cells=0)
  if theorem == '3.3':
    return [structured.for_theorem_3_3(jax.random.key(seed), sizes, EXACT, 0.05) for seed in range(2)]
  sizes = sizes._replace(num_states=5)
  drawn = [structured.for_theorem_3_6(jax.random.key(seed), sizes, EXACT, 0.05, 1000) for seed in range(2)]
  return [*drawn, contradictory_states()]


def memory_problems(theorem):
  sizes = Sizes(num_states=3, num_tokens=5, num_classes=3, memory_size=2, num_cells=1)
  if theorem == '4.3':
    one = structured.for_theorem_4_3(jax.random.key(0), sizes, EXACT, 0.05)
    # State 2 reads the other cell.
    keys = (jax.random.key(seed) for seed in itertools.count())
    two = (structured.for_theorem_4_3(key, sizes._replace(num_cells=2), EXACT, 0.05) for key in keys)
    return [one, next(problem for problem in two if problem.hmm.cell_index[2] == 1)]
  # Of this key, since on some of its texts the prompt rules states out.
  one = structured.for_theorem_4_6(jax.random.key(4), sizes._replace(memory_size=3), EXACT, 0.05, 1e-9)
  keys = (jax.random.key(seed) for seed in itertools.count())
  two = (structured.for_theorem_4_6(key, sizes._replace(memory_size=3, num_cells=2), EXACT, 0.05, 1e-9) for key in keys)
  return [one, next(problem for problem in two if problem.hmm.cell_index[2] == 1), contradictory_memory()]


def contrasts_of(problem):
  """mu relative to its last class."""
  return problem.task_weights - problem.task_weights[-1]


@jax.jit
def g_bar(hmm, rows):
  """The exact model's prediction from likelihood rows, a prompt among them."""
  return conditional_token_probs(hmm, rows)


# Section 3 and appendix A.


@pytest.mark.parametrize('theorem', ['3.3', '3.6'])
def test_proposition_3_4(theorem):
  """P[X_i | X_-i] = W P[H_i | X_-i] for every text and position, impossible ones (zeros) included; and it is the G of
  `rationals`."""
  for problem in state_problems(theorem)[-2:]:
    hmm, length = problem.hmm, 3
    paths, exact = paths_of(hmm, length), rationals.exact_hmm(hmm)
    W = hmm.emission_matrix.T
    for tokens, position in itertools.product(texts_of(hmm, length), range(length)):
      total = weights(paths, without(tokens, position))
      states = normalised(law(paths.states[:, position], total, hmm.num_states))
      predicted = token_law(paths, tokens, position)
      CLOSE(W @ states, predicted)
      CLOSE(rationals.token_probs(exact, rationals.likelihood_rows(exact, tokens), position).astype(float), predicted)


def test_claim_a_1():
  """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x] with D = diag(P[H_i] / P[H_0]) and
  r_x = Pr(X_{1:T} = x) / Pr(X_{i+1:T+i} = x) > 0, for every x that can occur."""
  for problem in state_problems('3.3'):
    num_states, length = problem.hmm.num_states, 2
    silent = problem.hmm._replace(initial_probs=problem.silent_probs)
    first = paths_of(silent, 1 + length)
    for i in (1, 2):
      later = paths_of(silent, 1 + i + length)
      D = law(later.states[:, i], later.probs, num_states) / problem.silent_probs
      for tokens in texts_of(problem.hmm, length):
        now, then = weights(first, [None, *tokens]), weights(later, [None] * (1 + i) + list(tokens))
        if now.sum():
          r = now.sum() / then.sum()
          assert 0 < r < np.inf
          posterior = normalised(law(first.states[:, 0], now, num_states))
          CLOSE(normalised(law(later.states[:, i], then, num_states)), r * D * posterior)


def test_equation_a_1():
  """The head of Theorem 3.3 scores b^T G_1 = mu^T P[H_0 | X_{1:T} = x] / r_x with the r_x of Claim A.1, whose inverse
  is Pr(X_{1:T} = x) / Pr(X_{2:T+1} = x)."""
  for problem in state_problems('3.3'):
    length = 3
    construction = recovery.theorem_3_3(problem.hmm, problem.task_weights, problem.silent_probs, EXACT)
    silent = paths_of(problem.hmm._replace(initial_probs=problem.silent_probs), 1 + length)
    masked = paths_of(problem.hmm, 1 + length)
    for tokens in texts_of(problem.hmm, length):
      now, then = weights(silent, [None, *tokens]), weights(masked, [None, *tokens])
      if now.sum():
        posterior = normalised(law(silent.states[:, 0], now, problem.hmm.num_states))
        head, G = construction['head'], token_law(masked, [None, *tokens], 0)
        expected = contrasts_of(problem) @ posterior * now.sum() / then.sum()
        np.testing.assert_allclose(G @ head.weights + head.bias, expected, rtol=0, atol=1e-9)


# Appendix B.


def fake_token_hmm(hmm, u):
  """First emissions of X-hat, [H, V + 1]: the fake token z~, number V, with probability u, the others shrunk."""
  return np.concatenate([(1 - u[:, None]) * hmm.emission_matrix, u[:, None]], axis=1)


def test_lemma_b_1():
  """G-bar_i(u, [MASK], x) = P[X-hat_i | X-hat_-i = (z~, [MASK], x)_-i] under the HMM whose first emission has the fake
  token z~ with probability u, and 0 where that evidence cannot occur; for a u with zeros and Theorem 3.6's."""
  rng = np.random.default_rng(0)
  problem = contradictory_states()
  hmm, length = problem.hmm, 2
  paths, texts = paths_of(hmm, 2 + length), texts_of(hmm, length)
  prompt = recovery.theorem_3_6(hmm, problem.task_weights, problem.silent_probs, EXACT, 1000)['prompt'][0]
  counts = []
  for u in (prompt, rng.random(4) * [1, 0, 1, 1]):
    first = fake_token_hmm(hmm, u)
    CLOSE(first.sum(-1), 1)
    rows = [[u, np.ones(4), *(hmm.emission_matrix[:, v] for v in tokens)] for tokens in texts]
    predicted = in_float64(g_bar, hmm, np.array(rows))
    impossible = 0
    for tokens, row in zip(texts, predicted, strict=True):
      for i in range(1, 2 + length):
        evidence = without([None, None, *tokens], i)
        # P[X-hat_1 = z~, evidence, X-hat_i = v] for each v, with z~ emitted by the modified first emission.
        emitted = paths._replace(probs=paths.probs * first[paths.states[:, 0], -1])
        joint = np.array([weights(emitted, [*evidence[:i], v, *evidence[i + 1 :]]).sum() for v in range(2)])
        impossible += not joint.any()
        CLOSE(row[i], normalised(joint))
        if not joint.any():
          np.testing.assert_array_equal(row[i], 0)
    counts.append(impossible)
  # The theorem's prompt rules more texts out than those that cannot occur anyway.
  assert counts[0] > counts[1] > 0


def test_the_modified_emissions_are_a_distribution_of_texts():
  """With the fake token the probabilities of all texts sum to 1, so that Lemma B.1 speaks of an HMM."""
  problem = state_problems('3.6')[0]
  u = np.random.default_rng(1).random(5)
  first = fake_token_hmm(problem.hmm, u)
  paths = paths_of(problem.hmm, 2)
  total = sum(
    (paths.probs * first[paths.states[:, 0], z] * paths.emissions[:, 1, v]).sum()
    for z, v in itertools.product(range(4), range(3))
  )
  CLOSE(total, 1)


def test_lemma_b_2_and_theorem_3_6():
  """P[H_2 | X-hat_1 = z~, X-hat_{3:T+2} = x] = r_x D (P[X-hat_1 = z~, H_2] * P[H_0 | X_{1:T} = x]) with
  D = diag(1 / P[H_0]) and r_x = Pr(x) / Pr(z~, x) > 0, supported on H*; the head scores r_x mu^T P[H_0 | x], and 0
  where z~ and x contradict each other, where mu^T P[H_0 | x] = 0 too."""
  contradictions = 0
  for problem in state_problems('3.6'):
    hmm, length = problem.hmm, 2
    silent = paths_of(hmm._replace(initial_probs=problem.silent_probs), 1 + length)
    prompted = paths_of(hmm, 2 + length)
    construction = recovery.theorem_3_6(hmm, problem.task_weights, problem.silent_probs, EXACT, 1000)
    u, head = construction['prompt'][0], construction['head']
    assert set(u) == {0, 1}
    joint = law(prompted.states[:, 1], weights(prompted, [None, None], u), hmm.num_states)
    essential = np.flatnonzero(contrasts_of(problem).any(0))
    assert set(essential) <= set(np.flatnonzero(joint))
    for tokens in texts_of(hmm, length):
      now = weights(silent, [None, *tokens])
      then = weights(prompted, [None, None, *tokens], u)
      posterior = normalised(law(silent.states[:, 0], now, hmm.num_states))
      scores = token_law(prompted, [None, None, *tokens], 1, u) @ head.weights + head.bias
      if now.sum() and then.sum():
        r = now.sum() / then.sum()
        assert 0 < r < np.inf
        CLOSE(
          normalised(law(prompted.states[:, 1], then, hmm.num_states)), r * joint * posterior / problem.silent_probs
        )
        expected = contrasts_of(problem) @ posterior * r
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
      elif now.sum():
        contradictions += 1
        np.testing.assert_array_equal(scores, 0)
        CLOSE(contrasts_of(problem) @ posterior, 0)
  assert contradictions


# Appendix C.1.


def memory_law(problem, paths, total):
  """P[M_j*, evidence], [M]."""
  return law(paths.cells[:, problem.cell], total, problem.hmm.memory_size)


def read_law(problem, paths, total, position):
  """P[M_j*, H_i, evidence], [M, H]."""
  num_states = problem.hmm.num_states
  values = paths.cells[:, problem.cell] * num_states + paths.states[:, position]
  return law(values, total, problem.hmm.memory_size * num_states).reshape(-1, num_states)


def recovered(head, G, num_states):
  """Theta^(1) G and Theta^(2) G of a head: P[H_i | x_-i] on H*, [H]; and [M, H]."""
  return head.key_weights[:num_states] @ G, (head.value_weights @ G).reshape(-1, num_states)


def assert_recovers(problem, head, states, G, joint):
  """Claims C.3 and C.10 at one position, given P[M_j*, H_i | evidence]."""
  keys, values = recovered(head, G, problem.hmm.num_states)
  expected = np.zeros_like(joint)
  expected[:, states] = joint[:, states]
  np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
  np.testing.assert_allclose(keys[states], joint.sum(0)[states], rtol=0, atol=1e-9)
  # Its entries are probabilities, so their sum is the norm of the claim.
  assert keys.min() > -1e-9
  np.testing.assert_allclose(np.abs(keys).sum(), 1, rtol=0, atol=1e-9)


def attended_by(head, Gs):
  """The positions of the largest q^T (K G_i + beta_i), up to rounding."""
  logits = np.array([head.query @ (head.key_weights @ G + beta) for G, beta in zip(Gs, head.positions, strict=True)])
  return logits, set(np.flatnonzero(logits > logits.max() - 1e-9).tolist())


def value_at(head, G, embedding):
  """V(G_i, e_i) of each class."""
  return ((head.value_weights @ G) * embedding) @ head.output


def test_claim_c_3_and_lemmas_c_2_and_c_4():
  """Theta^(1) G_i is P[H_i = h | x_-i] on H* with norm 1, and Theta^(2) G_i is P[M_j*, H_i | x_-i] there; the attended
  positions are those whose posterior has its support in H*; and the value there is Pr(x_i | x_-i) mu^T P[M_j* | x]."""
  regions = set()
  for problem in memory_problems('4.3'):
    hmm, length = problem.hmm, 3
    paths = paths_of(hmm, length)
    head = recovery.theorem_4_3(hmm, problem.task_weights, problem.cell, length, EXACT)['head']
    states = assumptions.recoverable_hidden_states(hmm, problem.cell, EXACT).witness['recoverable_states']
    others = np.setdiff1d(np.arange(hmm.num_states), states)
    np.testing.assert_array_equal(head.positions, 0)
    for tokens in texts_of(hmm, length):
      total = weights(paths, tokens)
      if not total.sum():
        continue
      score = contrasts_of(problem) @ normalised(memory_law(problem, paths, total))
      Gs, region = [], set()
      for i in range(length):
        G, left_out = token_law(paths, tokens, i), weights(paths, without(tokens, i))
        joint = normalised(read_law(problem, paths, left_out, i))
        assert_recovers(problem, head, states, G, joint)
        Gs.append(G)
        if not joint[:, others].any():
          region.add(i)
          value = value_at(head, G, head.token_embeddings[tokens[i]])
          np.testing.assert_allclose(value, total.sum() / left_out.sum() * score, rtol=0, atol=1e-9)
      regions.add(len(region))
      if region:
        assert attended_by(head, Gs)[1] == region
  assert 0 in regions and len(regions) > 1


def test_the_embedding_of_a_mask_is_ones():
  """A [MASK] at an attended position takes nothing from the posterior: there the value is mu^T P[M_j* | x_-i]."""
  problem = memory_problems('4.3')[0]
  head = recovery.theorem_4_3(problem.hmm, problem.task_weights, problem.cell, 2, EXACT)['head']
  paths = paths_of(problem.hmm, 2)
  # Token 0 announces that the next state is in H*.
  expected = contrasts_of(problem) @ normalised(memory_law(problem, paths, weights(paths, [0, None])))
  value = value_at(head, token_law(paths, [0, None], 1), head.token_embeddings[problem.hmm.num_tokens])
  np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)


# Appendix C.3.


def test_proposition_c_8():
  """From the stationary law P[M, H_i, X_{i+1:i+t}] = P[M, H_0, X_{1:t}] for i = 1 and 2; from another law it is not."""
  for problem, is_stationary in [(problem, True) for problem in memory_problems('4.6')] + [
    (memory_problems('4.3')[0], False)
  ]:
    hmm, length, largest = problem.hmm, 2, 0
    size = hmm.memory_probs.size * hmm.num_states
    now = paths_of(hmm, 1 + length)
    for i in (1, 2):
      then = paths_of(hmm, 1 + i + length)
      for tokens in texts_of(hmm, length):
        first = law(now.joint[:, 0], weights(now, [None, *tokens]), size)
        later = law(then.joint[:, i], weights(then, [None] * (1 + i) + list(tokens)), size)
        largest = max(largest, np.abs(first - later).max())
    assert largest < 1e-12 if is_stationary else largest > 1e-3


def prompted_problem(problem, length):
  """The construction of Theorem 4.6 with its prompt, states H* and the paths of text with and without the prompt."""
  construction = recovery.theorem_4_6(
    problem.hmm, problem.task_weights, problem.silent_probs, problem.cell, length, EXACT, 1e-9
  )
  finding = assumptions.relaxed_recoverable_hidden_states(problem.hmm, problem.cell, problem.task_weights, EXACT)
  states = finding.witness['recoverable_states']
  paths = paths_of(problem.hmm, length), paths_of(problem.hmm, 1 + length)
  return construction['prompt'][0], construction['head'], states, *paths


def test_the_prompt_of_c_6_is_the_indicator_of_the_weighted_values():
  """u is 1 at the joint states whose cell j* holds a value in supp(mu), whatever the other cells, and phi(u), in the
  head, is 1 there for the states that read the cell."""
  for problem in memory_problems('4.6'):
    hmm = problem.hmm
    u, head, _, _, paths = prompted_problem(problem, 1)
    in_support = contrasts_of(problem).any(0)
    np.testing.assert_array_equal(u[paths.joint[:, 0]], in_support[paths.cells[:, problem.cell]])
    phi = head.prompt_embeddings.reshape(hmm.memory_size, hmm.num_states)
    reads = hmm.cell_index == problem.cell
    CLOSE(phi[:, reads], np.repeat(in_support[:, None], reads.sum(), axis=1))
    # Of a state that reads another cell it is the share of memories in the support.
    CLOSE(phi[:, ~reads], in_support.mean())


def test_claims_c_10_and_c_12_and_proposition_c_11():
  """Given the prompt, M_j* has no value outside supp(mu); Theta^(1) and Theta^(2) recover P[M_j*, H_i | X-hat_-i]; and
  the support of P[H_i | X-hat_-i] lies in that of P[H_{i-1} | X_-(i-1)], at times properly."""
  properly = 0
  for problem in memory_problems('4.6'):
    hmm, length = problem.hmm, 3
    u, head, states, plain, prompted = prompted_problem(problem, length)
    outside = ~contrasts_of(problem).any(0)
    for tokens in texts_of(hmm, length):
      if not weights(plain, tokens).sum():
        continue
      for i in range(1, 1 + length):
        evidence = without([None, *tokens], i)
        total = weights(prompted, evidence, u)
        if not total.sum():
          continue
        joint = normalised(read_law(problem, prompted, total, i))
        assert not joint[outside].any()
        assert_recovers(problem, head, states, token_law(prompted, evidence, i, u), joint)
        support = set(np.flatnonzero(joint.sum(0)))
        unprompted = law(plain.states[:, i - 1], weights(plain, without(tokens, i - 1)), hmm.num_states)
        assert support <= set(np.flatnonzero(unprompted))
        properly += support < set(np.flatnonzero(unprompted))
  assert properly


def test_lemmas_c_9_and_c_13():
  """The head attends to the positions that the prompted posterior puts in H*, never to the prompt, and these contain
  (C.8); at each the value is a positive multiple of mu^T P[M_j* | x], namely of Claim C.14, or 0 with it."""
  more, compared = 0, 0
  for problem in memory_problems('4.6'):
    hmm, length = problem.hmm, 3
    u, head, states, plain, prompted = prompted_problem(problem, length)
    others = np.setdiff1d(np.arange(hmm.num_states), states)
    for tokens in texts_of(hmm, length):
      total = weights(plain, tokens)
      if not total.sum():
        continue
      score = contrasts_of(problem) @ normalised(memory_law(problem, plain, total))
      evidence = [None, *tokens]
      Gs = [token_law(prompted, evidence, i, u if i else None) for i in range(1 + length)]
      logits, attended = attended_by(head, Gs)
      assert logits[0] <= -1 + 1e-9 and 0 not in attended
      in_c_8, in_prompted = set(), set()
      for i in range(1, 1 + length):
        left_out = weights(prompted, without(evidence, i), u)
        posterior = law(plain.states[:, i - 1], weights(plain, without(tokens, i - 1)), hmm.num_states)
        if left_out.sum() and not posterior[others].any():
          in_c_8.add(i)
        if left_out.sum() and not law(prompted.states[:, i], left_out, hmm.num_states)[others].any():
          in_prompted.add(i)
          value = value_at(head, Gs[i], head.token_embeddings[tokens[i - 1]])
          # Pr(x_i | X-hat_-i) mu^T P[M | X-hat] = Pr(x) / Pr(z~, x_-i) mu^T P[M | x].
          np.testing.assert_allclose(value, score * total.sum() / left_out.sum(), rtol=0, atol=1e-9)
          compared += 1
      assert in_c_8 <= in_prompted
      more += in_c_8 < in_prompted
      if in_prompted:
        assert attended == in_prompted
  assert more and compared > 50


def test_claim_c_14():
  """mu^T P[M_j* | X-hat = (z~, x)] = mu^T P[M_j* | X_{1:T} = x] / Pr(z~ | x) wherever (z~, x) can occur."""
  for problem in memory_problems('4.6'):
    u, _, _, plain, prompted = prompted_problem(problem, 3)
    for tokens in texts_of(problem.hmm, 3):
      with_prompt = weights(prompted, [None, *tokens], u)
      if with_prompt.sum():
        share = with_prompt.sum() / weights(prompted, [None, *tokens]).sum()
        given_text = normalised(memory_law(problem, plain, weights(plain, tokens)))
        given_both = normalised(memory_law(problem, prompted, with_prompt))
        CLOSE(contrasts_of(problem) @ given_both, contrasts_of(problem) @ given_text / share)


def test_claim_c_15():
  """Where x can occur and (z~, x) cannot, mu^T P[M_j* | x] = 0; where (z~, x)_-i cannot occur, G-bar_i = 0, and the
  value is 0 in both cases. Both happen."""
  problem = contradictory_memory()
  hmm, length = problem.hmm, 3
  u, head, _, plain, prompted = prompted_problem(problem, length)
  texts = texts_of(hmm, length)
  states = {v: np.concatenate([hmm.emission_matrix[m, :, v] for m in range(3)]) for v in range(3)}
  predicted = in_float64(g_bar, hmm, np.array([[u, *(states[v] for v in tokens)] for tokens in texts]))
  contradictions, zeros = 0, 0
  for tokens, Gs in zip(texts, predicted, strict=True):
    total = weights(plain, tokens)
    if not total.sum():
      continue
    is_possible = weights(prompted, [None, *tokens], u).sum() > 0
    if not is_possible:
      contradictions += 1
      CLOSE(contrasts_of(problem) @ memory_law(problem, plain, total), 0)
    for i in range(1, 1 + length):
      G = token_law(prompted, [None, *tokens], i, u)
      CLOSE(Gs[i], G)
      if not weights(prompted, without([None, *tokens], i), u).sum():
        zeros += 1
        np.testing.assert_array_equal(Gs[i], 0)
      if not is_possible:
        CLOSE(value_at(head, Gs[i], head.token_embeddings[tokens[i - 1]]), 0)
  assert contradictions and 0 < zeros < contradictions * length
