"""The content of a report: a folder of records in one page."""

import base64
from collections.abc import Mapping, Sequence
import pathlib
from typing import Any, NamedTuple

import jinja2
import pandas as pd

from experiments.analysis.page import origin, texts
from experiments.analysis.tables import Table
from experiments.records import files
from experiments.settings import config as config_lib
from experiments.settings.fields import printable


class Report(NamedTuple):
  """The report of a folder, in the order of its page.

  Attributes:
    question: of the experiment.
    claim: what is expected; '' without one, and for a process or labels that it does not speak of.
    name: of the experiment and its scale.
    folder: the folder.
    tables: of which the first is open.
    figures: the SVG and the PNG of each figure by its name, in base64.
    texts: of each distribution, the strips of its texts by their titles.
    origin: tables of settings, environments and failures.
    commands: one for each of the first settings; it makes their records.
  """

  question: str
  claim: str
  name: str
  folder: str
  tables: Sequence[Table]
  figures: Mapping[str, Sequence[str]]
  texts: Mapping[str, Any]
  origin: Sequence[Table]
  commands: Sequence[str]


def report(
  workdir: pathlib.Path, settings: Any, records: pd.DataFrame, tables: Mapping[str, Table], figures: Sequence[str]
) -> Report:
  """The report of a folder; `records` have their environments, and `figures` are the names of those in the folder."""
  question, *paragraphs = config_lib.shipped(settings.experiment)['__doc__'].split('\n\n')
  claims = [paragraph for paragraph in paragraphs if paragraph.startswith('Claim')]
  claims *= not config_lib.has_own_text(settings)
  return Report(
    question,
    '\n'.join(claims),
    f'{settings.experiment}, scale {settings.scale}',
    str(workdir),
    [*tables.values()],
    {name: [_base64(workdir / f'{name}.{extension}') for extension in ('svg', 'png')] for name in figures},
    texts.of_records(records, workdir),
    *origin.of_folder(workdir, settings, records),
  )


def _base64(path: pathlib.Path) -> str:
  return base64.b64encode(files.read_bytes(path)).decode()


def page(report: Report) -> str:
  """The page of a report. Whatever its texts hold is text in it: jinja2 escapes it."""
  environment = jinja2.Environment(
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    # Line breaks of a heading are those of a terminal.
    finalize=lambda value: printable(value, '\n') if type(value) is str else value,
  )
  template = pathlib.Path(__file__).parent / 'page.html.j2'
  return environment.from_string(template.read_text('utf-8')).render(report._asdict())
