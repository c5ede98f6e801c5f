"""The interface of models: the exact one against log-space inference in numpy, and what holds of every model."""

import functools
import itertools

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel

H, V, T = 3, 4, 3
MASK = V
EXACT = ExactModel(V)
HIDDEN = float32_hmm(0, H, V)
MODEL, PARAMS = BertModel(SMALLEST), random_params(SMALLEST, 1)
TOKENS = np.int32([[[0, MASK, 2]], [[1, 1, MASK]]])


@functools.partial(jax.jit, static_argnums=0)
def outputs(model, params, embeddings, positions=None):
  """Predictions and representations."""
  return model.predict(params, embeddings, positions), model.represent(params, embeddings, positions)


@functools.partial(jax.jit, static_argnums=0)
def embed(model, params, tokens):
  return model.embed(params, tokens)


def test_prediction_is_the_conditional_of_each_token_given_the_others():
  """On every input, [MASK] included, `predict` is P[X_i | X_-i] and `represent` is P[H_i | X_-i].

  A prompt row u is a first token z~ with P[z~ | H_1] = u (appendix B.1).
  """
  inputs = np.array(list(itertools.product(range(V + 1), repeat=T)))
  emissions = np.float64(HIDDEN.emission_matrix)
  text = rows_of(HIDDEN, inputs)
  prompt = np.broadcast_to([[0.9, 0.05, 0.4]], (len(inputs), 1, H))
  before = lambda rows: np.concatenate([prompt, rows], axis=1)
  states = log_space_posterior(HIDDEN, before(text)).leave_one_out_probs
  # Each text has an order of its own in which its positions are read.
  positions = np.random.default_rng(0).permuted(np.tile(np.arange(T + 1), (len(inputs), 1)), axis=1)
  states = np.take_along_axis(states, positions[..., None], axis=1)
  embeddings = before(embed(EXACT, HIDDEN, inputs)).astype(np.float32)
  predicted, represented = outputs(EXACT, HIDDEN, embeddings, positions)
  np.testing.assert_allclose(represented, states, atol=1e-5)
  np.testing.assert_allclose(predicted, states @ emissions, atol=1e-5)


@pytest.mark.parametrize('positions', [np.array([2]), None])
def test_a_prompt_is_rows_before_the_text(positions):
  """`predict_prompted` gives for each prompt and text what `predict` gives for their concatenation."""
  prompts = np.random.default_rng(4).uniform(0.1, 1, (3, 2, SMALLEST.width)).astype(np.float32)
  texts = TOKENS[:, 0]
  probs = jax.jit(lambda prompts: MODEL.predict_prompted(PARAMS, prompts, texts, positions))(prompts)
  embeddings = np.asarray(embed(MODEL, PARAMS, texts))
  whole = np.array([[np.concatenate([prompt, text]) for text in embeddings] for prompt in prompts])
  expected, _ = outputs(MODEL, PARAMS, whole, positions)
  np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-5)
