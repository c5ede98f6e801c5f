"""Tables and figures of the study of belief states, from records."""

from collections.abc import Callable
import re

from matplotlib.axes import Axes
import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import holm, Interval, stratified
from experiments.analysis.tables import format_number, select, Table, table
from experiments.studies.belief_states.measure import DESIGNS
from experiments.studies.settings import BeliefSettings
import hmm_jax as hj

# Panels side by side.
_COLUMNS = 4
_CONTROLS = ['exact G', 'window', 'table', 'shuffled']


def _ends(records: pd.DataFrame) -> pd.DataFrame:
  """The records of controls and of the untrained and the trained model, whose readers have different names."""
  rows = records[~records['step'].between(1, records['step'].max() - 1)]
  return rows.assign(reader=np.where(rows['step'] == 0, 'untrained ', '') + rows['reader'])


def _along(records: pd.DataFrame) -> pd.DataFrame:
  """The records of layers, but for the embeddings, and of predictions at every checkpoint."""
  return select(records, design='pooled').dropna(subset='step')[lambda of: of['reader'].str.match('layer|prediction')]


def _means(title: str, rows: pd.DataFrame, field: str, place: str = 'design') -> Table:
  """Means over HMMs by reader, a row for each process and place; controls stand last."""
  cells = rows.pivot_table(field, ['process', place], 'reader', sort=False)
  cells = cells[sorted(cells, key=_CONTROLS.__contains__)].map(lambda value: format_number(value, '.3g'))
  return table(title, cells.reset_index().astype(str), 2)


def _tests(ends: pd.DataFrame, settings: BeliefSettings) -> Table:
  """The primary end points: geometric means over HMMs of ratios of KLs, tested against a bound."""
  last, paper = f'layer_{settings.bert.num_layers}', f'_T{settings.hmm.emission_temperature:g}'
  kl = ends[ends['process'].str.startswith('H')].pivot_table('kl', ['process', 'hmm'], ['design', 'reader'])
  is_paper = kl.index.get_level_values('process').str.endswith(paper)
  end_points = [
    ('weak', 'pooled', last, 'table', 1),
    ('weak', 'fixed', last, 'table', 1),
    ('weak', 'pooled', 'window', last, 1),
    ("the paper's", 'pooled', 'table', last, 1),
    ('all', 'pooled', last, f'untrained {last}', 1),
    ('all', f'{last} patched', 'encoding', 'none', 0.05),
    ('all', 'layer_1 patched', 'encoding', 'none', 0.5),
    ('all', f'{last} patched', 'none', 'complement', 1 / 0.9),
  ]
  hmms = {'weak': ~is_paper, "the paper's": is_paper, 'all': is_paper | True}
  ratios = [np.log(kl[place, above] / kl[place, below] / bound) for _, place, above, below, bound in end_points]
  means = [
    stratified([of for _, of in values[hmms[which]].groupby('process')])
    for values, (which, *_) in zip(ratios, end_points)
  ]
  frame = pd.DataFrame(end_points, columns=['emissions', 'design', 'KL of', 'over', 'expected below'])
  frame['ratio'] = [_ratio(mean, bound) for mean, bound in zip(means, frame['expected below'])]
  frame['p, Holm'] = [format_number(p_value, '.2g') for p_value in holm(pd.Series([mean.p_value for mean in means]))]
  frame['expected below'] = frame['expected below'].map('{:.3g}'.format)
  title = 'Primary end points: ratios of KL, geometric means [95% intervals over HMMs], stratified by process'
  return table(title, frame[frame['ratio'] != ''], 4)


def _ratio(mean: Interval, bound: float) -> str:
  """The geometric mean of ratios, whose logarithms over a bound have this mean; '' of none."""
  ratio, *ends = (format_number(bound * np.exp(value), '.2g') for value in (mean.mean, *mean.ends))
  return f'{ratio} [{", ".join(ends)}]' if all(ends) else ratio


def tables(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, Table]:
  """All tables, only from records."""
  ends = _ends(records)
  left_out = ends['reader'].str.endswith(('prediction', 'untrained embeddings', 'untrained shuffled'))
  probed = ends[ends['design'].isin(DESIGNS) & ~left_out]
  r_squared = probed.assign(value=probed['r_squared'].fillna(probed['largest']))
  moved = records.melt(['process', 'reader'], ['distance', 'distance_prompted', 'shift'], 'measure').dropna()
  return {
    'tests': _tests(ends, settings),
    'kl': _means('KL of a softmax probe, or of a table, in nats', probed, 'kl'),
    'r_squared': _means('R^2 of an affine probe, or of a table; exact: mean largest probability', r_squared, 'value'),
    'patches': _means(
      "KL to the exact prediction from another text's belief, as a share of that of no patch",
      ends[ends['design'].str.endswith('patched')],
      'share',
    ),
    'along': _means("Along pretraining, pooled: KL as a share of a constant's", _along(records), 'share', 'step'),
    'prompts': _means('Under a tuned prompt', moved, 'value', 'measure'),
  }


@figures_lib.styled
def figures(records: pd.DataFrame, settings: BeliefSettings) -> dict[str, matplotlib.figure.Figure]:
  """All figures, only from records."""
  ends = _ends(records)
  # A [MASK] has one embedding in all texts.
  points = select(ends, hmm=0).dropna(subset='points')[lambda rows: ~rows['reader'].str.contains('embeddings|shuffled')]
  drawn = {
    'layers': ('Readers of belief states by layer', select(ends, design='pooled'), 'process', _draw_layers),
    'along': ('Readers of belief states along pretraining', _along(records), 'process', _draw_along),
    'patches': (
      'Predictions after patches of the belief state',
      ends[ends['design'].str.endswith('patched')],
      'design',
      _draw_patches,
    ),
    'simplex': (
      'Belief states that readers return',
      points.assign(exact=[points['points'].iloc[0]] * len(points)),
      'reader',
      _draw_simplex,
    ),
  }
  return {name: _figure(records, settings, *each) for name, each in drawn.items()}


def _figure(
  records: pd.DataFrame,
  s: BeliefSettings,
  title: str,
  rows: pd.DataFrame,
  by: str,
  draw: Callable[[Axes, pd.DataFrame], object],
) -> matplotlib.figure.Figure:
  """A panel for each value of a field."""
  groups = rows.groupby(by, sort=False)
  figure, grid = figures_lib.panels(s.figure, len(groups), _COLUMNS)
  for number, (axes, (value, of_panel)) in enumerate(zip(grid, groups)):
    draw(axes, of_panel)
    axes.set_title(_process_name(value))
    label = axes.get_xlabel()
    axes.label_outer()
    if number + _COLUMNS >= len(groups):
      # No panel is below.
      axes.tick_params(labelbottom=True)
      axes.set_xlabel(label)
  figures_lib.finish(figure, records, title)
  return figure


def _process_name(name: str) -> str:
  """'|H| = 30, temperature 0.1' for 'H30_T0.1'; other names stay."""
  return re.sub(r'^H(\d+)_T(.*)', r'|H| = \1, temperature \2', name).replace('_', ' ')


def _draw_layers(axes: Axes, rows: pd.DataFrame) -> None:
  """Geometric means and ranges over HMMs: lines of the trained and the untrained model, and controls as bands."""
  kls = rows.groupby('reader', sort=False)['kl']
  ranges = {reader: (np.exp(np.log(kl).mean()), kl.min(), kl.max()) for reader, kl in kls}
  layers = [reader for reader in ranges if reader.startswith(('embeddings', 'layer'))]
  lines = {name: {layer: ranges[name + layer] for layer in layers} for name in ('', 'untrained ')}
  bands = {name: ranges[name] for name in _CONTROLS}
  hj.plots.layers({'trained': lines[''], 'untrained': lines['untrained ']} | bands, axes).get_legend().remove()
  # The whole word is wider than its place.
  names = [label.get_text().replace('embeddings', 'emb.') for label in axes.get_xticklabels()]
  axes.set_xticks(axes.get_xticks(), names)
  axes.set(ylabel='KL of the belief (nats)', yscale='log')


def _draw_along(axes: Axes, rows: pd.DataFrame) -> None:
  means = rows.pivot_table('share', 'step', 'reader')
  axes.plot(means.index, means, label=list(means))
  # An untrained network predicts worse than a constant; the table says how much.
  axes.set(xlabel='pretraining step', ylabel="KL, as a share of a constant's", ylim=(0, 1.5))


def _draw_patches(axes: Axes, rows: pd.DataFrame) -> None:
  means = rows.pivot_table('share', 'reader', 'process', sort=False).drop('none')
  axes.plot(means.to_numpy(), means.index, label=[*map(_process_name, means)], linestyle='none')
  axes.set(xlabel='KL, as a share of no patch', xlim=(0, None), ylim=(len(means) - 0.5, -0.5))


def _draw_simplex(axes: Axes, rows: pd.DataFrame) -> None:
  points, colours = (np.array(rows[field].iloc[0]) for field in ('points', 'exact'))
  hj.plots.simplex(points, colours, axes)
