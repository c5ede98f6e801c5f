"""Where the constructions are refused, and that each is linear in mu."""

from conftest import contradictory_memory
import numpy as np
import pytest
from theory_cases import CONDITIONING, drawn, EXACT, FAMILIES, LIMITS, problem_of

from hmm_jax.theory.theorems import assumptions, theorems
from hmm_jax.theory.theorems.assumptions import AssumptionError

T = 3


def construct(theorem, problem, length=T):
  return theorems.construct(theorem, problem, length, LIMITS)


def refusal(theorem, problem):
  with pytest.raises(AssumptionError) as error:
    construct(theorem, problem)
  assert not error.value.finding.holds and error.value.finding.reason in str(error.value)
  return error.value.finding


@pytest.mark.parametrize('theorem', ['3.3', '3.6'])
def test_a_periodic_chain_is_refused_by_the_theorems_of_section_3(theorem):
  """Assumption 3.2, with the period in the finding."""
  problem = problem_of(theorem, 0)
  num_states = problem.hmm.num_states
  cycle = np.roll(np.eye(num_states), 1, axis=1)
  problem = problem._replace(
    hmm=problem.hmm._replace(transition_matrix=cycle, initial_probs=np.full(num_states, 1 / num_states))
  )
  if theorem == '3.6':
    # On a cycle a cover of one state is easily had, so that only regularity fails.
    problem = problem._replace(task_weights=np.eye(num_states)[:2] * [[1], [0]])
  finding = refusal(theorem, problem)
  assert finding.statement == 'Assumption 3.2'
  assert finding.witness['period'] == num_states


@pytest.mark.parametrize('theorem', ['3.3', '3.6'])
@pytest.mark.parametrize('where', ['silent_probs', 'initial_probs'])
def test_both_first_laws_need_full_support(theorem, where):
  """A state that P[H_0] or the model's P[H_1] lacks is refused, and named: the construction divides by both."""
  problem = problem_of(theorem, 0)
  law = np.array(problem.silent_probs)
  law[1] = 0
  law = law / law.sum()
  replaced = problem._replace(silent_probs=law)
  if where == 'initial_probs':
    replaced = problem._replace(hmm=problem.hmm._replace(initial_probs=law))
  finding = refusal(theorem, replaced)
  assert finding.statement == 'Assumption 3.2' and finding.witness['states_without_start'].tolist() == [1]


def test_dependent_columns_are_refused():
  """Theorem 3.3 without 3.1; 3.6 where two weighted states speak alike; 4.3 and 4.6 where two values show alike."""
  problem = problem_of('3.3', 0)
  emission_matrix = np.array(problem.hmm.emission_matrix)
  emission_matrix[1] = emission_matrix[0]
  alike = problem._replace(hmm=problem.hmm._replace(emission_matrix=emission_matrix))
  assert refusal('3.3', alike).statement == 'Assumption 3.1'
  alike = alike._replace(task_weights=np.array([[1.0, -1.0, 0], [0, 0, 0]]))
  assert refusal('3.6', alike).statement == 'Assumption 3.5'
  problem = contradictory_memory()
  emission_matrix = np.array(problem.hmm.emission_matrix)
  emission_matrix[1] = emission_matrix[0]
  alike = problem._replace(hmm=problem.hmm._replace(emission_matrix=emission_matrix))
  assert refusal('4.3', alike).statement == 'Assumption 4.2'
  assert refusal('4.6', alike).statement == 'Assumption 4.5'
  two_cells = problem_of('4.6', 2, num_cells=2)
  emission_matrix = np.array(two_cells.hmm.emission_matrix)
  emission_matrix[:] = emission_matrix[0]
  alike = two_cells._replace(hmm=two_cells.hmm._replace(emission_matrix=emission_matrix))
  assert refusal('4.6', alike).statement == 'Assumption C.5'


def test_a_start_that_is_not_stationary_is_refused_by_theorem_4_6():
  """Within its tolerance, unless what comes before it is known; theorem 4.3 does not ask it."""
  problem = problem_of('4.6', 0)
  even = np.full(4, 0.25)
  moved = problem._replace(hmm=problem.hmm._replace(initial_probs=even), silent_probs=even)
  finding = refusal('4.6', moved)
  assert finding.statement == 'Assumption 4.4 relaxed' and finding.closeness['start_error'] > 0.01
  after = problem.hmm._replace(initial_probs=even @ problem.hmm.transition_matrix)
  assert not assumptions.stationarity(after, EXACT, LIMITS.tolerance).holds
  construct('4.6', problem._replace(hmm=after, silent_probs=even))
  problem = problem_of('4.3', 0)
  moved = problem._replace(hmm=problem.hmm._replace(initial_probs=np.full(4, 0.25)))
  assert not assumptions.stationarity(moved.hmm, EXACT, LIMITS.tolerance).holds
  construct('4.3', moved)


@pytest.mark.parametrize('theorem', ['3.3', '3.6', '4.3', '4.6'])
def test_a_task_that_labels_nothing_is_refused(theorem):
  """Equal rows of mu raise ValueError in every theorem."""
  problem = problem_of(theorem, 0)
  with pytest.raises(ValueError, match='equal rows'):
    construct(theorem, problem._replace(task_weights=np.ones_like(problem.task_weights)))


# Linearity.


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_constructions_are_linear_in_mu(theorem, family):
  """The head of mu is that of the identity on what is recovered, times mu; the prompt and all else do not change."""
  problem = drawn(theorem, family)
  found = theorems.finding(theorems.ON_EMISSIONS[theorem], problem, LIMITS)
  program = theorems.program(theorem, problem, T, LIMITS)
  mu = assumptions.contrasts(problem.task_weights)[:, program.recovered]
  built = construct(theorem, problem)
  np.testing.assert_array_equal(built.get('prompt', program.prompt), program.prompt)
  if theorem[0] == '3':
    np.testing.assert_allclose(built['head'].weights, program.head.weights[:, :-1] @ mu.T, atol=1e-10)
  else:
    np.testing.assert_allclose(built['head'].output, program.head.output[:, :-1] @ mu.T, atol=1e-12)
    for name in ('query', 'key_weights', 'positions', 'value_weights', 'token_embeddings', 'prompt_embeddings'):
      np.testing.assert_array_equal(getattr(built['head'], name), getattr(program.head, name))
  assert found.holds and found.closeness['smallest_singular_value'] >= CONDITIONING


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_what_is_recovered_is_what_mu_can_weigh(theorem, family):
  """All states, H* with supp(mu) in it, the whole memory, supp(mu); and the last column of a program is 0."""
  problem = drawn(theorem, family)
  program = theorems.program(theorem, problem, T, LIMITS)
  weighed = assumptions.weighted_states(problem.task_weights).tolist()
  recovered = program.recovered.tolist()
  assert set(weighed) <= set(recovered) and sorted(recovered) == recovered
  size = problem.task_weights.shape[1]
  assert recovered == {'3.3': list(range(size)), '4.3': list(range(size))}.get(theorem, recovered)
  assert theorem not in ('4.6', 'C.6') or recovered == weighed
  last = program.head.weights if theorem[0] == '3' else program.head.output
  assert last.shape[-1] == len(recovered) + 1 and not last[:, -1].any()


def test_a_program_needs_what_its_theorem_assumes():
  """AssumptionError names the assumption, as `construct` does."""
  problem = drawn('3.6')
  with pytest.raises(AssumptionError, match='Assumption 3.1 fails'):
    theorems.program('3.3', problem, T, LIMITS)
  with pytest.raises(AssumptionError, match='Assumption 4.2 fails'):
    theorems.program('4.3', contradictory_memory(), T, LIMITS)
