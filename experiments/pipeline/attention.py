"""Attention weights of tuned heads against the concentration of posteriors, over all positions of the test inputs."""

import functools
import math
from typing import Any

import jax
import numpy as np
import scipy

from experiments.pipeline.job import Fitted, Job, stacked
import hmm_jax
from hmm_jax._support.blocks import in_blocks
from hmm_jax.models.model import ExactModel, representation
from hmm_jax.tuning import tuner as tuner_lib

_BINS = 10


def profiles(job: Job, features: Any, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The `profile` of each fit, and its measure of concentration."""
  test, batch_size = job.downstream.splits['test'], job.settings.measure.batch_size
  tuner, params = job.tuner.after_features(job.frozen.params)
  read = jax.tree.map(lambda x: x[test], features)
  weights_KxNxT = tuner_lib.attention(tuner, stacked(fits), params, read, batch_size=batch_size)
  name, values, most = concentration(job)
  return [{'attention_by': name, **profile(weights, values, most)} for weights in np.asarray(weights_KxNxT)]


def profile(weights: np.ndarray, concentration: np.ndarray, most: float) -> dict[str, Any]:
  """Attention weights [n, T] against a concentration [n, T] from 0 to `most`.

  The profile has a row for each bin of concentration: the means of both, null where the bin is empty, and the share of
  positions in it. Weights are in units of the uniform one, 1 / T. The correlation is Spearman's, of values rounded to
  1e-6: otherwise ranks would order nearly certain states by their last digits.
  """
  relative, values = weights.ravel() * weights.shape[1], concentration.ravel()
  bins = np.minimum((values / most * _BINS).astype(int), _BINS - 1)
  rows = []
  for index in range(_BINS):
    where = bins == index
    means = [float(x[where].mean()) for x in (values, relative)] if where.any() else [None, None]
    rows.append([*means, float(where.mean())])
  ranked = np.round(values, 6), np.round(relative, 6)
  varies = all(np.ptp(each) > 0 for each in ranked)
  correlation = float(scipy.stats.spearmanr(*ranked).statistic) if varies else None
  return {'attention_profile': rows, 'attention_rank_correlation': correlation}


def concentration(job: Job) -> tuple[str, np.ndarray, float]:
  """The concentration of P[H_i | X_{-i}] at each position of the test inputs.

  Returns:
    The name of the measure: 'read_probability', P[J_i = the label's cell | X_{-i}] if there are several cells, or else
      'entropy', of P[H_i | X_{-i}] in nats, memory summed out.
    Its values, [n_test, T].
    An upper bound of them: 1, or log H.
  """
  distribution, point = job.frozen.distribution, job.trial.point
  exact = ExactModel(distribution.num_tokens, job.settings.bert.causal)
  represent = functools.partial(representation, exact, distribution)
  inputs = job.inputs[job.downstream.splits['test']]
  joint = in_blocks(represent, inputs, job.settings.measure.batch_size)
  state_probs = joint.reshape(*joint.shape[:2], -1, point.num_states).sum(-2)
  if isinstance(distribution, hmm_jax.MemoryHMM) and point.num_cells > 1:
    are_of_cell = np.asarray(distribution.cell_index) == job.settings.memory.label_cell
    return 'read_probability', state_probs[..., are_of_cell].sum(-1), 1.0
  entropies = scipy.special.entr(np.float64(state_probs)).sum(-1)
  return 'entropy', entropies, math.log(max(point.num_states, 2))
