"""The content of a report: a folder of records in one page."""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any, NamedTuple

import jinja2
import pandas as pd

from experiments.analysis.page import origin, texts
from experiments.analysis.page.pictures import Picture
from experiments.analysis.tables import Table, table, varied
from experiments.settings import config as config_lib
from experiments.settings.fields import printable
from experiments.settings.grid import Point

# More records are shown as means.
MOST_RECORDS = 3000
# Columns of which there are means, and those that number records, of which there are none.
_MEANS_BY = (*Point._fields, 'part', 'model', 'method', 'step')
_NUMBERS = ('schema_version', 'seed', 'trial', 'task')
# Columns whose empty cells repeat the cell above.
_REPEATED = ('contrast',)


class Report(NamedTuple):
  """The report of a folder, in the order of its page; the first of the tables is open."""

  question: str
  claim: str
  folder: str
  tables: Sequence[Table]
  pictures: Sequence[Picture]
  texts: Mapping[str, Sequence[texts.Text]]
  origin: Sequence[Table]
  commands: Sequence[str]


def report(
  workdir: pathlib.Path,
  settings: Any,
  records: pd.DataFrame,
  tables: Mapping[str, Table],
  pictures: Sequence[Picture],
) -> Report:
  """The report of a folder; `records` have their environments."""
  question, *paragraphs = config_lib.shipped(settings.experiment)['__doc__'].split('\n\n')
  return Report(
    question,
    next((paragraph for paragraph in paragraphs if paragraph.startswith('Claim')), ''),
    str(workdir),
    [*map(_whole, tables.values()), records_table(records)],
    pictures,
    texts.of_records(records, workdir),
    *origin.of_folder(workdir, settings, records),
  )


def _whole(shown: Table) -> Table:
  """The table with each cell filled that repeats the one above, so that rows can be sorted."""
  filled = {name: shown.frame[name].replace('', None).ffill() for name in _REPEATED if name in shown.frame}
  return shown._replace(frame=shown.frame.assign(**filled))


def records_table(records: pd.DataFrame) -> Table:
  """The columns of single values in which records differ; of more than MOST_RECORDS the means."""
  title = f'{len(records)} records'
  shown = records.loc[:, ~records.map(lambda value: isinstance(value, (dict, list))).any()]
  if len(shown) > MOST_RECORDS:
    groups = shown.groupby([name for name in (*_MEANS_BY, *varied(shown)) if name in shown], sort=False, dropna=False)
    means = groups.mean(numeric_only=True).drop(columns=[*_NUMBERS], errors='ignore')
    shown, title = means.assign(records=groups.size()).reset_index(), f'Means of {title}'
  differs = (shown.nunique(dropna=False) > 1) | (len(shown) == 1)
  return table(f'{title}, in the columns in which they differ', shown.loc[:, differs])


def page(reports: Sequence[Report]) -> str:
  """The page of reports side by side. Whatever their texts hold is text in it: jinja2 escapes it."""
  environment = jinja2.Environment(
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    # Line breaks of a heading are those of a terminal.
    finalize=lambda value: printable(value, '\n') if type(value) is str else value,
  )
  template = pathlib.Path(__file__).parent / 'page.html.j2'
  return environment.from_string(template.read_text('utf-8')).render(reports=reports)
