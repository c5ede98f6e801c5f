"""Wrong constructions of the theorems, each with one mistake, that verification must detect.

Most are the right construction of a wrong input. All use `identity_weights`, as the right programs do.
"""

from typing import Any

import numpy as np

from hmm_jax.theory import recovery
from hmm_jax.theory.problem import MemoryProblem
from hmm_jax.theory.theorems import Criteria, identity_weights, Program

# Changed arrays of a head, by the name of the mistake.
_Slips = dict[str, dict[str, np.ndarray]]


def wrong_constructions(
  theorem: str, problem: Any, program: Program, length: int, criteria: Criteria
) -> dict[str, Program]:
  """The wrong constructions for a theorem's problem, by what is wrong with them."""
  prompts = _wrong_prompts(problem, program.prompt) if len(program.prompt) else {}
  in_prompt = {name: program._replace(prompt=prompt) for name, prompt in prompts.items()}
  match theorem:
    case '3.3':
      slips = _slips_3_3(problem, program, criteria)
    case '3.6':
      slips = _slips_3_6(problem, program)
    case _:
      slips = _slips_of_attention(problem, program, length)
  in_head = {name: program._replace(head=program.head._replace(**arrays)) for name, arrays in slips.items()}
  return in_prompt | in_head if theorem == '3.6' else in_head | in_prompt


def _slips_3_3(problem: Any, program: Program, criteria: Criteria) -> _Slips:
  """Changes of D and of W^+ in the head of Theorem 3.3."""
  hmm, silent_probs, weights = problem.hmm, problem.silent_probs, program.head.weights
  mu = identity_weights(hmm.num_states, program.recovered)
  built = lambda chain, silent: recovery.theorem_3_3(chain, mu, silent, criteria.thresholds)['head'].weights
  # The two tokens whose rows differ most.
  distances = np.linalg.norm(weights[:, None] - weights, axis=-1)
  pair = [*np.unravel_index(distances.argmax(), distances.shape)]
  transposed = hmm.emission_matrix.T * (silent_probs / hmm.initial_probs)
  return {
    'D dropped': {'weights': built(hmm, hmm.initial_probs)},
    'D inverted': {'weights': built(hmm._replace(initial_probs=silent_probs), hmm.initial_probs)},
    'two columns of W^+ swapped': {'weights': _with(weights, pair, weights[pair[::-1]])},
    'W^T in place of W^+': {'weights': np.pad(transposed, ((0, 0), (0, 1)))},
  }


def _slips_3_6(problem: Any, program: Program) -> _Slips:
  """Changes of H* and of its scale in the head of Theorem 3.6."""
  hmm, essential = problem.hmm, program.recovered
  W = hmm.emission_matrix.T
  reached = (program.prompt[0] * hmm.initial_probs) @ hmm.transition_matrix
  scale = problem.silent_probs[essential] / reached[essential]
  one_short = scale[1:, None] * np.linalg.pinv(W[:, essential[1:]])
  all_states = scale[:, None] * np.linalg.pinv(W)[essential]
  return {
    'H* one state short': {'weights': np.pad(one_short.T, ((0, 0), (1, 1)))},
    'W^+ of all states': {'weights': np.pad(all_states.T, ((0, 0), (0, 1)))},
    'P[H_0] / A(u * P[H_1]) dropped': {'weights': program.head.weights / np.append(scale, 1)},
  }


def _slips_of_attention(problem: Any, program: Program, length: int) -> _Slips:
  """Changes of keys and values, with a prompt or without, and of the bias at the prompt."""
  head, witness = program.head, program.finding.witness
  states, values = witness['recoverable_states'], witness['memory_values']
  own = np.moveaxis(problem.hmm.emission_matrix, -1, 0)[:, values][:, :, states]
  not_off_others = np.linalg.pinv(own.reshape(len(own), -1)).reshape(len(values), len(states), -1).sum(0)
  # Prefers the earlier of two positions that tie, by far less than other positions differ.
  later = np.zeros_like(head.positions)
  later[len(program.prompt) :, -1] = 1e-7 * np.arange(length)
  slips = {
    'argmax without ties': {'positions': head.positions - later, 'query': _with(head.query, -1, 1)},
    'attention to every position': {'query': np.zeros_like(head.query)},
    'q one state of H* short': {'query': _with(head.query, states[0], 0)},
    'keys not off V-bar': {'key_weights': _with(head.key_weights, states, not_off_others)},
    'token embeddings dropped': {'token_embeddings': np.ones_like(head.token_embeddings)},
    'an r_x that changes sign': {'token_embeddings': _with(head.token_embeddings, 1, -head.token_embeddings[1])},
  }
  for beta in (-2, 0) if len(program.prompt) else ():
    slips[f'beta {beta}'] = {'positions': np.where(head.positions < 0, beta, head.positions)}
  return slips


def _wrong_prompts(problem: Any, prompt: np.ndarray) -> dict[str, np.ndarray]:
  """Prompts of the shape of the right one, by what is wrong with them."""
  prompts = {'prompt complemented': 1 - prompt, 'no prompt': np.ones_like(prompt)}
  if isinstance(problem, MemoryProblem):
    prompts['prompt not scaled by P[H_0] / P[H_1]'] = (prompt > 0).astype(float)
    if problem.hmm.num_cells > 1:
      by_cell = prompt.reshape(*problem.hmm.memory_probs.shape, problem.hmm.num_states)
      prompts['prompt on another cell'] = np.swapaxes(by_cell, 0, 1).reshape(prompt.shape)
  return prompts


def _with(array: np.ndarray, where: Any, value: Any) -> np.ndarray:
  """A copy with another value there."""
  changed = array.copy()
  changed[where] = value
  return changed
