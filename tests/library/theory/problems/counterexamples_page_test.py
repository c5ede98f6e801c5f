"""Two counterexamples: what is exact of them is a sum over paths, and the code of their page, docs/theory.md, runs."""

import contextlib
import io
import re

import numpy as np
import pytest
from rationals import path_weights
from theory_counterexamples_cases import (
  leave_one_out,
  masked_probs,
  MEMORY,
  PAGE,
  predicted,
  prompted,
  small,
  state_construction,
  STATES,
  texts_of,
)

from hmm_jax import theory
from hmm_jax.theory.theorems import assumptions

pytestmark = pytest.mark.usefixtures('without_optimisation')


def test_the_first_example_is_that_of_sums_over_paths():
  """Its posterior of the silent state, G_1, and G_2 behind the prompt of Theorem 3.6."""
  _, *chain = exact = STATES.exact_hmm
  silent, prompt = small(STATES.silent_probs), exact.initial_probs * [0, 0, 1]
  for text in texts_of(exact, 2):
    before = path_weights(silent, *chain, (None, *text), 0)
    np.testing.assert_array_equal(masked_probs(exact, text, 0), before / before.sum())
    masked = path_weights(*exact, (None, *text), 0)
    np.testing.assert_array_equal(predicted(exact, text), masked / masked.sum() @ exact.emission_matrix)
    behind = path_weights(prompt, *chain, (None, None, *text), 1)
    np.testing.assert_array_equal(prompted(state_construction(), text), behind / behind.sum() @ exact.emission_matrix)


def test_the_second_example_is_that_of_sums_over_paths():
  """Its posterior of memory and state at each position given all others, and so what is surely a noun."""
  hmm = MEMORY.hmm
  initial, moves, emissions = map(small, (hmm.initial_probs, hmm.transition_matrix, hmm.emission_matrix))
  for text in texts_of(MEMORY.exact_hmm, 2):
    for i, actual in enumerate(leave_one_out(text)):
      seen = [None if at in (0, i) else token for at, token in enumerate((None, *text))]
      joint = np.array(
        [prior * path_weights(initial, moves, rows, seen, i) for prior, rows in zip(small(hmm.memory_probs), emissions)]
      )
      np.testing.assert_array_equal(actual, joint / joint.sum())


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
