"""Checks that losses, parameters and measurements are finite, before anything is recorded."""

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np


class Diverged(FloatingPointError):
  """A loss, parameter, optimiser moment or measurement, named in the message, is not finite; earlier records are."""


def all_finite(tree: Any) -> Array:
  """True if every number of every leaf is finite, [] bool, computed on the tree's devices."""
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def check_each(losses: Array | np.ndarray, names: Sequence[str], where: str) -> None:
  """Raise Diverged at the first of `losses`, one for each of `names`, that is not finite."""
  # Python handles signals while JAX waits, but not while numpy does.
  check_values(where, dict(zip(names, np.ravel(jax.block_until_ready(losses)))))


def check_values(where: str, values: dict[str, Any]) -> None:
  """Raise Diverged at the first number or array of `values` that is not finite."""
  for name, value in values.items():
    if not np.isfinite(value).all():
      raise Diverged(f'{where} {name} is not finite')
