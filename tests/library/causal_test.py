"""Causal models: row i sees the tokens before i and no others, in BERT, the exact model, the loss and tuning."""

from bert_cases import random_params, SMALLEST
from conftest import dirichlet_hmm
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest

import hmm_jax as hj
from hmm_jax.models import bayes_gap
from hmm_jax.models.masking import next_token
from hmm_jax.models.pretraining import train_step, TrainState
from hmm_jax.models.shifted import Shifted

V, T = 4, 4
CAUSAL = SMALLEST.clone(causal=True)
MODEL, PARAMS = hj.BertModel(CAUSAL), random_params(CAUSAL)
DRAWS = np.random.default_rng(0)
TEXTS = DRAWS.integers(0, V, (9, T))
HMM = jax.tree.map(np.float32, dirichlet_hmm(DRAWS, 3))
TASK = hj.DownstreamTask(np.eye(3), jax.random.key(1), length=T, num_train=20, num_test=10, hidden=-1)
SCHEDULE = hj.Schedule(0.1, 1, 10, 1, 0.0, 1.0)


def answers(head, probs):
  """The class of each text by a linear head on the last row."""
  return (np.asarray(probs)[:, -1] @ head.weights + head.bias).argmax(-1).tolist()


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


def test_the_loss_is_the_negative_log_likelihood():
  """The training loss is the mean of -log P[x_i | x_1..i-1]."""
  optimizer = SCHEDULE.optimizer(20)
  state = TrainState(jnp.int32(0), PARAMS, optimizer.init(PARAMS))
  step = jax.jit(lambda state: train_step(CAUSAL, optimizer, next_token(V), state, TEXTS, jax.random.key(0))[1])
  probs = np.take_along_axis(np.asarray(hj.token_probs(MODEL, PARAMS, TEXTS)), TEXTS[..., None], -1)
  np.testing.assert_allclose(step(state), -np.log(probs).mean(), rtol=1e-5)


def test_tuning_follows_the_hidden_token():
  """The mirror of the paper's task: the last token is hidden, and its likeliest state is the label.

  A head reads it, whatever a text has there.
  """
  inputs, labels = TASK.examples(HMM)
  assert ((inputs == V) == np.eye(T)[-1]).all()
  beliefs = hj.activations(hj.ExactModel(V, causal=True), HMM, inputs)['beliefs']
  assert (labels == beliefs[:, -1].argmax(-1)).all()
  tuned = hj.tune(MODEL, PARAMS, HMM, TASK, prompt_length=0, schedule=SCHEDULE)
  assert tuned.predict(TEXTS).tolist() == answers(tuned.head, hj.token_probs(MODEL, PARAMS, TEXTS))


def test_a_constant_shift_is_tuned_like_a_prompt_and_patches_the_last_activation():
  """Wherever its row stands, it moves all others."""
  tuned = hj.tune(Shifted(MODEL), PARAMS, HMM, TASK, prompt_length=1, schedule=SCHEDULE)
  shifted = hj.with_activations(MODEL, PARAMS, TEXTS, {'layer_1': lambda x: x + tuned.prompt})
  assert tuned.predict(TEXTS).tolist() == answers(tuned.head, shifted)
  beside = jax.jit(lambda prompt: Shifted(MODEL).predict_prompted(PARAMS, prompt, TEXTS, place=1))(tuned.prompt)
  np.testing.assert_allclose(np.delete(beside, 1, axis=1), shifted, atol=1e-6)
