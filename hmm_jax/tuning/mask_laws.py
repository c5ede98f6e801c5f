"""The law of k [MASK]s before a text, which a model predicts: features of a linear head (docs/findings/theory.md)."""

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
  return _probs_at(model, params, _with_masks(model, inputs, masks), np.arange(masks), batch_size)


def joint_at_masks(model: MaskedLM, params: Any, inputs: np.ndarray, masks: int, *, batch_size: int) -> np.ndarray:
  """P[X_{2-k..1} = v | x] [n, V^k] of the words v at k = `masks` [MASK]s, in the order of their digits.

  By the chain rule from the first mask on, P[v_1 | x] P[v_2 | v_1, x] ..., each factor from a pass with the word so far
  in place of the first masks: 1 + V + ... + V^(k-1) passes. Arguments are those of `marginals_at_masks`.

  >>> import jax, hmm_jax as hj
  >>> hmm, inputs = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), np.array([[4, 1, 2, 3, 0]])
  >>> joint_at_masks(hj.ExactModel(num_tokens=4), hmm, inputs, masks=2, batch_size=1).shape
  (1, 16)
  """
  rows, joint = _with_masks(model, inputs, masks), np.ones((len(inputs), 1))
  for place in range(masks):
    if place:
      rows = np.repeat(rows, model.num_tokens, axis=0)
      rows[:, place - 1] = np.arange(len(rows)) % model.num_tokens
    factors = _probs_at(model, params, rows, np.array([place]), batch_size)
    joint = (joint.reshape(-1, 1) * factors).reshape(len(inputs), -1)
  return joint


def _with_masks(model: MaskedLM, inputs: np.ndarray, masks: int) -> np.ndarray:
  arguments.check_size('masks', masks)
  return np.pad(inputs, ((0, 0), (masks - 1, 0)), constant_values=model.num_tokens)


def _probs_at(model: MaskedLM, params: Any, rows: np.ndarray, positions: np.ndarray, batch_size: int) -> np.ndarray:
  """Predictions [n, Q V] in float64 at `positions` [Q] of rows [n, T]."""
  probs = in_blocks(lambda block: token_probs(model, params, block, positions), rows, batch_size)
  return np.float64(probs).reshape(len(rows), -1)
