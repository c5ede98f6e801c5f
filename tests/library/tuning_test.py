"""Facts about tuning: what it leaves alone, that its optimisation is AdamW's, and where prompts may go."""

import dataclasses
import functools

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import optax
from oracles import attention_by_the_paper, attention_by_the_released_code, log_space_conditional, log_space_posterior
import pytest
import scipy.stats

from hmm_jax import tuning
from hmm_jax.bert import Bert, BertModel
from hmm_jax.heads import Attention, Linear, OfficialAttention
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.model import ExactModel

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T, P = 3, 4, 5, 2
BERT = Bert(num_tokens=V, num_layers=1, width=8, num_heads=2, ffn_width=8, max_positions=T + P, dropout_rate=0.0)
EXACT = ExactModel(V)
# Eleven batches of 6 and a remainder of 2.
NUM_INPUTS = 68
SCHEDULE = tuning.Schedule(
  learning_rate=0.2, num_epochs=3, batch_size=6, warmup_steps=4, weight_decay=0.0, clip_norm=1.0
)
TASKS = np.array([4, 0, 7])


def float32(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if np.asarray(x).dtype.kind == 'f' else jnp.int32), tree)


@pytest.fixture(scope='module')
def hmm():
  rng = np.random.default_rng(0)
  return float32(HMM(rng.dirichlet(np.ones(H)), rng.dirichlet(np.ones(H), H), rng.dirichlet(np.full(V, 0.5), H)))


@pytest.fixture(scope='module')
def memory_hmm():
  rng = np.random.default_rng(1)
  dirichlet = lambda size, *shape: rng.dirichlet(np.ones(size), shape)
  return float32(MemoryHMM(dirichlet(2), dirichlet(H), dirichlet(H, H), np.zeros(H, int), dirichlet(V, 2, H)))


@pytest.fixture(scope='module')
def bert_params():
  """Weights far from their start, so that the model is far from constant and no two of them can be exchanged unseen."""
  tree = jax.eval_shape(BERT.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  rng = np.random.default_rng(2)
  return jax.tree.map(lambda leaf: jnp.float32(rng.normal(leaf.ndim == 1, 0.5, leaf.shape)), tree)


@pytest.fixture(scope='module')
def many_inputs():
  tokens = np.random.default_rng(3).integers(0, V, (600, T))
  tokens[:, 0] = V
  return jnp.array(tokens, jnp.int32)


@pytest.fixture(scope='module')
def inputs(many_inputs):
  return many_inputs[:NUM_INPUTS]


def rows_of(distribution, inputs):
  """Likelihood rows [n, T, E] of inputs with [MASK]s, in numpy."""
  columns = np.asarray(distribution.joint_emission_matrix, np.float64).T
  return np.vstack([columns, np.ones((1, columns.shape[1]))])[np.asarray(inputs)]


def behind_prompts(prompts, rows):
  """Rows [K, n, P + T, E] of every input behind the prompt [P, E] of each task."""
  prompts, shape = np.asarray(prompts, np.float64), (len(prompts), *rows.shape)
  before = np.broadcast_to(prompts[:, None], shape[:2] + prompts.shape[1:])
  return np.concatenate([before, np.broadcast_to(rows, shape)], axis=2)


@pytest.fixture(scope='module')
def posteriors(hmm, many_inputs):
  """P[H_1 | X_-1] of `many_inputs` in float64."""
  return log_space_posterior(hmm, rows_of(hmm, many_inputs)).leave_one_out_probs[:, 0]


@pytest.fixture(scope='module')
def at_mask(hmm, posteriors):
  """G_1 of `many_inputs` in float64."""
  return posteriors @ np.asarray(hmm.emission_matrix, np.float64)


@pytest.fixture(scope='module')
def labels():
  """Three tasks of random labels: what is learnt does not matter here."""
  return jnp.array(np.random.default_rng(0).integers(0, 2, (len(TASKS), NUM_INPUTS)), jnp.int32)


PROMPT = tuning.Prompt(P, 0.5)
HEAD = tuning.Tuner(EXACT, Linear(2))
EXACT_PROMPT = tuning.Tuner(EXACT, Linear(2), PROMPT)
BERT_HEAD = tuning.Tuner(BertModel(BERT), Linear(2))
ATTENTION_HEAD = Attention(2, key_size=3, value_size=6, temperature=0.5)


def start(tuner, frozen, features, tasks=TASKS, schedule=SCHEDULE):
  return tuning.init_tuning(jax.random.key(5), tuner, schedule, frozen, features, jnp.array(tasks))


def some_trainable(tuner, frozen, features, num_tasks=3):
  """What `init_tuning` gives in its tree and shapes, with no entry at zero and every prompt one that is allowed."""
  rng = np.random.default_rng(4)
  shapes = jax.eval_shape(tuner.init, jax.random.key(0), frozen, features)
  trainable = jax.tree.map(lambda leaf: rng.normal(size=(num_tasks, *leaf.shape)), shapes)
  if 'prompt' in trainable:
    trainable['prompt'] = rng.uniform(0.1, 0.9, trainable['prompt'].shape)
  return float32(trainable)


def linear(head, features):
  """Scores [K, n, C] of the linear heads of K tasks on features [n, F] or [K, n, F], in float64."""
  weights, bias = (np.asarray(leaf, np.float64) for leaf in head)
  return np.asarray(features, np.float64) @ weights + bias[:, None]


def train(tuner, frozen, features, labels, *, tasks=TASKS, epochs=SCHEDULE.num_epochs, state=None, schedule=SCHEDULE):
  """The state, and the losses of each epoch; `state` is copied, since an epoch donates its own."""
  if state is None:
    state = start(tuner, frozen, features, tasks, schedule)
  state, losses = jax.tree.map(lambda leaf: jnp.array(np.asarray(leaf)), state), []
  for _ in range(epochs):
    state, some = tuning.tune_epoch(state, jax.random.key(6), tuner, schedule, frozen, features, labels)
    losses.append(some)
  return state, np.array(losses)


def pointers(tree):
  return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
  'tuner',
  [
    BERT_HEAD,
    dataclasses.replace(BERT_HEAD, probes=True),
    dataclasses.replace(BERT_HEAD, finetunes=True),
    dataclasses.replace(BERT_HEAD, prompt=PROMPT),
    tuning.Tuner(BertModel(BERT), ATTENTION_HEAD),
    tuning.Tuner(BertModel(BERT), ATTENTION_HEAD, PROMPT),
  ],
  ids=['head', 'probe', 'finetune', 'prompt', 'attention', 'prompt_attention'],
)
@pytest.mark.filterwarnings('error:Some donated buffers')
def test_the_frozen_tree_is_untouched(tuner, bert_params, inputs, labels):
  """Tuning neither donates, copies over nor changes the frozen tree, and its own arrays share no memory with it."""
  frozen = bert_params
  before, at = jax.tree.map(np.array, frozen), pointers(frozen)
  features = tuning.frozen_features(tuner, frozen, inputs, batch_size=16)
  first = start(tuner, frozen, features, TASKS[:1])
  began = jax.tree.map(np.array, first.trainable)
  assert not set(pointers(first)) & set(at)
  state, _ = train(tuner, frozen, features, labels[:1], state=first, epochs=2)
  assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(frozen))
  assert pointers(frozen) == at
  assert_same_bits(jax.tree.map(np.array, frozen), before)
  changed = jax.tree.map(lambda a, b: bool((a != np.asarray(b)).any()) or not a.size, began, state.trainable)
  assert all(jax.tree.leaves(changed))


@pytest.mark.parametrize('method', ['head', 'prompt', 'prompt_attention'])
def test_tasks_side_by_side_equal_tasks_apart(method, hmm, memory_hmm, inputs, at_mask, labels):
  """Training three tasks in one call gives each what training it alone gives, by its number and not its place."""
  tuner, frozen, features = {
    # Large enough that gradients reach the clip, which is each task's own.
    'head': (HEAD, hmm, jnp.float32(40 * at_mask[:NUM_INPUTS])),
    'prompt': (EXACT_PROMPT, hmm, inputs),
    'prompt_attention': (tuning.Tuner(EXACT, ATTENTION_HEAD, PROMPT), memory_hmm, inputs),
  }[method]
  together, losses = train(tuner, frozen, features, labels)
  # Alone means three times over: another number of tasks is another program, whose rounding Adam magnifies.
  for place in range(len(TASKS)):
    only = np.full(len(TASKS), place)
    alone, losses_alone = train(tuner, frozen, features, labels[only], tasks=TASKS[only])
    np.testing.assert_allclose(losses_alone, losses[:, only], rtol=1e-4, atol=1e-5)
    expected = jax.tree.map(lambda x, only=only: np.asarray(x)[only], together.trainable)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), alone.trainable, expected)


def test_resuming_at_an_epoch_boundary_gives_the_same_bits(hmm, inputs, labels):
  """The state after one epoch, written out and read back, leads to the bits of a run that never stopped."""
  straight, losses = train(EXACT_PROMPT, hmm, inputs, labels)
  first, _ = train(EXACT_PROMPT, hmm, inputs, labels, epochs=1)
  read_back = jax.tree.map(lambda x: jnp.array(np.array(x)), first)
  resumed, later_losses = train(EXACT_PROMPT, hmm, inputs, labels, epochs=2, state=read_back)
  assert straight.step == 3 * (NUM_INPUTS // SCHEDULE.batch_size)
  assert_same_bits(resumed, straight)
  np.testing.assert_array_equal(losses[1:], later_losses)


def test_an_epoch_meets_every_input_once_but_for_a_remainder(hmm, at_mask, labels):
  """At rate zero an epoch's loss is the mean cross-entropy over all inputs but two, other ones in each epoch."""
  tuner = HEAD
  features = np.float32(at_mask[:NUM_INPUTS] + np.arange(NUM_INPUTS)[:, None] / 20)
  scores = linear(start(tuner, hmm, features).trainable['head'], features)
  log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
  each = -np.take_along_axis(log_probs, np.asarray(labels)[..., None], -1)[..., 0]
  pairs = np.stack(np.triu_indices(NUM_INPUTS, 1))
  mean_without = (each.sum(-1, keepdims=True) - each[:, pairs].sum(1)) / (NUM_INPUTS - 2)

  _, losses = train(tuner, hmm, jnp.array(features), labels, schedule=SCHEDULE._replace(learning_rate=0.0))
  left_out = []
  for of_epoch in losses:
    # The same two inputs explain the losses of all three tasks.
    errors = np.abs(mean_without - of_epoch[:, None]).max(0)
    assert errors.min() < 1e-6
    left_out.append(errors.argmin())
  assert len(set(left_out)) == 3


def test_head_tuning_is_pytorchs_adamw_with_clip_and_schedule():
  """On the same batches PyTorch's AdamW, clip_grad_norm_ and a linear warm-up and decay reach the same weights."""
  torch = pytest.importorskip('torch', reason="needs torch: pip install -e '.[parity]'")
  draws = np.random.default_rng(2)
  features = draws.normal(0, 3, (40, V)).astype(np.float32)
  labels = draws.integers(0, 3, 40)
  schedule = tuning.Schedule(
    learning_rate=0.05, num_epochs=5, batch_size=9, warmup_steps=6, weight_decay=0.0, clip_norm=1.0
  )
  tuner, task = tuning.Tuner(EXACT, Linear(3)), np.array([2])
  first = start(tuner, (), features, task, schedule)
  ours, losses = train(
    tuner, (), jnp.array(features), jnp.array(labels)[None], state=first, schedule=schedule, epochs=5
  )

  head = torch.nn.Linear(V, 3)
  with torch.no_grad():
    head.weight.copy_(torch.tensor(np.array(first.trainable['head'].weights[0].T)))
    head.bias.copy_(torch.tensor(np.array(first.trainable['head'].bias[0])))
  optimizer = torch.optim.AdamW(head.parameters(), lr=0.05, weight_decay=0.0)
  rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 6, (20 - step) / 14))
  norms, their_losses = [], []
  for epoch in range(5):
    order = np.array(jax.random.permutation(jax.random.fold_in(jax.random.key(6), epoch), 40))
    for batch in order[:36].reshape(4, 9):
      loss = torch.nn.functional.cross_entropy(head(torch.tensor(features[batch])), torch.tensor(labels[batch]))
      optimizer.zero_grad()
      loss.backward()
      norms.append(torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0).item())
      optimizer.step()
      rate.step()
      their_losses.append(loss.item())
  assert min(norms) < 1 < max(norms)
  np.testing.assert_allclose(losses[:, 0], np.reshape(their_losses, (5, 4)).mean(1), atol=1e-4)
  np.testing.assert_allclose(ours.trainable['head'].weights[0].T, head.weight.detach(), atol=1e-4)
  np.testing.assert_allclose(ours.trainable['head'].bias[0], head.bias.detach(), atol=1e-4)


def test_head_tuning_recovers_a_label_that_is_linear_in_the_posterior(hmm, posteriors, at_mask):
  """With independent emission rows (Theorem 3.3) a head on the exact probabilities learns all but close calls."""
  task_weights = np.array([[np.median(posteriors[:, 0])] * H, [1.0, 0.0, 0.0]])
  scores = posteriors @ task_weights.T
  labels = scores.argmax(-1)
  assert np.linalg.svd(hmm.emission_matrix)[1].min() > 0.2 and 0.4 < labels.mean() < 0.6
  tuner, train_inputs = HEAD, slice(0, 400)
  schedule = tuning.Schedule(
    learning_rate=1.0, num_epochs=20, batch_size=20, warmup_steps=10, weight_decay=0.0, clip_norm=1.0
  )
  features, train_labels = jnp.float32(at_mask[train_inputs]), jnp.int32(labels[None, train_inputs])
  state, _ = train(tuner, hmm, features, train_labels, tasks=TASKS[:1], schedule=schedule, epochs=20)
  is_right = linear(state.trainable['head'], at_mask[400:])[0].argmax(-1) == labels[400:]
  margins = np.ptp(scores[400:], axis=-1)
  assert is_right.mean() > 0.85 and is_right[margins > np.median(margins)].all()


@pytest.mark.parametrize('method, batch_size', [('head', 50), ('probe', 100)])
def test_features_are_the_models_output_at_the_mask(method, batch_size, hmm, inputs, posteriors, at_mask):
  """Features are G_1 for a head and P[H_1 | X_-1] for a probe, in order, whether or not batches come out even."""
  tuner, expected = {
    'head': (HEAD, at_mask),
    'probe': (dataclasses.replace(HEAD, probes=True), posteriors),
  }[method]
  features = tuning.frozen_features(tuner, hmm, inputs, batch_size=batch_size)
  np.testing.assert_allclose(features, expected[:NUM_INPUTS], atol=1e-5)


def test_predictions_are_the_class_of_the_highest_score():
  """Each task's class for each input is the argmax of its scores, whether or not batches come out even."""
  tuner = tuning.Tuner(EXACT, Linear(3))
  features = np.random.default_rng(5).normal(size=(10, V)).astype(np.float32)
  trainable = some_trainable(tuner, (), features)
  expected = linear(trainable['head'], features).argmax(-1)
  assert expected.shape == (3, 10) and len(np.unique(expected)) == 3
  for batch_size in (4, 16):
    predicted = tuning.predictions(tuner, trainable, (), features, batch_size=batch_size)
    np.testing.assert_array_equal(predicted, expected)


@pytest.mark.parametrize('length', [0, P])
def test_the_mask_is_read_behind_the_prompt(length, hmm, inputs):
  """Scores are the head on the prediction at position P of prompt and input, of which a prompt may have no row."""
  tuner = dataclasses.replace(HEAD, prompt=tuning.Prompt(length, 0.5))
  trainable = some_trainable(tuner, hmm, inputs)
  scores = jax.jit(tuner.scores)(trainable, hmm, inputs)
  assert scores.shape == (3, NUM_INPUTS, 2) and trainable['prompt'].shape == (3, length, H)
  token_probs = log_space_conditional(hmm, behind_prompts(trainable['prompt'], rows_of(hmm, inputs)))
  np.testing.assert_allclose(scores, linear(trainable['head'], token_probs[:, :, length]), atol=1e-5)


def test_a_prompt_of_another_length_is_read_behind_its_own(hmm, inputs):
  """A construction's prompt scores as it does with a tuner of its length, whatever length the tuner starts from."""
  tuners = [dataclasses.replace(HEAD, prompt=tuning.Prompt(length, 0.5)) for length in (1, 3)]
  trainable = some_trainable(tuners[0], hmm, inputs)
  assert trainable['prompt'].shape[-2] == 1
  expected, scores = (jax.jit(tuner.scores)(trainable, hmm, inputs) for tuner in tuners)
  np.testing.assert_array_equal(scores, expected)


def test_what_is_trained_before_the_head_is_one_thing():
  """A prompt, a probe and fine-tuning do not go together."""
  for both in (
    dict(prompt=PROMPT, finetunes=True),
    dict(prompt=PROMPT, probes=True),
    dict(probes=True, finetunes=True),
  ):
    with pytest.raises(ValueError, match='valid is one of them at most'):
      dataclasses.replace(HEAD, **both)


def test_finetuning_starts_as_head_tuning_on_a_copy(bert_params, inputs):
  """Before its first step full fine-tuning scores as the head tuner, from a copy of the tree that alone it reads."""
  tuner, head = dataclasses.replace(BERT_HEAD, finetunes=True), BERT_HEAD
  trainable = start(tuner, bert_params, inputs, TASKS[:1]).trainable
  assert_same_bits(trainable['params'], jax.tree.map(lambda x: np.asarray(x)[None], bert_params))
  features = tuning.frozen_features(head, bert_params, inputs, batch_size=16)
  nothing = jax.tree.map(np.zeros_like, bert_params)
  scores = jax.jit(tuner.scores)(trainable, nothing, inputs)
  np.testing.assert_allclose(scores, linear(trainable['head'], features), atol=1e-5)


def test_prompt_gradients_are_the_slopes_of_the_loss(hmm, inputs, labels):
  """On the exact model the loss's gradient in each entry of the prompt is the central difference of the loss in numpy,
  float64."""
  trainable = some_trainable(EXACT_PROMPT, hmm, inputs, 1)

  @jax.jit
  @jax.grad
  def gradient(prompt):
    scores = EXACT_PROMPT.scores({**trainable, 'prompt': prompt}, hmm, inputs[:8])
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels[:1, :8]).mean()

  steps = 1e-4 * np.concatenate([np.eye(P * H), -np.eye(P * H)]).reshape(-1, P, H)
  moved = behind_prompts(np.asarray(trainable['prompt'], np.float64) + steps, rows_of(hmm, inputs[:8]))
  scores = linear(trainable['head'], log_space_conditional(hmm, moved)[:, :, P])
  chosen = scores[:, np.arange(8), np.asarray(labels[0, :8])]
  ahead, behind = (np.log(np.exp(scores).sum(-1)) - chosen).mean(-1).reshape(2, P, H)
  slopes = (ahead - behind) / 2e-4
  np.testing.assert_allclose(gradient(trainable['prompt'])[0], slopes, rtol=1e-4, atol=1e-6)
  assert np.abs(slopes).min() > 1e-4


@pytest.mark.parametrize('name, head', [('hmm', Linear(2)), ('memory_hmm', ATTENTION_HEAD)])
def test_prompts_of_the_exact_model_stay_in_the_unit_cube(name, head, request, inputs, labels):
  """After large steps rows are emission probabilities still; entries at 0 or 1 show that steps led outside."""
  state, _ = train(tuning.Tuner(EXACT, head, PROMPT), request.getfixturevalue(name), inputs, labels)
  prompt = np.asarray(state.trainable['prompt'])
  assert prompt.min() >= 0 and prompt.max() <= 1
  assert np.isin(prompt, (0, 1)).any()


def test_prompts_from_outside_are_moved_to_the_nearest_allowed(hmm, inputs):
  """A prompt outside the unit cube starts at the nearest point of it; BERT takes any."""
  tuner = dataclasses.replace(HEAD, prompt=tuning.Prompt(20, 3.0))
  prompt = np.asarray(start(tuner, hmm, inputs).trainable['prompt'])
  assert prompt.min() == 0 and prompt.max() == 1 and 0.4 < np.isin(prompt, (0, 1)).mean() < 0.9
  given = np.float32([[-1, 0.25, 3], [0, 1, 0.5]])
  np.testing.assert_array_equal(EXACT.prompt_space.project(given), given.clip(0, 1))
  np.testing.assert_array_equal(BertModel(BERT).prompt_space.project(given), given)


@pytest.mark.parametrize('model', [EXACT, BertModel(BERT)], ids=['exact', 'bert'])
def test_uniform_prompts_fill_the_region_around_the_centre(model, hmm, bert_params):
  """Entries are iid uniform within `scale` units of the model's centre: U[-0.5, 0.5] for BERT at the paper's 0.5,
  and inside of the unit cube for the exact model."""
  frozen = hmm if model is EXACT else bert_params
  prompt = tuning.Prompt(300, 0.5).init(jax.random.key(0), model, frozen)
  assert prompt.shape == (300, model.embedding_size(frozen))
  center, unit, *_ = model.prompt_space
  width = 0.5 * unit
  assert 0 <= center - width < center + width <= 1 if model is EXACT else (center, width) == (0, 0.5)
  within = scipy.stats.uniform(center - width, 2 * width)
  assert np.abs(prompt - center).max() <= width * (1 + 1e-6)
  assert scipy.stats.kstest(np.ravel(prompt), within.cdf).pvalue > 1e-4


def test_vocabulary_prompts_are_rows_of_the_embedding(bert_params):
  """Each row embeds a token of the vocabulary, each token equally often and [MASK] never."""
  prompt = tuning.Prompt(400, None).init(jax.random.key(0), BertModel(BERT), bert_params)
  table = np.asarray(bert_params['word_embedding']['embedding'])
  is_row = (np.asarray(prompt)[:, None] == table).all(-1)
  assert (is_row.sum(-1) == 1).all() and not is_row[:, V].any()
  assert scipy.stats.chisquare(is_row[:, :V].sum(0)).pvalue > 1e-4


def test_each_task_starts_from_a_draw_of_its_own(hmm, inputs):
  """Prompts and heads differ from task to task, and a task's start depends on its number alone."""
  starts = jax.tree.map(np.asarray, start(EXACT_PROMPT, hmm, inputs).trainable)
  for leaf in jax.tree.leaves(starts):
    assert (leaf[0] != leaf[1]).all() and (leaf[1] != leaf[2]).all()
  reordered = start(EXACT_PROMPT, hmm, inputs, TASKS[::-1]).trainable
  assert_same_bits(jax.tree.map(lambda x: np.asarray(x)[::-1], reordered), starts)


def predictions_of(name, frozen, rows):
  """The model's prediction [..., L, V] from its embeddings [..., L, E]; of the exact one in numpy."""
  if name != 'bert_params':
    return log_space_conditional(frozen, rows)
  return np.asarray(jax.jit(BertModel(BERT).predict)(frozen, np.float32(rows)), np.float64)


def embeddings_of(name, frozen, inputs):
  if name != 'bert_params':
    return rows_of(frozen, inputs)
  return np.asarray(frozen['word_embedding']['embedding'], np.float64)[np.asarray(inputs)]


@pytest.mark.parametrize(
  'name, model, head, prompt',
  [
    ('hmm', EXACT, ATTENTION_HEAD, None),
    ('memory_hmm', EXACT, ATTENTION_HEAD, None),
    ('bert_params', BertModel(BERT), ATTENTION_HEAD, None),
    ('memory_hmm', EXACT, OfficialAttention(2), None),
    ('memory_hmm', EXACT, ATTENTION_HEAD, PROMPT),
    ('bert_params', BertModel(BERT), ATTENTION_HEAD, PROMPT),
  ],
  ids=['hmm', 'memory', 'bert', 'memory-official', 'memory-prompt', 'bert-prompt'],
)
def test_attention_reads_the_prediction_at_every_position(name, model, head, prompt, request, inputs):
  """Scores and weights, by task and input, are each task's head on what the model predicts for its prompt, if there is
  one, and the input, position by position, whether or not batches come out even."""
  frozen, tuner = request.getfixturevalue(name), tuning.Tuner(model, head, prompt)
  features = inputs if prompt else tuning.frozen_features(tuner, frozen, inputs, batch_size=16)
  trainable = some_trainable(tuner, frozen, features)
  scores = np.asarray(jax.jit(tuner.scores)(trainable, frozen, features))
  weights = np.asarray(tuning.attention(tuner, trainable, frozen, features, batch_size=30))
  prompts = trainable['prompt'] if prompt else np.zeros((3, 0, model.embedding_size(frozen)))
  token_probs = predictions_of(name, frozen, behind_prompts(prompts, embeddings_of(name, frozen, inputs)))
  assert scores.shape == (3, NUM_INPUTS, 2) and weights.shape == token_probs.shape[:-1]
  for task, number in np.ndindex(3, NUM_INPUTS):
    of_task = jax.tree.map(lambda x, task=task: np.asarray(x)[task], trainable['head'])
    if head is ATTENTION_HEAD:
      expected = attention_by_the_paper(of_task, token_probs[task, number], np.asarray(inputs)[number], 0.5)
    else:
      expected = attention_by_the_released_code(of_task, token_probs[task, number])
    np.testing.assert_allclose(weights[task, number], expected[0], atol=1e-5)
    np.testing.assert_allclose(scores[task, number], expected[1], atol=3e-5)


def test_tuners_without_an_attention_head_have_no_attention(hmm, inputs):
  """Only tuners with an attention head have weights to show."""
  trainable = some_trainable(EXACT_PROMPT, hmm, inputs)
  for tuner, features in ((HEAD, np.zeros((NUM_INPUTS, V))), (EXACT_PROMPT, inputs)):
    with pytest.raises(ValueError, match='^a linear head has no attention weights; valid are'):
      tuning.attention(tuner, trainable, hmm, features, batch_size=1)
