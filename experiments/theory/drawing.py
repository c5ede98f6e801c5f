"""The figures of a theory run, drawn from records alone."""

from collections.abc import Callable
from typing import Any

import matplotlib.figure
import matplotlib.ticker
import matplotlib.transforms
import numpy as np

from experiments import results
from experiments.theory.settings import TheorySettings

Record = dict[str, Any]

# Colour, marker and dash differ together, so that the lines are told apart in grey.
_STYLES: dict[str, dict[str, Any]] = {
  'construction': dict(color='#4d9221', marker='^', linestyle=(0, (1, 1.2))),
  'head': dict(color='#1b5e9e', marker='s', linestyle=(0, (4, 1.5))),
  'prompt': dict(color='#d95f02', marker='o', linestyle='-'),
}
_NAMES = {'construction': "theorem's construction", 'head': 'trained head', 'prompt': 'trained prompt and head'}


def noise(records: list[Record], settings: TheorySettings) -> matplotlib.figure.Figure:
  """Accuracy against KL(G || model): noise on the exact G for Theorems 3.3 and 3.6, and checkpoints of a BERT."""
  figure, panels = _panels(settings, 3)
  chosen = results.select([r for r in records if 'method' in r], study='noise')
  for axes, theorem in zip(panels, ('3.3', '3.6')):
    _lines(axes, results.select(chosen, theorem=theorem), 'level')
    axes.set_title(f'noisy exact G, Theorem {theorem}', fontsize=10)
    axes.set_xlabel('KL(G || model) at the [MASK] (nats)')
  along = results.select([r for r in records if 'method' in r], study='bert', theorem='3.3')
  _lines(panels[2], along, 'kl')
  panels[2].set_title('BERT along its pretraining, Theorem 3.3', fontsize=10)
  panels[2].set_xlabel('KL(G || BERT) at the [MASK] (nats)')
  panels[2].set_xscale('log')
  panels[2].xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
  return _finished(figure, panels)


def singular_value(records: list[Record], settings: TheorySettings) -> matplotlib.figure.Figure:
  """Accuracy against the smallest singular value of W, on the exact G and on one with a little noise."""
  figure, panels = _panels(settings, 2)
  chosen = results.select([r for r in records if 'method' in r], study='singular_value')
  for axes, with_noise in zip(panels, (False, True)):
    _lines(axes, [record for record in chosen if (record['kl'] > 0) == with_noise], 'level')
    kl = settings.degradation.noise_beside
    axes.set_title(f'KL(G || model) = {kl:g} nats' if with_noise else 'exact G', fontsize=10)
    axes.set_xlabel('smallest singular value of W')
    axes.set_xscale('log')
    axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.invert_xaxis()
  return _finished(figure, panels)


def leak(records: list[Record], settings: TheorySettings) -> matplotlib.figure.Figure:
  """Accuracy against the probability with which B moves out of H*."""
  figure, panels = _panels(settings, 1)
  _lines(panels[0], results.select([r for r in records if 'method' in r], study='leak'), 'level')
  panels[0].set_title('Theorem 3.6 with leaking supports, exact G', fontsize=10)
  panels[0].set_xlabel('probability that a state of B moves out of H*')
  return _finished(figure, panels)


def concentration(records: list[Record], settings: TheorySettings) -> matplotlib.figure.Figure:
  """The posterior mass on H* at the [MASK] along the training of a prompt, and without a prompt; accuracy below."""
  chosen = [record for record in records if 'epoch' in record]
  models = list(dict.fromkeys(record['model'] for record in chosen))
  figure, panels = _panels(settings, max(len(models), 1))
  for axes, model in zip(panels, models):
    rows = results.select(chosen, model=model)
    epochs = sorted({row['epoch'] for row in rows})
    for field, name, style in (
      ('accuracy', 'test accuracy', dict(color='0.45', marker='s', linestyle=(0, (4, 1.5)))),
      ('mass_with', 'mass on H*, with the prompt', dict(color='#d95f02', marker='o', linestyle='-')),
      ('mass_without', 'mass on H*, without', dict(color='#1b5e9e', marker='', linestyle=(0, (1, 1.2)))),
    ):
      values = [results.mean_interval([100 * r[field] for r in results.select(rows, epoch=epoch)]) for epoch in epochs]
      _line(axes, epochs, values, name, style)
    name = 'exact G' if model == 'exact' else 'pretrained BERT'
    axes.set_title(f'{name}, KL {abs(round(np.mean([row["kl"] for row in rows]), 6)):.2g} nats', fontsize=10)
    axes.set_xlabel('epochs of prompt tuning')
  return _finished(figure, panels, 'percent')


FIGURES: dict[str, Callable[[list[Record], TheorySettings], matplotlib.figure.Figure]] = {
  'noise': noise,
  'singular_value': singular_value,
  'leak': leak,
  'concentration': concentration,
}


def _panels(settings: TheorySettings, count: int):
  size = (settings.figure.width * (0.62 * count + 0.38), settings.figure.height)
  figure = matplotlib.figure.Figure(figsize=size, dpi=settings.figure.dpi, layout='constrained')
  return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def _lines(axes, records: list[Record], field: str) -> None:
  """A line a method against `field`: means over HMMs with 95% intervals, and every HMM as a faint marker."""
  levels = sorted({record[field] for record in records})
  for place, (method, style) in enumerate(_STYLES.items()):
    rows = results.select(records, method=method)
    here = [level for level in levels if results.select(rows, **{field: level})]
    of_level = [[100 * row['accuracy'] for row in results.select(rows, **{field: level})] for level in here]
    # Methods stand side by side, so that no interval hides another.
    shift = matplotlib.transforms.ScaledTranslation((place - 1) * 4 / 72, 0, axes.figure.dpi_scale_trans)
    beside = axes.transData + shift
    _line(axes, here, [results.mean_interval(values) for values in of_level], _NAMES[method], style, beside)
    faint = dict(linestyle='', marker=style['marker'], color=style['color'], alpha=0.3, transform=beside)
    for level, values in zip(here, of_level):
      axes.plot([level] * len(values), values, **faint)
  if levels and levels[0] == 0 and len(levels) > 1:
    # Zero has a place of its own on the logarithmic axis.
    axes.set_xscale('symlog', linthresh=levels[1], linscale=0.6)
  axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
  # What is drawn beside its place takes no part in the automatic limits.
  positive = [level for level in levels if level > 0]
  if positive:
    axes.set_xlim(-0.35 * positive[0] if levels[0] == 0 else positive[0] / 1.4, 1.4 * positive[-1])


def _line(axes, places, intervals, name: str, style: dict[str, Any], transform=None) -> None:
  transform = transform or axes.transData
  means = [interval.mean for interval in intervals]
  axes.plot(places, means, label=name, markersize=5, transform=transform, **style)
  widths = np.nan_to_num([interval.half_width for interval in intervals])
  if widths.any():
    bars = dict(fmt='none', ecolor=style['color'], elinewidth=0.9, capsize=2.5, transform=transform)
    axes.errorbar(places, means, yerr=widths, **bars)


def _finished(figure, panels, unit: str = 'test accuracy (percent)') -> matplotlib.figure.Figure:
  panels[0].set_ylabel(unit)
  for axes in panels:
    axes.set_ylim(-3 if unit == 'percent' else 27, 103)
    axes.spines[['top', 'right']].set_visible(False)
    axes.grid(axis='y', color='0.92')
  handles, labels = panels[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower center', ncols=len(labels), fontsize=9, frameon=False)
  return figure
