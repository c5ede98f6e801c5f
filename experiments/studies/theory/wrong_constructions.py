"""Wrong constructions of the theorems, each with one mistake, that verification must detect.

Attention to only one of several positions that tie is no mistake: it changes the factor alone.
"""

from typing import Any

import numpy as np

from hmm_jax.theory.problem import MemoryProblem
from hmm_jax.theory.theorems import Program


def wrong_constructions(theorem: str, problem: Any, program: Program) -> dict[str, Program]:
  """The wrong constructions for a theorem's problem, by what is wrong with them."""
  heads = {'3.3': _heads_3_3, '3.6': _heads_3_6}.get(theorem, _attention_heads)(problem, program)
  prompts = _prompts(problem, program.prompt) if len(program.prompt) else {}
  wrong_heads = {name: program._replace(head=head) for name, head in heads.items()}
  wrong_prompts = {name: program._replace(prompt=prompt) for name, prompt in prompts.items()}
  return wrong_heads | wrong_prompts


def _heads_3_3(problem: Any, program: Program) -> dict[str, Any]:
  """Heads with slips in D or W^+."""
  head, D = program.head, problem.hmm.initial_probs / problem.silent_probs
  transposed = problem.hmm.emission_matrix.T / D
  return {
    'D dropped': head._replace(weights=head.weights * np.append(D, 1)),
    'W^T in place of W^+': head._replace(weights=np.pad(transposed, ((0, 0), (0, 1)))),
  }


def _heads_3_6(problem: Any, program: Program) -> dict[str, Any]:
  """Heads with slips in the columns of W^+ or in their scale."""
  hmm, head, essential = problem.hmm, program.head, program.recovered
  reached = (program.prompt[0] * hmm.initial_probs) @ hmm.transition_matrix
  scale = problem.silent_probs[essential] / reached[essential]
  all_states = np.linalg.pinv(hmm.emission_matrix)[:, essential] * scale
  return {
    'W^+ of all states': head._replace(weights=np.pad(all_states, ((0, 0), (0, 1)))),
    'P[H_0] / A(u * P[H_1]) dropped': head._replace(weights=head.weights / np.append(scale, 1)),
  }


def _attention_heads(problem: Any, program: Program) -> dict[str, Any]:
  """Heads with slips in the query, the keys, the values, or in beta at the prompt."""
  head, witness = program.head, program.finding.witness
  states, values = witness['recoverable_states'], witness['memory_values']
  own_MxHxV = problem.hmm.emission_matrix[values][:, states]
  inverse_VxF = np.linalg.pinv(own_MxHxV.reshape(-1, own_MxHxV.shape[-1]))
  not_off_others = head.key_weights.copy()
  not_off_others[states] = inverse_VxF.T.reshape(own_MxHxV.shape).sum(0)
  wrong = {
    'attention to every position': head._replace(query=np.zeros_like(head.query)),
    'keys not off V-bar': head._replace(key_weights=not_off_others),
    'token embeddings dropped': head._replace(token_embeddings=np.ones_like(head.token_embeddings)),
  }
  if len(program.prompt):
    # That of the first arXiv version.
    wrong['beta -2'] = head._replace(positions=np.where(head.positions < 0, -2, head.positions))
  return wrong


def _prompts(problem: Any, prompt: np.ndarray) -> dict[str, np.ndarray]:
  """Prompts of the shape of the right one, by what is wrong with them."""
  wrong = {'no prompt': np.ones_like(prompt)}
  if isinstance(problem, MemoryProblem):
    wrong['prompt not scaled by P[H_0] / P[H_1]'] = np.sign(prompt)
    if problem.hmm.num_cells == 2:
      by_cell = prompt.reshape(*problem.hmm.memory_probs.shape, -1)
      wrong['prompt on another cell'] = by_cell.swapaxes(0, 1).reshape(prompt.shape)
  return wrong
