"""The claims and lemmas of appendices A to C: what holds is violated by exactly nothing, and what fails is found.

Tables of P[memory, path, text] are the ground, and are checked against sums written here.
"""

from fractions import Fraction
import itertools
from typing import Any, NamedTuple

from conftest import contradictory_memory, contradictory_states
import numpy as np
import pytest
import rationals

from experiments.studies.theory.appendix import CLAIMS, GUIDES
from hmm_jax.hmm import HMM
from hmm_jax.theory.claims import adversary, lemmas, tables
from hmm_jax.theory.claims.adversary import EDGES, Search
from hmm_jax.theory.claims.lemmas import violation
from hmm_jax.theory.claims.tables import Case
from hmm_jax.theory.exact.algebra import exact
from hmm_jax.theory.exact.constructions import exact_construction
from hmm_jax.theory.problems import gap

HOW = Search(length=2, num_random=3, num_steps=20, num_edge=2, denominator=24, conditioning=0.02)
FALSE = {
  'Claim C.10, i = 1',
  'Lemma C.9, the prompt',
  'Lemma C.9, "precisely"',
  'Theorem C.6 with -2',
  'Theorem C.6 with -2, at 0',
}


class Statement(NamedTuple):
  """A claim of the appendix."""

  claim: str
  kind: str
  violated_by: Any


STATEMENTS = [
  Statement(claim, kind, violated_by) for kind, claims in CLAIMS.items() for claim, (_, violated_by) in claims.items()
]
TRUE = [statement for statement in STATEMENTS if statement.claim not in FALSE]
# What a one-hot start, a reducible chain and one that is not stationary take away; nothing else takes anything.
NEEDS = {
  'one-hot start': {'Claim A.1', 'Theorem 3.3', 'Lemma B.2', 'Proof of 3.6', 'Theorem 3.6'},
  'reducible': {'Theorem 3.3', 'Proof of 3.6', 'Theorem 3.6'},
  'not stationary': {'Proposition C.8', 'Lemma C.13', 'Claim C.14', 'Theorem C.6, mended'},
}


def named(statements):
  return pytest.mark.parametrize('statement', statements, ids=lambda statement: statement.claim)


@pytest.fixture(scope='module')
def cases():
  """Of each kind, at random and at the edges."""
  rng = np.random.default_rng(0)
  return {kind: adversary.drawn_cases(kind, rng, HOW) for kind in EDGES}


def case_of(problem):
  """A `Case` of `Fraction`s of a problem with one weighed row."""
  hmm, weights = problem.hmm, exact(problem.task_weights)[0]
  law, moves, emissions = map(exact, (problem.silent_probs, hmm.transition_matrix, hmm.emission_matrix))
  if isinstance(hmm, HMM):
    return Case(exact([1]), law, moves, np.zeros(len(weights), int), emissions[None], weights, 0, (0, 1), False)
  return Case(exact(hmm.memory_probs), law, moves, hmm.cell_index, emissions, weights, problem.cell, (0,), True)


@pytest.mark.parametrize('kind', EDGES)
def test_tables_are_sums_over_memories_and_paths(cases, kind):
  """P[X = x] of each text by a sum written out, with a prompt, and all of them sum to one."""
  case = cases[kind].assumed[0]
  memory_size, num_states, num_tokens = case.emission_matrix.shape
  prompt = lemmas.indicator(case) if memory_size > 1 else lemmas.starting_prompt(case)
  prompted = tables.table(case, 2, silent=1, prompt=prompt).text_probs
  assert tables.table(case, 2).text_probs.sum() == 1
  for text in itertools.product(range(num_tokens), repeat=2):
    total = Fraction(0)
    for memory in np.ndindex(case.memory_probs.shape):
      emissions = case.emission_matrix[np.array(memory)[case.cell_index], np.arange(num_states)]
      start = case.memory_probs[memory] * case.first_probs * prompt[memory]
      total += rationals.path_weights(start, case.transition_matrix, emissions, (None, *text), 0).sum()
    assert prompted[text] == total


@named(TRUE)
def test_what_holds_is_violated_by_exactly_nothing(cases, statement):
  """On random cases, in `Fraction`s."""
  for case in cases[statement.kind].assumed:
    assert violation(statement.violated_by, case, HOW.length) == 0


@named(TRUE)
def test_what_holds_at_the_edges_of_its_assumptions(cases, statement):
  """And there too, but for what a start without support or without stationarity takes away."""
  for edge, some in cases[statement.kind].edges.items():
    if statement.claim not in NEEDS.get(edge, ()):
      for case in some:
        assert violation(statement.violated_by, tables.in_floats(case), HOW.length) < 1e-9


@pytest.mark.parametrize(
  ('edge', 'claim'), [('one-hot start', 'Claim A.1'), ('reducible', 'Theorem 3.6'), ('not stationary', 'Lemma C.13')]
)
def test_what_an_edge_takes_away(cases, edge, claim):
  """Regularity is needed by section 3, stationarity by C.13 with the prompt (C.6)."""
  statement = next(statement for statement in STATEMENTS if statement.claim == claim)
  assert max(violation(statement.violated_by, case, HOW.length) for case in cases[statement.kind].edges[edge]) > 0


@named([statement for statement in STATEMENTS if statement.claim in FALSE - {'Theorem C.6 with -2, at 0'}])
def test_what_fails_is_found_by_the_search(statement):
  """From a few random cases, and decided in `Fraction`s."""
  how, rng = HOW._replace(num_random=40, num_steps=100), np.random.default_rng(1)
  drawn = adversary.drawn_cases(statement.kind, rng, how._replace(num_edge=1))
  found = adversary.search(statement.violated_by, drawn, rng, how, GUIDES.get(statement.claim))
  assert found.exact > 0 and found.adversarial >= found.at_random
  np.testing.assert_allclose(float(found.exact), found.adversarial, rtol=1e-6)


def test_the_counterexample_violates_c_9_and_not_its_correction():
  """On the texts of three words of `gap`, in fractions; the construction there is what the lemmas speak of."""
  problem = gap.weak_prompt_bias()
  case, built = case_of(problem), exact_construction(problem, '4.6')
  assert violation(lemmas.lemma_c_9_of_the_paper, case, 3) == Fraction(1007, 290) - 1
  assert violation(lemmas.theorem_c_6_of_the_paper, case, 3) == Fraction(2, 29)
  for claim in (lemmas.lemma_c_9_corrected, lemmas.theorem_c_6_corrected):
    assert violation(claim, case, 3) == 0
  assert built.prompt_bias == lemmas.corrected_bias(case)
  np.testing.assert_array_equal(built.attention, lemmas.attention(case, case.weighed))
  np.testing.assert_array_equal(built.prompt.reshape(lemmas.indicator(case).shape), lemmas.indicator(case))


@named([statement for statement in TRUE if statement.kind == '4.2'])
def test_columns_that_cannot_be_told_are_noticed(cases, statement):
  """Where another state says what H* says the claims of 4.3 fail, but for Proposition C.1, which asks for nothing."""
  case = tables.in_floats(cases['4.2'].assumed[0])
  case.emission_matrix[:, 2] = case.emission_matrix[:, 0]
  wrong = violation(statement.violated_by, case._replace(cell_index=np.zeros(3, int)), HOW.length)
  assert wrong < 1e-9 if statement.claim == 'Proposition C.1' else wrong > 1e-3


def test_contradictions_of_prompt_and_text_take_part():
  """Theorem 3.6, Claim C.15 and Lemma C.13 hold where a text rules supp(mu) out, which does happen."""
  states, memory = case_of(contradictory_states()), case_of(contradictory_memory())
  behind = tables.table(states, 2, silent=2, prompt=lemmas.starting_prompt(states))
  assert (tables.silent_table(states, 2).possible & ~behind.possible).any()
  assert violation(lemmas.theorem_3_6, states, 2) == 0 and next(lemmas.claim_c_15(memory, 3)).size
  for claim in (lemmas.claim_c_15, lemmas.lemma_c_13, lemmas.theorem_c_6_corrected):
    assert violation(claim, memory, 3) == 0


def test_theorem_3_3_needs_no_full_support_before_the_text(cases):
  """P[H_0] may be 0 where it likes, so long as P[H_1] is positive where it is not."""
  law = np.array([Fraction(1, 3), Fraction(2, 3), Fraction(0)])
  replaced = [case._replace(silent_probs=law) for case in cases['3.1'].assumed]
  some = [case for case in replaced if case.first_probs.all()]
  assert some and all(violation(lemmas.equation_a_1, case, HOW.length) == 0 for case in some)
