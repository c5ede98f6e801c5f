"""Tables and figures of the study of belief states, from records."""

from collections.abc import Callable

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

_CONTROLS = ['exact G', 'window', 'table', 'shuffled']
_UNTRAINED = 'untrained '


def _ends(records: pd.DataFrame) -> pd.DataFrame:
  """The records of controls and of the untrained and the trained model, whose readers have different names."""
  rows = records[~records['step'].between(1, records['step'].max() - 1)]
  return rows.assign(reader=np.where(rows['step'] == 0, _UNTRAINED, '') + rows['reader'])


def _along(records: pd.DataFrame) -> pd.DataFrame:
  """The records of layers, but for the embeddings, and of predictions at every checkpoint."""
  return select(records, design='pooled').dropna(subset='step')[lambda of: of['reader'].str.match('layer|prediction')]


def _means(title: str, rows: pd.DataFrame, index: list[str], field: str) -> Table:
  """A row for each entry of the index, of means over HMMs by reader; controls stand last."""
  cells = rows.pivot_table(field, index, 'reader', sort=False).map(lambda value: format_number(value, '.3g'))
  last = cells.columns.isin(_CONTROLS)
  return table(title, cells[[*cells.columns[~last], *cells.columns[last]]].reset_index().astype(str), len(index))


def _tests(ends: pd.DataFrame, settings: BeliefSettings) -> Table:
  """The primary end points: ln of a ratio of two KLs, by HMM, minus ln of a bound."""
  kl, last = ends.pivot_table('kl', ['process', 'hmm'], ['design', 'reader']), f'layer_{settings.bert.num_layers}'
  kl = kl[kl.index.get_level_values('process').str.startswith('H')]
  is_paper = kl.index.get_level_values('process').str.endswith(f'_T{settings.hmm.emission_temperature:g}')
  weak, encoding = kl[~is_paper], f'encoding patch of {last} / none'
  end_points = {
    f'{last} / table, pooled, weak emissions': (weak, 'pooled', last, 'table', 1),
    f'{last} / table, fixed, weak emissions': (weak, 'fixed', last, 'table', 1),
    f'window / {last}, pooled, weak emissions': (weak, 'pooled', 'window', last, 1),
    f"table / {last}, pooled, the paper's draws": (kl[is_paper], 'pooled', 'table', last, 1),
    f'{last} / untrained, pooled': (kl, 'pooled', last, _UNTRAINED + last, 1),
    f'{encoding} / 0.05': (kl, f'{last} patched', 'encoding', 'none', 0.05),
    f'{encoding.replace(last, "layer_1")} / 0.5': (kl, 'layer_1 patched', 'encoding', 'none', 0.5),
    f'0.9 none / complement patch of {last}': (kl, f'{last} patched', 'none', 'complement', 1 / 0.9),
  }
  ratios = [
    np.log(of[place, above] / of[place, below] / bound) for of, place, above, below, bound in end_points.values()
  ]
  means = [stratified([of for _, of in values.groupby('process')]) for values in ratios]
  rows = [
    {
      'ln of KL': name,
      'HMMs': str(len(mean.values)),
      'mean': f'{mean.mean:.2f} ± {mean.half_width:.2f}',
      'p, Holm': f'{p:.2g}',
      'below 0': 'open' if not p < 0.05 else 'holds' if mean.mean < 0 else 'refuted',
    }
    for name, mean, p in zip(end_points, means, holm([mean.p_value for mean in means]))
  ]
  return table('Primary end points, expected below 0: mean ± 95% over HMMs, stratified by process', rows, 1)


def tables(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, Table]:
  """All tables, only from records."""
  ends, by_design = _ends(records), ['process', 'design']
  probed = ends[ends['design'].isin(DESIGNS) & ~ends['reader'].str.endswith('prediction')]
  beside = probed.assign(r_squared=probed['r_squared'].fillna(probed['largest']))
  moved = select(records, design='prompt').melt(
    ['process', 'reader'], ['distance', 'distance_prompted', 'shift'], 'measure'
  )
  return {
    'tests': _tests(ends, settings),
    'kl': _means('KL of a softmax probe, or of a table, in nats', probed, by_design, 'kl'),
    'r_squared': _means(
      'R^2 of an affine probe, or of a table; exact: the mean largest probability of a belief',
      beside,
      by_design,
      'r_squared',
    ),
    'patches': _means(
      "KL to the exact prediction from another text's belief, as a share of that of no patch",
      ends[ends['design'].str.endswith('patched')],
      by_design,
      'share',
    ),
    'along': _means(
      "Along pretraining, pooled: KL as a share of the best constant's", _along(records), ['process', 'step'], 'share'
    ),
    'prompts': _means('Under a tuned prompt', moved, ['process', 'measure'], 'value'),
  }


@figures_lib.styled
def figures(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, matplotlib.figure.Figure]:
  """All figures, only from records."""
  ends = _ends(records)
  # A [MASK] has one embedding in all texts.
  points = select(ends, hmm=0).dropna(subset='points')[lambda rows: ~rows['reader'].str.contains('embeddings')]
  drawn = {
    'layers': (select(ends, design='pooled'), 'process', _draw_layers),
    'along': (_along(records), 'process', _draw_along),
    'patches': (ends[ends['design'].str.endswith('patched')], 'design', _draw_patches),
    'simplex': (points.assign(exact=[points['points'].iloc[0]] * len(points)), 'reader', _draw_simplex),
  }
  return {name: _figure(records, settings, *each) for name, each in drawn.items()}


def _figure(
  records: pd.DataFrame,
  settings: BeliefSettings,
  rows: pd.DataFrame,
  by: str,
  draw: Callable[[Axes, pd.DataFrame], object],
) -> matplotlib.figure.Figure:
  """A panel for each value of a field, at most four side by side."""
  groups = rows.groupby(by, sort=False)
  columns = min(len(groups), 4)
  figure, grid = figures_lib.panels(settings.figure, columns, -(-len(groups) // columns))
  for axes in grid[len(groups) :]:
    axes.axis('off')
  for axes, (title, of_panel) in zip(grid, groups):
    draw(axes, of_panel)
    axes.set_title(title)
    axes.label_outer()
  figures_lib.finish(figure, records)
  return figure


def _draw_layers(axes: Axes, rows: pd.DataFrame) -> None:
  """A line of the trained and one of the untrained model, and controls as bands."""
  means = {reader: mean_interval(values) for reader, values in rows.groupby('reader', sort=False)['kl']}
  # Two values or less have no interval.
  pairs = {reader: (mean.mean, np.nan_to_num(mean.half_width)) for reader, mean in means.items()}
  layers = [reader for reader in pairs if reader.startswith(('embeddings', 'layer'))]
  lines = {
    name: {layer.replace('embeddings', 'emb.'): pairs[prefix + layer] for layer in layers}
    for name, prefix in (('trained', ''), ('untrained', _UNTRAINED))
  }
  hj.plots.layers(lines | {name: pairs[name] for name in _CONTROLS}, axes).get_legend().remove()
  axes.set(ylabel='KL of the belief (nats)', yscale='log')


def _draw_along(axes: Axes, rows: pd.DataFrame) -> None:
  means = rows.pivot_table('share', 'step', 'reader')
  axes.plot(means.index, means, label=list(means))
  axes.set(xlabel='pretraining step', ylabel="KL, as a share of a constant's")


def _draw_patches(axes: Axes, rows: pd.DataFrame) -> None:
  rows.pivot_table('share', 'reader', 'process', sort=False).drop('none').plot.barh(ax=axes, legend=False)
  axes.set(xlabel='KL, as a share of no patch', ylabel='')


def _draw_simplex(axes: Axes, rows: pd.DataFrame) -> None:
  hj.plots.simplex(*(np.array(rows[field].iloc[0]) for field in ('points', 'exact')), axes)
