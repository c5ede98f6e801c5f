"""The gap in Lemma C.9: the counterexamples of docs/findings/theory.md in exact fractions, and why none is smaller."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from theory_assumptions_cases import EXACT

from hmm_jax._support.rational import algebra, chain as chain_lib
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions, gap, recovery
from hmm_jax.theory.rational_constructions import exact_construction

PAPER = Fraction(-2)
PROBLEM = gap.weak_prompt_bias()


def regions(problem, length):
  """The texts in R, with exact scores, those of the mended construction and those with -2."""
  mended, paper = (exact_construction(problem, '4.6', bias) for bias in (None, PAPER))
  for text in itertools.product(range(problem.hmm.num_tokens), repeat=length):
    if mended.in_region(text):
      yield text, *(score[0] for score in (*mended.scores(text), paper.scores(text)[1]))


def test_assumptions_hold_and_the_float_construction_has_the_bound():
  """4.4, stationary and ergodic; 4.5 with H* = {show}, in fractions and as the library decides; beta is -5."""
  hmm, mu = PROBLEM.hmm, PROBLEM.task_weights.astype(float)
  floats = MemoryHMM(*(leaf.astype(float) if leaf.dtype == object else leaf for leaf in hmm)).validate()
  assert (hmm.initial_probs @ hmm.transition_matrix == hmm.initial_probs).all()
  assert algebra.is_ergodic(hmm.transition_matrix) and (hmm.initial_probs > 0).all()
  finding = assumptions.relaxed_recoverable_hidden_states(floats, 0, mu, EXACT)
  assert finding.witness['recoverable_states'].tolist() == [0] == exact_construction(PROBLEM, '4.6').states.tolist()
  head = recovery.theorem_4_6(floats, mu, PROBLEM.silent_probs.astype(float), 0, 3, EXACT, 1e-9)['head']
  np.testing.assert_allclose(head.positions[0, -1], -5)


def test_minus_2_is_clearly_wrong_and_the_bound_is_right():
  """The exact score of each text in R, that with -5 and that with -2; up to 5 words -5 gives the right sign."""
  found = {text: scores for length in range(1, 6) for text, *scores in regions(PROBLEM, length)}
  assert all(mended * exact > 0 or mended == exact == 0 for exact, mended, _ in found.values())
  three = {text: scores for text, scores in found.items() if len(text) == 3}
  wrong = {'abc'[a] + 'abc'[b] + 'abc'[c] for (a, b, c), (exact, _, paper) in three.items() if paper * exact < 0}
  assert wrong == {'acb', 'bca'}
  assert exact_construction(PROBLEM, '4.6').attention.tolist() == [0, 0, 4]


@pytest.mark.parametrize('constant', [2, 1000])
def test_no_constant_is_enough(constant):
  """With shared = 1 / n the score at the prompt is at least 24 n / 29, so that each fixed beta fails for some n."""
  n = 2 * (constant + 2)
  problem = gap.weak_prompt_bias(Fraction(1, n))
  construction = exact_construction(problem, '4.6', Fraction(-constant))
  logits = construction.logits(construction.predicted(gap.TEXT))
  assert logits[0] + constant >= Fraction(24 * n, 29) > constant + 1
  exact, built = construction.scores(gap.TEXT)
  assert exact[0] > 0 > built[0]
  assert exact_construction(problem, '4.6').scores(gap.TEXT)[1][0] > 0


def test_with_three_words_two_tokens_are_not_enough():
  """The argument of the page on every small HMM of its kind: with V = 3 all states outside H* say one column b, a text
  of two words is in R by a word v that H* never says, and q^T Theta is at most 1 then."""
  simplex = [np.array(row) * Fraction(1, 3) for row in itertools.product(range(4), repeat=3) if sum(row) == 3]
  largest = []
  for first, second, b in itertools.product(simplex, repeat=3):
    columns = np.array([first, second, b]).T
    if any((b > 0) & (first + second == 0)) and algebra.rank(columns) == 3:
      largest.append(max(algebra.left_inverse(columns)[:2].sum(0)))
  assert largest and max(largest) <= 1


@pytest.mark.parametrize(
  ('example', 'shape'), [(gap.weak_prompt_bias_in_two_words, (3, 2, 4)), (gap.weak_prompt_bias_in_one_word, (3, 1, 81))]
)
def test_with_the_pseudo_inverse_less_is_enough(example, shape):
  """V = 4, H = 2 and T = 2, or H = 1 and T = 1: a clearly wrong label with -2, and none with the bound."""
  problem, text = example()
  hmm = problem.hmm
  assert hmm.emission_matrix.shape == shape and algebra.is_ergodic(hmm.transition_matrix)
  assert (hmm.initial_probs @ hmm.transition_matrix == hmm.initial_probs).all()
  found = list(regions(problem, len(text)))
  assert all(mended * exact > 0 for _, exact, mended, _ in found)
  assert [one for one, exact, _, paper in found if paper * exact < 0] == [text]


def test_attention_can_go_beyond_c_8():
  """ "Precisely" in the proof of C.9: for `more_positions` the head attends to a position that is not in (C.8)."""
  problem, text = gap.more_positions()
  construction = exact_construction(problem, '4.6')
  others = np.setdiff1d(np.arange(problem.hmm.num_states), construction.states)
  unprompted = chain_lib.leave_one_out(construction.chain, construction.chain.likelihoods[list(text)])
  in_c_8 = {i + 1 for i, joint in enumerate(unprompted) if not joint[:, others].any()}
  logits = construction.logits(construction.predicted(text))
  assert in_c_8 < {i for i, logit in enumerate(logits) if logit == max(logits)} and in_c_8
  exact, built = construction.scores(text)
  assert exact[0] * built[0] > 0
