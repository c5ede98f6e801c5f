"""The theory experiment: theorems verified, linear heads certified, assumptions counted."""

import functools
from typing import Any

import matplotlib.figure
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


@figures.styled
def _figures(records: pd.DataFrame, settings: TheorySettings) -> dict[str, matplotlib.figure.Figure]:
  """Accuracy of the constructions with attention by the temperature of their softmax."""
  if 'temperature' not in records:
    return {}
  figure, (axes,) = figures.panels(settings.figure)
  records = records.dropna(subset='temperature')
  temperatures = sorted(records['temperature'].unique())
  if len(temperatures) > 2:
    axes.set_xscale('symlog', linthresh=temperatures[1], linscale=0.6)
  samples = lambda rows, field: {
    temperature: 100 * values.to_numpy(float) for temperature, values in rows.groupby('temperature')[field]
  }
  for place, (theorem, of_theorem) in enumerate(records.groupby('theorem', sort=False)):
    figures.draw_line(axes, samples(of_theorem, 'accuracy'), f'Theorem {theorem}', _STYLES[theorem], 7 * (place - 1))
  figures.draw_majority(axes, samples(records, 'majority'))
  axes.set_xticks(temperatures, [f'{value:g}' for value in temperatures])
  axes.minorticks_off()
  axes.set(
    xlabel='temperature of the softmax; 0 is the argmax of the theorems', ylabel='accuracy of the construction (%)'
  )
  count = figures.counted([records['hmm'].nunique()], 'HMMs of each theorem')
  figures.finish(figure, records, 'Constructions with softmax in place of argmax', count)
  return {'temperature': figure}


STUDY = Study(in_parts(parts), tables, _figures)
