"""Facts about the problems of every family: what their theorem assumes holds, decided here and in fractions."""

from fractions import Fraction
import itertools

import jax
import numpy as np
import pytest
from theory_assumptions_cases import is_ergodic_by_powers
from theory_cases import CONDITIONING, drawn, exactly, FAMILIES, LIMITS, SIZES

from hmm_jax.theory.exact.algebra import rank
from hmm_jax.theory.exact.constructions import exact_construction
from hmm_jax.theory.exact.problem import StateProblem
from hmm_jax.theory.problems import families

SEEDS = range(5)
WITH_MEMORY = [(theorem, family) for theorem, family in FAMILIES if theorem in ('4.3', '4.6', 'C.6')]
ADVERSARIAL = [(theorem, family) for theorem, family in FAMILIES if family == 'adversarial']


def problems(theorem, family):
  return [drawn(theorem, family, seed) for seed in SEEDS]


def smallest_singular_value(columns):
  return np.linalg.svd(columns.astype(float), compute_uv=False)[-1] if columns.shape[1] <= columns.shape[0] else 0.0


def weighed_by(problem):
  """supp(mu) of `Fraction`s, relative to the last class."""
  mu = problem.exact.task_weights
  return np.flatnonzero((mu != mu[-1]).any(0))


def split(problem, states):
  """Columns of W of H* = `states` over the values that the theorem recovers, and those of V-bar, [V, n] each."""
  hmm, weighed = problem.exact.hmm, weighed_by(problem).tolist()
  own, others = [], []
  for m, h in itertools.product(range(hmm.memory_size), range(hmm.num_states)):
    if hmm.cell_index[h] != problem.cell:
      others.append(hmm.emission_matrix[m, h])
    elif m in weighed:
      (own if h in states else others).append(hmm.emission_matrix[m, h])
  return np.array(own).T, np.array(others).reshape(-1, hmm.num_tokens).T


def off_span(own, others):
  """What is left of columns off the span of others, in floats."""
  own, others = own.astype(float), others.astype(float)
  return own - others @ np.linalg.lstsq(others, own, rcond=1e-9)[0] if others.size else own


def recoverable(problem, theorem):
  """H*, the states that read the cell and whose columns are independent of all others, in `Fraction`s."""
  return exact_construction(problem.exact, theorem).states.tolist()


def covers(problem):
  """Every union of supports of rows of A that holds supp(mu) and has independent columns of W: the H* of 3.5."""
  hmm, targets = problem.exact.hmm, set(weighed_by(problem).tolist())
  supports = {frozenset(np.flatnonzero(row).tolist()) for row in hmm.transition_matrix}
  unions = {frozenset()}
  for support in supports:
    unions |= {union | support for union in unions}
  return [sorted(u) for u in unions if targets <= u and rank(hmm.emission_matrix[sorted(u)]) == len(u)]


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_a_problem_is_decided_by_its_key(theorem, family):
  """The same key draws the same arrays, another key others."""
  draw = lambda seed: families.draw(theorem, family, jax.random.key(seed), SIZES[theorem], LIMITS, CONDITIONING)
  first, again, other = draw(3), draw(3), draw(4)
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert not np.array_equal(first.hmm.emission_matrix, other.hmm.emission_matrix)


IMPOSSIBLE = [(theorem, family, SIZES[theorem], 2.0) for theorem, family in FAMILIES]


@pytest.mark.parametrize(
  ('theorem', 'family', 'sizes', 'conditioning'), [*IMPOSSIBLE, ('3.3', 'unplanted', families.Sizes(4, 3, 2), 0.0)]
)
def test_impossible_conditioning_is_refused(theorem, family, sizes, conditioning, monkeypatch):
  """No distributions have a smallest singular value of 2, and 3.1 cannot hold with H > V: the number is named."""
  monkeypatch.setattr(families, '_MAX_DRAWS', 10)
  with pytest.raises(ValueError, match=f'conditioning is {conditioning}'):
    families.draw(theorem, family, jax.random.key(0), sizes, LIMITS, conditioning)


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_is_drawn_are_small_fractions(theorem, family):
  """Rows sum to 1 and have denominators of at most 64, but for laws that follow from others; floats are those."""
  for problem in problems(theorem, family):
    exact, hmm = problem.exact, problem.exact.hmm
    stationary = (np.array(exact.silent_probs @ hmm.transition_matrix) == exact.silent_probs).all()
    of_memory = {'memory_probs': hmm.memory_probs.reshape(-1)} if theorem in ('4.3', '4.6', 'C.6') else {}
    rows = {'A': hmm.transition_matrix, 'W': hmm.emission_matrix, **of_memory}
    if not stationary:
      rows['silent_probs'] = exact.silent_probs
    for name, array in rows.items():
      assert {type(value) for value in array.flat} == {Fraction}, name
      assert np.all(array.sum(-1) == 1) and (array >= 0).all(), name
      assert max(value.denominator for value in array.flat) <= 64, name
    assert (hmm.initial_probs == exact.silent_probs @ hmm.transition_matrix).all() and exact.silent_probs.sum() == 1
    assert max(value.denominator for value in exact.task_weights.flat) <= 64
    assert exact.exact is None
    for floats, fractions in zip(jax.tree.leaves(problem._replace(exact=None)), jax.tree.leaves(exact)):
      if np.asarray(fractions).dtype == object:
        assert np.asarray(floats).dtype == np.float64
        assert [Fraction(value) for value in np.ravel(floats)] == [Fraction(float(x)) for x in np.ravel(fractions)]
    problem.hmm.validate()


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_the_chain_is_ergodic_where_the_proof_divides_by_its_laws(theorem, family):
  """3.2 in all but 4.3, whose proof uses nothing of the chain: P[H_0] has full support, and so has P[H_1]."""
  for problem in problems(theorem, family):
    if theorem != '4.3':
      assert is_ergodic_by_powers(problem.hmm.transition_matrix > 0)
      assert (problem.silent_probs > 0).all() and (problem.hmm.initial_probs > 0).all()
    assert problem.task_weights.shape[0] == SIZES[theorem].num_classes
    assert len(weighed_by(problem)) > 0


@pytest.mark.parametrize('family', ['planted', 'unplanted'])
def test_problems_of_theorem_3_3_have_independent_columns(family):
  """The rank of W is H, and its smallest singular value at least the conditioning."""
  for problem in problems('3.3', family):
    W = problem.exact.hmm.emission_matrix.T
    assert rank(W) == problem.hmm.num_states
    assert smallest_singular_value(W) >= CONDITIONING


@pytest.mark.parametrize('family', ['planted', 'unplanted'])
def test_problems_of_theorem_3_6_have_a_cover_but_fail_3_1(family):
  """Some states move into a set alone that holds supp(mu) and has independent columns; with H > V all are dependent."""
  for problem in problems('3.6', family):
    assert rank(problem.exact.hmm.emission_matrix) < problem.hmm.num_states
    columns = [problem.exact.hmm.emission_matrix[cover].T for cover in covers(problem)]
    assert max(map(smallest_singular_value, columns)) >= CONDITIONING


def test_imitators_of_theorem_3_6_carry_the_mark():
  """All but H*, which is supp(mu), say the last token in a share of MARKED, H* never; the rest is said by two of H*."""
  for problem in problems('3.6', 'planted'):
    hmm, essential = problem.exact.hmm, weighed_by(problem)
    others = np.setdiff1d(np.arange(hmm.num_states), essential)
    assert len(essential) == 2 and not hmm.emission_matrix[essential, -1].any()
    assert (hmm.emission_matrix[others, -1] == families.MARKED).all()
    for row in hmm.emission_matrix[others]:
      said = row[:-1] / (1 - families.MARKED)
      pairs = itertools.combinations_with_replacement(hmm.emission_matrix[essential][:, :-1], 2)
      assert any((2 * said == first + second).all() for first, second in [*pairs])
    # And two states that move into H* alone, half of it each.
    inside = [set(np.flatnonzero(row).tolist()) for row in hmm.transition_matrix]
    assert {frozenset(s) for s in inside} >= {frozenset(half.tolist()) for half in essential[:, None]}


@pytest.mark.parametrize(('theorem', 'family'), WITH_MEMORY)
def test_problems_with_a_memory_have_recoverable_states(theorem, family):
  """States that read the cell, whose columns over supp(mu) are off the span of all others, by ranks of fractions."""
  for problem in problems(theorem, family):
    for state in recoverable(problem, theorem):
      assert smallest_singular_value(off_span(*split(problem, [state]))) >= CONDITIONING
    weighed = weighed_by(problem)
    assert problem.hmm.num_cells == SIZES[theorem].num_cells and problem.cell == 0
    assert len(weighed) == (problem.hmm.memory_size if theorem == '4.3' else 2)


@pytest.mark.parametrize('theorem', ['4.3', '4.6', 'C.6'])
def test_an_announcer_says_the_first_token_and_moves_to_those_that_show(theorem):
  """For weighed values no other state says token 0, and what follows is in H*; sizes ask for how many show."""
  sizes = SIZES[theorem]._replace(num_tokens=8, num_recoverable=2)
  for problem in [drawn(theorem, 'planted', seed, sizes) for seed in SEEDS] + problems(theorem, 'planted'):
    num_shown = 2 if problem.hmm.num_tokens == 8 else 1
    emissions = problem.exact.hmm.emission_matrix[weighed_by(problem)]
    assert (emissions[:, num_shown, 0] == 1).all()
    assert not np.delete(emissions, num_shown, axis=1)[..., 0].any()
    follows = np.flatnonzero(problem.hmm.transition_matrix[num_shown]).tolist()
    assert set(follows) <= set(range(num_shown)) <= set(recoverable(problem, theorem))


@pytest.mark.parametrize(('theorem', 'family'), [case for case in WITH_MEMORY if case[0] != '4.3'])
def test_unweighed_values_are_off_the_span_of_the_weighed_ones(theorem, family):
  """In some problem of H* what an unweighed value says is no mixture of what weighed ones say."""
  found = 0
  for problem, state in [(p, h) for p in problems(theorem, family) for h in recoverable(p, theorem)]:
    emissions, weighed = problem.exact.hmm.emission_matrix[:, state], weighed_by(problem)
    own = emissions[weighed].T
    found += rank(np.hstack([own, np.delete(emissions, weighed, axis=0).T])) > rank(own)
  assert found


@pytest.mark.parametrize(('theorem', 'family'), ADVERSARIAL)
def test_adversarial_problems_are_where_the_papers_beta_can_fail(theorem, family):
  """Some token has a key score of 5 or more, unweighed values of the memory are likely, and in H* they say it."""
  for problem in problems(theorem, family):
    states, weighed = recoverable(problem, theorem), weighed_by(problem)
    own, others = split(problem, states)
    # The left inverse of Claim C.10, summed over H* and its values.
    projection = np.eye(problem.hmm.num_tokens) - others.astype(float) @ np.linalg.pinv(others.astype(float))
    scores = (np.linalg.pinv(projection @ own.astype(float)) @ projection).sum(0)
    assert scores.max() >= 5
    unweighed = np.setdiff1d(np.arange(problem.hmm.memory_size), weighed)
    held = problem.hmm.memory_probs.sum(tuple(range(1, problem.hmm.num_cells)))
    assert held[unweighed].sum() > 0.5
    said = problem.hmm.emission_matrix[unweighed][:, states, scores.argmax()]
    assert (said > 0.5).all()


def test_families_vary_what_the_theorems_do_not_fix():
  """Over seeds: P[M] with zeros and without, dependent cells, stationary starts and others, |H*| of one and of more."""
  many = [drawn('C.6', 'unplanted', seed) for seed in range(10)]
  assert {bool((p.hmm.memory_probs > 0).all()) for p in many} == {True, False}
  assert {bool(np.allclose(p.silent_probs, p.hmm.initial_probs)) for p in many} == {True, False}
  marginals = [np.multiply.outer(p.hmm.memory_probs.sum(1), p.hmm.memory_probs.sum(0)) for p in many]
  assert any(np.abs(m - p.hmm.memory_probs).max() > 0.01 for m, p in zip(marginals, many))
  sizes = SIZES['4.3']._replace(num_tokens=8)
  assert len({len(recoverable(drawn('4.3', 'unplanted', seed, sizes), '4.3')) for seed in range(10)}) > 1
  assert all(isinstance(drawn(theorem, family), StateProblem) for theorem, family in FAMILIES if theorem[0] == '3')
  assert exactly(many[0]) is many[0].exact
