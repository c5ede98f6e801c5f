"""The theorems by name: what each assumes, what it builds, and what it recovers."""

from typing import Any, NamedTuple

import numpy as np

from hmm_jax.theory import assumptions, recovery
from hmm_jax.theory.assumptions import Finding, Thresholds
from hmm_jax.theory.problem import StateProblem
from hmm_jax.theory.recovery import Construction

# Each theorem's assumption on W; C.6 is 4.6 with several cells, and its assumption is called C.5.
ON_EMISSIONS = {'3.3': '3.1', '3.6': '3.5', '4.3': '4.2', '4.6': '4.5', 'C.6': '4.5'}


class Criteria(NamedTuple):
  """Thresholds and limits by which assumptions are decided.

  Attributes:
    thresholds: what counts as zero.
    tolerance: of equal laws, absolute.
    max_nodes: of the search for H* in Assumption 3.5.

  >>> Criteria(Thresholds(support=0.0, rank=1e-9), tolerance=1e-9, max_nodes=1000).thresholds.rank
  1e-09
  """

  thresholds: Thresholds
  tolerance: float
  max_nodes: int


class Program(NamedTuple):
  """A theorem as a program for one problem.

  Attributes:
    finding: of its assumption on W.
    recovered: [K], what it recovers: all states, H*, all values of the memory, supp(mu).
    prompt: [P, E], with no row if the theorem has no prompt.
    head: with a column for each of `recovered`, and one of zeros.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> criteria = Criteria(Thresholds(support=0.0, rank=1e-9), tolerance=1e-9, max_nodes=1000)
  >>> built = program('3.6', head_fails_prompt_succeeds(), 4, criteria)
  >>> built.finding.statement, built.prompt.shape
  ('Assumption 3.5', (1, 3))
  """

  finding: Finding
  recovered: np.ndarray
  prompt: np.ndarray
  head: Any


def finding(assumption: str, problem: Any, criteria: Criteria) -> Finding:
  """Decide the assumption 3.1, 3.2, 3.5, 4.2, 4.4 or 4.5, or `start`, which Theorem 4.6 needs in place of 4.4."""
  hmm, mu, thresholds = problem.hmm, problem.task_weights, criteria.thresholds
  match assumption:
    case '3.1':
      return assumptions.non_degeneracy(hmm, thresholds)
    case '3.2' if isinstance(problem, StateProblem):
      return recovery.regularity(hmm, problem.silent_probs, thresholds)
    case '3.2':
      return assumptions.regularity(hmm, thresholds)
    case '3.5':
      return assumptions.relaxed_non_degeneracy(hmm, mu, thresholds, criteria.max_nodes)
    case '4.2':
      return assumptions.recoverable_hidden_states(hmm, problem.cell, thresholds)
    case '4.4':
      return assumptions.stationarity(hmm, thresholds, criteria.tolerance)
    case 'start':
      return assumptions.silent_start(hmm, problem.silent_probs, thresholds, criteria.tolerance)
  return assumptions.relaxed_recoverable_hidden_states(hmm, problem.cell, mu, thresholds)


def construct(theorem: str, problem: Any, length: int, criteria: Criteria) -> Construction:
  """The prompt and the head of the theorem for texts of length T; raises AssumptionError."""
  hmm, mu, thresholds = problem.hmm, problem.task_weights, criteria.thresholds
  match theorem:
    case '3.3':
      return recovery.theorem_3_3(hmm, mu, problem.silent_probs, thresholds)
    case '3.6':
      return recovery.theorem_3_6(hmm, mu, problem.silent_probs, thresholds, criteria.max_nodes)
    case '4.3':
      return recovery.theorem_4_3(hmm, mu, problem.cell, length, thresholds)
  return recovery.theorem_4_6(hmm, mu, problem.silent_probs, problem.cell, length, thresholds, criteria.tolerance)


def program(theorem: str, problem: Any, length: int, criteria: Criteria) -> Program:
  """The theorem as a program for texts of length T: its construction, with mu the identity on what it recovers.

  On every text in the theorem's region, scores of the head on the exact model behind the prompt are the posterior of
  what is recovered, up to a positive factor; `--config=theory` checks this.

  Args:
    theorem: '3.3', '3.6', '4.3', '4.6', or 'C.6', which is 4.6 with several cells.
    problem: a `StateProblem` for 3.3 and 3.6, otherwise a `MemoryProblem`.
    length: T, the prompt not counted.
    criteria: thresholds by which its assumption is decided.

  Raises:
    AssumptionError: an assumption of the theorem fails.
    ValueError: another theorem.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> criteria = Criteria(Thresholds(support=0.0, rank=1e-9), tolerance=1e-9, max_nodes=1000)
  >>> built = program('3.6', head_fails_prompt_succeeds(), 4, criteria)
  >>> built.recovered.tolist(), built.prompt.tolist()  # praise and complaint; irony came before
  ([0, 1], [[0.0, 0.0, 1.0]])

  Theorem 4.6 for two values of a memory, on texts of 5 tokens:

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> built = program('4.6', head_fails_attention_succeeds(), 5, criteria)
  >>> built.recovered.tolist(), built.prompt.shape, built.head.positions[:2, -1].tolist()  # beta; -2 can fail
  ([0, 1], (1, 6), [-2.0, 0.0])
  """
  if theorem not in ON_EMISSIONS:
    raise ValueError(f'theorem is {theorem!r}; valid are {", ".join(ON_EMISSIONS)}')
  on_emissions = finding(ON_EMISSIONS[theorem], problem, criteria)
  recovery.require(on_emissions)
  # Of a memory the witness has values; of states those of H*, unless the theorem is of all.
  witness, all_states = on_emissions.witness, np.arange(problem.hmm.num_states)
  recovered = witness.get('memory_values', witness.get('essential_states', all_states))
  # A class for each of them, and one of zeros that these are relative to.
  weights = np.pad(np.eye(problem.task_weights.shape[1])[recovered], ((0, 1), (0, 0)))
  built = construct(theorem, problem._replace(task_weights=weights), length, criteria)
  no_prompt = np.zeros((0, problem.hmm.joint_initial_probs.size))
  return Program(on_emissions, recovered, built.get('prompt', no_prompt), built['head'])
