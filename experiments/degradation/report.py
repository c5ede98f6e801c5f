"""The tables and the figure of the study of degradation, from records alone."""

import matplotlib.figure

from experiments import figures, report, results
from experiments.degradation.methods import LABELS
from experiments.results import Record
from experiments.settings import FigureSettings

_OF_CONDITION = ('theorem', 'damage', 'degree', 'error', 'level')


def render(records: list[Record]) -> str:
  """Accuracies by condition and way, as plain text."""
  tasks, rows = results.select(records, kind='task'), []
  for condition in dict.fromkeys(tuple(record[name] for name in _OF_CONDITION) for record in tasks):
    chosen = results.select(tasks, **dict(zip(_OF_CONDITION, condition)))
    row = [(name, str(value)) for name, value in zip(_OF_CONDITION, condition)]
    for way, label in LABELS.items():
      values = [100 * record['accuracy'][way] for record in chosen if way in record['accuracy']]
      row.append((label, str(results.mean_interval(values)) if values else ''))
    rows.append(row)
  return report.as_text(report.from_rows('Test accuracy in percent', rows))


@figures.styled
def draw(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against noise."""
  figure, _ = figures.panels(settings, 2)
  return figure
