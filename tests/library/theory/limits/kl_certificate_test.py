"""Facts about what a fixed head keeps: bounds in order on any model, attained by the worst one, and tight in osc."""

import numpy as np
import pytest

from hmm_jax.heads import LinearHead
from hmm_jax.theory.limits.kl_certificate import bound_from_mean, certify, relative_margins


def random_head(rng):
  return LinearHead(rng.normal(size=(4, 3)), rng.normal(size=3) / 4)


def test_every_bound_is_at_most_the_one_before():
  """accuracy >= certified >= by mean TV >= by mean KL, from models that are nearly exact to such that are not."""
  rng, seen = np.random.default_rng(0), []
  for scale in (1e-3, 1.0):
    head, ideal, others = random_head(rng), rng.dirichlet(np.ones(4), 200), rng.dirichlet(np.ones(4), 200)
    labels = np.append(np.zeros(20, int), (ideal @ head.weights + head.bias).argmax(-1)[20:])
    found = certify(head, ideal, (1 - scale) * ideal + scale * others, labels)
    assert found.accuracy >= found.certified >= found.from_total_variation >= found.from_kl
    seen.append(found)
  assert seen[0].certified > seen[0].from_total_variation > seen[0].from_kl > 0 == seen[1].from_kl


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


def test_the_bound_from_a_mean_is_the_best_over_gamma():
  """As a fine grid of gamma finds it; nothing from inputs that the head has wrong, and never below zero."""
  rho, grid = np.random.default_rng(2).uniform(-0.2, 0.5, 50), np.linspace(1e-4, 0.6, 20_000)
  for mean in (0.0, 0.1):
    best = max((rho >= gamma).mean() - mean / gamma for gamma in grid)
    assert bound_from_mean(rho, mean) == pytest.approx(max(best, 0), abs=2e-3)
  assert bound_from_mean(-np.ones(3), 0.1) == 0.0


def test_by_kl_is_nearly_by_total_variation_where_pinsker_is_tight():
  """KL((1 / 2, 1 / 2) || (1 / 2 + e, 1 / 2 - e)) is 2 e^2 for small e, and TV is e."""
  head, ideal = LinearHead(np.array([[1.0, 0], [0.5, 0]]), np.zeros(2)), np.full((4, 2), 0.5)
  found = certify(head, ideal, ideal + [1e-3, -1e-3], np.zeros(4, int))
  assert found.from_total_variation == pytest.approx(1 - 1e-3 / 1.5, abs=1e-12)
  assert found.from_kl == pytest.approx(found.from_total_variation, abs=1e-8)


def test_a_constant_difference_is_decided_by_its_bias():
  """A head that scores by its bias alone is right or wrong whatever the model."""
  head = LinearHead(np.ones((3, 2)), np.array([1.0, 0]))
  assert certify(head, np.full((2, 3), 1 / 3), np.eye(3)[:2], [0, 1])[:2] == (0.5, 0.5)
