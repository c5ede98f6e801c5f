"""python -m experiments.studies.pages: fill the tables of README.md and docs/, and draw figures, from docs/results/.

A table stands between `<!-- table NAME of FOLDER -->` and `<!-- end -->`, FOLDER below docs/results/; all words around
it are written by hand. Figures lie beside the records that they are drawn from: those of every folder of which a page
has a table or a figure. FROZEN folders are left out: their figures stay, their tables are plain words.
"""

from collections.abc import Callable
import functools
import pathlib
import re
import sys

import matplotlib.figure

from experiments.analysis import figures
from experiments.analysis.tables import as_markdown, Table
from experiments.records import files, load, results
from experiments.runtime import exit_status
from experiments.settings.fields import SettingsError
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md')))
TABLE = re.compile(r'(<!-- table (\w+) of (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)
_FOLDER = re.compile(r'(?:<!-- table \w+ of |\]\([^)]*results/)(\S+)(?: -->\n|/\w+\.png)')
_RESULTS = ROOT / 'docs' / 'results'
# Folders of finished findings, whose records no code makes or shows any more; their tables are text.
FROZEN = {'beyond/classes', 'which_theorem'}


def filled(text: str) -> str:
  """The text of a page with every table as its records have it now."""
  return TABLE.sub(lambda marked: f'{marked[1]}\n{as_markdown(_shown(marked[3])[0][marked[2]])}\n\n{marked[4]}', text)


@functools.cache
def _shown(folder: str) -> tuple[dict[str, Table], Callable[[], dict[str, matplotlib.figure.Figure]]]:
  """The tables of a folder of records by name, and a function that draws its figures."""
  settings = registry.from_record(results.config(_RESULTS / folder) or {})
  study, records = registry.EXPERIMENTS[settings.experiment], load(_RESULTS / folder, environment=True)
  return study.tables(records, settings), functools.partial(study.figures, records, settings)


def folders() -> set[str]:
  """The folders below docs/results of which a page has a table or a figure."""
  return {folder for page in PAGES for folder in _FOLDER.findall(page.read_text('utf-8'))}


def main(words: list[str]) -> int:
  """Rewrite every page, and the figures of every folder of records on a page but FROZEN; return the exit status."""
  if words:
    print(f'error: unknown argument {words[0]!r}; valid is none', file=sys.stderr)
    return exit_status.BAD_INPUT
  for page in PAGES:
    text = page.read_text('utf-8')
    try:
      files.write_whole(page, filled(text))
    except (KeyError, ValueError, SettingsError) as error:
      print(f'error: {page} has an unknown table ({error}); valid is NAME of FOLDER', file=sys.stderr)
      return exit_status.BAD_INPUT
  for folder in sorted(folders() - FROZEN):
    _, draw = _shown(folder)
    for name, figure in draw().items():
      files.write_whole(_RESULTS / folder / f'{name}.png', figures.as_bytes(figure, 'png'))
  return exit_status.DONE


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
