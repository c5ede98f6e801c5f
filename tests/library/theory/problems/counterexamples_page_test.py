"""docs/theory.md says of the examples what is computed from them here: matrices, texts, certificates, arithmetic."""

import contextlib
from fractions import Fraction
import io
import itertools
import re

import numpy as np
import pytest
from theory_counterexamples_cases import (
  attention,
  attention_head,
  leave_one_out,
  masked_probs,
  MEMORY,
  memory_label,
  memory_probs,
  nouns_for_sure,
  PAGE,
  path_weights,
  predicted,
  prompted,
  rows_of,
  small,
  state_construction,
  state_label,
  STATES,
  texts_of,
)

from hmm_jax import theory
from hmm_jax.heads import AttentionHead
from hmm_jax.theory.theorems import assumptions

pytestmark = pytest.mark.usefixtures('without_optimisation')


def text_prob(hmm, text):
  """P[X_{2:T+1} = x], exactly."""
  message = np.full(hmm.num_states, Fraction(1), object)
  for row in reversed(rows_of(hmm, text)[1:]):
    message = hmm.transition_matrix @ (row * message)
  return hmm.initial_probs @ message


def words(example, text):
  return ' '.join(example.tokens[token] for token in text)


def table(header, rows):
  """A table of the page."""
  lines = [header, ['---'] * len(header), *rows]
  return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in lines)


# The cow and the toy.


def memory_weights(text, leave_out=None):
  """P[M = m, H_i = h, x'] [M, H] by paths; without x'_i and at i = `leave_out`, else at the [MASK]."""
  hmm = MEMORY.hmm
  position = leave_out or 0
  seen = [None if i in (0, leave_out) else token for i, token in enumerate((None, *text))]
  return np.array(
    [
      prior * path_weights(small(hmm.initial_probs), small(hmm.transition_matrix), small(rows), seen, position)
      for prior, rows in zip(small(hmm.memory_probs), hmm.emission_matrix)
    ]
  )


# The page.


def fraction_rows(names, *matrices):
  """Rows of a table: a name and what the matrices have in its row."""
  return [[name, *(value for matrix in matrices for value in matrix[i])] for i, name in enumerate(names)]


def test_the_page_has_the_matrices():
  """Both distributions, and the two parts of the first construction."""
  exact = STATES.exact_hmm
  header = ['now', 'P[H_0]', *(f'next {state}' for state in STATES.states), *(f'"{token}"' for token in STATES.tokens)]
  rows = fraction_rows(STATES.states, exact.initial_probs[:, None], exact.transition_matrix, exact.emission_matrix)
  assert table(header, rows) in PAGE
  hmm, exact = MEMORY.hmm, MEMORY.exact_hmm
  header = ['now', 'P[H_1]', *(f'next {state}' for state in MEMORY.states)]
  rows = fraction_rows(MEMORY.states, small(hmm.initial_probs)[:, None], small(hmm.transition_matrix))
  assert table(header, rows) in PAGE
  joint = [f'{value}, {state}' for value in MEMORY.classes for state in MEMORY.states]
  header = ['memory, state', *(f'"{token}"' for token in MEMORY.tokens)]
  assert table(header, fraction_rows(joint, exact.emission_matrix)) in PAGE
  cow, toy = small(hmm.memory_probs)
  assert f'P[M = cow] = {cow} and P[M = toy] = {toy}' in PAGE


def test_the_page_has_the_texts_of_the_first_example():
  """Posteriors, labels and G, by `rationals`; the sums over paths say the same."""
  rows = []
  for text in texts_of(STATES.exact_hmm, 2):
    before = masked_probs(STATES.exact_hmm, text, 0)
    g, with_prompt = predicted(STATES.exact_hmm, text), prompted(state_construction(), text)
    by_paths = path_weights(small(STATES.silent_probs), *STATES.exact_hmm[1:], (None, *text), 0)
    np.testing.assert_array_equal(before, by_paths / by_paths.sum())
    by_paths = path_weights(*STATES.exact_hmm, (None, *text), 0)
    np.testing.assert_array_equal(g, by_paths / by_paths.sum() @ STATES.exact_hmm.emission_matrix)
    initial = STATES.exact_hmm.initial_probs * [0, 0, 1]
    by_paths = path_weights(initial, *STATES.exact_hmm[1:], (None, None, *text), 1)
    np.testing.assert_array_equal(with_prompt, by_paths / by_paths.sum() @ STATES.exact_hmm.emission_matrix)
    prob = text_prob(STATES.exact_hmm, text)
    rows.append([words(STATES, text), prob, *before, STATES.classes[state_label(text)], g[0], with_prompt[0]])
  posterior = [f'P[{state}]' for state in STATES.states]
  assert table(['x', 'P[x]', *posterior, 'label', 'G_1 of "good"', 'prompted G_2 of "good"'], rows) in PAGE


def test_the_page_has_the_texts_of_the_second_example():
  """Posteriors, labels, G and what the attention head sees, by `rationals`; the sums over paths say the same."""
  rows = []
  for text in texts_of(MEMORY.exact_hmm, 2):
    by_paths = memory_weights(text)
    probs, g, sure = memory_probs(text), predicted(MEMORY.exact_hmm, text), nouns_for_sure(text)
    np.testing.assert_array_equal(probs, by_paths.sum(1) / by_paths.sum())
    np.testing.assert_array_equal(g, (by_paths.reshape(-1) / by_paths.sum()) @ MEMORY.exact_hmm.emission_matrix)
    by_paths = [memory_weights(text, leave_out=i).sum(0) for i in range(len(text) + 1)]
    assert sure == [i for i, states in enumerate(by_paths) if states[1] == states.sum()]
    prob, label = text_prob(MEMORY.exact_hmm, text), MEMORY.classes[memory_label(text)]
    seen = [', '.join(str(i + 1) for i in sure), attention(text)[2]] if sure else ['', '']
    rows.append([words(MEMORY, text), prob, *probs, label, ', '.join(map(str, g)), *seen])
  posterior = [f'P[{value}]' for value in MEMORY.classes]
  header = ['x', 'P[x]', *posterior, 'label', 'G_1', 'surely a noun', 'attention']
  assert table(header, rows) in PAGE


def test_the_page_has_the_arithmetic_of_the_attention_head():
  """What is not zero or one in keys and values, and the two texts of the certificate step by step."""
  noun, (_, cow, toy, _) = MEMORY.states.index('noun'), range(4)
  head = AttentionHead(*map(small, attention_head(3)))
  assert (head.query @ head.key_weights).tolist() == [0, 1, 1, 0] and not head.positions.any()
  assert 'G_i(cow) + G_i(toy), the probability of a noun' in PAGE
  values = head.value_weights.reshape(2, 3, 4)
  assert not np.delete(values, noun, axis=1).any() and not values[..., [0, 3]].any()
  line = '({}) G_i(cow) - ({}) G_i(toy) and ({}) G_i(toy) - ({}) G_i(cow)'
  shown = values[:, noun]
  assert line.format(shown[0, cow], -shown[0, toy], shown[1, toy], -shown[1, cow]) in PAGE
  for text in MEMORY.certificate.texts:
    g = leave_one_out(text)[2].reshape(-1) @ MEMORY.exact_hmm.emission_matrix
    of_cow, of_toy = shown @ g
    assert f'G_3 = ({", ".join(map(str, g))}), which gives {of_cow} and {of_toy}' in PAGE
    as_cow, as_toy = head.token_embeddings[text[-1]].reshape(2, 3)[:, noun]
    line = f'{of_cow} × {as_cow} - {of_toy} × {as_toy} = {attention(text)[2]}'
    assert line in PAGE and of_cow * as_cow - of_toy * as_toy == attention(text)[2]


def test_the_page_has_the_certificates_and_what_they_cost():
  """The arithmetic of the first, and the least probability that a linear head gets wrong of texts of length 2."""
  texts, _, weights = STATES.certificate
  g = [predicted(STATES.exact_hmm, text)[0] for text in texts]
  first, second = (2 * weight for weight in weights[:2])
  line = f'{first} × {g[0]} + {second} × {g[1]} = {first * g[0]} + {second * g[1]} = {g[2]}'
  assert line in PAGE and first * g[0] + second * g[1] == g[2]
  pairs = list(itertools.product(range(2), repeat=2))
  ordered = sorted(pairs, key=lambda text: predicted(STATES.exact_hmm, text)[0])
  # A linear head on two tokens is a threshold on the first: the first k of these get one class, the rest the other.
  errors = [
    sum(text_prob(STATES.exact_hmm, text) for i, text in enumerate(ordered) if state_label(text) != ((i < k) == side))
    for k in range(5)
    for side in (False, True)
  ]
  order = ', '.join(f'{words(STATES, text)} ({STATES.classes[state_label(text)]})' for text in ordered)
  assert order in PAGE
  assert f'at least {min(errors)} of the probability of texts of length 2' in PAGE
  assert predicted(STATES.exact_hmm, (0,))[0] == predicted(STATES.exact_hmm, (1, 1))[0]
  assert state_label((0,)) != state_label((1, 1))
  texts = MEMORY.certificate.texts
  wrong = min(text_prob(MEMORY.exact_hmm, text) for text in texts)
  assert f'at least {wrong} of the probability of texts of length 2' in PAGE


def test_the_snippet_of_the_page_runs_and_prints_what_it_says():
  """The python block of the page, run as it stands."""
  snippet, printed = re.search(r'```python\n(.*?)```\n\nprints\n\n```\n(.*?)```', PAGE, re.DOTALL).groups()
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    exec(compile(snippet, 'docs/theory.md', 'exec'), {})  # The page is ours.
  assert out.getvalue() == printed


def test_the_page_names_functions_that_exist():
  """Every function in the tables of functions is one of the theory modules."""
  section = PAGE.split('## Statements and functions')[1].split('\n## ')[0]
  named = set(re.findall(r'`(\w+)`', section))
  rooms = theory, assumptions
  assert named and all(any(hasattr(room, name) for room in rooms) for name in named), named
