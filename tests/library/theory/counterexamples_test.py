"""Facts about the two counterexamples, and that the code of their page, docs/findings/theory.md, runs.

Posteriors and G are exact: by `rationals`, and by sums over hidden paths.
"""

import contextlib
import io
import re

from conftest import DOCS
import numpy as np
import pytest
import rationals

from hmm_jax import theory
from hmm_jax.theory import counterexamples
from hmm_jax.theory.problem import MemoryProblem, StateProblem
from hmm_jax.theory.rational_constructions import exact_construction

pytestmark = pytest.mark.usefixtures('without_optimisation')

PAGE = DOCS / 'findings' / 'theory.md'
STATES = counterexamples.head_fails_prompt_succeeds()
MEMORY = counterexamples.head_fails_attention_succeeds()


def masked_probs(hmm, text):
  """P[H_1 | x] [E] of x' = (MASK, x), exactly."""
  return rationals.state_probs(hmm, rationals.likelihood_rows(hmm, (hmm.num_tokens, *text)), 0, leave_out=True)


def all_texts(hmm, longest):
  """Every x of positive probability."""
  found, grown = [], [()]
  for _ in range(longest):
    longer = [(*text, token) for text in grown for token in range(hmm.num_tokens)]
    grown = [text for text in longer if masked_probs(hmm, text).any()]
    found += grown
  return found


def label(probs):
  """The class whose probability, the first or the second one, is larger; that it is no tie is checked."""
  assert probs[0] != probs[1]
  return int(probs[1] > probs[0])


def label_of(example, text):
  """The posterior of the masked state, or of the memory, given the text."""
  probs = masked_probs(example.exact_hmm, text)
  return label(probs if example is STATES else probs.reshape(2, -1).sum(1))


@pytest.mark.parametrize('example', [STATES, MEMORY])
def test_the_floats_are_the_fractions_and_posteriors_are_sums_over_paths(example):
  """Posteriors of the masked state, on all texts of two words; the first law is stationary, so H_0 has it too."""
  exact = example.exact_hmm
  for floats, fractions in zip(rationals.exact_hmm(example.hmm.validate()), exact):
    np.testing.assert_allclose(floats.astype(float), fractions.astype(float), rtol=1e-15)
  assert (exact.initial_probs @ exact.transition_matrix == exact.initial_probs).all()
  for text in all_texts(exact, 2):
    weights = rationals.path_weights(*exact, (None, *text), 0)
    assert (masked_probs(exact, text) == weights / weights.sum()).all()


@pytest.mark.docs
def test_the_snippet_of_the_page_prints_its_output():
  """The python block of the page, run as it stands."""
  snippet, printed = re.search(r'```python\n(.*?)```\n\nprints\n\n```\n(.*?)```', PAGE.read_text(), re.DOTALL).groups()
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    exec(compile(snippet, 'docs/findings/theory.md', 'exec'), {})  # The page is ours.
  assert out.getvalue() == printed


@pytest.mark.parametrize('example', [STATES, MEMORY])
def test_the_certificate_proves_that_no_linear_head_is_right(example):
  """Its labels are right, it mixes G_1 of both classes to the same, and the linear program agrees."""
  texts, labels, weights = example.certificate
  assert [label_of(example, text) for text in texts] == list(labels)
  features = np.array([masked_probs(example.exact_hmm, text) for text in texts]) @ example.exact_hmm.emission_matrix
  assert not (np.where(labels, -1, 1) * weights @ features).any() and sum(weights) == 1 and min(weights) > 0
  pairs = [(index, 1 - one) for index, one in enumerate(labels)]
  assert theory.exact_certificate(features, labels, pairs, 2) == list(weights)
  assert not theory.linear_separation(features.astype(float), labels, 2, 1e-9).separable


@pytest.mark.parametrize(('theorem', 'num_possible', 'num_inside'), [('3.6', 126, 126), ('4.3', 497, 490)])
def test_the_construction_is_right(theorem, num_possible, num_inside):
  """A prompt and head on all texts up to length 6, an attention head on those in R, in fractions; no label is a tie."""
  example = STATES if theorem == '3.6' else MEMORY
  if theorem == '3.6':
    problem = StateProblem(example.hmm, example.silent_probs, example.task_weights)
  else:
    problem = MemoryProblem(example.hmm, example.hmm.initial_probs, example.task_weights, 0)
  construction = exact_construction(problem, theorem)
  texts = [(example.hmm.num_tokens, *text) for text in all_texts(example.exact_hmm, 6)]
  inside = [text for text in texts if theorem == '3.6' or construction.in_region(text)]
  assert (len(texts), len(inside)) == (num_possible, num_inside)
  assert {text[1:] for text in inside} >= {*example.certificate.texts}
  for text in inside:
    exact, built = construction.scores(text)
    assert exact[0] * built[0] > 0
