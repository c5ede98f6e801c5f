"""python -m experiments.studies.faults.page: tables and numbers in docs/faults.md from its records."""

import pathlib

from experiments.analysis import pages
from experiments.records import results
from experiments.studies.faults import report
from experiments.studies.faults.sentences import SENTENCES

PAGE = pages.DOCS / 'faults.md'


def section(name: str, folder: pathlib.Path) -> str:
  """A table or sentences; a line where there are no records to make them of."""
  records = results.load(folder)
  if not records:
    return 'No records yet.'
  if name in SENTENCES:
    return '\n'.join(pages.wrapped(line) for line in SENTENCES[name](records, folder).splitlines())
  table = report.TABLES[name](records)
  return table.markdown() if table else 'None.'


if __name__ == '__main__':
  pages.fill(PAGE, section)
