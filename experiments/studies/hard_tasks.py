"""The lead of readers of BERT over readers without a model along pretraining, which is measured as in `plateau`."""

import matplotlib.figure
import pandas as pd

from experiments.analysis.statistics import by_unit, lead, mean_interval, select
from experiments.analysis.table import Table, table
from experiments.settings.methods import METHODS
from experiments.studies import plateau
from experiments.studies.settings import PlateauSettings


def with_lead(records: pd.DataFrame) -> pd.DataFrame:
  """The records of methods on BERT with `lead`, their accuracy minus the best without a model on the same task."""
  steps, without = plateau.on_bert(records), records[records['step'].isna()]
  return steps.assign(lead=lead(steps, without, [*plateau.HMM, 'task']), no_lead=0.0)


def _leads(rows: pd.DataFrame) -> dict[str, str]:
  of_method = lambda name: mean_interval(100 * by_unit(select(rows, method=name), 'lead', plateau.HMM))
  return {METHODS[name].label: str(of_method(name)) for name in rows['method'].unique()}


def _tables(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, Table]:
  title = 'Lead over the best reader without a model in points, mean ± 95% over HMMs; KL as a share of the unigram gap'
  leads = table(title, plateau.by_step(with_lead(records), _leads))
  return {**plateau.tables(records, settings), 'lead': leads}


def _figures(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, matplotlib.figure.Figure]:
  return {'lead': plateau.draw(with_lead(records), settings, 'lead', 'no_lead')}


STUDY = plateau.STUDY._replace(tables=_tables, figures=_figures)
