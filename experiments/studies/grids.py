"""The experiments of the paper's own protocol: grids of trials, with their tables and figures."""

from typing import Any

from matplotlib.figure import Figure
import pandas as pd

from experiments.analysis import error_budget, grid_figures, grid_tables, plans
from experiments.analysis.tables import Table
from experiments.settings import config as config_lib
from experiments.settings.grid import Settings
from experiments.settings.methods import MAIN, METHODS
from experiments.settings.plan import EndPoint
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


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """The tables of the records of a grid that have rows; only those of accuracies if settings of records differ."""
  every = grid_tables.prepared(records)
  plan = plans.tables(plan_of(settings), every)
  grid = every.at_end()
  whole = plan | grid_tables.tables(grid, settings.figure.paper_overlay)
  return whole if grid.varied else whole | error_budget.tables(grid)


def plan_of(settings: Settings) -> tuple[EndPoint, ...]:
  """The plan on record; of records from before plans were recorded, that of the shipped config.

  With a process or labels of the user's own, of a shipped plan only end points remain whose sizes the shipped grid
  lacks: the others speak of the paper's text.
  """
  config = config_lib.shipped_config(settings.experiment, settings.scale)
  shipped = config_lib.from_config(config, {settings.experiment: Settings})
  if settings.scale != shipped.scale:
    return settings.plan
  plan = settings.plan or shipped.plan
  is_shipped = plan == shipped.plan
  if not (is_shipped and config_lib.has_own_text(settings)):
    return plan
  sizes = set(shipped.num_states)
  return tuple(point for point in plan if point.num_states and sizes.isdisjoint(point.num_states))


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, Figure]:
  """The figures that the settings name and the records fill; those _OF_VALUES if settings of records differ."""
  grid = grid_tables.prepared(records).at_end()
  if grid.varied:
    drawn = {name: draw(grid, settings.figure) for name, draw in _OF_VALUES.items()}
  else:
    methods = grid.records['method']
    trained = [name for name in methods.unique() if name in MAIN or METHODS[name].is_one_schedule]
    # Other fits are only for _OF_FITS, unless there are no others.
    of_trained = grid._replace(records=grid.records[methods.isin(trained)]) if trained else grid
    drawn = {}
    for name in settings.figures:
      shown = grid if name in _OF_FITS else of_trained
      drawn[name] = FIGURES[name](shown, settings.figure)
  return {name: figure for name, figure in drawn.items() if figure}


def _run(*arguments: Any) -> str | None:
  from experiments.pipeline import sweep  # A report imports no code that trains.

  return sweep.run(*arguments)


def _check(*arguments: Any) -> None:
  from experiments.pipeline import checks

  checks.check_grid(*arguments)


STUDY = Study(_run, tables, figures, _check)
