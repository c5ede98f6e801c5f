"""An error that the tests must notice."""

from typing import NamedTuple


class Mutant(NamedTuple):
  """One wrong line.

  Attributes:
    name: what is wrong.
    path: the file that has it, from the root of the repository.
    old: text that is in the file exactly once.
    new: what stands there instead.
    tests: arguments of pytest: a file of tests, and by -k those of it that speak of this line.
  """

  name: str
  path: str
  old: str
  new: str
  tests: tuple[str, ...]

  def is_of(self, word: str) -> bool:
    """Test whether `word` names the file or a folder of it, such as trial, theory or theory/texts."""
    return f'/{word.removesuffix(".py")}/' in f'/{self.path.removesuffix(".py")}/'

  def applied_to(self, text: str) -> str:
    """The text of the file with the wrong line. Raises ValueError where the old text is not in it exactly once."""
    if text.count(self.old) != 1:
      raise ValueError(f'the old text is in {self.path} {text.count(self.old)} times')
    return text.replace(self.old, self.new)
