"""Numbers that are not finite, named by where they were first seen, so that nothing that has one is kept."""

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np


class Diverged(FloatingPointError):
  """A loss, a parameter, a moment or a measurement is not finite, as its text says; what was kept before is finite."""


def all_finite(tree: Any) -> Array:
  """True if every number of every leaf is finite, [] bool; to be computed where the tree lies."""
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def check_state(is_finite: Array, step: int) -> None:
  """Raises Diverged where the state after `step`, by `all_finite`, is not, though the losses up to it are."""
  if not is_finite:
    raise Diverged(f'pretraining: a parameter or a moment is not finite after step {step}; that state is not kept')


def check_each(losses: Array | np.ndarray, names: Sequence[str], where: str) -> None:
  """Raises Diverged at the first of losses, one for each of `names`, that is not finite."""
  # Python answers signals while JAX waits, and not while numpy does.
  check_values(where, dict(zip(names, np.ravel(jax.block_until_ready(losses)))))


def check_values(where: str, values: dict[str, Any]) -> None:
  """Raises Diverged at the first of numbers by name, or of arrays, that is not finite."""
  for name, value in values.items():
    if not np.isfinite(value).all():
      raise Diverged(f'{where} {name} is not finite')
