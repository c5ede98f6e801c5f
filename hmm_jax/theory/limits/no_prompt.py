"""Proofs that no prompt of any length with a linear head is right on given inputs: docs/findings/theory.md.

Behind any prompt, or none, the masked state has some law f >= 0, and for two classes the difference b of their heads
scores b^T G, in proportion to sum_h a_h lambda_h(x), a = (W^T b) * f. Wherever a is not 0 it has the signs s of W^T b,
a sign pattern of the row space of W. Suppose that for every such s weights m >= 0 of inputs x of classes y_x = 1 or -1
exist with s_h sum_x m_x y_x lambda_h(x) <= 0 for all h. Then no a of those signs is right on all x (Farkas): the sum
over h of that times |a_h| would have to be positive.

A text that the prompt makes impossible has G = 0 and always the same label. So the inputs of a proof are texts that
every state can produce: a prompt leaves all of them possible or none.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax.float64 import float64
from hmm_jax.hmm import HMM
from hmm_jax.theory.exact import chain as chain_lib
from hmm_jax.theory.exact.algebra import exact, exact_rows
from hmm_jax.theory.exact.chain import ExactChain
from hmm_jax.theory.limits import separability
from hmm_jax.theory.limits.constant_prompt import likelihoods
from hmm_jax.theory.limits.separability import Separation
from hmm_jax.theory.theorems.assumptions import contrasts

# Margins, in units of rows scaled to a largest entry of 1, up to which a program's answer may be a tie.
_TOLERANCE = 1e-9
# Weights below this share of the largest are left out of a proof.
_NEGLIGIBLE = 1e-7


class Refutation(NamedTuple):
  """A proof that no coefficients of one sign pattern are right.

  Attributes:
    signs: s [H], of 1 and -1.
    inputs: [k], rows of the tokens.
    weights: m [k] positive `Fraction`s, of likelihoods of largest entry 1.
  """

  signs: np.ndarray
  inputs: np.ndarray
  weights: list[Fraction]


class NoPrompt(NamedTuple):
  """Outcome for all prompts with a linear head on given inputs.

  Attributes:
    outcome: 'certified', none is right, in exact arithmetic; 'open', no such proof exists, since a head is right behind
      some law of the masked state, which is a prompt where it is some A w; or 'undecided'.
    classes: the two classes of the outcome, the lower first.
    refutations: one for each sign pattern, of a proof.
    law: if open, f [H] of sum 1.
    head: if open, b [V], the score of the lower class minus that of the other, right on all inputs of both that every
      state can produce.
  """

  outcome: str
  classes: tuple[int, int] | None = None
  refutations: tuple[Refutation, ...] = ()
  law: np.ndarray | None = None
  head: np.ndarray | None = None


class _Inputs(NamedTuple):
  """Inputs of two classes that every state can produce.

  Attributes:
    numbers: [k], among all inputs.
    tokens: [k, T].
    likelihoods: [k, H], lambda(x) of largest entry 1.
    targets: y [k].
  """

  numbers: np.ndarray
  tokens: np.ndarray
  likelihoods: np.ndarray
  targets: np.ndarray


def no_prompt(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, tokens: np.ndarray, max_states: int
) -> NoPrompt:
  """Look for a proof that no prompt of any length with a linear head, and a bias, gives all inputs their label.

  Labels are argmax_c mu_c @ P[H_0 | X_{1:T} = x], ties to the lower class, and so are the head's. Where the signs of v
  = mu * P[H_0] are those of some W^T b, a = v is right, and there is nothing to prove.

  Args:
    hmm: the model's chain, H states and V tokens; floats are exact rationals.
    task_weights: mu [C, H].
    silent_probs: P[H_0] [H]; P[H_1] for a label of the masked first state itself.
    tokens: x [n, T], the texts after the [MASK].
    max_states: the largest H for which all sign patterns are examined.

  >>> from hmm_jax.theory.problems.counterexamples import head_fails_prompt_succeeds
  >>> task, texts = head_fails_prompt_succeeds(), np.array([[0, 0], [0, 1], [1, 1]])
  >>> no_prompt(task.hmm, task.task_weights, task.silent_probs, texts, max_states=8).outcome
  'open'
  """
  tokens, weights = np.asarray(tokens), contrasts(task_weights)
  v = weights * float64(silent_probs)
  lambda_nxH = likelihoods(hmm, tokens)
  labels = (lambda_nxH @ v.T).argmax(1)
  supports = hmm._replace(transition_matrix=hmm.transition_matrix > 0, emission_matrix=hmm.emission_matrix > 0)
  # Texts that every state can produce, by supports: products of small probabilities may underflow.
  is_usable = likelihoods(supports, tokens).all(1)
  outcomes = []
  for pair in itertools.combinations(np.unique(labels).tolist(), 2):
    numbers = np.flatnonzero(np.isin(labels, pair) & is_usable)
    inputs = _Inputs(numbers, tokens[numbers], lambda_nxH[numbers], np.where(labels[numbers] == pair[0], 1, -1))
    found = _two_class_proof(hmm, inputs, v[pair[0]] - v[pair[1]], max_states)
    if found.outcome == 'certified' and not _have_labels(hmm, task_weights, silent_probs, tokens, labels, found):
      # Labels of a proof are too near to ties for float64.
      found = NoPrompt('undecided')
    found = found._replace(classes=pair)
    if found.outcome == 'certified':
      return found
    outcomes.append(found)
  if not outcomes:
    # All inputs have one label, which a constant head gives.
    return NoPrompt('open')
  return next((found for found in outcomes if found.outcome == 'undecided'), outcomes[0])


def _two_class_proof(hmm: HMM, inputs: _Inputs, v: np.ndarray, max_states: int) -> NoPrompt:
  W_HxV, weighed = float64(hmm.emission_matrix), np.flatnonzero(v)
  of_task = _separation(W_HxV[weighed], v[weighed])
  if of_task.separable:
    return _open(W_HxV, of_task, v)
  # There is nothing to prove where the inputs that every state can produce have one label.
  if hmm.num_states > max_states or len(np.unique(inputs.targets)) < 2:
    return NoPrompt('undecided')
  chain, refutations = chain_lib.exact_chain(hmm), list[Refutation]()
  for signs in _patterns(W_HxV, chain):
    margin, sizes, weights = _game(inputs, signs)
    if margin > _TOLERANCE:
      found = _separation(W_HxV, signs)
      return _open(W_HxV, found, signs * sizes) if found.separable else NoPrompt('undecided')
    refutation = _refutation(chain, inputs, signs, weights)
    if refutation is None:
      # The answer is within rounding.
      return NoPrompt('undecided')
    refutations.append(refutation)
  return NoPrompt('certified', None, tuple(refutations))


def _open(W_HxV: np.ndarray, found: Separation, coefficients: np.ndarray) -> NoPrompt:
  """The open outcome with a = (W^T b) * f for the b that was found, which has the signs of a."""
  head = found.head[:, 0] - found.head[:, 1]
  law = np.where(coefficients, coefficients / np.where(coefficients, W_HxV @ head, 1), 0)
  return NoPrompt('open', law=law / law.sum(), head=head)


def _patterns(W_HxV: np.ndarray, chain: ExactChain) -> Iterator[np.ndarray]:
  """A superset of the sign patterns [H] of W^T b without zeros: all patterns but those that are proven impossible.

  Patterns with zeros follow by continuity: they are in the closure of others, since no column of W is 0.
  """
  prefixes = [np.array([1]), np.array([-1])]
  while prefixes:
    signs = prefixes.pop()
    found = _separation(W_HxV[: len(signs)], signs)
    if not found.separable:
      # The columns of W that the signs are of, as points of two classes.
      columns, labels = chain.emissions[0, : len(signs)], (signs < 0).astype(int)
      if separability.exact_certificate(columns, labels, found.pairs, 2) is not None:
        continue
    if len(signs) == len(W_HxV):
      yield signs
    else:
      prefixes += [np.append(signs, sign) for sign in (1, -1)]


def _separation(W_HxV: np.ndarray, signs: np.ndarray) -> Separation:
  """Decide whether some b has these signs on the columns of W, that is, separates them as points of two classes."""
  return separability.linear_separation(W_HxV, (signs < 0).astype(int), 2, _TOLERANCE)


def _game(inputs: _Inputs, signs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
  """The zero-sum game of |a| against m: its value, |a| [H], and m [k] of sum 1.

  The value is max_|a| min_x y_x sum_h s_h |a_h| lambda_h(x), each lambda_h scaled to a largest entry of 1 and |a| then
  to sum 1; m proves that it is the maximum.
  """
  scales = inputs.likelihoods.max(0)
  scales = np.where(scales > 0, scales, 1)
  payoffs = inputs.targets[:, None] * signs * inputs.likelihoods / scales
  bounds, total = [(0, None)] * len(signs) + [(None, None)], np.append(np.ones(len(signs)), 0.0)
  sizes, weights = separability.largest_margin(payoffs, bounds, A_eq=total[None], b_eq=[1.0])
  return float((payoffs @ sizes).min()), sizes / scales, weights


def _refutation(chain: ExactChain, inputs: _Inputs, signs: np.ndarray, weights: np.ndarray) -> Refutation | None:
  """The weights as a proof in `Fraction`s; None if they prove nothing."""
  chosen = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
  exact_weights = [Fraction(weight) for weight in weights[chosen].tolist()]
  terms = [
    weight * int(inputs.targets[row]) * exact_likelihoods(chain, tuple(inputs.tokens[row].tolist()))
    for row, weight in zip(chosen, exact_weights)
  ]
  if (signs * sum(terms) > 0).any():
    return None
  return Refutation(signs, inputs.numbers[chosen], exact_weights)


def exact_likelihoods(chain: ExactChain, text: Sequence[int]) -> np.ndarray:
  """lambda_h(x) [H] in `Fraction`s, scaled to a largest entry of 1, of a text that some state can produce."""
  (future,) = chain_lib.following(chain, text)
  return future * Fraction(1, future.max())


def _have_labels(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, tokens: np.ndarray, labels: np.ndarray, found: NoPrompt
) -> bool:
  """Check the labels of the inputs of a proof without rounding."""
  chain, v = chain_lib.exact_chain(hmm), exact(task_weights) * exact_rows(silent_probs)
  inputs = np.unique(np.concatenate([refutation.inputs for refutation in found.refutations]))
  return all((v @ exact_likelihoods(chain, tokens[number].tolist())).argmax() == labels[number] for number in inputs)
