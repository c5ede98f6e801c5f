"""Pictures of belief states. matplotlib is imported when a picture is drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
import scipy.stats

from hmm_jax._support import arguments

# Okabe and Ito's colours; neighbours differ in marker and dash too, for print in grey.
_LINES = [('#0072B2', 'o', '-'), ('#E69F00', 's', '--'), ('#009E73', '^', '-.'), ('#D55E00', 'D', ':')]
_BANDS = [('#000000', '-'), ('#AA4499', '--'), ('#56B4E9', '-.'), ('#999999', ':')]


def simplex(beliefs: ArrayLike, values: ArrayLike | None = None, ax: Any = None) -> Any:
  """Draw laws of three states as points of a triangle whose corners are the states; return the axes.

  The beliefs of a process over all its texts are its mixed-state presentation, for mess3 a fractal (Shai et al. 2024).

  Args:
    beliefs: [n, 3]; rows sum to 1. An affine probe's rows may lie outside of the triangle.
    values: colours: numbers [n], or exact beliefs [n, 3] that mix red, green and blue; None for `beliefs` themselves.
    ax: matplotlib axes; new ones if None.

  Raises:
    ValueError: a shape is wrong.

  >>> import matplotlib; matplotlib.use('agg')
  >>> ax = simplex(np.eye(3))
  >>> ax.collections[0].get_offsets().round(2).tolist()
  [[0.0, 0.0], [1.0, 0.0], [0.5, 0.87]]
  """
  beliefs = np.asarray(arguments.array('beliefs', beliefs))
  if beliefs.ndim != 2 or beliefs.shape[1] != 3:
    raise ValueError(f'beliefs have shape {beliefs.shape}; valid is [n, 3], of three states')
  colours = beliefs if values is None else np.asarray(arguments.array('values', values))
  if colours.shape not in (beliefs.shape, beliefs.shape[:1]):
    raise ValueError(f'values have shape {colours.shape}; valid is {beliefs.shape[:1]} or {beliefs.shape}')
  if colours.ndim == 2:
    colours = np.clip(colours, 0, 1)
  ax = ax or _new_axes(figsize=(4, 4))
  corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
  ax.scatter(*(beliefs @ corners).T, c=colours, s=3, cmap='cividis', linewidths=0, zorder=2)
  ax.plot(*corners[[0, 1, 2, 0]].T, color='0.6', linewidth=0.8, zorder=1)
  for state, corner in enumerate(corners):
    ax.text(*(corner + 0.07 * (corner - corners.mean(0))), str(state), ha='center', va='center')
  ax.set_aspect('equal')
  ax.axis('off')
  return ax


def layers(table: Mapping[str, Any], ax: Any = None) -> Any:
  """Draw a number against the layer, one line for each model, beside controls without layers; return the axes.

  Args:
    table: by name, for a model a mapping from layer to its number, such as an R^2, for a control its number. In place
      of a number, several, such as one for each HMM: then the mean, with its 95% t interval as a bar or a band.
    ax: matplotlib axes; new ones if None.

  >>> import matplotlib; matplotlib.use('agg')
  >>> ax = layers({'trained': {'embeddings': 0.1, 'layer_1': [0.8, 0.9]}, 'untrained': {'layer_1': 0.2}, 'window': 0.3})
  >>> [text.get_text() for text in ax.get_legend().get_texts()]
  ['trained', 'untrained', 'window']
  """
  ax = ax or _new_axes(figsize=(5, 3.5))
  models = {name: by_layer for name, by_layer in table.items() if isinstance(by_layer, Mapping)}
  names = list(dict.fromkeys(layer for by_layer in models.values() for layer in by_layer))
  for number, (name, by_layer) in enumerate(models.items()):
    colour, marker, dash = _LINES[number % len(_LINES)]
    means, halves = np.transpose([_mean_and_half(values) for values in by_layer.values()])
    places = [names.index(layer) for layer in by_layer]
    ax.errorbar(places, means, halves, label=name, color=colour, marker=marker, linestyle=dash, capsize=2.5)
  for number, name in enumerate(name for name in table if name not in models):
    colour, dash = _BANDS[number % len(_BANDS)]
    mean, half = _mean_and_half(table[name])
    ax.axhline(mean, label=name, color=colour, linestyle=dash, linewidth=1)
    ax.axhspan(mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
  ax.set_xticks(range(len(names)), [name.replace('_', ' ') for name in names])
  ax.legend(frameon=False)
  return ax


def _new_axes(**options: Any) -> Any:
  import matplotlib.pyplot as plt

  return plt.subplots(**options, layout='constrained')[1]


def _mean_and_half(values: ArrayLike) -> tuple[float, float]:
  """The mean and half of its 95% t interval, 0 for a single value."""
  values = np.ravel(np.asarray(values, np.float64))
  half = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1) if len(values) > 1 else 0.0
  return float(values.mean()), float(half)
