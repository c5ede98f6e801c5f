"""An error that the tests must notice."""

from typing import NamedTuple


class Mutant(NamedTuple):
  """One wrong line.

  Attributes:
    name: what is wrong.
    module: the file of `hmm_jax` that has it.
    old: text that is in the file exactly once.
    new: what stands there instead.
    tests: arguments of pytest: a file of tests, or the tests of it that speak of this line.
  """

  name: str
  module: str
  old: str
  new: str
  tests: tuple[str, ...]
