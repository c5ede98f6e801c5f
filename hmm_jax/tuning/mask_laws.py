"""Marginals of k [MASK]s before a text, which a model predicts: features of a linear head (docs/findings/theory.md)."""

from typing import Any

import numpy as np

from hmm_jax._support import arguments
from hmm_jax._support.blocks import in_blocks
from hmm_jax.models.model import MaskedLM, token_probs


def marginals_at_masks(model: MaskedLM, params: Any, inputs: np.ndarray, masks: int, *, batch_size: int) -> np.ndarray:
  """P[X_i | x] [n, k V] at each of k = `masks` [MASK]s, from one pass; the first mask first.

  Args:
    model: exact or pretrained.
    params: its parameters; of the exact model a distribution, that of a chain which begins at the first mask.
    inputs: [n, T], whose first token is the last mask.
    masks: k.
    batch_size: inputs in one call of the model.

  >>> import jax, hmm_jax as hj
  >>> hmm, inputs = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), np.array([[4, 1, 2, 3, 0]])
  >>> marginals_at_masks(hj.ExactModel(num_tokens=4), hmm, inputs, masks=3, batch_size=1).shape
  (1, 12)
  """
  arguments.check_size('masks', masks)
  rows = np.pad(inputs, ((0, 0), (masks - 1, 0)), constant_values=model.num_tokens)
  probs = in_blocks(lambda block: token_probs(model, params, block, np.arange(masks)), rows, batch_size)
  return np.float64(probs).reshape(len(rows), -1)
