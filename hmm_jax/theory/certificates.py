"""Proofs that no linear head is right on the texts of a problem, confirmed without any rounding."""

from typing import NamedTuple

import numpy as np

from hmm_jax._support.rational.algebra import as_integers
from hmm_jax._support.rational.chain import following, integer_chain
from hmm_jax.theory import enumeration
from hmm_jax.theory.enumeration import Texts
from hmm_jax.theory.problem import StateProblem
from hmm_jax.tuning import separability
from hmm_jax.tuning.separability import Separation

# The largest pairs^2 H T of a certificate to confirm, some seconds' work: exact numbers grow.
_LARGEST_PROOF = 20_000
# Proofs tried at each size: one too large for exact arithmetic often has a smaller one beside it.
_MAX_PROOFS = 4


class Decision(NamedTuple):
  """Outcome of the search for a linear head on texts.

  Attributes:
    texts: all possible ones but near ties, likeliest first.
    near_ties: the probability of these.
    outcome: 'constant' (all labels are one), 'separable' (a head is right on all), 'certified' (none is, by exact
      arithmetic) or 'undecided'.
    proof: of a certified problem, its pairs by the number of the text; None otherwise.
    least_error: of a certified problem a lower bound on the error probability of every linear head. Each gets a text of
      the proof wrong, at best the least likely one.
  """

  texts: Texts
  near_ties: float
  outcome: str
  proof: Separation | None = None
  least_error: float | None = None


def decide(problem: StateProblem, length: int, margin: float) -> Decision:
  """Search for a linear head that gives the label of every text of one length, or a proof that there is none.

  Likely texts come first, so that a proof uses texts as likely as possible. If a proof is not confirmed, its least
  likely text is dropped and the search goes on: a proof on some texts is one on all.

  Args:
    problem: the model's chain, and the task.
    length: T.
    margin: texts whose gap is at most this are near ties, and a head's margins up to this count as none, in coordinates
      in which the texts' G have unit covariance.
  """
  possible = enumeration.possible_texts(problem, length)
  is_clear = possible.gaps > margin
  texts, near_ties = Texts(*(field[is_clear] for field in possible)), float(possible.probs[~is_clear].sum())
  num_classes = len(problem.task_weights)
  if len(set(texts.labels)) < 2:
    return Decision(texts, near_ties, 'constant')
  to_coordinates = separability.whitening(texts.features)
  coordinates = texts.features @ to_coordinates
  # 2, 4, 8, ... texts, then all.
  most = len(texts.labels)
  for size in (*2 ** np.arange(1, (most - 1).bit_length()), most):
    kept = np.arange(size)
    for _ in range(_MAX_PROOFS):
      proof = separability.separation_on(kept, coordinates, texts.labels, num_classes, margin)
      if proof.separable:
        break
      if is_exact(problem, texts.tokens, texts.labels, proof):
        return Decision(texts, near_ties, 'certified', proof, float(texts.probs[proof.pairs[:, 0]].min()))
      kept = np.setdiff1d(kept, proof.pairs[:, 0].max())
  is_right = separability.surely_right(texts.features, texts.labels, to_coordinates @ proof.head)
  return Decision(texts, near_ties, 'separable' if is_right.all() else 'undecided')


def is_exact(problem: StateProblem, tokens: np.ndarray, labels: np.ndarray, separation: Separation) -> bool | None:
  """Decide whether labels and weights of a certificate hold for the floats of the HMM; None if it is too large.

  Ties go to the lower class. The weights prove that no head puts every label strictly first. Ties do not help either,
  if a text of the proof has a label that is not the lowest.

  Args:
    problem: the model's chain, and the task that the labels are of.
    tokens: x [n, T]; the head sees G_1 of (MASK, x).
    labels: [n].
    separation: the answer of the linear program on these inputs.
  """
  hmm, silent_probs, task_weights = problem
  if len(separation.pairs) ** 2 * hmm.num_states * tokens.shape[1] > _LARGEST_PROOF:
    return None
  # Up to scale: neither a label nor a proof depends on the scale of a G, and integers are faster.
  chain, silent, mu = integer_chain(hmm), as_integers(silent_probs)[0], as_integers(task_weights)[0]
  inputs = np.unique(separation.pairs[:, 0])
  features = []
  for sequence, label in zip(tokens[inputs].tolist(), labels[inputs]):
    message = following(chain, sequence)
    if (mu @ (silent * message)).argmax() != label:
      return False
    weights = chain.likelihoods @ (chain.start * message)
    features.append(weights // (np.gcd.reduce(weights) or 1))
  pairs = np.stack([np.searchsorted(inputs, separation.pairs[:, 0]), separation.pairs[:, 1]], axis=1)
  return separability.exact_certificate(features, labels[inputs], pairs, len(mu)) is not None
