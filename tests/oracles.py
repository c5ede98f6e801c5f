"""References in plain numpy and float64, which share no line with the library and compile nothing.

Forward-backward by sums of logarithms, whose messages cannot underflow, is the reference of every test of precision;
attention heads are the paper's equations, position by position.
"""

import jax
import numpy as np
import scipy.special

from hmm_jax.inference.posterior import Posterior


def float64(tree):
  """The tree as numpy arrays, every floating-point leaf in float64."""

  def convert(leaf):
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if leaf.dtype.kind == 'f' else leaf

  return jax.tree.map(convert, tree)


def rows_of(distribution, inputs):
  """Likelihood rows [..., T, E] of inputs [..., T], ones where these are [MASK]."""
  columns = np.float64(distribution.joint_emission_matrix).T
  return np.vstack([columns, np.ones((1, columns.shape[1]))])[np.asarray(inputs)]


def log_space_posterior(chain, likelihoods):
  """The `Posterior` of likelihood rows [..., T, E] under a chain, float64.

  The chain is an `HMM`, a `MemoryHMM`, or anything with their `joint_initial_probs` [..., E] and
  `transition_matrix` [..., H, H] (E = C H, where a still part c never moves); leading axes of both are batches, which
  broadcast against each other.
  """
  chain, likelihoods = float64((chain, likelihoods))
  num_moving = chain.transition_matrix.shape[-1]
  by_parts = lambda x: x.reshape(*x.shape[:-1], -1, num_moving)
  with np.errstate(divide='ignore'):
    initial = np.log(by_parts(np.asarray(chain.joint_initial_probs, np.float64)))
    transition = np.log(chain.transition_matrix)[..., None, :, :]
    rows = np.log(np.moveaxis(by_parts(likelihoods), -3, 0))
  shape = np.broadcast_shapes(initial.shape, rows.shape[1:])
  rows = np.broadcast_to(rows, (len(rows), *shape))
  alphas, betas = [np.broadcast_to(initial, shape)], [np.zeros(shape)]
  for row in rows[:-1]:
    alphas.append(np.logaddexp.reduce((alphas[-1] + row)[..., :, None] + transition, -2))
  for row in rows[:0:-1]:
    betas.append(np.logaddexp.reduce(transition + (row + betas[-1])[..., None, :], -1))
  alphas, betas = np.stack(alphas), np.stack(betas[::-1])
  joint = lambda log_weights: np.moveaxis(log_weights.reshape(*log_weights.shape[:-2], -1), 0, -2)

  def normalised(log_weights):
    """Weights [..., T, E] over their sum; zeros where all are zero."""
    with np.errstate(invalid='ignore'):
      return np.nan_to_num(scipy.special.softmax(joint(log_weights), axis=-1))

  return Posterior(
    filtered_probs=normalised(alphas + rows),
    predicted_probs=normalised(alphas),
    smoothed_probs=normalised(alphas + rows + betas),
    leave_one_out_probs=normalised(alphas + betas),
    marginal_loglik=np.logaddexp.reduce(joint(alphas + rows)[..., -1, :], -1),
  )


def log_space_conditional(hmm, likelihoods):
  """The paper's G-bar: row i is P[X_i | X_{-i}], [..., T, V], float64."""
  emission_matrix = np.asarray(float64(hmm).joint_emission_matrix, np.float64)
  return log_space_posterior(hmm, likelihoods).leave_one_out_probs @ emission_matrix


def beliefs_of_paths(T, start, tokens, causal):
  """P[S_t | x_{-t}], or P[S_t | x_{1:t-1}] if causal, [T, S], by the sum over all paths of states; [MASK] is V."""
  matrices, rows = [*T, T.sum(0)], []
  for t in range(len(tokens)):
    seen, paths = tokens.copy(), start
    seen[t : None if causal else t + 1] = len(T)
    for token in seen:
      paths = paths[..., None] * matrices[token]
    weights = paths.sum(tuple({*range(paths.ndim)} - {t}))
    rows.append(weights / (weights.sum() or 1))
  return np.array(rows)


def cells_of(memory_shape, joint):
  """P[M_j = m] of each cell [..., N, M] from probabilities of joint states [..., E]."""
  values_NxC = np.indices(memory_shape).reshape(len(memory_shape), -1)
  is_held_NxMxC = values_NxC[:, None] == np.arange(memory_shape[0])[:, None]
  return np.einsum('...ch,nmc->...nm', joint.reshape(*joint.shape[:-1], values_NxC.shape[1], -1), is_held_NxMxC)


def attention_by_the_paper(head, token_probs, tokens, argmax):
  """The weights of (4.1) and the scores of (4.2) for one sequence, a position at a time."""
  head = float64(head)
  logits = np.array([head.query @ (head.key_weights @ g + beta) for g, beta in zip(token_probs, head.positions)])
  weights = (logits == max(logits)).astype(float) if argmax else np.exp(logits)
  weights = weights / weights.sum()
  embeddings = [*head.prompt_embeddings, *(head.token_embeddings[token] for token in tokens)]
  scores = [
    weight * head.output.T @ (head.value_weights @ g * e) for weight, g, e in zip(weights, token_probs, embeddings)
  ]
  return weights, sum(scores)


def attention_by_the_released_code(head, token_probs):
  """The mean weights and the scores of an `OfficialAttentionHead` for one sequence.

  The probability of each token of the vocabulary is averaged over positions with an attention of its own.
  """
  head, attentions = float64(head), []
  for query, probs in zip(head.query, token_probs.T):
    weights = np.exp(query * probs)
    attentions.append(weights / weights.sum())
  means = (np.array(attentions) * token_probs.T).sum(1)
  return np.mean(attentions, 0), means @ head.linear.weights + head.linear.bias
