"""A page of reports, side by side: jinja2 escapes every text."""

from collections.abc import Sequence
import pathlib
from typing import NamedTuple

import jinja2

from experiments.analysis.table import Table
from experiments.settings.fields import printable

_PAGES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
  autoescape=True,
  undefined=jinja2.StrictUndefined,
  trim_blocks=True,
  lstrip_blocks=True,
  # Line breaks of a heading are those of a terminal; an unprintable character is shown as its escape.
  finalize=lambda value: printable(value, '\n') if type(value) is str else value,
)


class Picture(NamedTuple):
  """A figure: its width, its SVG or <img>, which `pictures` has made, and the table of its values, if it has lines."""

  inches: float
  markup: str
  values: Table | None


class Strip(NamedTuple):
  """Rows of cells below each other, each a text and a shade from 0 to 1, or None; `mark` stands out in the title."""

  title: str
  mark: str
  rows: Sequence[tuple[str, Sequence[tuple[str, float | None]]]]


class Section(NamedTuple):
  """A part of a report. Tables that are `folded` open at a click."""

  heading: str
  text: str = ''
  pictures: Sequence[Picture] = ()
  tables: Sequence[Table] = ()
  folded: Sequence[Table] = ()
  strips: Sequence[Strip] = ()
  commands: Sequence[str] = ()


class Report(NamedTuple):
  """The report of a folder: what was asked, where the answer lies, and the sections."""

  question: str
  claim: str
  folder: str
  sections: Sequence[Section]


def page(reports: Sequence[Report]) -> str:
  """The text of the page."""
  return _PAGES.get_template('page.html.j2').render(reports=reports)
