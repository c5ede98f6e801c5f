"""python -m experiments.theory.page: tables and numbers in docs/theory_results.md anew, from the records beside it.

A block stands between two comments, the first of which names the section and the folder of its records.
"""

import pathlib
import re

from experiments import files, results
from experiments.theory.appendix_report import appendix_section
from experiments.theory.impossibility_report import impossibility_section
from experiments.theory.prevalence_report import prevalence_section
from experiments.theory.verification_report import verification_section

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'theory_results.md'
BLOCK = re.compile(r'(<!-- (\w+) of (\S+) -->\n).*?(<!-- end of \2 -->\n)', re.DOTALL)
# Each with what the part of its records is called, or begins with.
SECTIONS = {
  'verification': verification_section,
  'appendix': appendix_section,
  'impossibility': impossibility_section,
  'prevalence': prevalence_section,
}


def rendered(text: str) -> str:
  """The page with what the records say in every block."""
  return BLOCK.sub(lambda match: f'{match[1]}\n{_block(match[2], PAGE.parent / match[3])}\n\n{match[4]}', text)


def _block(name: str, folder: pathlib.Path) -> str:
  return SECTIONS[name]([record for record in results.load(folder) if record['part'].startswith(name)])


if __name__ == '__main__':
  files.write_whole(PAGE, rendered(PAGE.read_text()))
