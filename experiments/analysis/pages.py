"""Documents of which records decide a part: tables and sentences between two comments that name them and a folder."""

from collections.abc import Callable
import pathlib
import re
import textwrap

from experiments.records import files

DOCS = pathlib.Path(__file__).parents[2] / 'docs'
BLOCK = re.compile(r'(<!-- (\w+) of (\S+) -->\n).*?(<!-- end of \2 -->\n)', re.DOTALL)

_WIDTH = 120

# What a part of this name says of the records in a folder; None leaves it as it is.
Section = Callable[[str, pathlib.Path], str | None]


def filled(text: str, section: Section) -> str:
  """The document with what the records in folders below `docs` say in every part."""

  def said(match: re.Match[str]) -> str:
    found = section(match[2], DOCS / match[3])
    return match[0] if found is None else f'{match[1]}\n{found.strip()}\n\n{match[4]}'

  return BLOCK.sub(said, text)


def fill(page: pathlib.Path, section: Section) -> None:
  """Writes the document anew."""
  files.write_whole(page, filled(page.read_text(), section))


def wrapped(line: str) -> str:
  """A paragraph, or an item of a list, in lines."""
  return textwrap.fill(line, _WIDTH, subsequent_indent='  ' * line.startswith('- '), break_on_hyphens=False)
