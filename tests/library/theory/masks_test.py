"""Facts about k masks before a text and a prompt behind one: every word and text enumerated, path by path in fractions."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import as_fractions, likelihood_rows, path_weights, token_probs

import hmm_jax as hj
from hmm_jax._support.rational.algebra import fraction_rows, rank
from hmm_jax.theory import mask_examples, theorem_3_3

EXACT = hj.theory.Thresholds(support=0.0, rank=1e-9)


def drawn(seed, num_states, num_tokens):
  """Rows with zeros among them; the start is not stationary and has none."""
  rng = np.random.default_rng(seed)
  counts = [rng.multinomial(16, np.ones(size) / size, num_states) for size in (num_states, num_states, num_tokens)]
  return hj.HMM(*map(fraction_rows, (counts[0][0] + 1, *counts[1:])))


# P[first token 0 | state] is 1/7 of state 0, 3/4 of state 1 and 2/7 of state 2, one move later.
INNER = hj.HMM(*map(fraction_rows, ([1, 2, 3], [[1, 2, 0], [0, 1, 2], [2, 0, 1]], [[2, 0], [1, 1], [0, 2]])))


def law(hmm, words, position):
  """P[word, state at `position`] [n, H] of words in which None is any token."""
  return np.array([path_weights(*hmm, word, position) for word in words])


def futures(hmm, length):
  """P[x | H_1] [n, H] of every text x after H_1, and the texts."""
  texts = list(itertools.product(range(hmm.num_tokens), repeat=length))
  anywhere = hmm._replace(initial_probs=np.full(hmm.num_states, Fraction(1)))
  return law(anywhere, [(None, *text) for text in texts], 0), texts


def least(hmm, joint):
  """The least k up to |H| for which the law of k masks keeps what texts tell, or None, and the ranks of the laws."""
  S, ranks = futures(hmm, hmm.num_states - 1)[0], []
  for masks in range(1, hmm.num_states + 1):
    words = itertools.product([*range(hmm.num_tokens), None], repeat=masks)
    J = law(hmm, [word for word in words if word.count(None) == (0 if joint else masks - 1)], masks - 1)
    ranks.append(rank(J))
    if rank(J @ S.T) == rank(S):
      return masks, ranks
  return None, ranks


CASES = {
  'lumpable': mask_examples.lumpable_past(),
  'lumpable, another start': mask_examples.lumpable_past()._replace(initial_probs=fraction_rows([1, 2, 3])),
  'twins': mask_examples.twin_pasts(),
  'sticky': mask_examples.sticky_chain(4, 2),
  'lazy': mask_examples.cycle([1, 0, 0, 0], stay=1),
  'from one state': mask_examples.cycle([0, 1, 1])._replace(initial_probs=as_fractions([1, 0, 0])),
  'drawn': drawn(0, 4, 3),
}


@pytest.mark.parametrize('case', CASES)
def test_masks_needed_are_those_of_every_word_and_text(case):
  found = hj.theory.masks_needed(CASES[case])
  for count, joint in ((found.joint, True), (found.marginals, False)):
    assert (count.masks, count.ranks) == least(CASES[case], joint)
    is_full = [ratio > 1e-9 for ratio in count.singular_value_ratios]
    assert is_full == [size == CASES[case].num_states for size in count.ranks]


def test_the_head_of_k_masks_gives_every_label_on_the_exact_model():
  """The joint law of two masks by the chain rule, three marginals in one pass; with another prior labels are wrong."""
  hmm = drawn(5, 4, 2)
  mu, rho = np.array([[2, -1, 0, 1], [0, 1, 1, -2], [0, 0, 0, 0]]), fraction_rows([1, 2, 3, 4])
  follows, texts = futures(hmm, 5)
  labels = ((follows * rho) @ mu.T).argmax(1)
  in_floats = hj.HMM(*map(np.float64, hmm))

  def read(*masks):
    tokens = np.array([[*masks, *text] for text in texts])
    return hj.token_probs(hj.ExactModel(2), in_floats, tokens)[:, : len(masks)]

  first = read(2, 2)[:, 0]
  joint = np.concatenate([first[:, [v]] * read(v, 2)[:, 1] for v in range(2)], axis=1)
  for features, masks in ((joint, 2), (read(2, 2, 2).reshape(len(texts), -1), 3)):
    seen = hj.theory.masks_as_one_token(hmm, masks, joint=features is joint)
    right = [
      ((features @ theorem_3_3(seen, mu, prior, EXACT)['head'].weights).argmax(1) == labels).all()
      for prior in (rho, seen.initial_probs)
    ]
    assert right == [True, False]


def predicted(hmm, prompt, position, texts):
  """G [n, V] at a [MASK], which stands at this place among the rows of a prompt."""
  rows = list(np.insert(as_fractions(prompt), position, Fraction(1), axis=0))
  return np.array([token_probs(hmm, rows + likelihood_rows(hmm, text), position) for text in texts])


@pytest.mark.parametrize(
  ('prompt', 'position', 'length', 'fewest'),
  [([[1, 0, 0]], 1, 4, 0), ([[1, 0, 0]], 1, 6, 0), ([[1, 1, 1]], 1, 4, 3), ([[1, 3, 6]], 0, 4, 0)],
)
def test_a_prompt_is_right_where_no_mask_helps(prompt, position, length, fewest):
  """The fewest errors of thresholds on G: a blank row is no prompt, and a row may stand before or behind the [MASK]."""
  hmm = mask_examples.lumpable_past()
  follows, texts = futures(hmm, length)
  labels, a = follows @ [2, -1, 0] >= 0, predicted(hmm, prompt, position, texts)[:, 0]
  errors = [((a <= threshold) != labels).sum() for threshold in (*a, Fraction(49, 103))]
  assert min(*errors, len(a) - max(errors)) == fewest
  assert prompt != [[1, 0, 0]] or errors[-1] == 0  # The head of the docstring.


@pytest.mark.parametrize(
  ('mu', 'blanks'),
  [([[3, 0, -2], [0, 0, 1], [0, 0, 0]], 0), ([[3, 0, -2], [0, 0, 1], [0, 0, 0]], 2), ([[2, -1, 1], [0, 0, 0]], 0)],
)
def test_an_inner_prompt_gives_every_label(mu, blanks):
  """Two independent rows, and disjoint hulls of three; with another prior labels are wrong."""
  (follows, texts), rho = futures(INNER, 4), fraction_rows([3, 1, 2])
  labels = ((follows * rho) @ np.transpose(mu)).argmax(1)
  right = []
  for prior in (rho, INNER.initial_probs):
    built = hj.theory.inner_prompt(INNER, mu, prior, blanks, EXACT)
    scores = predicted(INNER, built['prompt'], 0, texts) @ as_fractions(built['head'].weights)
    right.append((scores.argmax(1) == labels).all())
  assert right == [True, False]


@pytest.mark.parametrize('mu', [[[2, 1, -1], [0, 0, 0]], np.eye(3)])
def test_hulls_that_meet_and_dependent_rows_of_three_classes_are_refused(mu):
  with pytest.raises(hj.theory.AssumptionError):
    hj.theory.inner_prompt(INNER, mu, INNER.initial_probs, 0, EXACT)
