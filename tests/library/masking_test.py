"""Facts about BERT's corruption; frequencies are judged by chi-square tests at p = 1e-4 on fixed seeds."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hmm_jax.models.masking import channel, corrupt, Corruption, next_token, num_slots

V = 4


@functools.partial(jax.jit, static_argnums=0)
def corrupted(corruption, tokens):
  return corrupt(jax.random.key(0), corruption, tokens)


@pytest.mark.parametrize('corruption', [Corruption(V, 0.15, 0.8, 0.1), Corruption(V, 0.5, 0.2, 0.7)])
def test_corruption_has_its_rates_and_its_channel(corruption):
  """Positions are selected, masked, replaced and kept at the stated rates, and only selected ones change.

  Each column of `channel` is what is shown for a token: among all positions, and among selected ones.
  """
  tokens = np.random.default_rng(0).integers(V, size=(4000, 50), dtype=np.int32)
  shown, selected = map(np.asarray, corrupted(corruption, tokens))
  np.testing.assert_array_equal(shown[~selected], tokens[~selected])
  for probs, among in zip(channel(corruption), (np.ones_like(selected), selected)):
    for token in range(V):
      counts, expected = np.bincount(shown[among & (tokens == token)]), np.float64(probs[:, token])
      assert expected.sum() == pytest.approx(1)
      assert scipy.stats.chisquare(counts, counts.sum() * expected / expected.sum()).pvalue > 1e-4


def test_a_causal_model_learns_every_token_and_sees_it():
  shown, selected = corrupted(next_token(V), np.arange(V))
  assert shown.tolist() == [*range(V)] and selected.all()


def test_small_integer_tokens_come_back_as_int32():
  """A uint8 corpus whose [MASK] is 255 or more is corrupted without wrapping."""
  shown, selected = corrupted(Corruption(300, 0.5, 0.8, 0.1), jnp.full((50, 50), 253, jnp.uint8))
  assert shown.dtype == jnp.int32 and shown.max() == 300
  np.testing.assert_array_equal(shown[~selected], 253)


@pytest.mark.parametrize(('rate', 'batch_size', 'length', 'slots'), [(0.15, 32, 64, 20), (0.05, 8, 512, 42)])
def test_one_batch_in_a_hundred_selects_more_than_its_slots(rate, batch_size, length, slots):
  """At small and at paper scale the chance, by sums of binomial terms, is at most 1%; with a slot less it is above."""
  term = lambda k: math.comb(length, k) * rate**k * (1 - rate) ** (length - k)
  overflows = lambda slots: 1 - math.fsum(map(term, range(slots + 1))) ** batch_size
  assert num_slots(Corruption(V, rate, 0.8, 0.1), batch_size, length) == slots
  assert overflows(slots) <= 0.01 < overflows(slots - 1)
