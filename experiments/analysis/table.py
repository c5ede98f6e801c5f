"""A table: a title over a DataFrame of texts, as plain text for a terminal and as Markdown for a page."""

from collections.abc import Sequence
import re
import textwrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats

from experiments.settings.fields import printable

# The cells of a row by the headings of their columns.
Row = dict[str, str]
# Columns of words wrap at this width, and titles at that of a page.
_WORDS, _PAGE = 40, 120


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


def table(title: str, rows: Sequence[dict[str, Any]] | pd.DataFrame, num_texts: int = 0) -> Table:
  """A table of rows, each a dict from heading to cell; a column without any content is left out."""
  frame = pd.DataFrame(rows, dtype=object).fillna('').map(_cell)
  return Table(title, frame.loc[:, (frame != '').any()], num_texts)


def _cell(value: Any) -> str:
  return f'{value:.6g}' if isinstance(value, float) else str(value)


def as_text(table: Table) -> str:
  """The table below its title, in plain text."""
  widths = [_WORDS] * table.num_texts
  rows = _rows(table, tablefmt='simple', maxcolwidths=widths)
  return printable(f'{textwrap.fill(table.title, _PAGE)}\n\n{rows}\n', kept='\n')


def as_markdown(table: Table) -> str:
  """The title in italics, and the table with headings on one line."""
  frame = table.frame.map(_escaped).rename(columns=_escaped)
  return f'*{_escaped(table.title)}*\n\n{_rows(table._replace(frame=frame))}'


def _rows(table: Table, **options: Any) -> str:
  sides = ['left'] * table.num_texts + ['right'] * (table.frame.shape[1] - table.num_texts)
  return table.frame.to_markdown(index=False, disable_numparse=True, colalign=sides, **options)


def _escaped(text: str) -> str:
  return re.sub(r'[|*]', r'\\\g<0>', text).replace('\n', ' ')


def format_number(value: float, form: str) -> str:
  """A number in a format; '' for NaN."""
  return '' if np.isnan(value) else f'{value:{form}}'


def share(flags: Sequence[bool]) -> str:
  """'12/40 [17, 47]': how many, with the Clopper-Pearson 95% interval of the share in percent; '' of none."""
  if not len(flags):
    return ''
  low, high = scipy.stats.binomtest(int(sum(flags)), len(flags)).proportion_ci(0.95, method='exact')
  return f'{sum(flags)}/{len(flags)} [{100 * low:.0f}, {100 * high:.0f}]'


def median_range(values: Sequence[float]) -> str:
  """'2e-12 (1e-30 to 0.02)': the median, the least and the largest; '' of none."""
  return f'{np.median(values):.1g} ({min(values):.1g} to {max(values):.1g})' if len(values) else ''
