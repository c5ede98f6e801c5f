"""The one private name of JAX that the library imports."""

from jax._src import config

from hmm_jax import float64


def test_the_switch_for_64_bits_is_where_jax_has_it():
  """Where a new JAX has moved it, find `explicit_x64_dtypes` in its sources, and import it from there in float64.py."""
  assert float64.explicit_x64_dtypes is config.explicit_x64_dtypes
  assert float64.ExplicitX64Mode is config.ExplicitX64Mode
