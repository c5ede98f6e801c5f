"""The figures of the facts about Figure 3 (left), from records alone."""

import matplotlib
from matplotlib.axes import Axes
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import by_unit, percent, select
from experiments.settings.groups import FigureSettings
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from experiments.studies.which_theorem.tables import BOUNDS, HMM, MODERATE


def figures(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, matplotlib.figure.Figure]:
  """The share of tasks of which each fact holds, and what KL certifies."""
  support, rank = (str(min(levels)) for levels in (settings.levels.support_levels, settings.levels.rank_levels))
  tasks = select(records, part='linearity')
  facts = tasks.assign(is_moderate=tasks['head_size'] <= MODERATE, relaxed=tasks['3.5'].str[support].str[rank])
  return {
    'which_theorem': draw_facts(facts, settings.figure),
    'kl': draw_certificates(select(records, part='kl'), settings.figure),
  }


@figures_lib.styled
def draw_facts(tasks: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """The share of tasks of which each fact holds against |H|."""
  figure, (axes,) = figures_lib.panels(settings)
  facts = {
    'linear': 'score exactly linear in G',
    'is_moderate': f'... by a head of at most {MODERATE:g} mu',
    'separable': 'labels separable, of decided tasks',
    'clear_separable': 'labels separable but for near ties',
    'relaxed': 'Assumption 3.5, exact supports',
  }
  _draw_lines(axes, {float(size): rows for size, rows in tasks.groupby('num_states')}, facts, 3)
  axes.set_xticks(tasks['num_states'].unique())
  axes.set_xlabel('number of hidden states |H|')
  axes.set_ylabel('share of tasks (%)')
  return _finished(figure, tasks)


@figures_lib.styled
def draw_certificates(cases: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """The accuracy of the fixed head and what is certified of it, along the pretraining of BERTs; a panel an |H|."""
  figure, panels = figures_lib.panels(settings, cases['num_states'].nunique())
  for axes, (size, of_size) in zip(panels, cases.groupby('num_states')):
    steps = dict(list(of_size.groupby('step')))
    _draw_lines(axes, dict(enumerate(steps.values())), BOUNDS, 2)
    ticks = [f'{step:g}\n{by_unit(rows, "kl", HMM).mean():.2g}' for step, rows in steps.items()]
    axes.set_xticks(range(len(steps)), ticks)
    axes.set_xlabel('steps of pretraining, not to scale\nmean KL(G || BERT) at the [MASK] (nats)')
    axes.set_title(f'|H| = {size}')
  panels[0].set_ylabel('test inputs (%)')
  return _finished(figure, cases)


def _draw_lines(axes: Axes, groups: dict[float, pd.DataFrame], labels: dict[str, str], beside: float) -> None:
  """A line for each field of the records of the groups, by their places on the x axis."""
  for number, ((field, label), style) in enumerate(zip(labels.items(), matplotlib.rcParams['axes.prop_cycle']())):
    samples = {place: percent(rows, field, HMM).values for place, rows in groups.items()}
    figures_lib.draw_line(axes, samples, label, style, beside * (number - 2))


def _finished(figure: matplotlib.figure.Figure, records: pd.DataFrame) -> matplotlib.figure.Figure:
  figures_lib.trim_percent_ticks(figure.axes[0])
  counts = records.groupby('num_states')['trial'].nunique()
  figures_lib.finish(figure, records, figures_lib.counted(list(counts), 'HMMs'))
  return figure
