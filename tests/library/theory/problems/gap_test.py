"""The gap in Lemma C.9: the smallest counterexample in exact fractions, and why it is smallest."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import path_weights

from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.claims import adversary, lemmas
from hmm_jax.theory.claims.lemmas import violation
from hmm_jax.theory.claims.tables import Case, in_floats
from hmm_jax.theory.exact import algebra, chain as chain_lib, constructions
from hmm_jax.theory.problems import gap
from hmm_jax.theory.theorems import assumptions, recovery
from hmm_jax.theory.theorems.assumptions import Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
PAPER = Fraction(-2)
T = 3
PROBLEM = gap.weak_prompt_bias()


def float_hmm(problem):
  return MemoryHMM(*(np.asarray(leaf, float) if np.asarray(leaf).dtype == object else leaf for leaf in problem.hmm))


def as_case(problem):
  hmm, states = problem.hmm, constructions.exact_construction(problem, '4.6').states
  weights = problem.task_weights[0] - problem.task_weights[-1]
  chain = hmm.memory_probs, problem.silent_probs, hmm.transition_matrix, hmm.cell_index, hmm.emission_matrix
  return Case(*chain, weights, problem.cell, tuple(states.tolist()), True)


def regions(problem, length):
  """The texts in R, with exact scores, those of the mended construction and those with -2."""
  mended, paper = (constructions.exact_construction(problem, '4.6', bias) for bias in (None, PAPER))
  for text in itertools.product(range(problem.hmm.num_tokens), repeat=length):
    if mended.in_region(text):
      exact, right = mended.scores(text)
      yield text, mended, exact[0], right[0], paper.scores(text)[1][0]


def test_assumptions_4_4_and_4_5_hold():
  """Stationary, irreducible and aperiodic, full support; H* = {show}; in fractions and as the library decides."""
  hmm, floats = PROBLEM.hmm, float_hmm(PROBLEM)
  np.testing.assert_array_equal(hmm.initial_probs @ hmm.transition_matrix, hmm.initial_probs)
  assert algebra.is_ergodic(hmm.transition_matrix) and (hmm.initial_probs > 0).all()
  assert assumptions.stationarity(floats, EXACT, 1e-12).holds
  finding = assumptions.relaxed_recoverable_hidden_states(floats, 0, PROBLEM.task_weights.astype(float), EXACT)
  assert finding.holds and finding.witness['recoverable_states'].tolist() == [gap.STATES.index('show')]
  for rows in (hmm.memory_probs, *hmm.transition_matrix, *hmm.emission_matrix.reshape(-1, 3)):
    assert sum(rows) == 1


def test_theta_is_the_only_left_inverse():
  """The columns of show for A and B and that of pause are a basis of the three dimensions, which decides Theta."""
  W, construction = PROBLEM.hmm.emission_matrix, constructions.exact_construction(PROBLEM, '4.6')
  columns = np.array([W[0, 0], W[1, 0], W[0, 1]]).T
  assert algebra.rank(columns) == 3 and (W[:, 1] == W[0, 1]).all()
  theta = construction.recover[:2, 0]
  np.testing.assert_array_equal(theta @ columns, [[1, 0, 0], [0, 1, 0]])
  np.testing.assert_array_equal(construction.attention, [0, 0, 4])
  assert construction.prompt_bias == -5 and construction.states.tolist() == [0]


def test_minus_2_is_clearly_wrong_and_the_bound_is_right():
  """On a c b and b c a the paper's constant attends to the prompt alone and answers with the other sign, no tie; the
  corrected one is a positive multiple of the exact score on every text of R, up to 5 words."""
  wrong = []
  for length in range(1, 6):
    for text, construction, exact, mended, paper in regions(PROBLEM, length):
      predicted = construction.predicted(text)
      assert mended * exact > 0 or mended == exact == 0
      logits = construction.logits(predicted)
      assert logits[0] <= -1 and max(logits[1:]) == 1
      attends_to_prompt = construction.attention @ predicted[0] + PAPER > 1
      assert attends_to_prompt == (paper != mended)
      if paper * exact < 0:
        wrong.append(text)
        assert attends_to_prompt
  a, b, c = range(3)
  assert [text for text in wrong if len(text) <= T] == [(a, c, b), (b, c, a)]
  assert len(wrong) > 2


def test_the_float_construction_has_the_bound():
  """`recovery.theorem_4_6` takes -5, with which the exact score of a c b, 2/29, has its sign."""
  mu, silent = PROBLEM.task_weights.astype(float), PROBLEM.silent_probs.astype(float)
  head = recovery.theorem_4_6(float_hmm(PROBLEM), mu, silent, 0, T, EXACT, 1e-9)['head']
  np.testing.assert_allclose(head.positions[0, -1], -5)
  exact, built = constructions.exact_construction(PROBLEM, '4.6').scores(gap.TEXT)
  assert exact[0] == Fraction(2, 29) and built[0] > 0


@pytest.mark.parametrize('constant', [2, 10, 1000])
def test_no_constant_is_enough(constant):
  """With shared = 1 / n the score at the prompt is at least 24 n / 29, so that each fixed beta fails for some n."""
  n = 2 * (constant + 2)
  problem = gap.weak_prompt_bias(Fraction(1, n))
  construction = constructions.exact_construction(problem, '4.6', Fraction(-constant))
  logits = construction.logits(construction.predicted(gap.TEXT))
  np.testing.assert_array_equal(construction.attention, [0, 0, n])
  assert logits[0] + constant >= Fraction(24 * n, 29) > constant + 1
  exact, built = construction.scores(gap.TEXT)
  assert exact[0] > 0 > built[0]
  assert constructions.exact_construction(problem, '4.6').scores(gap.TEXT)[1][0] > 0


# Why none is smaller.


def test_claim_c_10_holds_at_the_prompt_too_where_mu_weighs_every_value():
  """M = 2 with both weighed: the score at the prompt is a probability, so that -2 is enough."""
  rng, how = np.random.default_rng(0), adversary.Search(2, 0, 0, 0, 24, 0.02)
  for _ in range(8):
    case = adversary.draw('4.4, C.5', 'every value weighed', rng, how)
    assert violation(lemmas.claim_c_10_at_the_prompt, case, 2) == 0
    assert violation(lemmas.lemma_c_9_of_the_paper, case, 2) == 0


def test_with_one_weighed_value_minus_2_errs_at_0_alone():
  """M = 2 or 3 with one weighed: a score of the prompt has the sign of mu, so the label is wrong only where the exact
  score is 0, and then for a negative mu alone; that does happen."""
  rng, how = np.random.default_rng(1), adversary.Search(2, 0, 0, 0, 24, 0.02)
  at_0 = 0
  for _ in range(40):
    case = in_floats(adversary.draw('4.4, C.5', 'one value weighed', rng, how))
    clear, zero = lemmas.wrong_labels(case, 2, -2)
    assert not clear.any()
    assert not zero.any() or case.task_weights.min() < 0
    at_0 += zero.any()
  assert at_0


def test_with_three_words_two_tokens_are_not_enough():
  """The argument of the page on every small HMM of its kind: with V = 3 all states outside H* say one column b, a text
  of two words is in R by a word v that H* never says, and q^T Theta is at most 1 then."""
  found = 0
  simplex = [np.array(row) * Fraction(1, 3) for row in itertools.product(range(4), repeat=3) if sum(row) == 3]
  for first, second, b in itertools.product(simplex, repeat=3):
    columns = np.array([first, second, b]).T
    if algebra.rank(columns) == 3:
      silent = [v for v in range(3) if b[v] and not first[v] and not second[v]]
      attention = algebra.left_inverse(columns)[:2].sum(0)
      if silent:
        found += 1
        assert max(attention) <= 1
  assert found


def with_attention(construction, attention):
  """The construction with -2 and another left inverse, the same but for a row of Theta."""
  recover = construction.recover.copy()
  recover[0, 0] += attention - construction.attention
  return construction._replace(recover=recover, attention=attention, prompt_bias=PAPER)


@pytest.mark.parametrize(
  ('example', 'shape', 'other'),
  [
    (gap.weak_prompt_bias_in_two_words, (3, 2, 4), np.array([-15, 1, 1, 1])),
    (gap.weak_prompt_bias_in_one_word, (3, 1, 81), np.ones(81, int)),
  ],
)
def test_with_the_pseudo_inverse_less_is_enough(example, shape, other):
  """V = 4, H = 2 and T = 2, or H = 1 and T = 1: a clearly wrong label with -2, none with the bound, and none with -2
  and another left inverse."""
  problem, text = example()
  hmm, construction = problem.hmm, constructions.exact_construction(problem, '4.6')
  assert hmm.emission_matrix.shape == shape and (hmm.emission_matrix.sum(-1) == 1).all()
  assert algebra.is_ergodic(hmm.transition_matrix)
  np.testing.assert_array_equal(hmm.initial_probs @ hmm.transition_matrix, hmm.initial_probs)
  assert construction.states.tolist() == [0]
  favourable = with_attention(construction, other * Fraction(1))
  read = np.einsum('wv,mhv->wmh', favourable.recover[:2, 0], hmm.emission_matrix[:2])
  assert (read[:, :, 0] == np.eye(2)).all() and not read[:, :, 1:].any()
  wrong = set()
  for of_region, _, exact, mended, paper in regions(problem, len(text)):
    assert mended * exact > 0 and favourable.scores(of_region)[1][0] * exact > 0
    if paper * exact < 0:
      wrong.add(of_region)
  assert wrong == {text}


def test_the_bound_is_at_most_minus_1():
  """t^T W_(m, h) = 1 for m in supp(mu) and h in H*, so that the largest entry of t is no less, and a 0 never counts."""
  for problem in (PROBLEM, gap.weak_prompt_bias_in_two_words()[0], gap.more_positions()[0]):
    construction = constructions.exact_construction(problem, '4.6')
    means = problem.hmm.emission_matrix[:2, construction.states] @ construction.attention
    assert (means == 1).all() and max(construction.attention) >= 1
    assert construction.prompt_bias == -1 - max(construction.attention)


def test_attention_can_go_beyond_c_8():
  """ "Precisely" in the proof of C.9: for the page's example the head attends to a position that is not in (C.8)."""
  problem, text = gap.more_positions()
  construction = constructions.exact_construction(problem, '4.6')
  others = np.setdiff1d(np.arange(problem.hmm.num_states), construction.states)
  unprompted = chain_lib.leave_one_out(construction.chain, construction.chain.likelihoods[list(text)])
  in_c_8 = [i + 1 for i, joint in enumerate(unprompted) if not joint[:, others].any()]
  logits = construction.logits(construction.predicted(text))
  attended = [i for i, logit in enumerate(logits) if logit == max(logits)]
  assert in_c_8 and set(in_c_8) < set(attended)
  exact, built = construction.scores(text)
  assert exact[0] * built[0] > 0
  case = as_case(problem)
  assert violation(lemmas.lemma_c_9_precisely, case, len(text)) > 0


def test_by_paths_the_wrong_text_speaks_for_c_and_a():
  """P[M | a c b] is (4, 1, 24) / 29."""
  hmm = PROBLEM.hmm
  weights = [
    prior * path_weights(hmm.initial_probs, hmm.transition_matrix, emissions, gap.TEXT, 0).sum()
    for prior, emissions in zip(hmm.memory_probs, hmm.emission_matrix, strict=True)
  ]
  posterior = constructions.exact_construction(PROBLEM, '4.6').posterior(gap.TEXT)
  assert (np.array(weights) / sum(weights)).tolist() == posterior.tolist() == [Fraction(n, 29) for n in (4, 1, 24)]


def test_pairwise_disjoint_spans_are_not_enough():
  """Three lines of the plane meet in 0 by pairs, and yet the sum of their vectors does not tell them."""
  lines = np.array([[1, 0], [0, 1], [Fraction(1, 2), Fraction(1, 2)]], object).T
  assert all(algebra.rank(lines[:, list(pair)]) == 2 for pair in itertools.combinations(range(3), 2))
  assert algebra.rank(lines) == 2
