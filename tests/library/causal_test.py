"""Causal models: row i sees the tokens before i and no others, in BERT, the exact model, the loss and tuning."""

from bert_cases import random_params, SMALLEST
from conftest import assert_same_bits, dirichlet_hmm, path_probs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmm_jax as hj
from hmm_jax.models import bayes_gap
from hmm_jax.models.masking import next_token
from hmm_jax.models.model import prepend
from hmm_jax.models.pretraining import train_step, TrainState
from hmm_jax.tuning.heads import LinearHead, positions_read
from hmm_jax.tuning.tuner import Prompt, Tuner

pytestmark = pytest.mark.usefixtures('without_optimisation')

V, T = 4, 4
CAUSAL = SMALLEST.clone(causal=True)
TEXTS = np.random.default_rng(0).integers(0, V, (3, T))
HMM = jax.tree.map(np.float32, dirichlet_hmm(np.random.default_rng(1), 3))


@pytest.mark.parametrize('scan_layers', (False, True))
def test_no_prediction_moves_at_or_before_a_changed_token(scan_layers):
  """Rows 0 to j keep their bits if token j changes, and row j + 1 moves: every j, alone and behind a prompt."""
  bert = CAUSAL.clone(num_layers=2, scan_layers=scan_layers)
  model, params, text = hj.BertModel(bert), random_params(bert), TEXTS[0]
  prompts = np.random.default_rng(2).normal(size=(1, 2, 8)).astype(np.float32)
  texts = np.stack([text, *(np.where(np.arange(T) == j, (text + 1) % V, text) for j in range(T))])
  alone = np.asarray(hj.token_probs(model, params, texts))
  for probs in alone, np.asarray(jax.jit(model.predict_prompted)(params, prompts, texts))[0, :, 2:]:
    for j, row in enumerate(probs[1:]):
      np.testing.assert_array_equal(row[: j + 1], probs[0, : j + 1])
      assert (np.abs(row - probs[0])[j + 1 : j + 2] > 1e-6).all()


def test_positions_and_parts_of_a_prompt_change_no_prediction():
  """Rows read at chosen positions, with the prompt apart from the text, are those of the whole sequence."""
  model, params, read = hj.BertModel(CAUSAL), random_params(CAUSAL), np.array([5, 0, 3])
  prompts = np.random.default_rng(2).normal(size=(2, 2, 8)).astype(np.float32)

  @jax.jit
  def both(params):
    embeddings = model.embed(params, TEXTS)
    wholes = [model.predict(params, prepend(prompts, embeddings, place))[..., read, :] for place in (0, 2, T - 1)]
    aparts = [model.predict_prompted(params, prompts, TEXTS, read, place) for place in (0, 2, T - 1)]
    wholes.append(model.predict(params, embeddings)[:, read[1:]])
    return wholes, [*aparts, model.predict(params, embeddings, np.tile(read[1:], (3, 1)))]

  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), *both(params))


def test_the_causal_exact_model_is_the_masked_one_with_the_last_token_hidden():
  """Row i is P[X_i | x_1..i-1] by sums over state paths; at a hidden last token masked G is the same."""
  ideal, hmm = jax.device_get(bayes_gap.ideal_next_tokens(HMM, TEXTS)), jax.tree.map(np.float64, HMM)
  for text, predicted in zip(TEXTS, ideal.token_probs):
    for i in range(T):
      ends = [[*text[:i], last] for last in range(V)]
      joint = [path_probs(hmm, hmm.emission_matrix.T[end]).sum() for end in ends]
      np.testing.assert_allclose(predicted[i], np.array(joint) / sum(joint), atol=1e-5)
  hidden = np.where(np.arange(T) == T - 1, V, TEXTS)
  at_mask = bayes_gap.ideal_at_mask(HMM, hidden, batch_size=3, hidden=-1)
  np.testing.assert_allclose(at_mask.token_probs[:, 0], ideal.token_probs[:, -1], atol=1e-6)
  assert (at_mask.positions == T - 1).all() and ideal.weights.sum() == pytest.approx(1)


def test_the_loss_is_the_negative_log_likelihood():
  """The training loss is the mean of -log P[x_i | x_1..i-1], each from a text that ends behind token i."""
  model, params = hj.BertModel(CAUSAL), random_params(CAUSAL)
  optimizer = hj.Schedule(0.1, 1, 1, 0, 0.0, 1.0).optimizer(9)
  state = TrainState(jnp.int32(0), params, optimizer.init(params))
  step = jax.jit(lambda state: train_step(CAUSAL, optimizer, next_token(V), state, TEXTS, jax.random.key(0))[1])
  losses = []
  for i in range(T):
    # The text is padded by [MASK]s, which row i does not see.
    cut = np.where(np.arange(T) < i, TEXTS, V)
    losses.append(-np.log(np.asarray(hj.token_probs(model, params, cut))[np.arange(3), i, TEXTS[:, i]]))
  np.testing.assert_allclose(step(state), np.mean(losses), rtol=1e-5)


def test_a_causal_bert_is_refused_cudnn():
  with pytest.raises(ValueError, match="^attention is 'cudnn'; valid is 'xla' for a causal BERT"):
    CAUSAL.clone(attention='cudnn', dtype=jnp.bfloat16).init(jax.random.key(0), TEXTS)


def test_heads_count_negative_positions_from_the_end():
  assert positions_read(hj.Linear(2, position=-1), 3, T).tolist() == [T + 2]
  assert positions_read(hj.Linear(2, position=1), 3, T).tolist() == [4]


TASK = hj.DownstreamTask(np.eye(3), jax.random.key(1), length=T, num_train=20, num_test=10, hidden=-1)


def test_labels_and_inputs_speak_of_the_hidden_token():
  """The mirror of the paper's task: the last token is hidden, and mu weighs the posterior of its state."""
  inputs, labels = TASK.examples(HMM)
  assert (inputs[:, -1] == V).all() and (inputs[:, :-1] < V).all()
  for text, label in zip(inputs, labels):
    state = HMM.initial_probs
    for token in text[:-1]:
      state = (state * HMM.emission_matrix[:, token]) @ HMM.transition_matrix
    assert label == state.argmax()
  with pytest.raises(ValueError, match='^hidden is 2; valid are 0'):
    TASK._replace(hidden=2).examples(HMM)


def test_tuning_follows_the_hidden_token_or_refuses():
  """A head reads the last token, whatever a text has there; a causal model refuses a task of the first."""
  model, params = hj.BertModel(CAUSAL), random_params(CAUSAL)
  tuned = hj.tune(model, params, HMM, TASK, prompt_length=0, schedule=hj.Schedule(0.1, 1, 10, 1, 0.0, 1.0))
  texts = np.tile(TEXTS[:1], (V, 1))
  texts[:, -1] = np.arange(V)
  scores = np.asarray(hj.token_probs(model, params, texts))[:, -1] @ tuned.head.weights + tuned.head.bias
  assert tuned.predict(texts).tolist() == scores.argmax(-1).tolist() and tuned.hidden == -1
  with pytest.raises(ValueError, match='^hidden of the task is 0; valid is -1 for a causal model'):
    hj.tune(hj.ExactModel(V, causal=True), HMM, HMM, TASK._replace(hidden=0))


def test_activations_and_patches_are_those_of_the_shifted_text():
  """'embeddings' begin with [MASK], attention looks back only, and replaced beliefs are decoded."""
  model, params = hj.BertModel(CAUSAL), random_params(CAUSAL)
  found = hj.activations(model, params, TEXTS)
  assert found['embeddings'].shape == (3, T, 8) and (np.ptp(found['embeddings'][:, 0], axis=0) == 0).all()
  assert_same_bits(np.triu(hj.attention_patterns(model, params, TEXTS), 1), np.zeros((3, 1, 2, T, T), np.float32))
  patched = hj.with_activations(model, params, TEXTS, {'layer_1': found['layer_1']})
  np.testing.assert_allclose(patched, hj.token_probs(model, params, TEXTS), atol=1e-6)
  beliefs = hj.activations(hj.ExactModel(V, causal=True), HMM, TEXTS)['beliefs']
  assert_same_bits(beliefs[:, 0], np.tile(beliefs[:1, 0], (3, 1)))
  np.testing.assert_allclose(beliefs[0, 0], HMM.initial_probs, atol=1e-6)


@pytest.mark.parametrize('scan_layers', (False, True))
def test_a_saved_causal_model_comes_back(scan_layers, tmp_path):
  bert = CAUSAL.clone(num_layers=2, scan_layers=scan_layers)
  params = random_params(bert)
  hj.save(tmp_path / 'bert', hj.BertModel(bert), params)
  model, same, _ = hj.load(tmp_path / 'bert')
  assert model == hj.BertModel(bert)
  assert_same_bits(params, same)
  hj.save(tmp_path / 'exact', hj.ExactModel(V, causal=True), HMM)
  assert hj.load(tmp_path / 'exact')[0] == hj.ExactModel(V, causal=True)


def test_a_saved_suffix_predicts_the_same_and_is_no_adapter(tmp_path):
  """A suffix and its head, by `predict` with [MASK] at the end and by the whole sequence, before saving and after."""
  model, params, head = hj.BertModel(CAUSAL), random_params(CAUSAL), hj.Linear(2, position=-1)
  prompt = np.random.default_rng(4).normal(size=(2, 8)).astype(np.float32)
  parameters = LinearHead(np.random.default_rng(5).normal(size=(V, 2)).astype(np.float32), np.zeros(2, np.float32))
  trainable = jax.tree.map(lambda x: x[None], {'head': parameters, 'prompt': prompt})
  before = hj.Tuned(trainable, 0.5, Tuner(model, head, Prompt(2, 0.5, place=-1)), params, hidden=-1)
  before.save(tmp_path / 'tuned')
  after = hj.load_tuned(tmp_path / 'tuned')
  assert (after.tuner, after.hidden) == (before.tuner, -1) and not (tmp_path / 'tuned/adapter_config.json').exists()
  rows = prepend(prompt, model.embed(params, np.where(np.arange(T) == T - 1, V, TEXTS)), T - 1)
  scores = np.asarray(jax.jit(model.predict)(params, rows))[:, -1] @ parameters.weights
  assert after.predict(TEXTS).tolist() == before.predict(TEXTS).tolist() == scores.argmax(-1).tolist()
