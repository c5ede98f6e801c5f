"""Any Flax module of embed and predict is pretrained, read and patched; what is no language model is refused."""

from conftest import assert_same_bits
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
  report = lambda step, values: losses.append(values['train_loss'])
  options = dict(model=Neighbour(), optimizer=optax.adam(0.1), report=report, callback=along.__setitem__)
  model, params = hj.pretrain(CYCLE, 0, steps=60, **options)
  # The first of 64 tokens is log 3, all others are known.
  assert losses[0] > 0.1 > losses[-1] > np.log(3) / 64 - 1e-3
  assert [*along] == [0, 20, 40, 60]
  untrained = hj.pretrain(CYCLE, jax.random.key(0), steps=0, model=Neighbour()).params
  assert_same_bits((along[0], along[60]), jax.device_get((untrained, params)))
  texts = np.int32([[0, 1, 2, 0], [2, 0, 1, 2]])
  layers = hj.activations(model, params, texts)
  probs = hj.token_probs(model, params, texts)
  np.testing.assert_allclose(jax.nn.softmax(layers['out']), probs, atol=1e-6)
  swapped = hj.with_activations(model, params, texts, {'out': layers['out'][::-1]})
  np.testing.assert_allclose(swapped, probs[::-1], atol=1e-6)
  task = hj.draw_task(CYCLE, 1, length=5, num_train=32, num_test=20, hidden=-1)
  schedule = hj.Schedule(0.1, 10, 8, 2, 0.0, 1.0)
  tuned, (inputs, labels) = (
    hj.tune(model, params, CYCLE, task, prompt_length=2, schedule=schedule),
    task.examples(CYCLE),
  )
  assert tuned.accuracy == (tuned.predict(inputs[32:]) == labels[32:]).mean() > 0.9


def test_a_document_of_a_chunk_is_a_text():
  """Every chunk then begins at the initial law; in long documents few do, which is said."""
  begins = hj.HMM(np.array([1.0, 0]), np.array([[0, 1.0], [0, 1]]), np.eye(2))
  chunks = lambda document_length: np.asarray(
    hj.workflow._chunks(jax.random.key(0), begins, None, document_length, None)
  )
  assert (chunks(8) == [0] + 7 * [1]).all()
  with pytest.warns(UserWarning, match='begin anywhere'):
    assert (chunks(None)[:, 0] == 0).sum() == 1


@pytest.mark.parametrize(
  ('name', 'model', 'hmm'),
  [
    ('predict', Neighbour(scale=2.0), CYCLE),
    # It reads the token that it predicts.
    ('Neighbour', Neighbour(is_open=True), CYCLE),
    ('predict', Neighbour(), hj.random_hmm(0, 3, 4)),
  ],
)
def test_what_is_no_language_model_is_refused(name, model, hmm):
  with pytest.raises(ValueError, match=f'{name}\\b'):
    hj.pretrain(hmm, 0, steps=0, model=model)
