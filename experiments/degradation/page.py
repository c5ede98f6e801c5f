"""python -m experiments.degradation.page: tables and numbers in docs/degradation.md anew, from the records beside it.

A block stands between two comments, the first of which names what is in it and the folder of its records.
"""

import json
import pathlib
import re
import textwrap

from experiments import files, results
from experiments.degradation import report
from experiments.degradation.sentences import SENTENCES

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'degradation.md'
_WIDTH = 120
BLOCK = re.compile(r'(<!-- (\w+) of (\S+) -->\n).*?(<!-- end of \2 -->\n)', re.DOTALL)


def rendered(text: str) -> str:
  """The page with what the records say in every block."""
  return BLOCK.sub(lambda match: f'{match[1]}{_block(match[2], PAGE.parent / match[3])}{match[4]}', text)


def _block(name: str, folder: pathlib.Path) -> str:
  """Tables as they are printed, and sentences."""
  records = results.load(folder)
  if name in report.TABLES:
    return f'```\n{report.TABLES[name](records)}```\n'
  text = SENTENCES[name](records, json.loads((folder / 'config.json').read_text()))
  return f'\n{"".join(map(_wrapped, text.splitlines()))}\n'


def _wrapped(line: str) -> str:
  return textwrap.fill(line, _WIDTH, subsequent_indent='  ' * line.startswith('- '), break_on_hyphens=False) + '\n'


if __name__ == '__main__':
  files.write_whole(PAGE, rendered(PAGE.read_text()))
