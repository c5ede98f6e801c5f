"""A table: a title over a DataFrame of texts, as plain text for a terminal and as Markdown for a page."""

from collections.abc import Sequence
import io
import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import rich.box
import rich.console
import rich.table

from experiments.analysis import statistics

# Columns of words wrap at this width.
_WORDS = 40


class Table(NamedTuple):
  """A table of a report.

  Attributes:
    title: what the numbers are, with units and intervals.
    frame: the cells, texts; a column's name is its heading.
    num_texts: leading columns that hold words and stand left; numbers stand right.
  """

  title: str
  frame: pd.DataFrame
  num_texts: int = 0


def table(title: str, rows: Sequence[dict[str, str]] | pd.DataFrame, num_texts: int = 0) -> Table:
  """A table of rows, each a dict from heading to cell; a column without any content is left out."""
  frame = pd.DataFrame(rows, dtype=object).fillna('')
  return Table(title, frame.loc[:, (frame != '').any()], num_texts)


def as_text(table: Table) -> str:
  """The table at its own width, without colour or trailing blanks."""
  shown = rich.table.Table(title=table.title, box=rich.box.SIMPLE)
  for number, name in enumerate(table.frame):
    if number < table.num_texts:
      shown.add_column(name, max_width=_WORDS, overflow='fold')
    else:
      shown.add_column(name, justify='right', no_wrap=True)
  for row in table.frame.itertuples(index=False):
    shown.add_row(*row)
  console = rich.console.Console(width=240, no_color=True, file=io.StringIO(), record=True)
  console.print(shown, markup=False)
  return '\n'.join(line.rstrip() for line in console.export_text().splitlines()) + '\n'


def as_markdown(table: Table) -> str:
  """The title in italics, and the table with headings on one line."""
  frame = table.frame.map(_escaped).rename(columns=_escaped)
  sides = ['left' if number < table.num_texts else 'right' for number in range(frame.shape[1])]
  return f'*{_escaped(table.title)}*\n\n{frame.to_markdown(index=False, disable_numparse=True, colalign=sides)}'


def _escaped(text: str) -> str:
  return re.sub(r'[|*]', r'\\\g<0>', text).replace('\n', ' ')


def number(value: float, form: str) -> str:
  """A number in a format; '' for NaN."""
  return '' if np.isnan(value) else f'{value:{form}}'


def share(flags: Sequence[bool]) -> str:
  """'12/40 [17, 47]': how many, with the 95% Clopper-Pearson interval of the share in percent; '' of none."""
  if not len(flags):
    return ''
  low, high = statistics.share_interval(int(sum(flags)), len(flags))
  return f'{sum(flags)}/{len(flags)} [{100 * low:.0f}, {100 * high:.0f}]'


def median_range(values: Sequence[float]) -> str:
  """'2e-12 (1e-30 to 0.02)': the median, the least and the largest; '' of none."""
  return f'{np.median(values):.1g} ({min(values):.1g} to {max(values):.1g})' if len(values) else ''
