"""Causal models: row i sees the tokens before i and no others, in BERT, the exact model, the loss and tuning."""

from bert_cases import random_params, SMALLEST
from conftest import assert_same_bits, dirichlet_hmm
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest

import hmm_jax as hj
from hmm_jax.models import bayes_gap
from hmm_jax.models.masking import next_token
from hmm_jax.models.model import prepend
from hmm_jax.models.pretraining import train_step, TrainState
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.tuner import Prompt, Tuner

pytestmark = pytest.mark.usefixtures('without_optimisation')

V, T = 4, 4
CAUSAL = SMALLEST.clone(causal=True)
MODEL, PARAMS = hj.BertModel(CAUSAL), random_params(CAUSAL)
DRAWS = np.random.default_rng(0)
TEXTS, PROMPTS = DRAWS.integers(0, V, (3, T)), np.float32(DRAWS.normal(size=(2, 2, 8)))
HMM = jax.tree.map(np.float32, dirichlet_hmm(DRAWS, 3))
TASK = hj.DownstreamTask(np.eye(3), jax.random.key(1), length=T, num_train=20, num_test=10, hidden=-1)


def seen(count):
  """The texts with [MASK] in place of all tokens but the first `count`."""
  return np.where(np.arange(T) < count, TEXTS, V)


@pytest.mark.parametrize('scan_layers', (False, True))
def test_no_prediction_moves_at_or_before_a_changed_token(scan_layers):
  """Rows 0 to j keep their bits if token j changes, and row j + 1 moves, for every j, asked for by position or not."""
  bert = CAUSAL.clone(num_layers=2, scan_layers=scan_layers)
  texts = np.concatenate([TEXTS[:1], np.where(np.eye(T, dtype=bool), (TEXTS[0] + 1) % V, TEXTS[0])])
  positions = None if scan_layers else np.tile(np.arange(T), (T + 1, 1))
  first, *changed = np.asarray(hj.token_probs(hj.BertModel(bert), random_params(bert), texts, positions))
  for j, rows in enumerate(changed):
    np.testing.assert_array_equal(rows[: j + 1], first[: j + 1])
    assert (np.abs(rows - first)[j + 1 : j + 2] > 1e-6).all()


def test_the_causal_exact_model_is_the_masked_one_with_the_last_token_hidden():
  """Row i is the masked G_i of the text whose tokens from i on are hidden, by an oracle in numpy and by our own."""
  ideal = jax.device_get(bayes_gap.ideal_next_tokens(HMM, TEXTS))
  for i in range(T):
    expected = log_space_conditional(HMM, rows_of(HMM, seen(i)))[:, i]
    np.testing.assert_allclose(ideal.token_probs[:, i], expected, atol=1e-5)
  at_mask = bayes_gap.ideal_at_mask(HMM, seen(T - 1), batch_size=3, hidden=-1)
  np.testing.assert_allclose(at_mask.token_probs[:, 0], ideal.token_probs[:, -1], atol=1e-6)


def test_the_loss_is_the_negative_log_likelihood():
  """The training loss is the mean of -log P[x_i | x_1..i-1], each from a text that ends before token i."""
  optimizer = hj.Schedule(0.1, 1, 1, 0, 0.0, 1.0).optimizer(9)
  state = TrainState(jnp.int32(0), PARAMS, optimizer.init(PARAMS))
  step = jax.jit(lambda state: train_step(CAUSAL, optimizer, next_token(V), state, TEXTS, jax.random.key(0))[1])
  probs = [np.asarray(hj.token_probs(MODEL, PARAMS, seen(i)))[np.arange(3), i, TEXTS[:, i]] for i in range(T)]
  np.testing.assert_allclose(step(state), -np.log(probs).mean(), rtol=1e-5)


def test_a_causal_bert_is_refused_cudnn():
  with pytest.raises(ValueError, match="^attention is 'cudnn'; valid is 'xla' for a causal BERT"):
    CAUSAL.clone(attention='cudnn').init(jax.random.key(0), TEXTS)


def test_labels_and_inputs_speak_of_the_hidden_token():
  """The mirror of the paper's task: the last token is hidden, and the label is its likeliest state."""
  inputs, labels = TASK.examples(HMM)
  assert (inputs[:, -1] == V).all() and (inputs[:, :-1] < V).all()
  beliefs = hj.activations(hj.ExactModel(V, causal=True), HMM, inputs)['beliefs']
  assert (labels == beliefs[:, -1].argmax(-1)).all() and np.ptp(beliefs[:, 0], axis=0).max() == 0


def test_tuning_follows_the_hidden_token_or_refuses():
  """A head reads the last token, whatever a text has there; a causal model refuses a task of the first."""
  tuned = hj.tune(MODEL, PARAMS, HMM, TASK, prompt_length=0, schedule=hj.Schedule(0.1, 1, 10, 1, 0.0, 1.0))
  scores = np.asarray(hj.token_probs(MODEL, PARAMS, TEXTS))[:, -1] @ tuned.head.weights + tuned.head.bias
  assert tuned.predict(TEXTS).tolist() == scores.argmax(-1).tolist()
  for hidden, sentence in ((0, 'hidden of the task is 0; valid is -1'), (2, 'hidden is 2; valid are 0')):
    with pytest.raises(ValueError, match=f'^{sentence}'):
      hj.tune(MODEL, PARAMS, HMM, TASK._replace(hidden=hidden))


def test_attention_looks_back_only_and_activations_can_be_replaced():
  assert not np.triu(hj.attention_patterns(MODEL, PARAMS, TEXTS), 1).any()
  swap = {'layer_1': lambda x: x[::-1]}
  patched = hj.with_activations(MODEL, PARAMS, TEXTS, swap)
  np.testing.assert_allclose(patched, hj.token_probs(MODEL, PARAMS, TEXTS)[::-1], atol=1e-6)


def test_a_saved_suffix_predicts_the_same_and_is_no_adapter(tmp_path):
  """A suffix and its head on a causal model: read alone and apart from the text, they are those of the sequence."""
  head = LinearHead(np.float32(DRAWS.normal(size=(V, 2))), np.zeros(2, np.float32))
  trainable = jax.tree.map(lambda x: x[None], {'head': head, 'prompt': PROMPTS[0]})
  tuner = Tuner(MODEL, hj.Linear(2, position=-1), Prompt(2, 0.5, place=-1))
  before = hj.Tuned(trainable, 0.5, tuner, PARAMS, hidden=-1)
  before.save(tmp_path / 'tuned')
  after = hj.load_tuned(tmp_path / 'tuned')
  assert (after.tuner, after.hidden) == (tuner, -1) and not (tmp_path / 'tuned/adapter_config.json').exists()
  assert_same_bits(after.params, PARAMS)
  rows = prepend(PROMPTS[0], MODEL.embed(PARAMS, TEXTS), T - 1)
  scores = np.asarray(jax.jit(MODEL.predict)(PARAMS, rows))[:, -1] @ head.weights
  assert after.predict(TEXTS).tolist() == scores.argmax(-1).tolist()
