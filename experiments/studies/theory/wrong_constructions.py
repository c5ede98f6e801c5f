"""Wrong constructions of the theorems, each with one mistake, that verification must detect.

Attention to only one of several positions that tie is no mistake: it changes the factor alone.
"""

from typing import Any

import numpy as np

from hmm_jax.theory.problem import MemoryProblem, StateProblem
from hmm_jax.theory.recovery import attention_keys
from hmm_jax.theory.theorems import Program


def wrong_constructions(problem: Any, program: Program) -> dict[str, Program]:
  """The wrong constructions for a theorem's problem, by what is wrong with them."""
  parts = _of_states(problem, program) if isinstance(problem, StateProblem) else _of_memory(problem, program)
  if len(program.prompt):
    parts['no prompt'] = {'prompt': np.ones_like(program.prompt)}
  return {name: program._replace(**part) for name, part in parts.items()}


def _of_states(problem: StateProblem, program: Program) -> dict[str, dict[str, Any]]:
  """Heads with slips in the left inverse of W, or without its scale: P[H_0] over the law at the [MASK]."""
  hmm, head, recovered = problem.hmm, program.head, program.recovered
  if len(program.prompt):
    at_mask = (program.prompt[0] * hmm.initial_probs) @ hmm.transition_matrix
    not_inverse, no_scale = 'W^+ of all states', 'P[H_0] / A(u * P[H_1]) dropped'
    slip = np.linalg.pinv(hmm.emission_matrix)[:, recovered]
  else:
    at_mask, slip = hmm.initial_probs, np.transpose(hmm.emission_matrix)
    not_inverse, no_scale = 'W^T in place of W^+', 'D dropped'
  scale = problem.silent_probs[recovered] / at_mask[recovered]
  return {
    not_inverse: {'head': head._replace(weights=np.pad(slip * scale, ((0, 0), (0, 1))))},
    no_scale: {'head': head._replace(weights=head.weights / np.append(scale, 1))},
  }


def _of_memory(problem: MemoryProblem, program: Program) -> dict[str, dict[str, Any]]:
  """Heads with slips in the query, the keys, the values, or in beta at the prompt, and prompts."""
  hmm, head, prompt = problem.hmm, program.head, program.prompt
  # Without emissions of other states, their columns span nothing that the keys must be off.
  is_own = np.isin(np.arange(hmm.num_states), program.finding.witness['recoverable_states'])
  alone = hmm._replace(emission_matrix=hmm.emission_matrix * is_own[:, None])
  keys = attention_keys(alone, problem.cell, program.finding)
  wrong: dict[str, dict[str, Any]] = {
    'attention to every position': {'head': head._replace(query=np.zeros_like(head.query))},
    'keys not off V-bar': {'head': head._replace(key_weights=np.pad(keys, ((0, 1), (0, 0))))},
    'token embeddings dropped': {'head': head._replace(token_embeddings=np.ones_like(head.token_embeddings))},
  }
  if len(prompt):
    # That of the first arXiv version.
    wrong['beta -2'] = {'head': head._replace(positions=np.where(head.positions < 0, -2, head.positions))}
    wrong['prompt not scaled by P[H_0] / P[H_1]'] = {'prompt': np.sign(prompt)}
    if hmm.num_cells == 2:
      by_cell = prompt.reshape(*hmm.memory_probs.shape, -1)
      wrong['prompt on another cell'] = {'prompt': by_cell.swapaxes(0, 1).reshape(prompt.shape)}
  return wrong
