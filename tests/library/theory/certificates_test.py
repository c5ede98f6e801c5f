"""Linear heads on all texts of a problem: rare tokens, ties, and proofs that are confirmed."""

import numpy as np
import pytest

from hmm_jax.theory import certificates, head_fails_prompt_succeeds
from hmm_jax.tuning import separability

MARGIN = 1e-9


@pytest.mark.parametrize(('ahead', 'label', 'is_right'), [(1e-15, 0, False), (1e-3, 0, True), (1e-3, 1, False)])
def test_surely_right_excludes_ties_and_rounding(ahead, label, is_right):
  """Scores that are equal up to rounding put no label first."""
  head = np.array([[1 + ahead, 1], [1, 1]])
  assert separability.surely_right(np.array([[0.5, 0.5]]), np.array([label]), head).tolist() == [is_right]


def test_a_proof_is_confirmed_only_with_its_own_labels():
  """Mirrored labels have a proof, too, but are not the texts'; the least likely text of a proof bounds the error."""
  problem = head_fails_prompt_succeeds()
  decision = certificates.decide(problem, 2, MARGIN)
  texts, proof = decision.texts, decision.proof
  assert decision.outcome == 'certified' and decision.least_error == texts.probs[proof.pairs[:, 0]].min()
  assert certificates.is_exact(problem, texts.tokens, texts.labels, proof)
  mirrored = proof._replace(pairs=proof.pairs * [1, -1] + [0, 1])
  assert certificates.is_exact(problem, texts.tokens, 1 - texts.labels, mirrored) is False


def test_texts_that_are_all_near_ties_have_a_constant_label():
  """Their probability is 1, and no text is left."""
  decision = certificates.decide(head_fails_prompt_succeeds(), 2, 10.0)
  assert decision.outcome == 'constant' and decision.near_ties == pytest.approx(1) and not decision.texts.labels.size
