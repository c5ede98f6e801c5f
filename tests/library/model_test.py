"""The exact model against sums over every hidden path and every text, in float64."""

import functools
import itertools

from conftest import enumerated_posterior
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax.bert import Bert, BertModel
from hmm_jax.hmm import HMM
from hmm_jax.model import ExactModel, prepend
from hmm_jax.theory.problems.degradation import Noisy, NoisyModel

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T = 3, 4, 3
MASK = V


@pytest.fixture(scope='module')
def hmm():
  """Distributions soft enough that no probability is near zero."""
  rng = np.random.default_rng(0)
  return HMM(
    *(rng.dirichlet(np.full(size, 2.0), shape).astype(np.float32) for size, shape in ((H, ()), (H, H), (V, H)))
  )


def state_posteriors(hmm, rows):
  """P[H_i | X_-i] at each i, where rows[t][h] = P[X_t = x_t | H_t = h] for tokens of any kind."""
  hmm = HMM(*(np.asarray(x, np.float64) for x in hmm))
  return enumerated_posterior(hmm, np.array(rows, np.float64)).leave_one_out_probs


def emissions_of(hmm, tokens):
  matrix = np.asarray(hmm.emission_matrix, np.float64)
  return [np.ones(H) if token == MASK else matrix[:, token] for token in tokens]


@functools.partial(jax.jit, static_argnums=0)
def predict_and_represent(model, params, embeddings):
  return model.predict(params, embeddings), model.represent(params, embeddings)


@functools.partial(jax.jit, static_argnums=0)
def embed(model, params, tokens):
  return model.embed(params, tokens)


def test_prediction_is_the_conditional_of_each_token_given_the_others(hmm):
  """On every input of T tokens, [MASK] included, `predict` is P[X_i | X_-i] and `represent` P[H_i | X_-i]."""
  model = ExactModel(V)
  inputs = np.array(list(itertools.product(range(V + 1), repeat=T)))
  predicted, represented = predict_and_represent(model, hmm, embed(model, hmm, inputs))
  states = np.stack([state_posteriors(hmm, emissions_of(hmm, tokens)) for tokens in inputs])
  np.testing.assert_allclose(represented, states, atol=1e-5)
  np.testing.assert_allclose(predicted, states @ np.asarray(hmm.emission_matrix, np.float64), atol=1e-5)


def test_a_prompt_row_is_a_fake_token_with_that_emission(hmm):
  """Predictions after a prompt u are conditionals in the HMM whose first token is z~ with P[z~ | H_1] = u (B.1)."""
  model, prompt = ExactModel(V), np.array([0.9, 0.05, 0.4])
  inputs = np.concatenate([np.full((V**2, 1), MASK), list(itertools.product(range(V), repeat=2))], axis=1)
  before = np.broadcast_to(np.float32(prompt), (len(inputs), 1, H))
  predicted, _ = predict_and_represent(model, hmm, np.concatenate([before, embed(model, hmm, inputs)], axis=1))
  states = np.stack([state_posteriors(hmm, [prompt, *emissions_of(hmm, tokens)]) for tokens in inputs])
  np.testing.assert_allclose(predicted, states @ np.asarray(hmm.emission_matrix, np.float64), atol=1e-5)


def test_predictions_from_impossible_evidence_are_zero():
  """Where the other tokens cannot occur together, prediction and representation are 0 rather than NaN."""
  cycle = HMM(*map(np.float32, ([0.5, 0.5], [[0, 1], [1, 0]], np.eye(2))))
  model = ExactModel(2)
  predicted, represented = predict_and_represent(model, cycle, embed(model, cycle, np.int32([2, 0, 0])))
  np.testing.assert_array_equal(predicted, [[0, 0], [0, 1], [0, 1]])
  np.testing.assert_array_equal(represented, [[0, 0], [0, 1], [0, 1]])


BERT = Bert(num_tokens=V, num_layers=1, width=8, num_heads=2, ffn_width=8, max_positions=6, dropout_rate=0.0)
TOKENS = np.int32([[[0, MASK, 2]], [[1, 1, MASK]]])


def model_and_params(name, hmm):
  if name == 'exact':
    return ExactModel(V), hmm
  if name == 'noisy':
    return NoisyModel(V, reach=1), Noisy(hmm, jnp.float32(0.3), jnp.uint32(1), jnp.float32(0.4))
  tree, draws = jax.eval_shape(BERT.init, jax.random.key(0), TOKENS[0])['params'], np.random.default_rng(1)
  draw = lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32)
  return BertModel(BERT), jax.tree.map(draw, tree)


@pytest.mark.parametrize('name', ['exact', 'bert'])
def test_every_model_keeps_the_interface(name, hmm):
  """Embeddings are [..., T, embedding_size] and local to their token; predictions are distributions over V tokens."""
  model, params = model_and_params(name, hmm)
  embeddings = np.asarray(embed(model, params, TOKENS))
  assert model.name == name and model.num_tokens == V
  assert embeddings.shape == (2, 1, 3, model.embedding_size(params))
  np.testing.assert_array_equal(embeddings[0, 0, 1], embeddings[1, 0, 2])
  np.testing.assert_array_equal(embeddings[0, 0, ::-1], embed(model, params, TOKENS[0, 0, ::-1]))
  probs, represented = predict_and_represent(model, params, embeddings)
  assert probs.shape == (2, 1, 3, V) and represented.shape[:-1] == (2, 1, 3)
  np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)
  exchanged, _ = predict_and_represent(model, params, embeddings[::-1])
  np.testing.assert_allclose(probs[::-1], exchanged, atol=1e-6)
  prompt = np.full((2, model.embedding_size(params)), model.prompt_space.center, np.float32)
  np.testing.assert_array_equal(model.prompt_space.project(prompt), prompt)


ONE, OF_EACH = np.int32([2]), np.int32([[[1, 0]], [[2, 2]]])


@pytest.mark.parametrize(('name', 'positions'), [('exact', OF_EACH), ('bert', ONE), ('bert', OF_EACH), ('noisy', ONE)])
def test_what_is_read_is_what_all_positions_give_there(name, positions, hmm):
  """Predictions, representations and gradients at `positions` are those of all positions, taken there."""
  model, params = model_and_params(name, hmm)
  embeddings, weights = embed(model, params, TOKENS), np.random.default_rng(3).normal(size=V).astype(np.float32)
  places = np.broadcast_to(positions, (2, 1, positions.shape[-1]))

  def read(params, embeddings, positions):
    outputs = model.predict(params, embeddings, positions), model.represent(params, embeddings, positions)
    if positions is None:
      outputs = [jnp.take_along_axis(output, places[..., None], axis=-2) for output in jax.tree.leaves(outputs)]
    return ((outputs[0] @ weights) ** 2).sum() + (outputs[1] ** 3).sum(), tuple(outputs)

  gradients = jax.jit(jax.value_and_grad(read, argnums=(0, 1), allow_int=True, has_aux=True))
  some, everywhere = gradients(params, embeddings, positions), gradients(params, embeddings, None)
  assert some[0][1][0].shape == (2, 1, positions.shape[-1], V)
  for leaf, expected in zip(*map(jax.tree.leaves, (some, everywhere)), strict=True):
    if leaf.dtype == np.float32:
      np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(('name', 'positions'), [('exact', ONE), ('noisy', ONE), ('bert', ONE), ('bert', None)])
def test_a_prompt_is_rows_before_the_text(name, positions, hmm):
  """What `predict_prompted` says of each prompt and each text is what `predict` says of the two as one; slopes too."""
  model, params = model_and_params(name, hmm)
  draws = np.random.default_rng(4)
  prompts = draws.uniform(0.1, 1, (3, 2, model.embedding_size(params))).astype(np.float32)
  read = 5 if positions is None else 1
  weights = draws.normal(size=(3, 2, read, V)).astype(np.float32)

  @functools.partial(jax.jit, static_argnums=0)
  def value_and_slopes(predict, prompts):
    probs, slopes_of = jax.vjp(functools.partial(predict, params), prompts)
    return probs, slopes_of(weights)[0]

  separate = lambda params, prompts: model.predict_prompted(params, prompts, TOKENS[:, 0], positions)
  whole = lambda params, prompts: model.predict(params, prepend(prompts, model.embed(params, TOKENS[:, 0])), positions)
  (probs, slopes), expected = value_and_slopes(separate, prompts), value_and_slopes(whole, prompts)
  assert probs.shape == (3, 2, read, V) and np.abs(probs[0] - probs[1]).max() > 1e-3
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), (probs, slopes), expected)


@pytest.mark.parametrize('name', ['exact', 'bert'])
def test_prompts_of_no_rows_change_nothing(name, hmm):
  """K prompts of length 0 give the predictions of the text alone, K times."""
  model, params = model_and_params(name, hmm)
  texts, prompts = TOKENS[:, 0], np.zeros((3, 0, model.embedding_size(params)), np.float32)
  probs = jax.jit(lambda prompts: model.predict_prompted(params, prompts, texts, np.array([0])))(prompts)
  alone, _ = predict_and_represent(model, params, embed(model, params, texts))
  np.testing.assert_allclose(probs, np.broadcast_to(alone[:, :1], probs.shape), atol=1e-6)
