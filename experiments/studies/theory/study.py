"""The theory experiment: theorems verified, linear heads certified, assumptions counted."""

import functools
from typing import Any

from matplotlib.figure import Figure
import pandas as pd

from experiments.analysis import figures
from experiments.studies.study import in_parts, Part, Study
from experiments.studies.theory import impossibility, prevalence, problems, verification
from experiments.studies.theory.settings import TheorySettings
from experiments.studies.theory.summaries import tables

_STYLES: dict[str, dict[str, Any]] = {
  '4.3': dict(color='#000000', marker='^', linestyle='-'),
  '4.6': figures.style_of('prompt'),
  'C.6': figures.style_of('head'),
}


def parts(settings: TheorySettings) -> dict[str, Part]:
  """The parts of the experiment, in order."""
  return {
    **{
      f'verification-{theorem.name}': functools.partial(verification.verify, theorem) for theorem in problems.THEOREMS
    },
    'impossibility': impossibility.run,
    'prevalence': prevalence.run,
  }


def _figures(records: pd.DataFrame, settings: TheorySettings) -> dict[str, Figure]:
  """Accuracy of the constructions with attention by the temperature of their softmax."""
  if 'temperature' not in records:
    return {}
  drawn = figures.lines(
    records.dropna(subset='temperature'),
    settings.figure,
    'Constructions with softmax in place of argmax',
    x='temperature',
    by='theorem',
    unit=['hmm'],
    over='HMMs of each theorem',
    style=lambda theorem: dict(label=f'Theorem {theorem}', **_STYLES[theorem]),
    xlabel='temperature of the softmax; 0 is the argmax of the theorems',
    ylabel='accuracy of the construction (%)',
    then=lambda axes, rows: figures.draw_level(axes, rows, 'majority', 'majority class'),
  )
  return {'temperature': drawn} if drawn else {}


STUDY = Study(in_parts(parts), tables, _figures)
