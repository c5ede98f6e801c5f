"""Pictures of belief states. matplotlib is imported when a picture is drawn."""

from collections.abc import Mapping
import itertools
import math
import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.arguments import array, converted

_CORNERS = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
# Markers and dashes, so that lines differ in print without colour.
_MARKERS, _DASHES = 'os^DvP', ('-', '--', '-.', ':')


@converted
def simplex(beliefs: ArrayLike, values: ArrayLike | None = None, ax: Any = None) -> Any:
  """Draw distributions over three states as points of a triangle, state 0 left, 1 right, 2 on top; return the axes.

  The beliefs of a process over all its texts are its mixed-state presentation, for mess3 a fractal (Shai et al. 2024).

  Args:
    beliefs: [n, 3]; rows sum to 1. An affine probe's rows may lie outside of the triangle.
    values: colours: numbers [n], or exact beliefs [n, 3] that mix red, green and blue; None for `beliefs` themselves.
    ax: matplotlib axes; new ones if None.

  Raises:
    ValueError: a shape is wrong.

  >>> import matplotlib; matplotlib.use('agg')
  >>> simplex(np.eye(3)).collections[0].get_offsets().round(2).tolist()
  [[0.0, 0.0], [1.0, 0.0], [0.5, 0.87]]
  """
  beliefs, colours = np.asarray(beliefs), np.asarray(beliefs if values is None else values)
  if beliefs.ndim != 2 or beliefs.shape[1] != 3:
    raise ValueError(f'beliefs have shape {beliefs.shape}; valid is [n, 3], of three states')
  if colours.shape not in (beliefs.shape, beliefs.shape[:1]):
    raise ValueError(f'values have shape {colours.shape}; valid is {beliefs.shape[:1]} or {beliefs.shape}, as beliefs')
  ax = ax or _new_axes()
  ax.plot(*_CORNERS[[0, 1, 2, 0]].T, color='0.6', linewidth=0.8, linestyle='-', marker='')
  ax.scatter(*(beliefs @ _CORNERS).T, c=colours.clip(0, 1) if colours.ndim == 2 else colours, s=3)
  for state, (x, y) in enumerate(_CORNERS):
    # Below the two at the bottom, above the one on top.
    ax.text(x, y, str(state), ha='center', va='bottom' if y else 'top')
  ax.axis('off')
  ax.set_aspect('equal')
  return ax


def layers(table: Mapping[str, Any], ax: Any = None) -> Any:
  """Draw a number against the layer, one line for each model, beside controls without layers; return the axes.

  Args:
    table: by name, the mapping of a model from layer to a number such as R^2, or the number of a control. A number
      may be a pair, (mean, half of its interval), or (mean, lower end, upper end): the interval is a bar or a band.
      Embeddings come first, then layers in the order of their numbers, then other names.
    ax: matplotlib axes; new ones if None.

  Raises:
    ValueError: there is nothing to draw, a number or an interval is none, or the axes are not empty.

  >>> import matplotlib; matplotlib.use('agg')
  >>> ax = layers({'trained': {'embeddings': 0.1, 'layer_1': (0.8, 0.1)}, 'untrained': {'layer_1': 0.2}, 'table': 0.3})
  >>> sorted(text.get_text() for text in ax.get_legend().get_texts())
  ['table', 'trained', 'untrained']
  """
  ax = ax or _new_axes()
  lines = {name: values for name, values in table.items() if isinstance(values, Mapping)}
  if not table or not all(lines.values()):
    raise ValueError(f'table is {dict(table)}; valid is a number or a layer for each of its names')
  # Its layers and its legend would be read as those of the new lines.
  if ax.has_data():
    raise ValueError('ax has data of another drawing; valid are empty axes')
  # Layers that only some lines have stand where the longest line has them.
  longest_first = sorted(lines.values(), key=len, reverse=True)
  order = sorted(dict.fromkeys(itertools.chain(*longest_first)), key=_depth)
  # matplotlib would read mathematics between two $, here and in the legend.
  ax.set_xticks(range(len(order)), [str(layer) for layer in order], parse_math=False)
  handles = []
  for number, (name, values) in enumerate(table.items()):
    style: Any = dict(label=name, color=f'C{number}', linestyle=_DASHES[number % len(_DASHES)])
    if name in lines:
      by_place = {order.index(layer): value for layer, value in values.items()}
      handles.append(_line(ax, by_place, marker=_MARKERS[number % len(_MARKERS)], **style))
    else:
      mean, low, high = _with_ends(values)
      handles.append(ax.axhline(mean, **style))
      ax.axhspan(low, high, color=style['color'], alpha=0.15)
  # matplotlib would leave a name that begins with _ out.
  for text, name in zip(ax.legend(handles, map(str, range(len(handles)))).get_texts(), table):
    text.set(text=name, parse_math=False)
  return ax


def _line(ax: Any, by_place: dict[int, ArrayLike], **style: Any) -> Any:
  """Draw numbers, and their intervals as bars, in the order of their places."""
  places = sorted(by_place)
  means, lows, highs = np.transpose([_with_ends(by_place[place]) for place in places])
  return ax.errorbar(places, means, [means - lows, highs - means], **style)


def _depth(name: Any) -> float:
  """The number at the end of a layer's name, -1 for embeddings and infinite without one."""
  number = re.search(r'\d+$', str(name))
  if number:
    return int(number[0])
  return -1 if name == 'embeddings' else math.inf


def _with_ends(value: ArrayLike) -> tuple[float, float, float]:
  """A number, and the ends of its interval, which is the number if there is none."""
  numbers = np.ravel(array('table', value)).astype(float).tolist()
  if len(numbers) == 1:
    numbers *= 3
  if len(numbers) == 2:
    mean, half = numbers
    numbers = mean, mean - half, mean + half
  wrong = ValueError(f'table has {value!r}; valid is a number, (mean, half) or (mean, lower end, upper end)')
  if len(numbers) != 3:
    raise wrong
  mean, low, high = numbers
  # A mean of equal numbers may lie outside of their range by rounding.
  rounding = 1e-6 * max(map(abs, numbers))
  if mean < low - rounding or mean > high + rounding:
    raise wrong
  return mean, min(low, mean), max(high, mean)


def _new_axes() -> Any:
  try:
    import matplotlib.pyplot as plt
  except ModuleNotFoundError:
    raise ModuleNotFoundError('hj.plots needs matplotlib, which the extra `plots` of hmm-jax installs')
  return plt.subplots()[1]
