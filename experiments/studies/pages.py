"""python -m experiments.studies.pages: write tables and figures beside the records in docs/results, and the gallery.

Every folder of records gets NAME.csv of each table, with the title in the last column, and NAME.png of each figure.
FROZEN folders keep theirs. docs/gallery.md shows all figures.
"""

import pathlib
import sys
from typing import Any

import pandas as pd

from experiments.analysis import figures
from experiments.analysis.tables import Table
from experiments.records import files, load, results
from experiments.runtime import exit_status
from experiments.studies import registry
from experiments.studies.study import Study

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / 'docs' / 'results'
GALLERY = ROOT / 'docs' / 'gallery.md'
# Folders of finished findings, whose records no code makes or shows any more.
FROZEN = {'beyond/classes', 'which_theorem'}
_INTRODUCTION = """# Gallery

Every figure of committed records, by folder below `docs/results`.
"""


def folders() -> list[pathlib.Path]:
  """The folders of records, but for FROZEN ones."""
  of_records = (path.parent for path in RESULTS.rglob('results.jsonl'))
  return sorted(folder for folder in of_records if str(folder.relative_to(RESULTS)) not in FROZEN)


def tables(folder: pathlib.Path) -> dict[str, str]:
  """The tables of a folder's records by file name."""
  study, records, settings = _read(folder)
  return {f'{name}.csv': _as_csv(table) for name, table in study.tables(records, settings).items()}


def _as_csv(table: Table) -> str:
  frame = table.frame.rename(columns=lambda heading: heading.replace('\n', ' '))
  frame['title'] = [table.title] + [''] * (len(frame) - 1)
  return frame.to_csv(index=False)


def drawn(folder: pathlib.Path) -> dict[str, bytes]:
  """The figures of a folder's records by file name."""
  study, records, settings = _read(folder)
  return {f'{name}.png': figures.as_bytes(figure, 'png') for name, figure in study.figures(records, settings).items()}


def _read(folder: pathlib.Path) -> tuple[Study, pd.DataFrame, Any]:
  settings = registry.from_record(results.configs(folder)[0])
  return registry.EXPERIMENTS[settings.experiment], load(folder, environment=True), settings


def gallery() -> str:
  """The page of all figures that lie beside records."""
  text = _INTRODUCTION
  for folder in sorted({path.parent for path in RESULTS.rglob('*.png')}):
    text += f'\n## {folder.relative_to(RESULTS)}\n\n'
    for path in sorted(folder.glob('*.png')):
      text += f'![{path.stem}]({path.relative_to(GALLERY.parent)})\n'
  return text


def main(words: list[str]) -> int:
  """Write all tables, figures and the gallery; return the exit status."""
  if words:
    print(f'error: unknown argument {words[0]!r}; valid is none', file=sys.stderr)
    return exit_status.BAD_INPUT
  for folder in folders():
    contents: dict[str, str | bytes] = {**tables(folder), **drawn(folder)}
    for name, content in contents.items():
      files.write_whole(folder / name, content)
  files.write_whole(GALLERY, gallery())
  return exit_status.DONE


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
