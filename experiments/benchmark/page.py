"""python -m experiments.benchmark.page: the tables in docs/benchmark.md anew, from the records beside it."""

import pathlib
import re

from experiments import files
from experiments.benchmark import report

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'benchmark.md'
_BLOCK = re.compile(r'(<!-- record: (\S+) -->\n).*?(<!-- end of record -->\n)', re.DOTALL)


def rendered(text: str) -> str:
  """The page with the tables of each record in their place, between the comments that name its folder."""
  block = lambda match: f'{match[1]}```\n{report.of_record(PAGE.parent / match[2])}```\n{match[3]}'
  return _BLOCK.sub(block, text)


if __name__ == '__main__':
  files.write_whole(PAGE, rendered(PAGE.read_text()))
