"""The figures of the study of degradation."""

from matplotlib.figure import Figure
import pandas as pd

from experiments.analysis import figures
from experiments.analysis.statistics import interval
from experiments.settings.groups import FigureSettings
from experiments.studies.degradation.comparisons import by_hmm, masses, METHODS, PROMPTS

_STYLES = {
  'construction': dict(color='#000000', marker='^', linestyle=':'),
  'weighted': dict(color='#009E73', marker='D', linestyle='-.'),
  'converged_head': figures.style_of('head'),
  'converged_prompt': figures.style_of('prompt'),
}
_MASS = dict(color='#CC79A7', marker='P', linestyle='none')


def draw(records: pd.DataFrame, settings: FigureSettings) -> dict[str, Figure]:
  """Accuracy against the error of the model for each theorem with several levels of it, and the mass on H*."""
  whole = by_hmm(records).query("damage == '' and error != 'short_context'")
  several = whole.groupby(['theorem', 'error'])['level'].transform('nunique') > 1
  long = whole[several].melt(
    ['theorem', 'error', 'level', 'KL', 'hmm', 'majority'], [*_STYLES], 'method', value_name='accuracy'
  )
  long = long.sort_values('level', kind='stable')
  panel = 'Theorem ' + long['theorem']
  is_bert = long['error'] == 'bert'
  long = long.assign(panel=panel + (', ' + long['error'].str.upper()).where(is_bert, ''))
  drawn = figures.lines(
    long,
    settings,
    'Accuracy on a model with an error',
    x='level',
    by='method',
    panel='panel',
    unit=['hmm'],
    over='HMMs',
    source=records,
    cell=interval,
    style=lambda name: dict(label=METHODS[name].replace('\n', ' '), **_STYLES[name]),
    xlabel='steps of pretraining' if is_bert.all() else 'KL(G || model) at the [MASK] (nats)',
  )
  mass = masses(records).stack().rename('mass').rename_axis(['model', 'hmm', 'prompt']).reset_index()
  moved = figures.lines(
    mass.assign(prompt=mass['prompt'].map(PROMPTS)),
    settings,
    'Posterior mass on H* behind each prompt',
    x='prompt',
    by='model',
    panel='model',
    field='mass',
    unit=['hmm'],
    over='HMMs',
    source=records,
    # Masses read off a model's predictions may be negative.
    cell=interval,
    style=lambda name: dict(label=f'_{name}', **_MASS),
    xlabel='prompt',
    ylabel='posterior mass (%)',
  )
  return {name: figure for name, figure in {'degradation': drawn, 'mass': moved}.items() if figure}
