"""Proofs that no linear head is right, confirmed without any rounding."""

import math

import numpy as np

from hmm_jax.theory import rationals, separability
from hmm_jax.theory.structured import StateProblem

# pairs^2 H T up to which a certificate is confirmed, about a minute's work: the numbers of exact arithmetic grow.
_LARGEST_PROOF = 20_000


def is_exact(
  problem: StateProblem, tokens: np.ndarray, labels: np.ndarray, found: separability.Separation
) -> bool | None:
  """Whether labels and weights of a certificate hold for the floats of the HMM; None where it is too large.

  Args:
    problem: the model's chain, and the task that the labels are of.
    tokens: x [n, T], with [MASK] (id V) after the end; the head sees G_1 of (MASK, x).
    labels: [n].
    found: the answer of the linear program on these inputs.
  """
  hmm, silent_probs, task_weights, *_ = problem
  if len(found.pairs) ** 2 * hmm.num_states * tokens.shape[1] > _LARGEST_PROOF:
    return None
  exact, mu, silent = rationals.exact_hmm(hmm), rationals.exact(task_weights), rationals.exact(silent_probs)
  labelled = exact.starting_from(silent / silent.sum())
  inputs = np.unique(found.pairs[:, 0])
  features = []
  for sequence, label in zip(tokens[inputs].tolist(), labels[inputs]):
    rows = rationals.likelihood_rows(exact, [hmm.num_tokens, *sequence])
    scores = mu @ rationals.state_probs(labelled, rows, 0, leave_out=True)
    if any(score >= scores[label] for other, score in enumerate(scores) if other != label):
      return False
    probs = rationals.token_probs(exact, rows, 0)
    # A proof stays one where an input's G is scaled, and integers are quicker.
    features.append(probs * math.lcm(*(value.denominator for value in probs)))
  pairs = np.stack([np.searchsorted(inputs, found.pairs[:, 0]), found.pairs[:, 1]], axis=1)
  return separability.exact_certificate(features, labels[inputs], pairs, len(mu)) is not None
