"""Facts about BERT's corruption; frequencies are judged by chi-square tests at p = 1e-4 on fixed seeds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hmm_jax.masking import channel, corrupt, Corruption, num_slots

pytestmark = pytest.mark.usefixtures('without_optimisation')

V = 4
SETTINGS = [Corruption(V, 0.15, 0.8, 0.1), Corruption(V, 0.05, 0.8, 0.1), Corruption(V, 0.5, 0.2, 0.7)]


def tokens_and_corrupted(corruption, seed=0):
  tokens = jax.random.randint(jax.random.key(100 + seed), (4000, 50), 0, V)
  shown, selected = corrupt(jax.random.key(seed), corruption, tokens)
  return np.asarray(tokens), np.asarray(shown), np.asarray(selected)


def assert_frequencies(counts, probs):
  counts, probs = np.asarray(counts), np.asarray(probs, np.float64)
  assert counts[probs == 0].sum() == 0
  counts, probs = counts[probs > 0], probs[probs > 0]
  assert scipy.stats.chisquare(counts, counts.sum() * probs / probs.sum()).pvalue > 1e-4


@pytest.mark.parametrize('corruption', SETTINGS)
def test_rates_are_those_asked_for(corruption):
  """Positions are selected, masked, replaced and kept at the stated rates."""
  tokens, shown, selected = tokens_and_corrupted(corruption)
  rate, mask, random = corruption.mask_rate, corruption.mask_share, corruption.random_share
  kinds = [~selected, selected & (shown == V), selected & (shown < V) & (shown != tokens), selected & (shown == tokens)]
  altered = random * (V - 1) / V
  assert_frequencies(
    [kind.sum() for kind in kinds], [1 - rate, rate * mask, rate * altered, rate * (1 - mask - altered)]
  )


def test_selection_is_independent_from_position_to_position():
  """Neighbouring positions, and the token and its selection, are selected independently."""
  tokens, _, selected = tokens_and_corrupted(SETTINGS[2])
  for other in (selected[:, ::2], tokens[:, ::2] == 1):
    table = scipy.stats.contingency.crosstab(other.ravel(), selected[:, 1::2].ravel()).count
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-4
  table = scipy.stats.contingency.crosstab(tokens.ravel(), selected.ravel()).count
  assert scipy.stats.chi2_contingency(table).pvalue > 1e-4


def test_unselected_positions_are_left_alone():
  """Only selected positions change, and [MASK] stands at selected positions alone."""
  tokens, shown, selected = tokens_and_corrupted(SETTINGS[2])
  np.testing.assert_array_equal(shown[~selected], tokens[~selected])
  assert shown.min() == 0 and shown.max() == V


def test_corruption_is_a_function_of_the_key():
  """One key gives one corruption, selecting the same positions of any text; another key gives another."""
  tokens = jax.random.randint(jax.random.key(0), (20, 30), 0, V)
  shown, selected = corrupt(jax.random.key(1), SETTINGS[2], tokens)
  again, selected_again = corrupt(jax.random.key(1), SETTINGS[2], tokens)
  _, selected_in_other_text = corrupt(jax.random.key(1), SETTINGS[2], V - 1 - tokens)
  _, selected_by_other_key = corrupt(jax.random.key(2), SETTINGS[2], tokens)
  np.testing.assert_array_equal(shown, again)
  np.testing.assert_array_equal(selected, selected_again)
  np.testing.assert_array_equal(selected, selected_in_other_text)
  assert (selected != selected_by_other_key).mean() > 0.3


def test_small_integer_tokens_come_back_as_int32():
  """A uint8 corpus whose [MASK] is 255 or more is corrupted without wrapping."""
  tokens = jnp.full((50, 50), 253, jnp.uint8)
  shown, selected = corrupt(jax.random.key(0), Corruption(300, 0.5, 0.8, 0.1), tokens)
  assert shown.dtype == jnp.int32 and selected.dtype == bool
  assert shown.max() == 300
  np.testing.assert_array_equal(shown[~selected], 253)


@pytest.mark.parametrize('corruption', SETTINGS)
def test_channel_is_the_law_of_the_corruption(corruption):
  """Each column of `channel` is what `corrupt` shows for a token: among all positions, and among selected ones."""
  tokens, shown, selected = tokens_and_corrupted(corruption)
  seen, seen_if_selected = channel(corruption)
  for probs, among in ((seen, np.ones_like(selected)), (seen_if_selected, selected)):
    assert probs.shape == (V + 1, V)
    for token in range(V):
      counts = np.bincount(shown[among & (tokens == token)], minlength=V + 1)
      assert_frequencies(counts, probs[:, token])


@pytest.mark.parametrize('corruption', SETTINGS + [Corruption(V, 1.0, 1.0, 0.0), Corruption(V, 0.3, 0.0, 1.0)])
def test_channel_columns_are_distributions(corruption):
  """The columns of both matrices are nonnegative and sum to 1 over the V + 1 shown symbols."""
  for probs in channel(corruption):
    assert probs.min() >= -1e-7
    np.testing.assert_allclose(probs.sum(0), 1, atol=1e-6)


@pytest.mark.parametrize(('rate', 'batch_size', 'length', 'slots'), [(0.15, 32, 64, 20), (0.05, 8, 512, 42)])
def test_one_batch_in_a_hundred_selects_more_than_its_slots(rate, batch_size, length, slots):
  """At small and at paper scale the chance, by sums of binomial terms, is at most 1%; with a slot less it is above."""
  term = lambda k: math.comb(length, k) * rate**k * (1 - rate) ** (length - k)
  overflows = lambda slots: 1 - math.fsum(map(term, range(slots + 1))) ** batch_size
  assert num_slots(Corruption(V, rate, 0.8, 0.1), batch_size, length) == slots
  assert overflows(slots) <= 0.01 < overflows(slots - 1)


def test_there_is_a_slot_even_where_hardly_anything_is_selected():
  """No batch in a million selects anything, and a step still reads a position."""
  assert num_slots(Corruption(V, 1e-9, 0.8, 0.1), 8, 16) == 1
