"""The claims and lemmas of appendices A to C: what holds is violated by exactly nothing, and what fails is found.

Tables of P[memory, path, text] are the ground, and are checked against sums written here. The library's constructions
are compared with what the lemmas speak of.
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
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.claims import adversary, lemmas, tables
from hmm_jax.theory.claims.adversary import EDGES, Search
from hmm_jax.theory.claims.lemmas import violation
from hmm_jax.theory.claims.tables import Case
from hmm_jax.theory.exact import algebra
from hmm_jax.theory.exact.algebra import exact
from hmm_jax.theory.problems import gap
from hmm_jax.theory.theorems import assumptions, recovery
from hmm_jax.theory.theorems.assumptions import Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
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
  if isinstance(hmm, HMM):
    one = np.array([Fraction(1)], object)
    chain = one, exact(problem.silent_probs), exact(hmm.transition_matrix), np.zeros(len(weights), int)
    return Case(*chain, exact(hmm.emission_matrix)[None], weights, 0, (0, 1), False)
  chain = exact(hmm.memory_probs), exact(problem.silent_probs), exact(hmm.transition_matrix), hmm.cell_index
  return Case(*chain, exact(hmm.emission_matrix), weights, problem.cell, (0,), True)


def as_memory(case):
  """The float64 `MemoryHMM` of a case."""
  of = tables.in_floats(case)
  cells = np.asarray(case.cell_index, np.int32)
  return MemoryHMM(of.memory_probs, of.first_probs, of.transition_matrix, cells, of.emission_matrix)


def texts_of(case, length):
  return itertools.product(range(case.emission_matrix.shape[-1]), repeat=length)


# Tables.


@pytest.mark.parametrize('kind', EDGES)
def test_tables_are_sums_over_memories_and_paths(cases, kind):
  """P[X = x] of each text by a sum written out, with a prompt, and all of them sum to one."""
  case = cases[kind].assumed[0]
  memory_size, num_states, _ = case.emission_matrix.shape
  prompt = lemmas.indicator(case) if memory_size > 1 else lemmas.starting_prompt(case)
  prompted = tables.table(case, 2, silent=1, prompt=prompt).text_probs
  assert tables.table(case, 2).text_probs.sum() == 1
  for text in texts_of(case, 2):
    total = Fraction(0)
    for memory in itertools.product(range(memory_size), repeat=case.memory_probs.ndim):
      held = np.array(memory)[np.asarray(case.cell_index)]
      emissions, start = case.emission_matrix[held, np.arange(num_states)], case.first_probs * prompt[memory]
      weights = rationals.path_weights(start, case.transition_matrix, emissions, (None, *text), 0)
      total += case.memory_probs[memory] * weights.sum()
    assert prompted[text] == total


def test_token_laws_are_conditional_probabilities():
  """G_i of a text by the definition, and 0 where what is left cannot occur."""
  of_text = np.array([[[1, 2, 0], [3, 0, 0], [0, 0, 0]]]) * Fraction(1, 6)
  G = tables.token_law(tables.Table(None, of_text, *[None] * 4), 0)
  assert G.shape == (3, 1, 3) and G[:, 0, 0].tolist() == [Fraction(1, 4), Fraction(3, 4), 0]
  assert G[:, 0, 2].tolist() == [0, 0, 0]


def test_a_stationary_law_is_found_or_refused():
  moves = np.array([[0, 1], [Fraction(1, 2), Fraction(1, 2)]], object) + Fraction(0)
  assert algebra.stationary_law(moves).tolist() == [Fraction(1, 3), Fraction(2, 3)]
  np.testing.assert_allclose(algebra.stationary_law(moves.astype(float)), [1 / 3, 2 / 3], rtol=1e-14)
  for one in (Fraction(1), 1.0):
    assert algebra.stationary_law(np.eye(2, dtype=int) * one) is None


# Claims.


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
  """On the texts of three words of `gap`, in exact fractions."""
  case, length = case_of(gap.weak_prompt_bias()), 3
  assert violation(lemmas.lemma_c_9_of_the_paper, case, length) == Fraction(1007, 290) - 1
  assert violation(lemmas.theorem_c_6_of_the_paper, case, length) == Fraction(2, 29)
  for claim in (lemmas.lemma_c_9_corrected, lemmas.theorem_c_6_corrected):
    assert violation(claim, case, length) == 0


@named([statement for statement in TRUE if statement.kind == '4.2'])
def test_columns_that_cannot_be_told_are_noticed(cases, statement):
  """Where another state says what H* says the claims of 4.3 fail, but for Proposition C.1, which asks for nothing."""
  case = tables.in_floats(cases['4.2'].assumed[0])
  case.emission_matrix[:, 2] = case.emission_matrix[:, 0]
  wrong = violation(statement.violated_by, case._replace(cell_index=np.zeros(3, int)), HOW.length)
  assert wrong < 1e-9 if statement.claim == 'Proposition C.1' else wrong > 1e-3


def test_a_prompt_that_allows_everything_is_noticed(cases):
  """With u = 1 the memory is not confined, and Claim C.14 fails."""
  case = cases['4.4, C.5'].assumed[0]
  of = tables.table(case, 2, silent=1, prompt=0 * lemmas.indicator(case) + 1)
  assert lemmas.value_law(of)[case.task_weights == 0].any()


def test_contradictions_of_prompt_and_text_take_part():
  """Theorem 3.6, Claim C.15 and Lemma C.13 where a text rules supp(mu) out, which does happen."""
  states, memory = case_of(contradictory_states()), case_of(contradictory_memory())
  now = tables.silent_table(states, 2)
  of = tables.table(states, 2, silent=2, prompt=lemmas.starting_prompt(states))
  assert (now.possible & ~of.possible).any()
  assert violation(lemmas.theorem_3_6, states, 2) == 0
  assert sum(part.size for part in lemmas.claim_c_15(memory, 3)) > 0
  for claim in (lemmas.claim_c_15, lemmas.lemma_c_13, lemmas.theorem_c_6_corrected):
    assert violation(claim, memory, 3) == 0


def test_theorem_3_3_needs_no_full_support_before_the_text(cases):
  """P[H_0] may be 0 where it likes, so long as P[H_1] is positive where it is not."""
  for case in cases['3.1'].assumed:
    case = case._replace(silent_probs=np.array([Fraction(1, 3), Fraction(2, 3), Fraction(0)], object))
    if case.first_probs.all():
      assert violation(lemmas.equation_a_1, case, HOW.length) == 0
  assert any((case.silent_probs[:2] @ case.transition_matrix[:2]).all() for case in cases['3.1'].assumed)


def test_the_smallest_gap_is_the_least_mass_outside():
  """Of the counterexample: 1 - max of the scores below 1 at texts in R, over all of them."""
  case = case_of(gap.weak_prompt_bias())
  masses = []
  plain = tables.table(case, 3)
  for text in np.argwhere(lemmas.in_region(plain)):
    for i in range(3):
      at = tuple(0 if j == i else token for j, token in enumerate(text))
      masses.append(lemmas.outside(plain.without(i), i)[at])
  assert lemmas.smallest_gap(case, 3) == min(mass for mass in masses if mass) > 0


# The library's constructions.


@pytest.mark.parametrize(('kind', 'theorem'), [('4.2', '4.3'), ('4.4, C.5', '4.6')])
def test_the_library_builds_what_the_lemmas_speak_of(cases, kind, theorem):
  """Theta^(V), q^T Theta^(K), beta and the prompt of `recovery` are those of the lemmas."""
  for case in cases[kind].assumed:
    floats, hmm = tables.in_floats(case), as_memory(case)
    mu = np.array([floats.task_weights, 0 * floats.task_weights])
    if theorem == '4.3':
      values, finding = np.arange(2), assumptions.recoverable_hidden_states(hmm, 0, EXACT)
    else:
      values, finding = case.weighed, assumptions.relaxed_recoverable_hidden_states(hmm, 0, mu, EXACT)
    # The library takes the largest H*.
    floats = floats._replace(states=tuple(finding.witness['recoverable_states'].tolist()))
    theta = lemmas.recovery(floats, values)
    if theorem == '4.3':
      built = recovery.theorem_4_3(hmm, mu, 0, 2, EXACT)
    else:
      built = recovery.theorem_4_6(hmm, mu, floats.silent_probs, 0, 2, EXACT, 1e-9)
      np.testing.assert_allclose(built['prompt'][0].reshape(lemmas.indicator(case).shape), lemmas.indicator(floats))
      np.testing.assert_allclose(built['head'].positions[0, -1], lemmas.corrected_bias(floats))
    head = built['head']
    shown = head.value_weights.reshape(floats.emission_matrix.shape)[np.ix_(values, np.array(floats.states))]
    scale = np.abs(theta).max()
    np.testing.assert_allclose(shown, theta, atol=1e-9 * scale)
    np.testing.assert_allclose(head.query @ head.key_weights, theta.sum((0, 1)), atol=1e-9 * scale)
