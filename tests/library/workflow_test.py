"""The front of the library: its block of five lines, tasks and models of one's own."""

import dataclasses
import doctest
import re

from conftest import assert_same_bits
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
from oracles import cells_of, log_space_posterior
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import pretraining
import hmm_jax as hj
from hmm_jax import defaults, tuning, workflow

pytestmark = pytest.mark.usefixtures('without_optimisation')

SIZES = dict(length=5, num_train=48, num_test=30)
QUICK = tuning.Schedule(0.05, num_epochs=2, batch_size=8, warmup_steps=2, weight_decay=0.0, clip_norm=1.0)


@pytest.fixture(scope='module')
def block():
  """The names of the block in the docstring, which is run as it stands but for fewer steps, and what it reports."""
  (code,) = re.findall(r'```python\n(.*?)```', workflow.__doc__, re.DOTALL)
  names, reports = {'hj': hj, 'jax': jax, 'key': jax.random.key(0)}, []
  names['print'] = lambda step, values: reports.append((step, values))
  with pytest.MonkeyPatch.context() as patched:
    patched.setitem(defaults.CORPUS, 'num_documents', 4)
    patched.setattr(defaults, 'WARMUP_STEPS', 1)
    patched.setitem(defaults.SCHEDULE, 'batch_size', 300)
    patched.setitem(defaults.SCHEDULE, 'num_epochs', 1)
    exec(code.replace('steps=600', 'steps=4'), names)
  return names, reports


@pytest.mark.slow
def test_the_block_runs_as_it_stands(block):
  """A prompt of ten rows and a linear head, on a BERT and on the exact model; the accuracy is that of predictions."""
  names, ((_, _), (step, values)) = block
  assert step == 4 and set(values) == {'train_loss', 'kl_at_mask', 'tv_at_mask'}
  assert 0 < values['kl_at_mask'] < 3 and 0 < values['tv_at_mask'] < 1 and 1 < values['train_loss'] < 4
  inputs, labels = names['task'].examples(names['hmm'])
  assert inputs.shape == (2500, 33) and (inputs[:, 0] == 10).all()
  # The first token is masked where it is shown.
  documents = np.append(np.zeros((1000, 1), int), inputs[1500:, 1:], axis=1)
  for name, width in (('tuned', 128), ('exact', 4)):
    tuned = names[name]
    assert tuned.prompt.shape == (10, width) and tuned.head.weights.shape == (10, 2)
    assert tuned.accuracy == (tuned.predict(documents) == labels[1500:]).mean()


@pytest.mark.slow
def test_the_library_pretrains_as_the_suite_does(block):
  """The parameters are those of the experiments at the small scale, bit by bit."""
  names, _ = block
  fields = dict(num_steps=4, steps_per_call=2, warmup_steps=1, checkpoint_every=4, measure_every=4)
  changes = {f'pretrain__{name}': value for name, value in fields.items()}
  settings = settings_of('small', corpus__num_documents=4, **changes)
  ((_, params),) = pretraining.params_along(settings, names['hmm'], names['key'], (4,), QUIET)
  assert_same_bits(jax.device_get(names['params']), params)


@pytest.mark.parametrize('num_cells', [0, 2])
def test_labels_are_those_of_mu(num_cells):
  """The argmax of mu by P[H_1 | X_-1], or by the posterior of the first cell, for a drawn task and for one's own mu."""
  hmm = float32(dense_hmm(np.random.default_rng(0), 2)) if num_cells else CHAIN
  drawn = hj.draw_task(hmm, jax.random.key(1), **SIZES)
  own = drawn._replace(task_weights=np.eye(2, 2 if num_cells else 3).tolist())
  for task in (drawn, own):
    inputs, labels = task.examples(hmm)
    rows = np.vstack([np.asarray(hmm.joint_emission_matrix).T, np.ones(hmm.joint_initial_probs.shape)])[inputs]
    probs = log_space_posterior(hmm, rows).leave_one_out_probs[:, 0]
    if num_cells:
      probs = cells_of(hmm.memory_probs.shape, probs)[:, 0]
    np.testing.assert_array_equal(labels, (probs @ np.asarray(task.task_weights, np.float64).T).argmax(-1))
  assert set(drawn.examples(hmm)[1][:48]) == {0, 1}


@dataclasses.dataclass(frozen=True)
class Neighbour(hj.MaskedLM):
  """Predicts each token from the one after it."""

  num_tokens: int

  def embed(self, params, tokens):
    return params['rows'][tokens]

  def predict(self, params, embeddings, positions=None):
    logits = jnp.roll(embeddings, -1, axis=-2) @ params['columns']
    return hj.at_positions(jax.nn.softmax(logits + embeddings[..., :1, :] @ params['columns']), positions)


NEIGHBOUR, CHAIN = Neighbour(4), jax.tree.map(np.asarray, float32_hmm(0, 3, 4))
PARAMS = {
  'rows': np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32),
  'columns': np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32),
}
TASK = hj.DownstreamTask(np.float32([[1, 0, 0], [0, 1, 0]]), jax.random.key(1), **SIZES)


@pytest.mark.parametrize('prompt_length', [0, 2])
def test_a_model_of_embed_and_predict_is_tuned(prompt_length):
  """Head and prompt are trained on it, as the loss of each epoch says, and its parameters stay."""
  before, losses = jax.tree.map(np.copy, PARAMS), []
  how = dict(prompt_length=prompt_length, schedule=QUICK._replace(num_epochs=20))
  hj.tune(NEIGHBOUR, PARAMS, CHAIN, TASK, report=lambda step, values: losses.append((step, values)), **how)
  assert [step for step, _ in losses] == list(range(6, 121, 6))
  assert losses[-1][1]['train_loss'] < losses[0][1]['train_loss'] - 0.05
  assert_same_bits(before, PARAMS)


def test_what_a_model_leaves_out_falls_back():
  """A prompt is rows before the text, a representation the predictions, and the name that of the class."""
  prompts, tokens = np.random.default_rng(2).normal(size=(3, 2, 6)).astype(np.float32), np.int32([[4, 1, 2], [0, 3, 3]])
  whole = [[np.concatenate([prompt, PARAMS['rows'][text]]) for text in tokens] for prompt in prompts]
  expected = NEIGHBOUR.predict(PARAMS, np.array(whole))
  np.testing.assert_allclose(NEIGHBOUR.predict_prompted(PARAMS, prompts, tokens), expected, rtol=1e-5)
  np.testing.assert_array_equal(NEIGHBOUR.represent(PARAMS, np.array(whole)), expected)
  assert NEIGHBOUR.embedding_size(PARAMS) == 6 and NEIGHBOUR.name == 'Neighbour'
  with pytest.raises(TypeError, match='abstract.*embed'):
    type('Half', (hj.MaskedLM,), {'predict': Neighbour.predict})()


@pytest.mark.parametrize(
  ('sentence', 'call'),
  [
    ('task_weights have shape (2, 4); valid is [classes, 3]', lambda: _tune(TASK._replace(task_weights=np.eye(2, 4)))),
    ('transition_matrix has', lambda: hj.draw_task(CHAIN._replace(transition_matrix=np.ones((3, 3))), TASK.key)),
    ('batch_size is 8; valid is at most the number of inputs, 7', lambda: _tune(TASK._replace(num_train=7))),
    ('tokens contain 5; valid are integers from 0 to 4', lambda: _tuned().predict([[4, 5, 0]])),
    ('tokens have shape (3,); valid is [texts, length]', lambda: _tuned().predict([4, 1, 0])),
  ],
)
def test_what_is_wrong_is_refused(sentence, call):
  """In a sentence that names the argument, its value and what is valid."""
  with pytest.raises(ValueError, match=re.escape(sentence)):
    call()


def _tune(task):
  return hj.tune(hj.ExactModel(4), CHAIN, CHAIN, task, prompt_length=0, schedule=QUICK)


def _tuned():
  return hj.Tuned({}, 0.5, tuning.Tuner(hj.ExactModel(4), hj.Linear(2)), CHAIN)


def test_the_example_of_the_docstring():
  assert doctest.testmod(workflow) == (0, 5)
