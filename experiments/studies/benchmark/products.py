"""The matrix products of one step of pretraining alone: what the step would take if all else were free."""

import jax
from jax import Array, lax
import jax.numpy as jnp

from experiments.pipeline.cost import Product

# Both factors of a product, and the gradient of a loss in its result.
Operands = tuple[Array, Array, Array]


def operands(products: list[Product], dtype: jnp.dtype) -> list[Operands]:
  """Separate factors for each product, since the products of a step share none."""
  # Equal numbers do not change the time, so one key does for all.
  normal = lambda *shape: jax.random.normal(jax.random.key(0), shape, dtype)
  return [(normal(b, m, k), normal(b, k, n), normal(b, m, n)) for b, m, k, n in products]


def multiply(factors: list[Operands], repeats: int) -> Array:
  """Run every product `repeats` times, forward and backward; the result means nothing."""

  def once(total: Array, _: None) -> tuple[Array, None]:
    # Without barriers XLA would hoist the products out of the loop, or compute only the entries that are read.
    fresh, total = lax.optimization_barrier((factors, total))
    done = [(left @ right, slope @ right.mT, left.mT @ slope) for left, right, slope in fresh]
    return total + sum(x[0, 0, 0].astype(jnp.float32) for x in jax.tree.leaves(lax.optimization_barrier(done))), None

  return lax.scan(once, jnp.float32(0), length=repeats)[0]
