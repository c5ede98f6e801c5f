"""Facts about the two number formats of messages, against exact fractions."""

from fractions import Fraction
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.number_formats import lost_units
from hmm_jax.number_formats import NARROW
from hmm_jax.number_formats import narrow_exponent
from hmm_jax.number_formats import WIDE

LARGEST_SUM = 2.0 ** narrow_exponent(np.float32)
# What one unit of `lost` is worth among the entries of a narrow float32 message.
LOST_UNIT = math.ldexp(LARGEST_SUM, -lost_units(np.float32))

fractions = np.vectorize(lambda x: Fraction(float(x)), otypes=[object])
powers_of_two = np.vectorize(lambda k: Fraction(2) ** int(k), otypes=[object])
log2 = np.vectorize(lambda x: math.log2(x.numerator) - math.log2(x.denominator) if x else -np.inf, otypes=[float])


def spread(rng, *shape):
  """Float32 entries spread evenly over 36 orders of magnitude; one in five is an exact zero."""
  return np.float32(10.0 ** -rng.uniform(0, 36, shape) * (rng.random(shape) > 0.2))


def case(seed, num_parts=2, num_states=3, length=8):
  """(row-stochastic matrix, start [C, H], rows [T, C, H]) with zeros, small entries, and rows of any scale."""
  rng = np.random.default_rng(seed)
  matrix = spread(rng, num_states, num_states) + np.eye(num_states)[::-1]
  start, rows = spread(rng, num_parts, num_states), spread(rng, length, num_parts, num_states)
  # Most evidence would be impossible without these.
  start[0, 0] = rows[:, 0, :2] = 1
  rows *= np.float32(2.0 ** rng.integers(-20, 20, (length, 1, 1)))
  # Subnormal numbers count as zero.
  rows[rows < np.finfo(np.float32).tiny] = 0
  return np.float32(matrix / matrix.sum(1, keepdims=True)), start, rows


def steps(fmt, backward):
  """(matrix, start, rows) -> the message after every row, and log2 of what it was divided by until then.

  A pass forward rescales before the message moves, a pass backward after that.
  """

  @jax.jit
  def run(matrix, start, rows):
    contract = fmt.contract(matrix if backward else matrix.T)

    def step(carry, row):
      message, total = carry
      observed, row_scale = fmt.observe(message, row)
      message, scale = fmt.rescale(contract(observed) if backward else observed)
      carry = message if backward else contract(message), total + row_scale + scale
      return carry, carry

    return jax.lax.scan(step, fmt.rescale(fmt.encode(start)), rows)[1]

  return run


def exact_steps(backward, matrix, start, rows):
  """The messages of `steps` as fractions, not divided by anything, [T, C, H]."""
  matrix, message, rows = map(fractions, (matrix.T if backward else matrix, start, rows))
  messages = []
  for row in rows:
    message = (message * row) @ matrix
    messages.append(message)
  return np.array(messages)


@pytest.mark.parametrize('backward', [False, True])
def test_narrow_messages_lose_no_more_than_their_bound(backward):
  """No entry is above its exact value, nor below it by more than its bound, until a bound is past certifying.

  The bound is no more than ten times what the worst entry lost.
  """
  run, worst = steps(NARROW, backward), []
  for seed in range(40):
    arguments = case(seed)
    messages, scales = run(*arguments)
    scaled = exact_steps(backward, *arguments) * powers_of_two(narrow_exponent(np.float32) - scales[:, None, None])
    entries, bound = np.float64(messages.entries), np.float64(messages.lost) * LOST_UNIT
    certifiable = np.maximum.accumulate(bound.max((1, 2))) < 1e-8 * LARGEST_SUM
    lost, rounding = np.float64(scaled - fractions(entries)), 5e-6 * entries
    np.testing.assert_array_less(-lost[certifiable], (rounding + 1e-300)[certifiable])
    np.testing.assert_array_less(lost[certifiable], (rounding + bound)[certifiable])
    worst.append(((lost - rounding) / bound)[certifiable].max(initial=0))
  assert max(worst) > 0.1


@pytest.mark.parametrize('backward', [False, True])
def test_wide_messages_are_exact_to_rounding(backward):
  """Every entry is its exact value to a relative 2e-6, thousands of powers of two below 1 too; zeros are zeros."""
  run, least = steps(WIDE, backward), 0
  log_totals = jax.jit(jax.vmap(WIDE.log_total))
  for seed in range(20):
    arguments = case(seed)
    messages, scales = run(*arguments)
    exact = exact_steps(backward, *arguments)
    significand = np.float64(messages.significand)
    np.testing.assert_array_equal(significand == 0, exact == 0)
    nonzero = significand > 0
    exponents = np.asarray(messages.exponent + scales[:, None, None])
    entries = fractions(significand[nonzero]) * powers_of_two(exponents[nonzero])
    np.testing.assert_allclose(np.float64(entries / exact[nonzero]), 1, rtol=2e-6)
    totals = np.where(nonzero.any((1, 2)), log_totals(messages) + np.asarray(scales) * np.log(2), -np.inf)
    np.testing.assert_allclose(totals, log2(exact.sum((1, 2))) * np.log(2), rtol=1e-6, atol=1e-5)
    least = min(least, log2(exact[nonzero]).min())
  assert least < -500


def narrow_batch(entries, dtype):
  """A narrow message [1, 2, B] whose state h of sequence b holds `entries[h, b]`."""
  message = NARROW.encode(jnp.ones((1,) + entries.shape, dtype))
  return message._replace(entries=jnp.asarray(entries, dtype)[None])


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_rows_are_scaled_exactly_at_every_exponent(dtype):
  """A row times a message is right to the last bit whatever the row's exponent, the first and the last included."""
  info = np.finfo(dtype)
  with jax.enable_x64(True):
    rows = np.ldexp(dtype([[1.75], [1]]), np.arange(info.minexp, info.maxexp))
    message = narrow_batch(np.ones_like(rows), dtype)
    observed, scale = jax.jit(NARROW.observe)(message, jnp.asarray(rows)[None])
    # The largest entry of a scaled row is at least 1 and at most 4: no product overflows or is lost.
    scaled = np.asarray(observed.entries)[0]
  assert scaled.max(0).min() >= 1
  assert scaled.max(0).max() < 4
  assert (fractions(scaled) * powers_of_two(scale) == fractions(rows)).all()


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_messages_are_rescaled_exactly(dtype):
  """Every sum that a certified message can have is brought below the largest by a power of two, to the last bit."""
  unit = narrow_exponent(dtype)
  exponents = np.arange(unit + np.finfo(dtype).minexp // 2, unit + 1)
  with jax.enable_x64(True):
    entries = np.ldexp(dtype([[0.5 - np.finfo(dtype).eps], [0.5]]), exponents)
    rescaled, scale = jax.jit(NARROW.rescale)(narrow_batch(entries, dtype))
    scaled = np.asarray(rescaled.entries)[0]
  np.testing.assert_array_equal(scale, exponents - unit)
  assert (fractions(scaled) * powers_of_two(scale) == fractions(entries)).all()


def test_each_operation_counts_what_it_rounds_to_zero():
  """A small row entry scaled down with its row, and products that are each just too small, are in the bound."""
  tiny = float(np.finfo(np.float32).tiny)
  full = NARROW.encode(jnp.ones((1, 2)))
  observed, _ = NARROW.observe(full, jnp.array([[2.0**20, 1.5 * tiny]]))
  moved = NARROW.contract(jnp.full((2, 2), 0.9))(full._replace(entries=jnp.full((1, 2), tiny)))
  products, _ = NARROW.observe(full._replace(entries=jnp.full((1, 2), tiny)), jnp.array([[1.0, 0.9]]))
  for message, exact in ((observed, 1.5 * tiny * LARGEST_SUM / 2**20), (moved, 1.8 * tiny), (products, 0.9 * tiny)):
    assert message.entries[0, 1] == 0
    assert exact <= message.lost[0, 1] * LOST_UNIT
