"""Test texts of a trial with the exact posterior, both models' predictions and attention, which its report shows."""

from typing import Any

import jax
import numpy as np

from experiments.pipeline.downstream import Downstream, NEAR_TIE
from experiments.settings.grid import Settings
from hmm_jax._support.blocks import in_blocks
from hmm_jax.distributions.hmm import Distribution, token_likelihoods
from hmm_jax.inference.posterior import forward_backward
from hmm_jax.layers.activations import attention_patterns
from hmm_jax.models import bayes_gap
from hmm_jax.models.model import MaskedLM, token_probs


def shown(
  settings: Settings, distribution: Distribution, downstream: Downstream, model: MaskedLM, params: Any
) -> dict[str, np.ndarray]:
  """The arrays of the first test texts by name; n texts of T tokens, L layers, K tasks.

  `tokens` [n, T], V where one is hidden; `states` and `state_probs` [n, T], the likeliest state given the text and its
  probability; `of_token` [n, 2, T], the probability of each token given all others, or those before for a causal
  model, exact and by the model, NaN at the [MASK]; `at_mask` [n, 2, V], of all tokens there; `attention` [n, L, T] from
  the [MASK], the mean over heads; `labels` and `near_ties` [n, K].
  """
  test = downstream.splits['test']
  tokens = downstream.inputs[test][: settings.shown_texts]
  is_seen = tokens != distribution.num_tokens
  posterior = forward_backward(distribution, token_likelihoods(distribution, tokens, is_seen)).smoothed_probs
  probs = _probs(settings, distribution, model, params, tokens)
  read = np.where(is_seen, tokens, 0)[:, None, :, None]
  of_token = np.take_along_axis(probs, read, -1)[..., 0]
  hidden = settings.downstream.hidden_position
  attention = attention_patterns(model, params, tokens)[..., hidden, :].mean(-2)
  tasks = downstream.tasks[: settings.tasks_per_trial]
  of_texts = lambda arrays: np.stack(arrays, axis=-1)[test][: len(tokens)]
  return {
    'tokens': tokens,
    'states': posterior.argmax(-1),
    'state_probs': posterior.max(-1),
    'of_token': np.where(is_seen[:, None], of_token, np.nan),
    'at_mask': probs[:, :, hidden],
    # A causal model reads [MASK] and then all tokens but the last.
    'attention': np.roll(attention, -1, axis=-1) if settings.bert.causal else attention,
    'labels': of_texts([task.labels for task in tasks]),
    'near_ties': of_texts([task.margins for task in tasks]) < NEAR_TIE,
  }


def _probs(
  settings: Settings, distribution: Distribution, model: MaskedLM, params: Any, tokens: np.ndarray
) -> np.ndarray:
  """The exact and the model's token probabilities at each position of texts [n, T], [n, 2, T, V]."""
  size = settings.measure.batch_size
  if settings.bert.causal:
    # No prediction sees the hidden token, which is the last.
    any_token = np.where(tokens == distribution.num_tokens, 0, tokens)
    ideal = jax.device_get(bayes_gap.ideal_next_tokens(distribution, any_token))
  else:
    ideal = bayes_gap.ideal_one_at_a_time(distribution, tokens, batch_size=size)
  predicted = in_blocks(lambda block: token_probs(model, params, *block), (ideal.inputs, ideal.positions), size)
  return np.stack([np.reshape(each, (*tokens.shape, -1)) for each in (ideal.token_probs, predicted)], axis=1)
