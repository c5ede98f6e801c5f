"""python -m experiments.studies.theory.page: tables and numbers in docs/theory_results.md from its records."""

import pathlib

from experiments.analysis import pages
from experiments.records import results
from experiments.studies.theory.appendix_report import appendix_section
from experiments.studies.theory.impossibility_report import impossibility_section
from experiments.studies.theory.prevalence_report import prevalence_section
from experiments.studies.theory.verification_report import verification_section

PAGE = pages.DOCS / 'theory_results.md'
# Each with what the part of its records is called, or begins with.
SECTIONS = {
  'verification': verification_section,
  'appendix': appendix_section,
  'impossibility': impossibility_section,
  'prevalence': prevalence_section,
}


def section(name: str, folder: pathlib.Path) -> str:
  """The tables and sentences of one part."""
  return SECTIONS[name]([record for record in results.load(folder) if record['part'].startswith(name)])


if __name__ == '__main__':
  pages.fill(PAGE, section)
