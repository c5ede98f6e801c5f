"""The figures of a theory run, drawn from records alone."""

from collections.abc import Callable
from typing import Any

import matplotlib.figure
import numpy as np

from experiments import figures
from experiments import results
from experiments.results import Record
from experiments.settings import FigureSettings

_CONSTRUCTION: dict[str, Any] = dict(color='#000000', marker='^', linestyle=':')
STYLES = {'construction': _CONSTRUCTION, 'head': figures.style_of('head'), 'prompt': figures.style_of('prompt')}
_NAMES = {'construction': "theorem's construction", 'head': 'trained head', 'prompt': 'trained prompt and head'}


@figures.styled
def noise(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy as the model departs from G: by noise for Theorems 3.3 and 3.6, and along the pretraining of a BERT."""
  figure, panels = figures.panels(settings, 3)
  chosen = [record for record in records if 'method' in record]
  for axes, theorem in zip(panels, ('3.3', '3.6')):
    rows = results.select(chosen, study='noise', theorem=theorem)
    _lines(axes, rows, f'noisy exact G, Theorem {theorem}', '{level:g}')
    axes.set_xlabel('KL(G || model) at the [MASK] (nats)')
  rows = results.select(chosen, study='bert', theorem='3.3')
  _lines(panels[2], rows, 'BERT along its pretraining, Theorem 3.3', '{level:g}\n{kl:.2g}')
  panels[2].set_xlabel('steps of pretraining\nKL(G || BERT) at the [MASK] (nats)')
  return _finished(figure, records, 'test accuracy (%)')


@figures.styled
def concentration(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """The posterior mass on H* at the [MASK] along the training of a prompt, and without a prompt, and the accuracy."""
  chosen = [record for record in records if 'epoch' in record]
  models = list(dict.fromkeys(record['model'] for record in chosen))
  figure, panels = figures.panels(settings, max(len(models), 1))
  for axes, model in zip(panels, models):
    rows = results.select(chosen, model=model)
    for place, (field, name, style) in enumerate(
      (
        ('mass_with', 'mass on H*, with the prompt', STYLES['prompt']),
        ('mass_without', 'mass on H*, without', STYLES['head']),
        ('accuracy', 'test accuracy', STYLES['construction']),
      )
    ):
      figures.draw_line(axes, _samples(rows, 'epoch', field), name, style, 7 * (place - 1))
    kl = abs(round(np.mean([row['kl'] for row in rows]), 6))
    axes.set_title(f'{figures.MODEL_NAMES[model]}, KL {kl:.2g} nats; {_counted(rows)}')
    axes.set_xlabel('epochs of prompt tuning')
  return _finished(figure, records, 'mean over test inputs (%)')


FIGURES: dict[str, Callable[[list[Record], FigureSettings], matplotlib.figure.Figure]] = {
  'noise': noise,
  'concentration': concentration,
}


def _lines(axes, records: list[Record], title: str, tick: str) -> None:
  """A line a method and the majority class at each level, in order, over HMMs."""
  levels = sorted({record['level'] for record in records})
  if len(levels) > 1:
    # Zero has a place of its own on the logarithmic axis.
    axes.set_xscale('symlog', linthresh=levels[1], linscale=0.6)
  for place, (method, style) in enumerate(STYLES.items()):
    samples = _samples(results.select(records, method=method), 'level', 'accuracy')
    figures.draw_line(axes, samples, _NAMES[method], style, 7 * (place - 1))
  known = [record for record in records if 'majority_accuracy' in record]
  figures.draw_majority(axes, _samples(known, 'level', 'majority_accuracy'))
  kls = [np.mean([row['kl'] for row in results.select(records, level=level)]) for level in levels]
  axes.set_xticks(levels, [tick.format(level=level, kl=kl) for level, kl in zip(levels, kls)])
  axes.minorticks_off()
  axes.set_title(f'{title}; {_counted(records)}')


def _samples(records: list[Record], by: str, field: str) -> dict[float, np.ndarray]:
  """The values over HMMs in percent, in order of `by`."""
  return {
    value: np.array([100 * record[field] for record in results.select(records, **{by: value})])
    for value in sorted({record[by] for record in records})
  }


def _counted(records: list[Record]) -> str:
  return figures.counted([len({record['hmm'] for record in records})], 'HMMs')


def _finished(figure, records: list[Record], unit: str) -> matplotlib.figure.Figure:
  figure.axes[0].set_ylabel(unit)
  figures.finish(figure, figures.caption(records))
  return figure
