"""Constructions in exact fractions: against sums over hidden paths, and against the float64 ones."""

from fractions import Fraction
import itertools

from conftest import contradictory_memory, contradictory_states
import numpy as np
import pytest

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.exact import algebra, constructions
from hmm_jax.theory.exact.problem import MemoryProblem, StateProblem
from hmm_jax.theory.theorems import assumptions, recovery
from hmm_jax.theory.theorems.assumptions import Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
THEOREMS = ('3.3', '3.6', '4.3', '4.6', 'C.6')
T = 3


def rows(rng, *shape):
  """Distributions of `Fraction`s with denominator 12, about half of their entries 0."""
  counts = np.array(
    [rng.multinomial(12, rng.dirichlet(np.full(shape[-1], 0.4))) for _ in range(int(np.prod(shape[:-1])))]
  )
  return (counts * Fraction(1, 12)).reshape(shape)


def full(rng, size):
  return (1 + rng.multinomial(12 - size, np.full(size, 1 / size))) * Fraction(1, 12)


def proposed(theorem, rng):
  """Fractions of a problem that the theorem may speak of."""
  num_states, num_tokens, silent = 3, 5, full(rng, 3)
  moves = rows(rng, num_states, num_states)
  if theorem in ('3.3', '3.6'):
    num_tokens = 3 if theorem == '3.3' else 2
    hmm = HMM(silent @ moves, moves, rows(rng, num_states, num_tokens))
    mu = rng.integers(-3, 4, (3, num_states)) * Fraction(1, 4)
    mu[:, 2:] *= theorem == '3.3'
    return StateProblem(hmm, silent, mu, 0)
  num_cells = 2 if theorem == 'C.6' else 1
  memory_size, reads = (
    (2, [0, 0, 0]) if theorem == '4.3' else (3, [0, rng.integers(num_cells), rng.integers(num_cells)])
  )
  memory_probs = rows(rng, memory_size**num_cells).reshape((memory_size,) * num_cells)
  # State 1 announces state 0, alone by token 0.
  moves[1] = [Fraction(1), Fraction(0), Fraction(0)]
  emissions = np.full((memory_size, num_states, num_tokens), Fraction(0), object)
  emissions[:, [0, 2], 1:], emissions[:, 1, 0] = rows(rng, memory_size, 2, num_tokens - 1), Fraction(1)
  emissions[:, 2] = emissions[0, 2]
  mu = rng.integers(-3, 4, (3, memory_size)) * Fraction(1, 4)
  mu[:, 2:] = 0
  hmm = MemoryHMM(memory_probs, silent @ moves, moves, np.array(reads, np.int32), emissions)
  return MemoryProblem(hmm, silent, mu, 0, 0)


def texts_of(problem, length):
  return itertools.product(range(problem.hmm.num_tokens), repeat=length)


def in_floats(problem):
  to_float = lambda leaf: np.asarray(leaf, float) if np.asarray(leaf).dtype == object else leaf
  fields = {name: to_float(leaf) for name, leaf in problem._asdict().items() if name != 'hmm'}
  return problem._replace(hmm=type(problem.hmm)(*map(to_float, problem.hmm)), **fields)


def built(theorem, problem):
  """The float64 construction."""
  hmm, mu, silent = problem.hmm, problem.task_weights, problem.silent_probs
  match theorem:
    case '3.3':
      return recovery.theorem_3_3(hmm, mu, silent, EXACT)
    case '3.6':
      return recovery.theorem_3_6(hmm, mu, silent, EXACT, 1000)
    case '4.3':
      return recovery.theorem_4_3(hmm, mu, problem.cell, T, EXACT)
  return recovery.theorem_4_6(hmm, mu, silent, problem.cell, T, EXACT, 1e-9)


def problems_of(theorem, count):
  """Draws in which the assumptions hold, with their float64 constructions."""
  rng, found = np.random.default_rng(int(theorem.translate({46: None, 67: '9'}))), []
  while len(found) < count:
    problem = proposed(theorem, rng)
    try:
      found.append((problem, built(theorem, in_floats(problem))))
    except ValueError:
      continue
  return found


def path_law(hmm, prompt, tokens, position, index):
  """P[what `index` says of memory and state at `position`, evidence], a dictionary, by all memories and hidden paths.

  `prompt` is u [configurations, H] at the first position, or None; a token None is not seen.
  """
  if isinstance(hmm, HMM):
    cells = np.zeros(hmm.num_states, int)
    hmm = MemoryHMM(
      np.array([Fraction(1)], object), hmm.initial_probs, hmm.transition_matrix, cells, hmm.emission_matrix[None]
    )
  seen = tokens if prompt is None else [None, *tokens]
  law = {}
  memories = list(itertools.product(range(hmm.memory_size), repeat=hmm.num_cells))
  for (number, memory), path in itertools.product(
    enumerate(memories), itertools.product(range(hmm.num_states), repeat=len(seen))
  ):
    prob = hmm.memory_probs[memory] * hmm.initial_probs[path[0]]
    for now, then in itertools.pairwise(path):
      prob *= hmm.transition_matrix[now, then]
    for state, token in zip(path, seen, strict=True):
      prob *= 1 if token is None else hmm.emission_matrix[memory[hmm.cell_index[state]], state, token]
    if prompt is not None:
      prob *= prompt[number, path[0]]
    key = index(memory, path[position])
    law[key] = law.get(key, 0) + prob
  return law


def law_of(law, size):
  total = sum(law.values())
  return np.array([law.get(key, 0) / total if total else Fraction(0) for key in range(size)], object)


def predicted_by_paths(hmm, prompt, tokens, position):
  """P[X_i | all but position i] [V], by hidden paths."""
  at, seen = position - (prompt is not None), list(tokens)
  if at >= 0:
    seen[at] = None
  else:
    prompt = prompt * 0 + 1
  emitted = [path_law(hmm, prompt, seen, position, lambda memory, h: (memory, h))]
  total, W = sum(emitted[0].values()), hmm.emission_matrix
  rows_by_state = {
    key: W[key[1]] if isinstance(hmm, HMM) else W[key[0][hmm.cell_index[key[1]]], key[1]] for key in emitted[0]
  }
  return sum(p * rows_by_state[key] for key, p in emitted[0].items()) / (total or 1)


def test_left_inverse_and_projection_are_those_of_moore_and_penrose():
  """W^+ W = 1 exactly, both agree with float64, the projection is off the span, and dependent columns are refused."""
  rng = np.random.default_rng(0)
  columns = rows(rng, 3, 5).T
  inverse = algebra.left_inverse(columns)
  np.testing.assert_array_equal(inverse @ columns, np.eye(3, dtype=int))
  np.testing.assert_allclose(inverse.astype(float), np.linalg.pinv(columns.astype(float)), atol=1e-12)
  twice = np.hstack([columns, columns[:, :1]])
  off = algebra.off_span(twice)
  assert not (off @ twice).any() and algebra.rank(twice) == 3 and algebra.rank(off) == 2
  np.testing.assert_array_equal(off @ off, off)
  with pytest.raises(ValueError, match='4 columns have rank 3'):
    algebra.left_inverse(twice)
  np.testing.assert_array_equal(algebra.off_span(columns[:, :0]), np.eye(5, dtype=int))


def test_integers_over_a_common_denominator():
  integers, denominator = algebra.as_integers(np.array([0.5, 0.25, Fraction(1, 3)], object))
  assert integers.tolist() == [6, 3, 4] and denominator == 12


@pytest.mark.parametrize('theorem', ['3.3', '3.6'])
def test_scores_of_states_are_sums_over_paths_and_the_float_head_agrees(theorem):
  """The label's scores and G are those of all hidden paths, and the scores recovery.py's head on that G to 1e-12."""
  for problem, construction in problems_of(theorem, 4):
    hmm, exact = problem.hmm, constructions.exact_construction(problem, theorem)
    silent = hmm._replace(initial_probs=problem.silent_probs)
    for tokens in itertools.product(range(hmm.num_tokens), repeat=T):
      label, constructed = exact.scores(tokens)
      posterior = law_of(path_law(silent, None, [None, *tokens], 0, lambda _, h: h), hmm.num_states)
      u = None if exact.prompt is None else exact.prompt[None]
      G = predicted_by_paths(hmm, u, [None, *tokens], 0 if u is None else 1)
      np.testing.assert_array_equal(exact.predicted(tokens), G)
      np.testing.assert_array_equal(label, (problem.task_weights - problem.task_weights[-1]) @ posterior)
      close(constructed, G.astype(float) @ construction['head'].weights + construction['head'].bias)


@pytest.mark.parametrize('theorem', ['4.3', '4.6', 'C.6'])
def test_scores_of_memories_are_sums_over_paths_and_the_float_head_agrees(theorem):
  """As for states, at every position; of the texts every nineteenth."""
  for problem, construction in problems_of(theorem, 4):
    hmm, cell, exact = problem.hmm, problem.cell, constructions.exact_construction(problem, theorem)
    for tokens in list(itertools.product(range(hmm.num_tokens), repeat=T))[::19]:
      label, constructed = exact.scores(tokens)
      law = path_law(hmm, None, list(tokens), 0, lambda memory, _, cell=cell: memory[cell])
      positions = range(T + (exact.prompt is not None))
      G = np.array([predicted_by_paths(hmm, exact.prompt, tokens, position) for position in positions])
      np.testing.assert_array_equal(exact.predicted(tokens), G)
      np.testing.assert_array_equal(
        label, (problem.task_weights - problem.task_weights[-1]) @ law_of(law, hmm.memory_size)
      )
      close(constructed, attention_on_exact_ties(construction['head'], exact, G, tokens))


def close(constructed, floats):
  np.testing.assert_allclose(constructed.astype(float), floats, rtol=0, atol=1e-12 * (1 + np.abs(floats).max()))


def attention_on_exact_ties(head, exact, G, tokens):
  """The float64 head's mean value over the positions of the largest exact logit, which the float logits agree with."""
  logits = exact.logits(list(G))
  float_logits = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(G.astype(float), head.positions)]
  np.testing.assert_allclose(np.array(logits, float), float_logits, atol=1e-11)
  embeddings = np.concatenate([head.prompt_embeddings, head.token_embeddings[list(tokens)]])
  values = [((head.value_weights @ g) * e) @ head.output for g, e in zip(G.astype(float), embeddings)]
  return np.mean([value for value, logit in zip(values, logits) if logit == max(logits)], axis=0)


@pytest.mark.parametrize('theorem', THEOREMS)
def test_the_constructions_are_right_without_any_rounding(theorem):
  """On every text that the theorem speaks of the scores are a positive multiple of the exact ones, or both are 0."""
  right = zeros = 0
  for problem, _ in problems_of(theorem, 4):
    exact = constructions.exact_construction(problem, theorem)
    for tokens in texts_of(problem, 2):
      label, constructed = exact.scores(tokens)
      if exact.posterior(tokens).any() if isinstance(problem, StateProblem) else exact.in_region(tokens):
        assert_positive_multiple(constructed, label)
        right += bool(label.any())
        zeros += not label.any()
  assert right > 10


def assert_right_on_region(problem, theorem, length):
  """Scores of every text in R are a positive multiple of the exact ones, or both 0; how many are not."""
  exact, right = constructions.exact_construction(problem, theorem), 0
  for tokens in texts_of(problem, length):
    if exact.in_region(tokens):
      label, constructed = exact.scores(tokens)
      assert_positive_multiple(constructed, label)
      right += bool(label.any())
  return right


@pytest.mark.parametrize('start', ['stationary', 'one-hot'])
def test_theorem_4_3_holds_of_periodic_chains_and_from_one_state(start):
  """Its proof uses nothing of Assumption 3.2: a cycle of three states, from its stationary law and from one state."""
  problem, _ = problems_of('4.3', 1)[0]
  moves = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]) * Fraction(1)
  first = np.array([1, 1, 1]) * Fraction(1, 3) if start == 'stationary' else np.array([0, 1, 0]) * Fraction(1)
  problem = problem._replace(hmm=problem.hmm._replace(transition_matrix=moves, initial_probs=first), silent_probs=first)
  assert not assumptions.regularity(in_floats(problem).hmm, EXACT).holds
  assert 'head' in built('4.3', in_floats(problem))
  assert assert_right_on_region(problem, '4.3', T) > 2


@pytest.mark.parametrize('theorem', ['4.6', 'C.6'])
def test_the_whole_posterior_is_recovered_from_any_start(theorem):
  """With mu the identity on its support, after a start that is not stationary: the posterior up to one factor."""
  identity, right = np.diag([Fraction(1), Fraction(1), Fraction(0)]), 0
  for problem, _ in problems_of(theorem, 3):
    assert (problem.silent_probs != problem.hmm.initial_probs).any()
    right += assert_right_on_region(problem._replace(task_weights=identity), theorem, 2)
  assert right > 5


def test_a_memory_without_probability_takes_no_part():
  """Its own first law may lack support, and its prompt be what it likes; both constructions stand."""
  for problem, _ in problems_of('4.6', 6):
    hmm = problem.hmm
    silent = np.array([problem.silent_probs] * 2 + [np.array([1, 0, 0]) * Fraction(1)])
    first = np.array([hmm.initial_probs] * 2 + [np.array([0, 0, 1]) * Fraction(1)])
    hmm = hmm._replace(
      memory_probs=np.array([Fraction(1, 3), Fraction(2, 3), Fraction(0)], object), initial_probs=first
    )
    problem = problem._replace(hmm=hmm, silent_probs=silent)
    assert assert_right_on_region(problem, '4.6', 2)
    exact, floats = constructions.exact_construction(problem, '4.6'), built('4.6', in_floats(problem))
    np.testing.assert_allclose(floats['prompt'][0], exact.prompt.astype(float).reshape(-1), atol=1e-12)


def assert_positive_multiple(constructed, label):
  at = next((index for index, score in enumerate(label) if score), 0)
  factor = constructed[at] / label[at] if label[at] else 1
  assert factor > 0
  np.testing.assert_array_equal(constructed, factor * label)


def test_contradictions_and_impossible_texts_score_nothing():
  """Where a text rules supp(mu) out, or is impossible, exact and constructed scores are 0, and both occur."""
  kinds = set()
  for problem, theorem in ((contradictory_states(), '3.6'), (contradictory_memory(), '4.6')):
    exact = constructions.exact_construction(problem, theorem)
    for tokens in itertools.product(range(problem.hmm.num_tokens), repeat=3):
      label, constructed = exact.scores(tokens)
      if theorem == '3.6' or exact.in_region(tokens):
        assert_positive_multiple(constructed, label)
      kinds.add((theorem, bool(exact.posterior(tokens).any()), bool(label.any())))
  assert {(theorem, True, False) for theorem in ('3.6', '4.6')} <= kinds and ('4.6', False, False) in kinds


def test_a_mask_in_the_text_says_nothing():
  """A text with a [MASK] at its end has the posterior of the text without; the embedding of the [MASK] is ones."""
  problem, _ = problems_of('4.6', 1)[0]
  exact = constructions.exact_construction(problem, '4.6')
  mask = problem.hmm.num_tokens
  text = next(text for text in texts_of(problem, 2) if exact.posterior(text).any())
  np.testing.assert_array_equal(exact.posterior((*text, mask)), exact.posterior(text))
  np.testing.assert_array_equal(exact.token_embeddings[mask], np.ones((3, 3), int))


def test_every_float_problem_is_a_rational_one():
  """Floats are taken as they are, rows divided by their sums; scores agree with those of the fractions they round."""
  for theorem in ('3.3', 'C.6'):
    problem, _ = problems_of(theorem, 1)[0]
    of_fractions = constructions.exact_construction(problem, theorem)
    of_floats = constructions.exact_construction(in_floats(problem), theorem)
    text = next(text for text in texts_of(problem, 2) if of_fractions.posterior(text).any())
    np.testing.assert_allclose(
      of_floats.scores(text)[0].astype(float), of_fractions.scores(text)[0].astype(float), atol=1e-12
    )


def test_what_fails_is_refused():
  """Columns that the theorem cannot recover from, and a theorem that is none."""
  problem, _ = problems_of('3.3', 1)[0]
  flat = problem._replace(hmm=problem.hmm._replace(emission_matrix=np.full((3, 3), Fraction(1, 3), object)))
  for theorem, words in (('3.3', '3 columns have rank 1'), ('3.6', 'Assumption 3.5'), ('3.4', "theorem is '3.4'")):
    with pytest.raises(ValueError, match=words):
      constructions.exact_construction(flat, theorem)
  memory = contradictory_memory()
  hmm = memory.hmm._replace(emission_matrix=np.full((3, 2, 3), 1 / 3))
  with pytest.raises(ValueError, match='no state that reads cell 0'):
    constructions.exact_construction(memory._replace(hmm=hmm), '4.6')
