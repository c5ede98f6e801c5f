"""Wrong constructions of the theorems, each by one slip, which a verification that has teeth must see.

Most are the right construction of a wrong input. All are of `identity_weights`, as the programs beside which they are
put.
"""

from typing import Any, NamedTuple

import numpy as np

from hmm_jax.heads import LinearHead
from hmm_jax.theory.theorems import recovery
from hmm_jax.theory.theorems.theorems import identity_weights, Limits, Program


class Mutant(NamedTuple):
  """Attributes: prompt [P, E]; head."""

  prompt: np.ndarray
  head: Any


def wrong_constructions(theorem: str, problem: Any, program: Program, length: int, limits: Limits) -> dict[str, Mutant]:
  """The wrong constructions for a theorem's problem, by what is wrong with them."""
  match theorem:
    case '3.3':
      return _wrong_3_3(problem, program, limits)
    case '3.6':
      return _wrong_3_6(problem, program)
    case _:
      return _wrong_attention(problem, program, length) | (
        _wrong_prompt(problem, program) if len(program.prompt) else {}
      )


def _wrong_3_3(problem: Any, program: Program, limits: Limits) -> dict[str, Mutant]:
  hmm, silent_probs, weights = problem.hmm, problem.silent_probs, program.head.weights
  mu = identity_weights(hmm.num_states, program.recovered)
  built = lambda chain, silent: recovery.theorem_3_3(chain, mu, silent, limits.thresholds)['head'].weights
  transposed = np.zeros_like(weights)
  transposed[:, :-1] = hmm.emission_matrix.T * (silent_probs / hmm.initial_probs)
  swapped = weights.copy()
  swapped[_most_unlike(weights)] = swapped[_most_unlike(weights)[::-1]]
  found = {
    'D dropped': built(hmm, hmm.initial_probs),
    'D inverted': built(hmm._replace(initial_probs=silent_probs), hmm.initial_probs),
    'two columns of W^+ swapped': swapped,
    'W^T in place of W^+': transposed,
  }
  return {name: Mutant(program.prompt, _linear(wrong)) for name, wrong in found.items()}


def _wrong_3_6(problem: Any, program: Program) -> dict[str, Mutant]:
  hmm, prompt, head, essential = problem.hmm, program.prompt, program.head, program.recovered
  W = hmm.emission_matrix.T
  reached = (prompt[0] * hmm.initial_probs) @ hmm.transition_matrix
  scale = problem.silent_probs[essential] / reached[essential]
  one_short = np.zeros_like(head.weights)
  one_short[:, 1:-1] = (scale[1:, None] * np.linalg.pinv(W[:, essential[1:]])).T
  all_states = np.zeros_like(head.weights)
  all_states[:, :-1] = (scale[:, None] * np.linalg.pinv(W)[essential]).T
  unscaled = head.weights.copy()
  unscaled[:, :-1] /= scale
  return {
    'prompt complemented': Mutant(1 - prompt, head),
    'no prompt': Mutant(np.ones_like(prompt), head),
    'H* one state short': Mutant(prompt, _linear(one_short)),
    'W^+ of all states': Mutant(prompt, _linear(all_states)),
    'P[H_0] / A(u * P[H_1]) dropped': Mutant(prompt, _linear(unscaled)),
  }


def _wrong_attention(problem: Any, program: Program, length: int) -> dict[str, Mutant]:
  """Of the keys and values, with a prompt or without."""
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
  found = {
    'argmax without ties': head._replace(positions=last_bias, query=plain_query),
    'attention to every position': head._replace(query=np.zeros_like(head.query)),
    'q one state of H* short': head._replace(query=one_short),
    'keys not off V-bar': head._replace(key_weights=not_off_others),
    'token embeddings dropped': head._replace(token_embeddings=np.ones_like(head.token_embeddings)),
    'an r_x that changes sign': head._replace(token_embeddings=negated),
  }
  return {name: Mutant(program.prompt, wrong) for name, wrong in found.items()}


def _wrong_prompt(problem: Any, program: Program) -> dict[str, Mutant]:
  hmm, prompt, head = problem.hmm, program.prompt, program.head
  at_prompt = lambda bias: head._replace(positions=np.where(head.positions < 0, bias, head.positions))
  found = {
    'beta -2': Mutant(prompt, at_prompt(-2.0)),
    'beta 0': Mutant(prompt, at_prompt(0.0)),
    'prompt complemented': Mutant(1 - prompt, head),
    'no prompt': Mutant(np.ones_like(prompt), head),
    'prompt not scaled by P[H_0] / P[H_1]': Mutant((prompt > 0).astype(float), head),
  }
  if hmm.num_cells > 1:
    by_cell = prompt.reshape((1,) + hmm.memory_probs.shape + (hmm.num_states,))
    found['prompt on another cell'] = Mutant(np.swapaxes(by_cell, 1, 2).reshape(prompt.shape), head)
  return found


def _most_unlike(weights: np.ndarray) -> list[int]:
  """The two tokens whose rows differ most."""
  distances = np.linalg.norm(weights[:, None] - weights, axis=-1)
  return list(np.unravel_index(distances.argmax(), distances.shape))


def _linear(weights: np.ndarray) -> LinearHead:
  return LinearHead(weights, np.zeros(weights.shape[-1]))
