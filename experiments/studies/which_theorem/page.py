"""python -m experiments.studies.which_theorem.page: tables and numbers in docs/which_theorem.md from its records."""

import pathlib
import textwrap
from typing import Any

from experiments.analysis import pages
from experiments.records import environment, files, results
from experiments.runtime import timing
from experiments.studies.which_theorem import accuracy, prompts_report, report
from experiments.studies.which_theorem.sentences import SENTENCES

PAGE = pages.DOCS / 'which_theorem.md'
_WIDTH = 120
# Beside the folder of the records: what was tuned on the same tasks.
_TRIALS = pathlib.Path('small', 'figure_3_left')
ACCURACIES = {'accuracy': accuracy.accuracy_table, 'prompt_accuracy': accuracy.prompt_table}


def section(name: str, folder: pathlib.Path) -> str:
  """A table or sentences; a line where there are no records to make them of."""
  records = results.load(folder)
  if name == 'took':
    made = environment.load(folder, records).values()
    return _wrapped(_took(files.read_json_lines(folder / timing.FILE_NAME), list(made)))
  if name in SENTENCES:
    return '\n'.join(map(_wrapped, SENTENCES[name](records).splitlines()))
  if name == 'prompts':
    lines = prompts_report.section(records).splitlines()
    return '\n'.join(_wrapped(line) if line.startswith('- ') else line for line in lines)
  if name in ACCURACIES:
    table = ACCURACIES[name](records, results.load(folder.parent / _TRIALS))
  else:
    table = report.TABLES[name](records)
  return table.markdown() if table else 'No records yet.'


def _took(spent: list[dict[str, Any]], made: list[environment.Environment]) -> str:
  """What the parts cost, and where."""
  parts = ', '.join(f'{line["seconds"] / 60:.1f} ({line["part"]})' for line in spent)
  where = ' and '.join(dict.fromkeys(line['cpu'] for line in made))
  commits = ' and '.join(dict.fromkeys(str(line['commit'])[:7] for line in made))
  return f'Minutes on the clock that its parts took, on {where} which other work shared, at commit {commits}: {parts}.'


def _wrapped(line: str) -> str:
  return textwrap.fill(line, _WIDTH, subsequent_indent='  ', break_on_hyphens=False)


if __name__ == '__main__':
  pages.fill(PAGE, section)
