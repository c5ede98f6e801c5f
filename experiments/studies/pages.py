"""python -m experiments.studies.pages: fills the tables of README.md and docs/, and draws figures, from docs/results/.

A table stands between `<!-- table NAME of FOLDER -->` and `<!-- end -->`, FOLDER below docs/results/; all words around
it are written by hand. Figures lie beside the records that they are drawn from.
"""

import functools
import pathlib
import re
from typing import Any

import pandas as pd

from experiments.analysis import figures
from experiments.analysis.tables import as_markdown, Table
from experiments.records import files, frames, results
from experiments.studies import registry
from experiments.studies.study import Study

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md')))
TABLE = re.compile(r'(<!-- table (\w+) of (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)


def filled(text: str) -> str:
  """The text of a page with every table as its records have it now."""
  return TABLE.sub(lambda found: f'{found[1]}\n{as_markdown(_tables(found[3])[found[2]])}\n\n{found[4]}', text)


@functools.cache
def _tables(folder: str) -> dict[str, Table]:
  study, settings, records = _study(folder)
  return study.tables(records, settings)


@functools.cache
def _study(folder: str) -> tuple[Study, Any, pd.DataFrame]:
  workdir = ROOT / 'docs' / 'results' / folder
  settings = registry.from_record(results.config(workdir) or {})
  return registry.EXPERIMENTS[settings.experiment], settings, frames.load(workdir)


def main() -> None:
  """Writes every page anew, and the figures of every folder of records that a page has a table of."""
  folders = set[str]()
  for page in PAGES:
    text = page.read_text()
    folders |= {found[3] for found in TABLE.finditer(text)}
    files.write_whole(page, filled(text))
  for folder in sorted(folders):
    study, settings, records = _study(folder)
    for name, figure in study.figures(records, settings).items():
      files.write_whole(ROOT / 'docs' / 'results' / folder / f'{name}.png', figures.as_bytes(figure, 'png'))


if __name__ == '__main__':
  main()
