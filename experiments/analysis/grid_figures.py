"""Figures of grids of trials: accuracies of methods on models, against sizes or the fields in which settings differ."""

import functools
import itertools
from typing import Any

import matplotlib
from matplotlib.axes import Axes
import matplotlib.figure
from matplotlib.lines import Line2D
import numpy as np
import pandas as pd
import scipy.optimize

from experiments.analysis import figures, report, statistics
from experiments.settings.grid import AXES, Point
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import MAIN, METHODS, MODEL_NAMES

_MODEL_NAMES = MODEL_NAMES | {'bert': 'pretrained BERT'}
_CONTROLS = ('attention', 'attention_blind', 'attention_constant', 'head')
_OVERVIEW = (('bert', 'head'), ('bert', 'probe'), ('bert', 'prompt'), ('none', 'table'), ('untrained', 'probe'))
_FIT = ['text', 'model', 'method']
_HIDDEN_STATES = 'number of hidden states |H|'
_ERROR_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


@figures.styled
def figure_3_left(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |H| by method and model; beside an untrained BERT, 'exact' and 'other_bert' are left out."""
  if (records['model'] == 'untrained').any():
    records = records[records['model'].isin(['bert', 'untrained', 'own', 'none'])]
  return _figure_3('left', records, settings, _HIDDEN_STATES)


@figures.styled
def overview(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Accuracy against |H| of the fits of _OVERVIEW, each named at its line; None for one size alone."""
  chosen = records[[fit in _OVERVIEW for fit in zip(records['model'], records['method'])]]
  if chosen['num_states'].nunique() < 2:
    return None
  figure, (axes,) = figures.panels(settings)
  records = _placed(chosen, 'overview')
  _draw_fits(axes, records)
  _name_lines(axes)
  _finish(figure, records, 'Readers of a pretrained BERT, of an untrained one and of tokens', _HIDDEN_STATES)
  return figure


@figures.styled
def figure_3_right(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |M||H| of text with a memory and of vanilla text."""
  return _figure_3('right', records, settings, 'number of joint states |M||H|')


def _figure_3(panel: str, records: pd.DataFrame, settings: FigureSettings, size: str) -> matplotlib.figure.Figure:
  """A panel of Figure 3, 'left' or 'right': lines against the size, or a dot plot at the only size."""
  records = _paper_records(_placed(records, f'figure_3_{panel}'), panel)
  name, _, symbol = size.rpartition(' ')
  if records['place'].nunique() == 1:
    return _dot_plot(panel, records, settings, symbol)
  figure, (axes,) = figures.panels(settings)
  _draw_methods(axes, records)
  if settings.paper_overlay:
    _draw_paper(axes, records, panel, {})
  if panel == 'left' and records['place'].min() <= 10 <= records['place'].max():
    # The paper's |X| is 10; past it the emission rows are dependent.
    axes.axvline(10, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    axes.text(10, 0.01, ' |H| = |X|', transform=axes.get_xaxis_transform(), va='bottom', fontsize='small', color='0.35')
  _finish(figure, records, f'Test accuracy by {name}', size)
  return figure


def _dot_plot(panel: str, records: pd.DataFrame, settings: FigureSettings, size: str) -> matplotlib.figure.Figure:
  """A panel of Figure 3 at the only size: a row for each fit, and through the rows of a text its majority class."""
  figure, (axes,) = figures.panels(settings)
  lines = records.groupby(_FIT)
  _draw_methods(axes, records.assign(place=lines.ngroup()), turn=figures.sideways)
  names = [_out_of_legend(line) for line, _ in zip(_in_legend(axes), lines)]
  if settings.paper_overlay:
    _draw_paper(axes, records, panel, dict(zip(lines.groups, range(len(names)))))
  axes.set_yticks(range(len(names)), names)
  axes.set(xlabel='test accuracy (%)', ylim=(len(names) - 0.5, -0.5))
  axes.grid(axis='x')
  figures.trim_percent_ticks(axes.xaxis)
  figures.finish(figure, records, f'Test accuracy at {size} = {records["place"].iloc[0]}', _counted(records))
  return figure


@figures.styled
def controls(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Accuracy against |M||H| of attention beside its controls and a linear head; None if no control was run.

  A row for each text and a column for each model. A bag of words reads no model, and stands in both columns.
  """
  if not records['method'].isin(['attention_constant', 'attention_blind']).any():
    return None
  records = _placed(records[records['method'].isin(_CONTROLS)], 'controls')
  texts, models = (sorted(records[field].unique()) for field in ('text', 'model'))
  figure, grid = figures.panels(settings, len(models) * len(texts), len(models), sharex=True)
  for axes, (text, model) in zip(grid, itertools.product(texts, models)):
    rows = statistics.select(records, text=text)
    _draw_methods(axes, rows[(rows['model'] == model) | (rows['method'] == 'attention_constant')], '{method}')
    axes.set(title=f'{text} text, {_MODEL_NAMES[model]}', xticks=records['place'].unique())
    axes.set(xlabel='number of joint states |M||H|', ylabel='test accuracy (%)')
    axes.label_outer()
  figures.finish(figure, records, 'Attention beside its controls', _counted(records))
  return figure


@figures.styled
def memory_cells(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Error against the number of memory cells N, on a logarithmic axis that has a place for 0."""
  figure, (axes,) = figures.panels(settings)
  records = _placed(records, 'memory_cells')
  records[['accuracy', 'majority_accuracy']] = 1 - records[['accuracy', 'majority_accuracy']]
  least = 100 * min(records['accuracy'][records['accuracy'] > 0], default=0.001)
  _draw_methods(axes, records)
  _finish(figure, records, 'Test error by number of memory cells', 'number of memory cells N', 'test error (%)')
  _log_axis_with_zero(axes, least)
  return figure


@figures.styled
def against_fields(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against a field in which settings differ, one of numbers if there is any; a line per method and model.

  A second field has a panel for each of its values. Of sizes and methods, if there are several of both, the fewer have
  panels too, and the others lines. Of further fields the first value is shown.
  """
  is_number = {name: name != 'seed' and records[name].dtype.kind in 'if' for name in statistics.varied(records)}
  first, *others = sorted(is_number, key=lambda name: (not is_number[name], -records[name].nunique()))
  further = {name: records[name].iloc[0] for name in others[1:]}
  # The place |H| is replaced.
  records = _placed(statistics.select(records, **further), 'figure_3_left').sort_index()
  codes, values = pd.factorize(records[first], sort=is_number[first])
  places = values if is_number[first] else np.arange(len(values))
  records = records.assign(
    place=places[codes],
    line=records['method'] + ' on ' + records['model'],
    second=[f'{others[0]} = {statistics.as_text(value)}' for value in records[others[0]]] if others else '',
  )
  sizes, lines = (records.groupby(['place', 'second'])[name].nunique().max() for name in ('size', 'line'))
  by = ['second', 'size' if sizes <= lines else 'line'][: 1 + (sizes > 1)]
  drawn = records.groupby(by, sort=False)
  figure, grid = figures.panels(settings, drawn.ngroups, min(records[by[-1]].nunique(), 3))
  for axes, (titles, rows) in zip(grid, drawn):
    if sizes <= lines:
      _draw_methods(axes, rows)
    else:
      for (size, of_size), style in zip(rows.groupby('size', sort=False), matplotlib.rcParams['axes.prop_cycle']()):
        figures.draw_line(axes, _samples(of_size, 'accuracy'), str(size), style)
    is_wide = is_number[first] and 0 < 20 * values[0] <= values[-1]
    axes.set(title=', '.join(filter(None, titles)), xlabel=first, xscale='log' if is_wide else 'linear')
    axes.set_ylabel('test accuracy (%)')
    axes.minorticks_off()
    axes.set_xticks(places, [*map(statistics.as_text, values)])
    if not is_number[first]:
      # Nothing lies between names.
      for line in axes.lines:
        line.set_linestyle('none')
        if not line.get_marker():
          line.set(marker=figures.BAR[0], markersize=figures.BAR[1])
    axes.label_outer()
  figures.trim_percent_ticks(grid[0].yaxis)
  figures.finish(figure, records, f'Test accuracy by {first}', _counted(records))
  return figure


@figures.styled
def nearest_tokens(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """The share of test labels that change if only k tokens are kept, a line per distribution; None without records."""
  records = statistics.with_unit(records)
  shares = report.changed_shares(records)
  if shares.empty:
    return None
  figure, (axes,) = figures.panels(settings)
  axes.plot(shares.columns, shares.T, label=[str(Point(*point)) for point in shares.index])
  axes.set(xlabel='number k of tokens nearest the [MASK] that are kept', ylabel='labels that change (%)')
  _log_axis_with_zero(axes, 0.1)
  title = 'Test labels that change if only the nearest tokens are kept'
  figures.finish(figure, records, title, f'mean over {_counted(records, spread=False)}')
  return figure


@figures.styled
def forgetting(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Mean delta after 2, 4, 8, ... tokens, a line per size.

  None without records, and if they differ in more than the process.
  """
  if 'forgetting' not in records or (rows := records.dropna(subset='forgetting')).empty:
    return None
  if {*statistics.varied(rows)} - {'distribution'}:
    return None
  # Trials of a process that is given share their HMM.
  given = rows.reindex(columns=['distribution'], fill_value='')['distribution'].fillna('')
  rows = rows.assign(
    unit=given.where(given != '', rows['trial'].astype(str)), place=[range(len(delta)) for delta in rows['forgetting']]
  )
  rows = rows.explode(['place', 'forgetting'])
  figure, (axes,) = figures.panels(settings)
  shown = rows[rows['place'].isin(2 ** np.arange(1, 20))]
  for (point, of_point), style in zip(statistics.by_point(shown).items(), matplotlib.rcParams['axes.prop_cycle']()):
    name = f'{statistics.process(of_point)} {point}'.strip()
    figures.draw_line(axes, _samples(of_point, 'forgetting'), name, style)
  # Processes that are given are HMMs too.
  rows = rows.assign(trial=rows['unit'], distribution='')
  _finish(figure, rows, 'What a text does not forget', 'tokens seen', 'mean delta, total variation (%)')
  return figure


def _log_axis_with_zero(axes: Axes, least: float) -> None:
  """Make the y axis of percentages logarithmic, and linear from `least` down to 0."""
  top = axes.get_ylim()[1]
  axes.set_yscale('symlog', linthresh=least, linscale=0.5)
  axes.set_yticks([0, *(tick for tick in _ERROR_TICKS if 0.99 * least <= tick <= top)])
  axes.yaxis.set_major_formatter('{x:g}')
  axes.minorticks_off()
  # An interval that reaches below 0 is cut there; a mark at 0 is whole.
  axes.set_ylim(-least / 4, top)


@figures.styled
def attention(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Attention weight against the probability that a position reads the label's cell; None where every one does.

  Each line is a distribution and a model, the mean over its tasks; the area of a marker is the share of positions
  that it stands for.
  """
  chosen = statistics.with_unit(statistics.select(records, attention_by='read_probability'))
  if chosen.empty:
    return None
  figure, (axes,) = figures.panels(settings)
  for (point, rows), style in zip(statistics.by_point(chosen).items(), matplotlib.rcParams['axes.prop_cycle']()):
    for model, of_model in rows.groupby('model'):
      _draw_profile(axes, of_model, _shown(style, model), f'{point}, {_MODEL_NAMES[model]}')
  axes.axhline(1, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  place = r'$P[J_i = j^\star \mid X_{-i}]$, probability that position i reads the label cell'
  axes.set(xlabel=place, ylabel='mean attention weight (uniform = 1)')
  axes.set_ylim(bottom=0)
  title, over = 'Attention to positions that may read the label cell', f'mean over {_counted(chosen, spread=False)}'
  figures.finish(figure, chosen, title, over, 'area: share of positions')
  return figure


def _draw_profile(axes: Axes, records: pd.DataFrame, style: dict[str, Any], label: str) -> None:
  """Draw the mean weight in each nonempty bin of the probability, tasks weighted by their positions in it."""
  # The means of a bin and its share of the positions; the index is the number of the bin within its task.
  columns = ['probability', 'weight', 'share']
  profiles = [pd.DataFrame(profile, columns=columns) for profile in records['attention_profile']]
  bins = pd.concat(profiles).dropna().astype(float)
  share = bins['share'].groupby(level=0).sum()
  products = bins[['probability', 'weight']].mul(bins['share'], axis=0)
  means = products.groupby(level=0).sum().div(share, axis=0)
  axes.plot(means['probability'], means['weight'], label=label, **style)
  fill = dict(color=style['markerfacecolor'], edgecolors=style['color'], marker=style['marker'])
  axes.scatter(
    means['probability'], means['weight'], s=16 + 300 * share / len(records), zorder=3, clip_on=False, **fill
  )


def _shown(style: dict[str, Any], model: str) -> dict[str, Any]:
  """A line's style by model: thick and filled on the pretrained BERT, in between on the user's own, else hollow."""
  fill, width = {'bert': (style['color'], 1.8), 'own': ('0.7', 1.3)}.get(model, ('white', 0.9))
  return style | dict(markerfacecolor=fill, linewidth=width)


def _placed(records: pd.DataFrame, figure: str) -> pd.DataFrame:
  """The records of a run with their `unit`, `text`, `size` and `place` on the x axis of a figure."""
  points = statistics.by_point(statistics.with_unit(records))
  at = lambda point: dict(text=point.text, size=str(point), place=AXES[figure](point))
  return pd.concat([rows.assign(**at(point)) for point, rows in points.items()])


def _paper_records(records: pd.DataFrame, panel: str) -> pd.DataFrame:
  """The records that the paper draws in a panel, if more than the main methods were run; else all."""
  drawn = [(text, method) for text, method, _ in report.PAPER[panel]]
  papers = [line in drawn for line in zip(records['text'], records['method'])]
  return records if records['method'].isin(MAIN).all() or not any(papers) else records[papers]


def _samples(records: pd.DataFrame, field: str) -> dict[float, np.ndarray]:
  """The means of the independent units in percent, by place; records that lack the field are skipped."""
  means = 100 * statistics.by_unit(records, field, ['place', 'unit'])
  return {place: of_place.to_numpy() for place, of_place in means.groupby(level='place')}


def _draw_methods(
  axes: Axes, records: pd.DataFrame, label: str = '{method}, {model}', turn: figures.Turn = figures.upright
) -> None:
  """A line for each method on each model, and the majority class; of each text if there are two."""
  prefix = _draw_fits(axes, records, label, turn)
  for text, rows in records.groupby('text'):
    name, dash = prefix.format(text=text) + 'majority class', ':' if prefix and text == 'memory' else '-.'
    figures.draw_majority(axes, _samples(rows, 'majority_accuracy'), name, dash, turn)


def _draw_fits(
  axes: Axes, records: pd.DataFrame, label: str = '{method}, {model}', turn: figures.Turn = figures.upright
) -> str:
  """A line for each method on each model, side by side; the prefix of labels, which names the text if there are two."""
  lines = records.groupby(_FIT)
  texts_of = records.groupby('method')['text'].nunique()
  prefix = '{text}: ' if records['text'].nunique() > 1 else ''
  # All, with their markers, within the margin of the axis. Rows are apart already.
  step = min(4, 30 / len(lines)) * (turn is figures.upright)
  for index, ((text, model, method), rows) in enumerate(lines):
    style = figures.style_of(method)
    if text == 'vanilla' and texts_of[method] > 1:
      # A colour that no method has: its own is on the other text.
      style['color'] = '#CC79A7'
    name = (prefix + label).format(text=text, method=METHODS[method].label, model=_MODEL_NAMES[model])
    beside = step * (index - (len(lines) - 1) / 2)
    figures.draw_line(axes, _samples(rows, 'accuracy'), name, _shown(style, model), beside, turn=turn)
  return prefix


def _name_lines(axes: Axes) -> None:
  """Write each line's name beside its right end, no two on one height, in place of the legend."""
  named = sorted(_in_legend(axes), key=lambda line: np.asarray(line.get_ydata())[-1])
  ends = np.array([np.asarray(line.get_ydata())[-1] for line in named])
  # The least squares that keep a distance of 6% of the axis.
  apart = 0.06 * np.ptp(axes.get_ylim()) * np.arange(len(ends))
  for line, height in zip(named, scipy.optimize.isotonic_regression(ends - apart).x + apart):
    place = np.asarray(line.get_xdata())[-1], height
    beside: Any = dict(xytext=(22, 0), textcoords='offset points', va='center', annotation_clip=False)
    axes.annotate(_out_of_legend(line), place, color=line.get_color(), **beside)


def _in_legend(axes: Axes) -> list[Line2D]:
  return [line for line in axes.lines if not str(line.get_label()).startswith('_')]


def _out_of_legend(line: Line2D) -> str:
  """Take a line out of the legend; return its name."""
  name = str(line.get_label())
  line.set_label(f'_{name}')
  return name


def _draw_paper(axes: Axes, records: pd.DataFrame, panel: str, rows: dict[Any, int]) -> None:
  """The paper's points within the range of ours; if there are `rows` of fits, those of these fits in their rows."""
  scale, places = records['scale'].iloc[0], records['place']
  of = 'BERT-base' if scale in ('paper', 'paper_v1', 'official', 'tuned') else 'BERT-base on more text'
  style: dict[str, Any] = dict(color='0.2', markersize=7, markeredgewidth=1.6, linestyle='none', zorder=5)
  # No method has these markers.
  for marker, (text, method, name) in zip('x+', report.PAPER[panel]):
    points: list[Any] = [
      (x, y) for x, y in report.paper(panel, name, scale).items() if places.min() <= x <= places.max()
    ]
    if rows:
      points = [(y, rows[fit]) for _, y in points if (fit := (text, 'bert', method)) in rows]
    if points:
      axes.plot(*zip(*points), label=f'{name}, the paper ({of}; digitised)', marker=marker, **style)


def _finish(
  figure: matplotlib.figure.Figure, records: pd.DataFrame, title: str, label: str, unit: str = 'test accuracy (%)'
) -> None:
  """Finish a figure of one panel: a tick at each place, none above 100%, labels, title and legend."""
  (axes,) = figure.axes
  places = sorted({x for line in axes.lines for x in np.asarray(line.get_xdata())})
  if len(places) > 1:
    # Equal distances, so that the lines beside one place mix with no other's. The axis goes on past its ends.
    ends = [2 * places[0] - places[1], *places, 2 * places[-1] - places[-2]]
    there, back = (
      functools.partial(np.interp, xp=x, fp=y) for x, y in itertools.permutations((ends, range(len(ends))))
    )
    axes.set_xscale('function', functions=(there, back))
  axes.set_xticks(places)
  figures.trim_percent_ticks(axes.yaxis)
  axes.set(xlabel=label, ylabel=unit)
  figures.finish(figure, records, title, _counted(records))


def _counted(records: pd.DataFrame, spread: bool = True) -> str:
  """`figures.counted` of the units of placed records."""
  counts = records.groupby(list(Point._fields))['unit'].nunique()
  trial = statistics.trial_noun(records)
  unit = f'{trial}s' if records['trial'].nunique() > 1 else f'tasks of one {trial} per size'
  return figures.counted(counts, unit, spread)
