"""python -m experiments.degradation.page: tables and numbers in docs/degradation.md from its records."""

import json
import pathlib
import textwrap

from experiments import pages, results
from experiments.degradation import report
from experiments.degradation.sentences import SENTENCES

PAGE = pages.DOCS / 'degradation.md'
_WIDTH = 120


def section(name: str, folder: pathlib.Path) -> str:
  """Tables as they are printed, and sentences."""
  records = results.load(folder)
  if name in report.TABLES:
    return f'```\n{report.TABLES[name](records)}```'
  text = SENTENCES[name](records, json.loads((folder / 'config.json').read_text()))
  return '\n'.join(map(_wrapped, text.splitlines()))


def _wrapped(line: str) -> str:
  return textwrap.fill(line, _WIDTH, subsequent_indent='  ' * line.startswith('- '), break_on_hyphens=False)


if __name__ == '__main__':
  pages.fill(PAGE, section)
