"""Pictures of belief states. matplotlib is imported when a picture is drawn."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.arguments import check_shape, converted

_CORNERS = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])


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
  check_shape('beliefs', beliefs, 'n', 3)
  check_shape('values', colours, *beliefs.shape[: max(colours.ndim, 1)])
  ax = ax or _new_axes()
  ax.plot(*_CORNERS[[0, 1, 2, 0]].T, color='0.6', linewidth=0.8, linestyle='-', marker='')
  ax.scatter(*(beliefs @ _CORNERS).T, c=colours.clip(0, 1) if colours.ndim == 2 else colours, s=3)
  for state, (x, y) in enumerate(_CORNERS):
    # Below the two at the bottom, above the one on top.
    ax.text(x, y, str(state), ha='center', va='bottom' if y else 'top')
  ax.axis('off')
  ax.set_aspect('equal')
  return ax


def _new_axes() -> Any:
  try:
    import matplotlib.pyplot as plt
  except ModuleNotFoundError:
    raise ModuleNotFoundError('hj.plots needs matplotlib, which the extra `plots` of hmm-jax installs')
  return plt.subplots()[1]
