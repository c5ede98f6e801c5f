"""python -m experiments.studies.benchmark.page: the tables in docs/benchmark.md from its records."""

import pathlib

from experiments.analysis import pages
from experiments.studies.benchmark import report

PAGE = pages.DOCS / 'benchmark.md'


def section(_: str, folder: pathlib.Path) -> str:
  """The tables of a record as they are printed."""
  return f'```\n{report.workdir_tables(folder)}```'


if __name__ == '__main__':
  pages.fill(PAGE, section)
