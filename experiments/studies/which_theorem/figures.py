"""The figure of the facts about Figure 3 (left), from records alone."""

import matplotlib
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import percent, select
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from experiments.studies.which_theorem.tables import HMM, MODERATE


@figures_lib.styled
def figures(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, matplotlib.figure.Figure]:
  """The share of tasks of which each fact holds against |H|."""
  support, rank = (str(min(levels)) for levels in (settings.levels.support_levels, settings.levels.rank_levels))
  tasks = select(records, part='linearity')
  tasks = tasks.assign(is_moderate=tasks['head_size'] <= MODERATE, relaxed=tasks['3.5'].str[support].str[rank])
  figure, (axes,) = figures_lib.panels(settings.figure)
  facts = {
    'linear': 'score exactly linear in G',
    'is_moderate': f'... by a head of at most {MODERATE:g} mu',
    'separable': 'labels separable, of decided tasks',
    'clear_separable': 'labels separable but for near ties',
    'relaxed': 'Assumption 3.5, exact supports',
  }
  for number, ((field, label), style) in enumerate(zip(facts.items(), matplotlib.rcParams['axes.prop_cycle']())):
    samples = {float(size): percent(rows, field, HMM).values for size, rows in tasks.groupby('num_states')}
    figures_lib.draw_line(axes, samples, label, style, 3 * (number - 2))
  axes.set_xticks(tasks['num_states'].unique())
  axes.set_xlabel('number of hidden states |H|')
  axes.set_ylabel('share of tasks (%)')
  figures_lib.trim_percent_ticks(axes)
  counts = tasks.groupby('num_states')['trial'].nunique()
  figures_lib.finish(figure, tasks, figures_lib.counted(list(counts), 'HMMs'))
  return {'which_theorem': figure}
