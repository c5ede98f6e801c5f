"""Causal models: row i sees the tokens before i and no others, in BERT, the exact model and tuning."""

from bert_cases import random_params, SMALLEST
from conftest import dirichlet_hmm
import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest

import hmm_jax as hj
from hmm_jax.models import bayes_gap
from hmm_jax.models.shifted import Shifted

V, T = 4, 4
CAUSAL = SMALLEST.clone(causal=True)
DRAWS = np.random.default_rng(0)
TEXTS = DRAWS.integers(0, V, (9, T))
HMM = jax.tree.map(np.float32, dirichlet_hmm(DRAWS, 3))


@pytest.mark.parametrize('by_position', (False, True))
def test_no_prediction_moves_at_or_before_a_changed_token(by_position):
  """If token j changes, rows 0 to j keep their bits and all later ones move, asked for by position or not."""
  bert = CAUSAL.clone(num_layers=2)
  texts = np.where(np.eye(T + 1, T, -1), (TEXTS[0] + 1) % V, TEXTS[0])
  positions = np.tile(np.arange(T), (T + 1, 1)) if by_position else None
  probs = np.asarray(hj.token_probs(hj.BertModel(bert), random_params(bert), texts, positions))
  np.testing.assert_array_equal((probs != probs[0]).any(-1)[1:], np.tri(T, k=-1).T)


def test_the_causal_exact_model_is_the_masked_one_with_the_last_token_hidden():
  """Row i is the masked G_i of the text whose tokens from i on are hidden, by an oracle in numpy and by our own."""
  ideal = jax.device_get(bayes_gap.ideal_next_tokens(HMM, TEXTS))
  for i in range(T):
    seen = np.where(np.arange(T) < i, TEXTS, V)
    expected = log_space_conditional(HMM, rows_of(HMM, seen))[:, i]
    np.testing.assert_allclose(ideal.token_probs[:, i], expected, atol=1e-5)
  at_mask = bayes_gap.ideal_at_mask(HMM, seen, batch_size=9, hidden=-1)
  np.testing.assert_allclose(at_mask.token_probs[:, 0], ideal.token_probs[:, -1], atol=1e-6)


def test_a_constant_shift_is_tuned_like_a_prompt_and_patches_the_last_activation():
  """Wherever its row stands, it moves all others."""
  model, params = hj.BertModel(CAUSAL), random_params(CAUSAL)
  task = hj.DownstreamTask(np.eye(3), 1, length=T, num_train=20, num_test=10, hidden=-1)
  schedule = hj.Schedule(0.1, num_epochs=1, batch_size=10, warmup_steps=1, weight_decay=0.0, clip_norm=1.0)
  tuned = hj.tune(Shifted(model), params, HMM, task, prompt_length=1, schedule=schedule)
  shifted = hj.with_activations(model, params, TEXTS, {'layer_1': lambda x: x + tuned.prompt})
  scores = np.asarray(shifted)[:, -1] @ tuned.head.weights + tuned.head.bias
  assert tuned.predict(TEXTS).tolist() == scores.argmax(-1).tolist()
  beside = jax.jit(lambda prompt: Shifted(model).predict_prompted(params, prompt, TEXTS, place=1))(tuned.prompt)
  np.testing.assert_allclose(np.delete(beside, 1, axis=1), shifted, atol=1e-6)


def test_labels_without_a_task_are_of_the_last_state():
  """A causal model predicts no first token from what comes after it."""
  tuned = hj.tune(
    hj.ExactModel(V, causal=True), HMM, HMM, labels=lambda _, beliefs: beliefs.argmax(1) % 2, prompt_length=0
  )
  assert tuned.hidden == -1
