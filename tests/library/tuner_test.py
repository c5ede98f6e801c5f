"""Tuning: it changes nothing frozen, its optimisation is AdamW's, and prompts stay in their space."""

import dataclasses
import functools

from bert_cases import random_params, SMALLEST
from conftest import assert_same_bits, at
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import optax
from oracles import log_space_conditional, rows_of
import pytest
import scipy.special
import scipy.stats

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Attention, Linear

H, V, T, P = 3, 4, 5, 2
BERT = SMALLEST.clone(num_tokens=V, max_positions=T + P)
EXACT, PRETRAINED = ExactModel(V), BertModel(BERT)
HIDDEN, MEMORY = float32_hmm(0, H, V), float32(dense_hmm(np.random.default_rng(1), 1))
BERT_PARAMS = random_params(BERT, 2)
# Eleven batches of 6 and a remainder of 1.
NUM_INPUTS = 67
SCHEDULE = tuner_lib.Schedule(
  learning_rate=0.2, num_epochs=3, batch_size=6, warmup_steps=4, weight_decay=0.0, clip_norm=1.0
)
TASKS = np.array([4, 0, 7])
PROMPT = tuner_lib.Prompt(P, 0.5)
HEAD = tuner_lib.Tuner(EXACT, Linear(2))
EXACT_PROMPT = tuner_lib.Tuner(EXACT, Linear(2), PROMPT)
BERT_HEAD = tuner_lib.Tuner(PRETRAINED, Linear(2))
ATTENTION_HEAD = Attention(2, key_size=3, value_size=6)

INPUTS = np.random.default_rng(3).integers(0, V, (NUM_INPUTS, T), dtype=np.int32)
INPUTS[:, 0] = V
# These labels serve where it does not matter what is learnt.
LABELS = np.random.default_rng(0).integers(0, 2, (len(TASKS), NUM_INPUTS), dtype=np.int32)


def with_prompts(prompts, rows, place=0):
  """Rows [K, n, P + T, E] of every input with the prompt [P, E] of each task before a position."""
  rows = np.split(rows, [place], axis=1)
  return np.array(
    [[np.concatenate([first, prompt, rest]) for first, rest in zip(*rows)] for prompt in np.float64(prompts)]
  )


@pytest.fixture(scope='module')
def at_mask():
  """G_1 of `INPUTS`."""
  return log_space_conditional(HIDDEN, rows_of(HIDDEN, INPUTS))[:, 0]


def start(tuner, frozen, features, tasks=TASKS, schedule=SCHEDULE):
  return tuner_lib.init_tuning(jax.random.key(5), tuner, schedule, frozen, features, jnp.array(tasks))


def some_trainable(tuner, frozen, features):
  """The tree and shapes of `init_tuning`, with no entry at zero and every prompt within its space."""
  draws = np.random.default_rng(4)
  shapes = jax.eval_shape(tuner.init, jax.random.key(0), frozen, features)
  return jax.tree.map(lambda leaf: np.float32(draws.uniform(0.1, 0.9, (3, *leaf.shape))), shapes)


def linear(head, features):
  """Scores [K, n, C] of the linear heads of K tasks on features [n, F] or [K, n, F]."""
  return np.asarray(features) @ np.float64(head.weights) + np.float64(head.bias)[:, None]


def train(tuner, frozen, features, labels, schedule=SCHEDULE):
  """The state after all epochs, and the losses of each."""
  state, losses = start(tuner, frozen, features, schedule=schedule), []
  for _ in range(schedule.num_epochs):
    state, some = tuner_lib.tune_epoch(state, jax.random.key(6), tuner, schedule, frozen, features, labels)
    losses.append(some)
  return state, np.array(losses)


@pytest.mark.slow
@pytest.mark.filterwarnings('error:Some donated buffers')
def test_the_frozen_tree_is_untouched():
  """Tuning neither donates nor changes the frozen tree, and changes all of its own, which begins as a copy."""
  tuner, frozen = dataclasses.replace(BERT_HEAD, finetunes=True), jax.tree.map(jnp.array, BERT_PARAMS)
  features = tuner_lib.frozen_features(tuner, frozen, INPUTS, batch_size=16)
  state, _ = train(tuner, frozen, features, LABELS)
  assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(frozen))
  assert_same_bits(frozen, BERT_PARAMS)
  began = start(tuner, frozen, features).trainable
  assert_same_bits(began['params'], jax.tree.map(lambda x: np.stack([x] * len(TASKS)), frozen))
  # Before its first step it reads the copy alone.
  scores = jax.jit(tuner.scores)(began, jax.tree.map(np.zeros_like, frozen), INPUTS)
  of_head = tuner_lib.frozen_features(BERT_HEAD, frozen, INPUTS, batch_size=16)
  np.testing.assert_allclose(scores, linear(began['head'], of_head), atol=1e-5)
  assert jax.tree.all(jax.tree.map(lambda a, b: (a != b).any() or not a.size, began, state.trainable))


def test_a_task_is_trained_by_the_mean_loss_of_its_own(at_mask):
  """As by optax on that task alone; gradients fall through the clip, so that another scale of the loss would show."""
  schedule = SCHEDULE._replace(batch_size=NUM_INPUTS, num_epochs=8, warmup_steps=1)
  features, optimizer = np.float32(6 * at_mask), schedule.optimizer(NUM_INPUTS)
  trained, _ = train(HEAD, HIDDEN, features, LABELS, schedule=schedule)
  norms = []
  for place, labels in enumerate(LABELS):
    head = at(start(HEAD, HIDDEN, features).trainable['head'], place)
    loss = lambda head, labels=labels: optax.softmax_cross_entropy_with_integer_labels(
      features @ head.weights + head.bias, labels
    ).mean()
    state = optimizer.init(head)
    for _ in range(schedule.num_epochs):
      gradient = jax.grad(loss)(head)
      norms.append(optax.global_norm(gradient))
      updates, state = optimizer.update(gradient, state, head)
      head = optax.apply_updates(head, updates)
    expected = at(trained.trainable['head'], place)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), head, expected)
  assert min(norms) < 0.3 and max(norms) > 1


def test_an_epoch_meets_every_input_once_but_for_a_remainder(at_mask):
  """At rate zero an epoch's loss is the mean cross-entropy over all inputs but one, another one in each epoch."""
  features = np.float32(at_mask + np.arange(NUM_INPUTS)[:, None] / 20)
  state, losses = train(HEAD, HIDDEN, features, LABELS, schedule=SCHEDULE._replace(learning_rate=0.0))
  log_probs = scipy.special.log_softmax(linear(state.trainable['head'], features), axis=-1)
  each = -np.take_along_axis(log_probs, LABELS[..., None], -1)[..., 0]
  mean_without = (each.sum(-1, keepdims=True) - each) / (NUM_INPUTS - 1)
  # The same input explains the losses of all three tasks.
  errors = np.abs(mean_without - losses[..., None]).max(1)
  assert errors.min(-1).max() < 1e-6
  assert len(set(errors.argmin(-1))) == 3


@pytest.mark.parametrize(('place', 'read'), [(0, P), (1, 0), (2, 0)])
def test_a_prompt_of_another_length_is_read_at_the_mask(place, read):
  """Scores are the head on the prediction at the [MASK] beside the prompt, whose length may differ from the tuner's."""
  trainable = some_trainable(dataclasses.replace(HEAD, prompt=PROMPT), HIDDEN, INPUTS)
  scores = jax.jit(dataclasses.replace(HEAD, prompt=tuner_lib.Prompt(1, 0.5, place)).scores)(trainable, HIDDEN, INPUTS)
  token_probs = log_space_conditional(HIDDEN, with_prompts(trainable['prompt'], rows_of(HIDDEN, INPUTS), place))
  np.testing.assert_allclose(scores, linear(trainable['head'], token_probs[:, :, read]), atol=1e-5)


def test_prompts_of_the_exact_model_stay_in_the_unit_cube():
  """After large steps rows are emission probabilities still; entries at 0 or 1 show that steps led outside."""
  state, _ = train(EXACT_PROMPT, HIDDEN, INPUTS, LABELS)
  prompt = np.asarray(state.trainable['prompt'])
  assert prompt.min() >= 0 and prompt.max() <= 1 and np.isin(prompt, (0, 1)).any()


def test_uniform_prompts_fill_the_region_around_the_centre():
  """At the paper's scale of 0.5 entries are iid, and for the exact model they are in the upper half: near no prompt."""
  prompt = np.ravel(tuner_lib.Prompt(300, 0.5).init(jax.random.key(0), EXACT, HIDDEN))
  assert len(prompt) == 300 * H and 0.5 <= prompt.min() and prompt.max() <= 1
  assert scipy.stats.kstest(prompt, scipy.stats.uniform(0.5, 0.5).cdf).pvalue > 1e-4


def test_vocabulary_prompts_are_rows_of_the_embedding():
  """Each row embeds a token of the vocabulary, each token equally often and [MASK] never."""
  prompt = tuner_lib.Prompt(400, None).init(jax.random.key(0), PRETRAINED, BERT_PARAMS)
  is_row = (np.asarray(prompt)[:, None] == BERT_PARAMS['word_embedding']['embedding']).all(-1)
  assert is_row.any(-1).all() and not is_row[:, V].any()
  assert scipy.stats.chisquare(is_row[:, :V].sum(0)).pvalue > 1e-4


def test_each_task_starts_from_a_draw_of_its_own():
  """Prompts and heads differ from task to task, and a task's start depends only on its number."""
  starts = start(EXACT_PROMPT, HIDDEN, INPUTS).trainable
  for leaf in jax.tree.leaves(starts):
    assert (leaf[0] != leaf[1]).all() and (leaf[1] != leaf[2]).all()
  reordered = start(EXACT_PROMPT, HIDDEN, INPUTS, TASKS[::-1]).trainable
  assert_same_bits(jax.tree.map(lambda x: x[::-1], reordered), starts)


@pytest.mark.parametrize('place', [0, 1])
def test_attention_reads_the_prediction_at_every_position(place):
  """Scores and weights of each task and input are the head's on what the model predicts for prompt and input."""
  tuner = tuner_lib.Tuner(EXACT, ATTENTION_HEAD, dataclasses.replace(PROMPT, place=place))
  trainable = some_trainable(tuner, MEMORY, INPUTS)
  scores = jax.jit(tuner.scores)(trainable, MEMORY, INPUTS)
  weights = tuner_lib.attention(tuner, trainable, MEMORY, INPUTS, batch_size=30)
  token_probs = log_space_conditional(MEMORY, with_prompts(trainable['prompt'], rows_of(MEMORY, INPUTS), place))
  # A head sees the prompt first.
  token_probs[:, :, : P + place] = np.roll(token_probs[:, :, : P + place], -place, axis=2)
  for task, probs in enumerate(token_probs):
    head, features = at(trainable['head'], task), ATTENTION_HEAD.read(probs, INPUTS)
    np.testing.assert_allclose(weights[task], ATTENTION_HEAD.attend(head, features), atol=1e-5)
    np.testing.assert_allclose(scores[task], ATTENTION_HEAD.scores(head, features), atol=3e-5)
