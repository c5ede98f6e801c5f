"""The region R (4.3), and the attention heads of Theorems 4.3 and 4.6, in fractions, to be followed by hand.

Heads are those of a memory of one cell from a stationary start; one state shows the memory, and the others emit the
same whatever it holds.
"""

import numpy as np
import rationals
from theory_cases import exact_posterior

from hmm_jax._support.rational.algebra import left_inverse


def possible_states(problem, joint, text):
  """True where a state is possible at a position given all other tokens, [T, H]; `joint` is its HMM in fractions."""
  rows = rationals.likelihood_rows(joint, text)
  probs = [rationals.state_probs(joint, rows, position, leave_out=True) for position in range(len(text))]
  return np.array(probs).reshape(len(text), -1, problem.hmm.num_states).any(1)


def in_region(problem, joint, states, text):
  """True if the text can occur and some position's state surely lies in H* = `states`."""
  outside = np.delete(possible_states(problem, joint, text), states, axis=1)
  return bool(exact_posterior(problem, joint, text).any() and not outside.any(1).all())


def recovery(problem, values, shows):
  """Theta [n, V]: on W p it gives p at each of n memory values and the state `shows`, by the Moore-Penrose inverse."""
  emissions = problem.hmm.emission_matrix
  others = np.delete(emissions[0], shows, axis=0)
  columns = np.vstack([emissions[values, shows], others]).T
  return left_inverse(columns)[: len(values)]


def read(problem, shows, text, beta=None):
  """The score of the first class relative to the last, the mean of b^T ((Theta^(V) G_i) * e_i) over the largest logits.

  Logits are q^T Theta^(K) G_i + beta_i. The head is that of Theorem 4.6 with `beta` at the prompt, or that of
  Theorem 4.3, which has no prompt.
  """
  hmm, mu = problem.hmm, problem.task_weights[0] - problem.task_weights[-1]
  joint = rationals.exact_hmm(hmm)
  rows = rationals.likelihood_rows(joint, text)
  biases = [0] * len(text)
  values = np.arange(hmm.memory_size) if beta is None else np.flatnonzero(mu)
  embeddings = hmm.emission_matrix[values, shows][:, list(text)].T
  if beta is not None:
    allowed = np.isin(np.arange(hmm.memory_size), values)
    rows = [np.repeat(allowed, hmm.num_states).astype(int), *rows]
    biases = [beta, *biases]
    embeddings = np.vstack([np.ones(len(values), int), embeddings])
  predicted = np.array([rationals.token_probs(joint, rows, position) for position in range(len(rows))])
  recovered = predicted @ recovery(problem, values, shows).T
  logits = recovered.sum(-1) + biases
  return ((recovered * embeddings) @ mu[values])[logits == logits.max()].mean()
