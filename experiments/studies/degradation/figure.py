"""The figure of the study of degradation."""

from matplotlib.axes import Axes
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures
from experiments.analysis.statistics import mean_interval
from experiments.settings.groups import FigureSettings
from experiments.studies.degradation.comparisons import by_hmm, masses, METHODS, PROMPTS

_STYLES = {
  'construction': dict(color='#000000', marker='^', linestyle=':'),
  'weighted': dict(color='#009E73', marker='D', linestyle='-.'),
  'converged_head': figures.style_of('head'),
  'converged_prompt': figures.style_of('prompt'),
}


@figures.styled
def draw(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against the error of the model for each theorem with several levels of it, and the mass on H*."""
  whole = by_hmm(records).query("damage == '' and error != 'short_context'")
  lines = [rows for _, rows in whole.groupby(['theorem', 'error']) if rows['level'].nunique() > 1]
  figure, panels = figures.panels(settings, len(lines) + 1, sharey=False)
  for axes, rows in zip(panels, lines):
    _draw_lines(axes, rows)
    if axes is not panels[0]:
      axes.sharey(panels[0])
  panels[0].set_ylabel('test accuracy (%)')
  _draw_masses(panels[-1], masses(records))
  figures.finish(figure, records, 'Accuracy on a model with an error, and mass on H*')
  return figure


def _draw_lines(axes: Axes, rows: pd.DataFrame) -> None:
  """A line for each method, of one theorem and kind of error."""
  theorem, is_bert, by_level = rows['theorem'].iat[0], rows['error'].iat[0] == 'bert', rows.groupby('level')
  for place, (name, style) in enumerate(_STYLES.items()):
    figures.draw_line(axes, dict(iter(by_level[name])), METHODS[name].replace('\n', ' '), style, 5 * (place - 1.5))
  figures.draw_majority(axes, dict(iter(by_level['majority'])))
  kl = by_level['KL'].first()
  # Zero has a place of its own on the logarithmic axis.
  axes.set_xscale('symlog', linthresh=kl.index[0] or kl.index[1], linscale=0.6)
  axes.set_xticks(kl.index, [f'{level:g}\n{of}' if is_bert else f'{level:g}' for level, of in kl.items()])
  axes.minorticks_off()
  axes.set_xlabel('steps of pretraining\n' * is_bert + 'KL(G || model) at the [MASK] (nats)')
  axes.set_title(f'Theorem {theorem}; {figures.counted([rows["hmm"].nunique()], "HMMs")}')


def _draw_masses(axes: Axes, mass: pd.DataFrame) -> None:
  """A point for each prompt, of each model."""
  style = dict(color='#CC79A7', marker='P', linestyle='none')
  for model, rows in mass.groupby(level='model', sort=False):
    # The axis names it, not the legend.
    samples = {float(place): rows[name] for place, name in enumerate(PROMPTS)}
    # Masses read off a model's predictions may be negative.
    figures.draw_line(axes, samples, '_mass', style, interval=mean_interval)
    axes.set_title(f'Mass on H*, {model}; HMMs: n = {len(rows)}')
  axes.set_xticks(range(len(PROMPTS)), list(PROMPTS.values()))
  axes.set_ylabel('posterior mass (%)')
