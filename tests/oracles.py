"""References in plain numpy and float64, which share no line with the library and compile nothing.

Forward-backward by sums of logarithms, whose messages cannot underflow, is the reference of every test of precision;
attention heads are the paper's equations, position by position.
"""

import jax
import numpy as np

from hmm_jax.inference import Posterior


def float64(tree):
  """The tree as numpy arrays, every floating-point leaf in float64."""

  def convert(leaf):
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if leaf.dtype.kind == 'f' else leaf

  return jax.tree.map(convert, tree)


def _log(x):
  with np.errstate(divide='ignore'):
    return np.log(x)


def _log_sum_exp(x, axis):
  largest = x.max(axis, keepdims=True)
  largest = np.where(np.isfinite(largest), largest, 0)
  return _log(np.exp(x - largest).sum(axis)) + np.squeeze(largest, axis)


def _normalised(log_weights):
  """Weights [..., E] over their sum; zeros where all are zero."""
  largest = log_weights.max(-1, keepdims=True)
  weights = np.exp(log_weights - np.where(np.isfinite(largest), largest, 0))
  return weights / np.maximum(weights.sum(-1, keepdims=True), 1)


def log_space_posterior(chain, likelihoods):
  """The `Posterior` of likelihood rows [..., T, E] under a chain, float64.

  The chain is an `HMM`, a `MemoryHMM`, or anything with their `joint_initial_probs` [..., E] and
  `transition_matrix` [..., H, H] (E = C H, where a still part c never moves); leading axes of both are batches, which
  broadcast against each other.
  """
  chain, likelihoods = float64((chain, likelihoods))
  initial, transition = np.asarray(chain.joint_initial_probs, np.float64), _log(chain.transition_matrix)
  num_moving = transition.shape[-1]
  batch_shape = np.broadcast_shapes(initial.shape[:-1], transition.shape[:-2], likelihoods.shape[:-2])
  by_parts = lambda x: x.reshape(x.shape[:-1] + (-1, num_moving))
  initial, transition = by_parts(_log(initial)), transition[..., None, :, :]
  likelihoods = np.broadcast_to(likelihoods, batch_shape + likelihoods.shape[-2:])
  rows = np.moveaxis(by_parts(_log(likelihoods)), -3, 0)
  alphas = [np.broadcast_to(initial, batch_shape + initial.shape[-2:])]
  for row in rows[:-1]:
    alphas.append(_log_sum_exp((alphas[-1] + row)[..., :, None] + transition, -2))
  betas = [np.zeros_like(alphas[0])]
  for row in rows[:0:-1]:
    betas.append(_log_sum_exp(transition + (row + betas[-1])[..., None, :], -1))
  alphas, betas = np.stack(alphas), np.stack(betas[::-1])
  joint = lambda log_weights: _normalised(np.moveaxis(log_weights.reshape(log_weights.shape[:-2] + (-1,)), 0, -2))
  last = alphas[-1] + rows[-1]
  return Posterior(
    filtered_probs=joint(alphas + rows),
    predicted_probs=joint(alphas),
    smoothed_probs=joint(alphas + rows + betas),
    leave_one_out_probs=joint(alphas + betas),
    marginal_loglik=_log_sum_exp(last.reshape(batch_shape + (-1,)), -1),
  )


def log_space_conditional(hmm, likelihoods):
  """The paper's G-bar: row i is P[X_i | X_{-i}], [..., T, V], float64."""
  emission_matrix = np.asarray(float64(hmm).joint_emission_matrix, np.float64)
  return log_space_posterior(hmm, likelihoods).leave_one_out_probs @ emission_matrix


def cells_of(memory_shape, joint, xp=np):
  """P[M_j = m] of each cell [..., N, M] from probabilities of joint states [..., E]; `xp=jnp` for derivatives."""
  values_NxC = np.indices(memory_shape).reshape(len(memory_shape), -1)
  is_held_NxMxC = values_NxC[:, None] == np.arange(memory_shape[0])[:, None]
  return xp.einsum('...ch,nmc->...nm', joint.reshape(*joint.shape[:-1], values_NxC.shape[1], -1), is_held_NxMxC)


def attention_by_the_paper(head, token_probs, tokens, temperature):
  """The weights of (4.1) and the scores of (4.2) for one sequence, a position and a class at a time."""
  head = float64(head)
  logits = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(token_probs, head.positions, strict=True)]
  if temperature:
    weights = np.exp((np.array(logits) - max(logits)) / temperature)
  else:
    weights = np.array([float(logit == max(logits)) for logit in logits])
  weights = weights / weights.sum()
  embeddings = [*head.prompt_embeddings, *(head.token_embeddings[token] for token in tokens)]
  scores = np.zeros(head.output.shape[1])
  for weight, g, embedding in zip(weights, token_probs, embeddings, strict=True):
    for c, b in enumerate(head.output.T):
      scores[c] += weight * (b @ ((head.value_weights @ g) * embedding))
  return weights, scores


def attention_by_the_released_code(head, token_probs):
  """The mean weights and the scores of an `OfficialAttentionHead` for one sequence.

  The probability of each token of the vocabulary is averaged over positions with an attention of its own.
  """
  head, num_tokens = float64(head), token_probs.shape[1]
  means, attentions = np.zeros(num_tokens), np.zeros(token_probs.shape[::-1])
  for v in range(num_tokens):
    logits = np.exp(head.query[v] * token_probs[:, v])
    attentions[v] = logits / logits.sum()
    means[v] = attentions[v] @ token_probs[:, v]
  return attentions.mean(0), means @ head.linear.weights + head.linear.bias
