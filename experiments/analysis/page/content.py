"""The content of a report: the sections of a folder of records, its tables and figures."""

from collections.abc import Mapping
import pathlib
from typing import Any

import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib, statistics
from experiments.analysis.page import origin, texts, training
from experiments.analysis.page.html import Report, Section
from experiments.analysis.page.pictures import picture
from experiments.analysis.table import Table, table
from experiments.records import files, results, trials
from experiments.settings.grid import Point, Settings

# More records are shown as means.
MOST_RECORDS = 3000
# Columns that number or name records, of which there are no means.
_NAMES = ('schema_version', 'seed', 'trial', 'task', 'hmm', 'trial_id', 'pretraining_id', 'fit_id', 'environment')
# Columns whose empty cells repeat the cell above.
_REPEATED = ('contrast', 'contrast, on BERT', 'between values')

Figures = Mapping[str, matplotlib.figure.Figure]


def report(
  workdir: pathlib.Path, settings: Any, records: pd.DataFrame, tables: Mapping[str, Table], figures: Figures
) -> Report:
  """The report of a folder whose figures have been drawn into it; `records` have their environments."""
  question, *paragraphs = origin.shipped(settings.experiment)['__doc__'].split('\n\n')
  first, *others = [_whole(shown) for shown in tables.values()] or [table('No table', [])]
  is_grid, of_records = isinstance(settings, Settings), records_table(pd.DataFrame(results.load(workdir)))
  sections = [
    Section('What came out', tables=[first]),
    Section(
      'Figures',
      pictures=[picture(name, figure, files.read_bytes(workdir / f'{name}.svg')) for name, figure in figures.items()],
    ),
    *([_training(workdir, settings, records)] if is_grid else []),
    Section('Tables', folded=[*others, of_records]),
    *([_texts(workdir, records)] if is_grid else []),
    _origin(workdir, settings, records),
  ]
  claim = ''.join(paragraphs[:1]) if paragraphs and paragraphs[0].startswith('Claim') else ''
  return Report(question, claim, str(workdir), sections)


def _training(workdir: pathlib.Path, settings: Settings, records: pd.DataFrame) -> Section:
  """The curves of pretraining of a grid of trials."""
  folder = trials.pretrained_folder(settings, workdir)
  curves = training.figure(records, folder, settings.figure)
  if not curves:
    return Section('Training', f'None of the pretrained models of these records has metrics in {folder}.')
  return Section('Training', pictures=[picture('training', curves, figures_lib.as_bytes(curves, 'svg'))])


def _texts(workdir: pathlib.Path, records: pd.DataFrame) -> Section:
  """The texts that trials have kept."""
  strips = texts.strips(records, workdir)
  none = 'No texts are on file: a trial keeps them when its BERT is measured, if --config.shown_texts is above 0.'
  return Section('Texts', texts.HOW_TO_READ if strips else none, strips=strips)


def _origin(workdir: pathlib.Path, settings: Any, records: pd.DataFrame) -> Section:
  """The settings, environments and failures of a folder, and the commands that repeat it."""
  configs, commands = results.configs(workdir), list[str]()
  tables = [origin.environments(records), origin.failed(workdir)]
  if configs:
    tables = [origin.differences(settings.experiment, configs), *tables]
    commands = origin.commands(settings.experiment, configs, str(workdir))
  return Section('Settings and provenance', tables=[shown for shown in tables if len(shown.frame)], commands=commands)


def _whole(shown: Table) -> Table:
  """The table with each cell filled that repeats the one above, so that rows can be sorted."""
  frame = shown.frame.copy()
  for column in frame.columns.intersection(_REPEATED):
    frame[column] = frame[column].replace('', None).ffill()
  return shown._replace(frame=frame)


def records_table(records: pd.DataFrame) -> Table:
  """The columns of single values in which records differ; of more than MOST_RECORDS the means."""
  is_single = ~records.map(lambda value: isinstance(value, (dict, list))).any()
  frame, title = records.loc[:, is_single], f'{len(records)} records'
  if len(records) > MOST_RECORDS:
    numbers = [*Point._fields, *statistics.varied(records)]
    names = [name for name in frame if frame[name].dtype.kind not in 'biuf' or name in numbers]
    groups = frame.groupby([name for name in names if name not in _NAMES], sort=False, dropna=False)
    means = groups.mean(numeric_only=True).drop(columns=[*_NAMES], errors='ignore')
    frame, title = means.assign(records=groups.size()).reset_index()[:MOST_RECORDS], f'Means of {title}'
  differs = (frame.nunique(dropna=False) > 1) | (len(frame) == 1)
  return table(f'{title}, in the columns in which they differ', frame.loc[:, differs].map(_cell))


def _cell(value: Any) -> str:
  if pd.isna(value):
    return ''
  return f'{value:.6g}' if isinstance(value, float) else str(value)
