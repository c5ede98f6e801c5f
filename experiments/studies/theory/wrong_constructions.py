"""Wrong constructions of the theorems, each by one slip, which a verification that has teeth must see.

Most are the right construction of a wrong input. All are of `identity_weights`, as the programs beside which they are
put.
"""

from typing import Any

import numpy as np

from hmm_jax.theory.exact.problem import MemoryProblem
from hmm_jax.theory.theorems import recovery
from hmm_jax.theory.theorems.theorems import identity_weights, Limits, Program


def wrong_constructions(
  theorem: str, problem: Any, program: Program, length: int, limits: Limits
) -> dict[str, Program]:
  """The wrong constructions for a theorem's problem, by what is wrong with them."""
  prompts = _wrong_prompts(problem, program) if len(program.prompt) else {}
  match theorem:
    case '3.3':
      weights = _wrong_weights_3_3(problem, program, limits)
    case '3.6':
      weights = _wrong_weights_3_6(problem, program)
    case _:
      return _wrong_attention(problem, program, length) | prompts
  heads = {name: program.head._replace(weights=wrong) for name, wrong in weights.items()}
  return prompts | {name: program._replace(head=head) for name, head in heads.items()}


def _wrong_weights_3_3(problem: Any, program: Program, limits: Limits) -> dict[str, np.ndarray]:
  hmm, silent_probs, weights = problem.hmm, problem.silent_probs, program.head.weights
  mu = identity_weights(hmm.num_states, program.recovered)
  built = lambda chain, silent: recovery.theorem_3_3(chain, mu, silent, limits.thresholds)['head'].weights
  # The two tokens whose rows differ most.
  distances = np.linalg.norm(weights[:, None] - weights, axis=-1)
  first, second = np.unravel_index(distances.argmax(), distances.shape)
  swapped = weights.copy()
  swapped[[first, second]] = weights[[second, first]]
  return {
    'D dropped': built(hmm, hmm.initial_probs),
    'D inverted': built(hmm._replace(initial_probs=silent_probs), hmm.initial_probs),
    'two columns of W^+ swapped': swapped,
    'W^T in place of W^+': np.pad(hmm.emission_matrix.T * (silent_probs / hmm.initial_probs), ((0, 0), (0, 1))),
  }


def _wrong_weights_3_6(problem: Any, program: Program) -> dict[str, np.ndarray]:
  hmm, essential = problem.hmm, program.recovered
  W = hmm.emission_matrix.T
  reached = (program.prompt[0] * hmm.initial_probs) @ hmm.transition_matrix
  scale = problem.silent_probs[essential] / reached[essential]
  one_short = scale[1:, None] * np.linalg.pinv(W[:, essential[1:]])
  all_states = scale[:, None] * np.linalg.pinv(W)[essential]
  return {
    'H* one state short': np.pad(one_short.T, ((0, 0), (1, 1))),
    'W^+ of all states': np.pad(all_states.T, ((0, 0), (0, 1))),
    'P[H_0] / A(u * P[H_1]) dropped': program.head.weights / np.append(scale, 1),
  }


def _wrong_attention(problem: Any, program: Program, length: int) -> dict[str, Program]:
  """Changes of keys and values, with a prompt or without, and of the bias at the prompt."""
  hmm, head = problem.hmm, program.head
  states, values = program.finding.witness['recoverable_states'], program.finding.witness['memory_values']
  one_short = head.query.copy()
  one_short[states[0]] = 0
  W = np.moveaxis(hmm.emission_matrix, -1, 0)
  own = W[:, values][:, :, states].reshape(hmm.num_tokens, -1)
  not_off_others = head.key_weights.copy()
  not_off_others[states] = np.linalg.pinv(own).reshape(len(values), len(states), -1).sum(0)
  negated = head.token_embeddings.copy()
  negated[1] *= -1
  last_bias = head.positions.copy()
  # A preference for the earlier of two positions that tie, far below what tells positions apart.
  last_bias[len(program.prompt) :, -1] -= 1e-7 * np.arange(length)
  plain_query = head.query.copy()
  plain_query[-1] = 1
  at_prompt = lambda bias: head._replace(positions=np.where(head.positions < 0, bias, head.positions))
  heads = {
    'argmax without ties': head._replace(positions=last_bias, query=plain_query),
    'attention to every position': head._replace(query=np.zeros_like(head.query)),
    'q one state of H* short': head._replace(query=one_short),
    'keys not off V-bar': head._replace(key_weights=not_off_others),
    'token embeddings dropped': head._replace(token_embeddings=np.ones_like(head.token_embeddings)),
    'an r_x that changes sign': head._replace(token_embeddings=negated),
    **({'beta -2': at_prompt(-2.0), 'beta 0': at_prompt(0.0)} if len(program.prompt) else {}),
  }
  return {name: program._replace(head=wrong) for name, wrong in heads.items()}


def _wrong_prompts(problem: Any, program: Program) -> dict[str, Program]:
  hmm, prompt = problem.hmm, program.prompt
  prompts = {'prompt complemented': 1 - prompt, 'no prompt': np.ones_like(prompt)}
  if isinstance(problem, MemoryProblem):
    prompts['prompt not scaled by P[H_0] / P[H_1]'] = (prompt > 0).astype(float)
    if hmm.num_cells > 1:
      by_cell = prompt.reshape(*hmm.memory_probs.shape, hmm.num_states)
      prompts['prompt on another cell'] = np.swapaxes(by_cell, 0, 1).reshape(prompt.shape)
  return {name: program._replace(prompt=wrong) for name, wrong in prompts.items()}
