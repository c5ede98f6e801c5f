"""Facts about what a fixed head keeps: no model keeps less, the worst ones as little, and the bound is tight in osc."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from hmm_jax.heads import LinearHead
from hmm_jax.theory.limits.kl_certificate import certify, least_kept, relative_margins


def random_head(rng):
  return LinearHead(rng.normal(size=(4, 3)), rng.normal(size=3) / 4)


def test_every_bound_is_at_most_the_accuracy():
  """accuracy >= certified >= by mean TV and by mean KL, from models that are nearly exact to such that are not."""
  rng, seen = np.random.default_rng(0), []
  for scale in (1e-3, 1.0):
    head, ideal, others = random_head(rng), rng.dirichlet(np.ones(4), 200), rng.dirichlet(np.ones(4), 200)
    labels = np.append(np.zeros(20, int), (ideal @ head.weights + head.bias).argmax(-1)[20:])
    found = certify(head, ideal, (1 - scale) * ideal + scale * others, labels)
    assert found.accuracy >= found.certified >= max(found.from_total_variation, found.from_kl)
    seen.append(found)
  assert seen[0].certified > seen[0].from_kl > 0.5 and seen[0].from_total_variation > 0.5 > seen[1].from_kl


def test_the_worst_model_flips_what_is_not_certified_and_nothing_else():
  """A model at TV just above rho that moves mass between the extreme entries of b_y - b_c makes the label lose; just
  below it cannot. So no larger share could be certified by TV and osc, and half the osc would certify what is wrong.
  """
  rng, tried = np.random.default_rng(1), 0
  for _ in range(40):
    head = random_head(rng)
    ahead = head.weights[:, :1] - head.weights[:, 1:]
    # All of the distance can be taken from the token where the difference to class 1 is largest.
    most, least = np.eye(4)[ahead[:, 0].argmax()], np.eye(4)[ahead[:, 0].argmin()]
    ideal = 0.02 + 0.92 * most
    shares = (ideal @ ahead + head.bias[0] - head.bias[1:]) / np.ptp(ahead, axis=0)
    assert relative_margins(head, ideal[None], [0]) == pytest.approx(shares.min())
    if 0 < shares[0] < min(0.8, shares[1]):
      for share, kept in ((1 + 1e-6, 0.0), (1 - 1e-6, 1.0)):
        worst = ideal + share * shares[0] * (least - most)
        assert certify(head, ideal[None], worst[None], [0])[:2] == (kept, kept)
      tried += 1
  assert tried >= 5


def _nearest_tie(probs, ahead):
  """The distribution q of least KL(probs || q) with q @ ahead = 0, which is probs / (1 + t ahead) for one t."""
  excess = lambda t: (probs / (1 + t * ahead)).sum() - 1
  last = 1 / -ahead.min()
  return probs / (1 + scipy.optimize.brentq(excess, 1e-9 * last, (1 - 1e-12) * last) * ahead)


@pytest.mark.parametrize(('num_tokens', 'spread', 'excess'), [(2, 0.1, 0.02), (4, 1.0, 1.0)])
def test_an_adversary_flips_no_more_than_its_kl_allows_and_nearly_that(num_tokens, spread, excess):
  """It takes the cheapest labels by the cheapest models, of which 1 / 2 each is one where Pinsker is tight."""
  rng = np.random.default_rng(2)
  ahead = np.array([1.0, -1.0]) if num_tokens == 2 else rng.normal(size=num_tokens)
  head = LinearHead(np.stack([ahead, 0 * ahead], 1), np.zeros(2))
  ideal = (1 - spread) / num_tokens + spread * rng.dirichlet(np.ones(num_tokens), 300)
  scores = ideal @ ahead
  labels = (scores < 0).astype(int)
  ties = np.array([_nearest_tie(probs, np.sign(score) * ahead) for probs, score in zip(ideal, scores)])
  order = scipy.special.rel_entr(ideal, ties).sum(1).argsort()
  for flipped in (10, 100, 200, 290):
    model = ideal.copy()
    # A little past the tie, so that rounding cannot leave the label.
    chosen = order[:flipped]
    model[chosen] = 1.0001 * ties[chosen] - 0.0001 * ideal[chosen]
    found = certify(head, ideal, model, labels)
    assert found.accuracy == pytest.approx(1 - flipped / 300)
    assert found.accuracy - excess < found.from_kl <= found.accuracy
    assert found.from_total_variation <= found.accuracy


def test_the_knapsack_is_the_best_program_and_above_markov():
  """It is what a linear program leaves, of inputs in any order; what is wrong on the exact G costs nothing."""
  costs, budgets = np.random.default_rng(3).uniform(-0.2, 0.5, 50).clip(0), np.array([0.0, 0.01, 0.06, 0.3])
  right = (costs > 0) / 50
  for budget in budgets:
    taken = scipy.optimize.linprog(-right, costs[None] / 50, [budget], bounds=(0, 1))
    assert least_kept(costs, budget) == pytest.approx(right.sum() + taken.fun)
    assert least_kept(costs, budget) >= max((costs >= least).mean() - budget / least for least in costs[costs > 0])
  assert least_kept(np.zeros(3), 0.1) == 0 and least_kept(np.array([np.inf, np.inf, 0.3, 0]), 9.0) == 0.5


def test_a_constant_difference_is_decided_by_its_bias():
  """A head that scores by its bias alone is right or wrong whatever the model."""
  head = LinearHead(np.ones((3, 2)), np.array([1.0, 0]))
  found = certify(head, np.full((2, 3), 1 / 3), np.eye(3)[:2], [0, 1])
  assert found[:4] == (0.5, 0.5, 0.5, 0.5)
