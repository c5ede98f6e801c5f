"""The experiments of the paper's own protocol: grids of trials, with their tables and figures."""

import matplotlib.figure
import pandas as pd

from experiments.analysis import error_budget, grid_figures, report, statistics
from experiments.analysis.table import Table
from experiments.pipeline import checks, sweep
from experiments.settings.grid import Settings
from experiments.settings.methods import MAIN, METHODS
from experiments.studies.study import Study

# The function that draws each figure that settings may ask for.
FIGURES = {
  'overview': grid_figures.overview,
  'figure_3_left': grid_figures.figure_3_left,
  'figure_3_right': grid_figures.figure_3_right,
  'nearest_tokens': grid_figures.nearest_tokens,
  'forgetting': grid_figures.forgetting,
  'memory_cells': grid_figures.memory_cells,
  'attention': grid_figures.attention,
  'controls': grid_figures.controls,
  'budget': error_budget.figure,
  'conditioning': error_budget.conditioning,
}
# Figures that also show fits without a schedule.
_OF_FITS = ('budget', 'conditioning')
# Figures of records whose settings differ.
_OF_VALUES = {'against_fields': grid_figures.against_fields, 'forgetting': grid_figures.forgetting}


def _at_end(records: pd.DataFrame) -> pd.DataFrame:
  """The records but those of BERT before the last step at which a trial is tuned."""
  if 'step' not in records:
    return records
  last = records.groupby('trial_id')['step'].transform('max')
  return records[records['step'].isna() | (records['step'] == last)]


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """The tables of the records of a grid that have rows; only those of accuracies if settings of records differ."""
  records = statistics.on_fresh_texts(_at_end(records))
  whole = report.tables(records, settings.figure.paper_overlay)
  return whole if statistics.varied(records) else whole | error_budget.tables(records)


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, matplotlib.figure.Figure]:
  """The figures that the settings name and the records fill; those _OF_VALUES if settings of records differ."""
  records = statistics.on_fresh_texts(_at_end(records))
  if statistics.varied(records):
    drawn = {name: draw(records, settings.figure) for name, draw in _OF_VALUES.items()}
  else:
    trained = records[[method in MAIN or METHODS[method].is_one_schedule for method in records['method']]]
    # Other fits are only for _OF_FITS, unless there are no others.
    shown = {name: records if name in _OF_FITS or trained.empty else trained for name in settings.figures}
    drawn = {name: FIGURES[name](rows, settings.figure) for name, rows in shown.items()}
  return {name: figure for name, figure in drawn.items() if figure}


STUDY = Study(sweep.run, tables, figures, checks.check_grids)
