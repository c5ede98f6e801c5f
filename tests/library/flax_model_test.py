"""Any Flax module of embed and predict is pretrained, read and patched; what is no language model is refused."""

import re

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hmm_jax as hj
from hmm_jax import defaults

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

# A token decides the next one, so that a module that reads its neighbour can know all.
CYCLE = hj.HMM(np.ones(3) / 3, np.roll(np.eye(3), 1, axis=1), np.eye(3))


class Neighbour(nn.Module):
  """Reads the token before each, or with `is_open` the token itself."""

  causal: bool = True
  is_open: bool = False
  scale: float = 1.0

  def setup(self):
    self.words, self.out = nn.Embed(4, 8), nn.Dense(3)

  def embed(self, tokens):
    return self.words(tokens)

  def predict(self, embeddings):
    shifted = jnp.concatenate([0 * embeddings[..., :1, :], embeddings[..., :-1, :]], axis=-2)
    return self.scale * nn.softmax(self.out(embeddings if self.is_open else shifted))


@pytest.fixture(autouse=True)
def few_documents(monkeypatch):
  monkeypatch.setitem(defaults.CORPUS, 'num_documents', 1)
  monkeypatch.setattr(defaults, 'STEPS_PER_CALL', 20)


def test_a_module_learns_and_its_layers_are_read_and_replaced():
  along, losses = {}, []
  done = hj.pretrain(
    CYCLE,
    0,
    steps=60,
    model=Neighbour(),
    optimizer=optax.adam(0.1),
    report=lambda step, values: losses.append(values['train_loss']),
    callback=along.__setitem__,
  )
  model, params = done
  # The first of 64 tokens is log 3, all others are known.
  assert losses[0] > 0.1 > losses[-1] > np.log(3) / 64 - 1e-3
  assert done.tokens == 60 * 32 * 64 and done.num_parameters == 4 * 8 + 8 * 3 + 3 and done.seconds > 0
  assert done[0] is done.model and done[1] is done.params
  assert [*along] == [0, 20, 40, 60]
  untrained = hj.pretrain(CYCLE, jax.random.key(0), steps=0, model=Neighbour()).params
  jax.tree.map(np.testing.assert_array_equal, along[0], jax.device_get(untrained))
  jax.tree.map(np.testing.assert_array_equal, along[60], jax.device_get(params))
  texts = np.int32([[0, 1, 2, 0], [2, 0, 1, 2]])
  layers = hj.activations(model, params, texts)
  probs = hj.token_probs(model, params, texts)
  np.testing.assert_allclose(jax.nn.softmax(layers['out']), probs, atol=1e-6)
  swapped = hj.with_activations(model, params, texts, {'out': layers['out'][::-1]})
  np.testing.assert_allclose(swapped, probs[::-1], atol=1e-6)
  task = hj.draw_task(CYCLE, 1, length=5, num_train=32, num_test=20, hidden=-1)
  schedule = hj.Schedule(0.1, 10, 8, 2, 0.0, 1.0)
  assert hj.tune(model, params, CYCLE, task, prompt_length=2, schedule=schedule).accuracy > 0.9


def test_a_document_of_a_chunk_is_a_text():
  """Every chunk then begins at the initial law; in long documents few do, which is said."""
  begins = hj.HMM(np.array([1.0, 0]), np.array([[0, 1.0], [0, 1]]), np.eye(2))
  key, first = jax.random.key(0), [0] + 7 * [1]
  assert (np.asarray(hj.workflow._chunks(key, begins, None, 8, None)) == first).all()
  with pytest.warns(UserWarning, match='chunks of 64 tokens begin anywhere in documents of 10240'):
    chunks = np.asarray(hj.workflow._chunks(key, begins, None, None, None))
  assert chunks.shape == (160, 64) and (chunks[:, 0] == 0).sum() == 1
  corpus = [[0, 1, 0, 1, 1], [1, 1, 0, 0, 1]]
  assert hj.workflow._chunks(key, begins, corpus, None, 2).tolist() == [[0, 1], [0, 1], [1, 1], [0, 0]]
  # A given document may be longer than one that can be sampled.
  stream = np.zeros((1, hj.workflow._LONGEST_DOCUMENT + 64), np.uint8)
  assert len(hj.workflow._chunks(key, begins, stream, None, None)) == hj.workflow._LONGEST_DOCUMENT // 64 + 1


OLD_KEY = jax.random.PRNGKey(0)
BERT = hj.Bert(num_tokens=3, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=8, dropout_rate=0.0)


@pytest.mark.parametrize(
  ('sentence', 'arguments'),
  [
    ('predict of Neighbour returns (2, 64, 3)', dict(model=Neighbour(scale=2.0))),
    ('Neighbour is causal and reads the token that it predicts', dict(model=Neighbour(is_open=True))),
    ('predict of Neighbour returns (2, 64, 3)', dict(model=Neighbour(), hmm=hj.random_hmm(0, 3, 4))),
    ('model is', dict(model=nn.Dense(3))),
    ('learning_rate and optimizer are both given', dict(learning_rate=0.1, optimizer=optax.sgd(0.1))),
    ('corpus contain 3; valid are integers from 0 to 2', dict(corpus=np.full((9, 9), 3))),
    ('chunk_length is 65; valid is an integer from 1 to 64', dict(document_length=64, chunk_length=65)),
    ('chunk_length is 9; valid is an integer from 1 to 8', dict(document_length=9, bert=BERT)),
    ('callback is 3', dict(callback=3)),
    ('report is 3', dict(report=3)),
    ('hmm is 0', dict(hmm=0)),
    ('key is HMM', dict(key=CYCLE)),
    ('key is 1.5', dict(key=1.5)),
  ],
)
def test_wrong_arguments_of_pretraining_are_refused(sentence, arguments):
  given = dict(hmm=CYCLE, key=0, steps=0) | arguments
  with pytest.raises(ValueError, match=f'^{re.escape(sentence)}'):
    hj.pretrain(given.pop('hmm'), given.pop('key'), **given)


@pytest.mark.parametrize('key', [0, jax.random.key(0), OLD_KEY, np.asarray(OLD_KEY)])
@pytest.mark.parametrize('call', [hj.pretrain, hj.draw_task, lambda key, hmm: hj.sample_corpus(hmm, key, 3, 4)])
def test_a_key_and_a_distribution_that_are_swapped_are_told_apart(call, key):
  """Seeds, typed keys, and arrays of their words."""
  with pytest.raises(ValueError, match='swapped'):
    call(key, CYCLE)


def test_matrices_are_led_to_the_function_that_makes_a_process():
  with pytest.raises(ValueError, match=r'^hmm is .*from_transition_matrices'):
    hj.pretrain(np.full((2, 3, 3), 1 / 6), 1)


def test_a_seed_is_its_key():
  np.testing.assert_array_equal(hj.sample_corpus(7, CYCLE, 3, 4), hj.sample_corpus(jax.random.key(7), CYCLE, 3, 4))
