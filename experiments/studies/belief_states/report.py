"""Tables and figures of the study of belief states, from records."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import holm, mean_interval, select, stratified
from experiments.analysis.table import format_number, Table, table
from experiments.studies.belief_states.measure import DESIGNS
from experiments.studies.settings import BeliefSettings
import hmm_jax as hj

_TITLES = {'kl': 'KL of a softmax probe, or of a table, in nats', 'r_squared': 'R^2 of an affine probe, or of a table'}
_CONTROLS = ['exact G', 'window', 'table', 'shuffled']


def _numbers(records: pd.DataFrame) -> pd.DataFrame:
  """The records of single numbers; the untrained model's readers have other names than the trained one's."""
  rows = records[records['measure'] != 'points'].astype({'value': float})
  return rows.assign(reader=np.where(rows['step'] == 0, 'untrained ', '') + rows['reader'])


def _ends(numbers: pd.DataFrame) -> pd.DataFrame:
  """Without the checkpoints between the untrained and the trained model."""
  return numbers[~numbers['step'].between(1, numbers['step'].max() - 1)]


def _means(
  title: str, rows: pd.DataFrame, index: list[str], columns: str = 'reader', last: Sequence[str] = ()
) -> Table:
  """A row for each entry of the index, of means over HMMs; these columns come last."""
  cells = rows.pivot_table('value', index, columns, sort=False)
  cells = cells[[*cells.columns.drop([*last]), *last]].map(lambda value: format_number(value, '.3g'))
  return table(title, cells.reset_index().astype(str), len(index))


def _along(numbers: pd.DataFrame) -> pd.DataFrame:
  """KL of beliefs by layer, and of the prediction, as shares of that of a constant, at every checkpoint."""
  rows = select(numbers, measure='share', design='pooled').dropna(subset='step')
  rows = rows.assign(reader=rows['reader'].str.replace('untrained ', ''))
  return rows[~rows['reader'].isin(['embeddings', 'shuffled'])]


def _tests(numbers: pd.DataFrame, settings: BeliefSettings) -> Table:
  """The primary end points, each a number of every HMM that is expected below 0."""
  values = _ends(numbers).pivot_table('value', ['process', 'hmm'], ['design', 'measure', 'reader'])
  hmms = [f'H{size}_T{temperature:g}' for size, temperature in zip(settings.num_states, settings.temperatures)]
  paper = [name for name in hmms if name.endswith(f'_T{settings.hmm.emission_temperature:g}')]
  weak = [name for name in hmms if name not in paper]
  last = f'layer_{settings.bert.num_layers}'
  ratio = lambda design, other: np.log(values[design, 'kl', last] / values[design, 'kl', other])
  end_points = {
    f'ln(KL of {last} / table), pooled, weak emissions': ratio('pooled', 'table')[weak],
    f'ln(KL of {last} / table), fixed, weak emissions': ratio('fixed', 'table')[weak],
    f'ln(KL of window / {last}), pooled, weak emissions': -ratio('pooled', 'window')[weak],
    f"ln(KL of table / {last}), pooled, the paper's draws": -ratio('pooled', 'table')[paper],
    f'ln(KL of {last} / untrained), pooled': ratio('pooled', f'untrained {last}')[hmms],
    f'encoding patch of {last} - 0.05': values['patch', 'encoding', last][hmms] - 0.05,
    'encoding patch of layer_1 - 0.5': values['patch', 'encoding', 'layer_1'][hmms] - 0.5,
    f'0.9 - complement patch of {last}': 0.9 - values['patch', 'complement', last][hmms],
  }
  means = [stratified([part for _, part in values.groupby('process')]) for values in end_points.values()]
  rows = []
  for name, mean, p in zip(end_points, means, holm([mean.p_value for mean in means])):
    verdict = 'open' if not p < 0.05 else 'holds' if mean.mean < 0 else 'refuted'
    shown = f'{mean.mean:.2f} ± {mean.half_width:.2f}'
    rows.append(
      {
        'expected below 0': name,
        'HMMs': str(len(mean.values)),
        'mean': shown,
        'p, Holm': f'{p:.2g}',
        'verdict': verdict,
      }
    )
  return table('Primary end points, mean ± 95% over HMMs, stratified by process', rows, 1)


def tables(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, Table]:
  """All tables, only from records."""
  numbers = _numbers(records)
  probed = _ends(numbers)[lambda rows: rows['reader'].isin(_CONTROLS) | rows['reader'].str.contains('layer')]
  probed = probed[probed['design'].isin(DESIGNS)]
  return {
    'tests': _tests(numbers, settings),
    **{
      measure: _means(title, select(probed, measure=measure), ['process', 'design'], last=_CONTROLS)
      for measure, title in _TITLES.items()
    },
    'concentration': _means(
      'Beliefs: entropy in nats and largest probability',
      select(numbers, reader='exact'),
      ['process', 'design'],
      'measure',
    ),
    'patches': _means(
      "KL to the exact prediction from another text's belief, as a share of that of no patch, in nats",
      select(numbers, design='patch'),
      ['process', 'reader'],
      'measure',
    ),
    'along': _means(
      'Along pretraining, pooled: KL as a share of the best constant answer', _along(numbers), ['process', 'step']
    ),
    'prompts': _means('Under a tuned prompt', select(numbers, design='prompt'), ['process', 'reader'], 'measure'),
  }


@figures_lib.styled
def figures(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, matplotlib.figure.Figure]:
  """All figures, only from records."""
  numbers, made = _numbers(records), dict[str, matplotlib.figure.Figure]()

  def panels(name: str, rows: pd.DataFrame, by: str) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Yield axes and rows of each panel of a figure, four side by side, then finish it."""
    groups = rows.groupby(by, sort=False)
    columns = min(len(groups), 4)
    made[name], grid = figures_lib.panels(settings.figure, columns, -(-len(groups) // columns))
    for axes in grid[len(groups) :]:
      axes.axis('off')
    for axes, (title, of_panel) in zip(grid, groups):
      axes.set_title(title)
      yield axes, of_panel
    figures_lib.finish(made[name], records)

  pooled = select(_ends(numbers), design='pooled')
  for measure, label in _TITLES.items():
    for axes, rows in panels(f'layers_{measure}', select(pooled, measure=measure), 'process'):
      _draw_layers(axes, rows)
      axes.set(ylabel=label.split(',')[0], yscale='log' if measure == 'kl' else 'linear')
      axes.label_outer()
  for axes, rows in panels('along', _along(numbers), 'process'):
    means = rows.pivot_table('value', 'step', 'reader')
    for layer in means.columns.drop('prediction'):
      axes.plot(100 * means['prediction'], 100 * means[layer], label=layer)
    axes.axline((0, 0), slope=1, color='0.6', linewidth=0.9, linestyle=':')
    axes.set(xlabel='KL of the prediction (%)', ylabel='KL of the belief (%)')
    axes.xaxis.set_inverted(True)
    axes.label_outer()
  for axes, rows in panels('patches', select(numbers, design='patch').query("measure != 'none'"), 'reader'):
    shares = rows.pivot_table('value', 'measure', 'process', sort=False)
    axes.barh(shares.index, shares.mean(axis=1), color='0.85')
    for process in shares:
      axes.plot(shares[process], shares.index, linestyle='', label=process)
    axes.axvline(1, color='0.6', linewidth=0.9, linestyle=':')
    axes.set(xlabel='KL, as a share of no patch', xscale='log', xlim=(0.003, None))
    axes.yaxis.set_inverted(True)
  # A [MASK] has one embedding in all texts.
  points = records.query("measure == 'points' and reader != 'embeddings'")
  exact = select(points, reader='exact')['value']
  named = np.where(points['step'] == 0, 'untrained ', '') + points['reader']
  for axes, rows in panels('simplex', points.assign(reader=named), 'reader'):
    hj.plots.simplex(np.array(rows['value'].iloc[0]), np.array(exact.iloc[0]), axes)
  return made


def _draw_layers(axes: Axes, rows: pd.DataFrame) -> None:
  """A line of the trained and one of the untrained model, and controls as bands, of one measure and process."""
  means = {reader: mean_interval(of) for reader, of in rows.groupby('reader', sort=False)['value']}
  # Two values or less have no interval.
  pairs = {reader: (one.mean, np.nan_to_num(one.half_width)) for reader, one in means.items()}
  layers = [reader for reader in pairs if reader.startswith(('embeddings', 'layer'))]
  lines = {
    name: {layer.replace('embeddings', 'emb.'): pairs[before + layer] for layer in layers}
    for name, before in (('trained', ''), ('untrained', 'untrained '))
  }
  hj.plots.layers(lines | {name: pairs[name] for name in _CONTROLS}, axes).get_legend().remove()
