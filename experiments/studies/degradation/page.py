"""python -m experiments.studies.degradation.page: tables and numbers in docs/degradation.md from its records."""

import pathlib

from experiments.analysis import pages
from experiments.records import results
from experiments.studies.degradation import report
from experiments.studies.degradation.sentences import SENTENCES

PAGE = pages.DOCS / 'degradation.md'


def section(name: str, folder: pathlib.Path) -> str:
  """Tables as they are printed, and sentences."""
  records = results.load(folder)
  if name in report.TABLES:
    return f'```\n{report.TABLES[name](records)}```'
  text = SENTENCES[name](records, results.config(folder) or {})
  return '\n'.join(map(pages.wrapped, text.splitlines()))


if __name__ == '__main__':
  pages.fill(PAGE, section)
