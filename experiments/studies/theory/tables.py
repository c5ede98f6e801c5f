"""A table as text and as Markdown, and the words for a share and for a mean with its interval."""

from typing import NamedTuple

import numpy as np
import rich.box
import rich.table

from experiments.analysis import statistics


class Table(NamedTuple):
  """Attributes: title, columns and rows of texts; numbers stand right, but for the first `num_texts` columns."""

  title: str
  columns: list[str]
  rows: list[list[str]]
  num_texts: int

  def rich(self) -> rich.table.Table:
    table = rich.table.Table(title=self.title, box=rich.box.SIMPLE)
    for number, column in enumerate(self.columns):
      table.add_column(column, justify='left' if number < self.num_texts else 'right', no_wrap=True)
    for row in self.rows:
      table.add_row(*row)
    return table

  def markdown(self) -> str:
    line = lambda cells: f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in cells)} |'
    sides = ['---' if number < self.num_texts else '---:' for number in range(len(self.columns))]
    return '\n'.join([f'*{self.title}*', '', *map(line, (self.columns, sides, *self.rows))])


def counted(flags: list[bool]) -> str:
  """'12 of 40 (16.6 to 46.5%)': how many, with the 95% Clopper-Pearson interval of the share; '' of none."""
  if not flags:
    return ''
  low, high = statistics.share_interval(sum(flags), len(flags))
  return f'{sum(flags)} of {len(flags)} ({100 * low:.1f} to {100 * high:.1f}%)'


def briefly(flags: list[bool]) -> str:
  """`counted` for a cell: '12/40 [17, 47]'; '' of none."""
  if not flags:
    return ''
  low, high = statistics.share_interval(sum(flags), len(flags))
  return f'{sum(flags)}/{len(flags)} [{100 * low:.0f}, {100 * high:.0f}]'


def mean_percent(values: list[float | None]) -> str:
  """The mean in percent with the 95% interval over HMMs, of those that are known; '' of none."""
  known = [100 * value for value in values if value is not None]
  return str(statistics.mean_interval(known)) if known else ''


def range_of(values: list[float]) -> str:
  """'2e-12 (1e-30 to 0.02)': the median, the least and the largest; '' of none."""
  return f'{np.median(values):.1g} ({min(values):.1g} to {max(values):.1g})' if values else ''
