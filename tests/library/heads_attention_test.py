"""Facts about attention heads: equations (4.1) and (4.2) position by position, ties, and the released code's."""

import functools

from conftest import in_float64
import jax
import jax.numpy as jnp
import numpy as np
from oracles import attention_by_the_paper, attention_by_the_released_code, float64
import pytest
import scipy.stats

from hmm_jax import heads
from hmm_jax.heads import AttentionHead, LinearHead, OfficialAttentionHead

pytestmark = pytest.mark.usefixtures('without_optimisation')

V, C, P, T = 4, 3, 2, 5
L = P + T
KEY_SIZE, VALUE_SIZE = 3, 6


@pytest.fixture
def rng():
  return np.random.default_rng(0)


def random_head(rng, prompt_length=P):
  """A float64 head without a zero in it."""
  return AttentionHead(
    query=rng.normal(size=KEY_SIZE),
    key_weights=rng.normal(size=(KEY_SIZE, V)),
    positions=rng.normal(size=(prompt_length + T, KEY_SIZE)),
    value_weights=rng.normal(size=(VALUE_SIZE, V)),
    token_embeddings=rng.normal(size=(V + 1, VALUE_SIZE)),
    prompt_embeddings=rng.normal(size=(prompt_length, VALUE_SIZE)),
    output=rng.normal(size=(VALUE_SIZE, C)),
  )


def random_inputs(rng, *batch, length=L):
  """Token probabilities [..., length, V] and tokens [..., T], of which [MASK] is one."""
  tokens = rng.integers(0, V, (*batch, T))
  tokens[..., 0] = V
  return rng.dirichlet(np.ones(V), (*batch, length)), tokens


@functools.partial(jax.jit, static_argnames='temperature')
def weigh_and_score(head, token_probs, tokens, temperature):
  weights = heads.attention_weights(head, token_probs, temperature)
  return weights, heads.attention_scores(head, token_probs, tokens, temperature)


@jax.jit
def weigh_and_score_officially(head, token_probs, tokens):
  kind = heads.OfficialAttention(C)
  features = kind.read(token_probs, tokens)
  return kind.attend(head, features), kind.scores(head, features)


def in_float64_at(temperature, head, token_probs, tokens):
  """Weights and scores in float64."""
  return in_float64(functools.partial(weigh_and_score, temperature=temperature), head, token_probs, tokens)


@pytest.mark.parametrize('prompt_length', [0, P])
@pytest.mark.parametrize('temperature', [0.0, 0.2, 1.0, 3.0])
def test_weights_and_scores_are_the_papers(temperature, prompt_length, rng):
  """Weights and the scores of three classes are (4.1) and (4.2), with the rows of a prompt before the tokens."""
  head = random_head(rng, prompt_length)
  token_probs, tokens = random_inputs(rng, 2, 3, length=prompt_length + T)
  weights, scores = in_float64_at(temperature, head, token_probs, tokens)
  assert weights.shape == (2, 3, prompt_length + T) and scores.shape == (2, 3, C)
  for at in np.ndindex(2, 3):
    expected_weights, expected_scores = attention_by_the_paper(head, token_probs[at], tokens[at], temperature)
    np.testing.assert_allclose(weights[at], expected_weights, atol=1e-13)
    np.testing.assert_allclose(scores[at], expected_scores, atol=1e-12)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-14)


def test_float32_agrees_with_float64(rng):
  """In float32, under jit, scores and weights are those of float64 to seven digits of the terms they sum."""
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng, 50)
  kind = heads.Attention(C, KEY_SIZE, VALUE_SIZE, temperature=0.5)
  single, features = jax.tree.map(np.float32, head), kind.read(np.float32(token_probs), tokens)
  scores, weights = (jax.jit(function)(single, features) for function in (kind.scores, kind.attend))
  expected = [attention_by_the_paper(head, *each, 0.5) for each in zip(token_probs, tokens, strict=True)]
  np.testing.assert_allclose(weights, [pair[0] for pair in expected], atol=1e-5)
  np.testing.assert_allclose(scores, [pair[1] for pair in expected], atol=1e-4)
  assert scores.dtype == weights.dtype == jnp.float32


def test_argmax_averages_over_ties_but_for_rounding():
  """Logits within 4e-11 of the largest share alike, relative to it where it is above 1; beyond, nothing is shared."""
  near, far = 3e-11, 6e-11
  logits = np.array(
    [
      [1, 1 - near, 1, -1],
      [1, 1 - far, 1, -1],
      [100, 100 * (1 - near), 100 * (1 - far), 0],
      [1e-3, 1e-3 - near, 1e-3 - far, 0],
      [1e30, 0, 0, 0],
      [-1e30, -2e30, -3e30, -1e30],
    ]
  )
  weights = in_float64(lambda logits: heads.softmax_or_argmax(logits, 0.0), logits)
  third = [1 / 3, 1 / 3, 1 / 3, 0]
  halves = [[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.5, 0, 0, 0.5]]
  np.testing.assert_array_equal(weights, [third, *halves])


@pytest.mark.parametrize('temperature', [0.0, 0.4])
def test_gradients_are_pytorchs(temperature, rng):
  """Every parameter's gradient, and that of the predictions, is PyTorch's for the loop over positions, in float64."""
  torch = pytest.importorskip('torch', reason="needs torch: pip install -e '.[parity]'")
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng, 3)
  direction = rng.normal(size=(3, C))

  def ours(head, token_probs):
    scores = heads.attention_scores(head, token_probs, tokens, temperature)
    return (direction * jnp.sin(scores)).sum()

  grads = in_float64(jax.jit(jax.grad(ours, (0, 1))), head, token_probs)

  theirs = [torch.tensor(x, requires_grad=True) for x in (*head, token_probs)]
  named, probs = AttentionHead(*theirs[:-1]), theirs[-1]
  total = 0
  for b in range(3):
    logits = torch.stack([named.query @ (named.key_weights @ g + beta) for g, beta in zip(probs[b], named.positions)])
    hard = (logits == logits.max()).double()
    weights = torch.softmax(logits / temperature, 0) if temperature else hard / hard.sum()
    embeddings = [*named.prompt_embeddings, *(named.token_embeddings[token] for token in tokens[b])]
    values = [named.value_weights @ g * e for g, e in zip(probs[b], embeddings)]
    scores = sum(w * (named.output.T @ value) for w, value in zip(weights, values))
    total = total + (torch.tensor(direction[b]) * torch.sin(scores)).sum()
  total.backward()
  for name, one, other in zip((*AttentionHead._fields, 'token_probs'), (*grads[0], grads[1]), theirs, strict=True):
    expected = np.zeros(one.shape) if other.grad is None else other.grad.numpy()
    np.testing.assert_allclose(one, expected, atol=1e-12, err_msg=name)
  by_attention = [np.abs(x).max() for x in (grads[0].query, grads[0].key_weights, grads[0].positions)]
  assert all(size > 1e-3 if temperature else size == 0 for size in by_attention)


def test_init_has_the_papers_shapes_and_pytorchs_spreads():
  """Shapes follow P, T and the sizes; matrices are uniform within fan-in^-1/2, embeddings normal, positions zero."""
  kind = heads.Attention(C, key_size=80, value_size=90, temperature=1.0)
  head = jax.jit(lambda key: kind.init(key, 70, 40, 11))(jax.random.key(0))
  assert jax.tree.map(jnp.shape, head) == AttentionHead(
    (80,), (80, 70), (51, 80), (90, 70), (71, 90), (40, 90), (90, C)
  )
  assert not head.positions.any()
  for matrix, fan_in in ((head.query, 80), (head.key_weights, 70), (head.value_weights, 70), (head.output, 90)):
    within = scipy.stats.uniform(-(fan_in**-0.5), 2 * fan_in**-0.5)
    assert np.abs(matrix).max() <= fan_in**-0.5 * (1 + 1e-6)
    assert scipy.stats.kstest(np.ravel(matrix), within.cdf).pvalue > 1e-4
  for embeddings in (head.token_embeddings, head.prompt_embeddings):
    assert scipy.stats.kstest(np.ravel(embeddings), 'norm').pvalue > 1e-4
  # No two arrays share their draws.
  starts = [np.ravel(x)[:20] for x in head if np.any(x)]
  assert np.abs(np.corrcoef(starts) - np.eye(len(starts))).max() < 0.8


def official(rng):
  return OfficialAttentionHead(3 * rng.normal(size=V), LinearHead(rng.normal(size=(V, C)), rng.normal(size=C)))


def test_the_official_head_attends_for_each_token_apart(rng):
  """Each token's probability is averaged with an attention of its own; weights are the mean of these attentions."""
  head, (token_probs, tokens) = official(rng), random_inputs(rng, 4)
  weights, scores = in_float64(weigh_and_score_officially, head, token_probs, tokens)
  for row, row_scores, row_weights in zip(token_probs, scores, weights, strict=True):
    expected_weights, expected_scores = attention_by_the_released_code(head, row)
    np.testing.assert_allclose(row_scores, expected_scores, atol=1e-13)
    np.testing.assert_allclose(row_weights, expected_weights, atol=1e-14)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-14)


def test_the_official_head_starts_as_the_mean_over_positions(rng):
  """Before training it is a linear head on the mean prediction, whatever the lengths of prompt and input."""
  head = jax.jit(heads.OfficialAttention(C).init, static_argnums=(1, 2, 3))(jax.random.key(0), V, P, T)
  token_probs, tokens = random_inputs(rng, 4)
  weights, scores = in_float64(weigh_and_score_officially, head, token_probs, tokens)
  linear = float64(head.linear)
  np.testing.assert_allclose(scores, token_probs.mean(1) @ linear.weights + linear.bias, atol=1e-13)
  np.testing.assert_allclose(weights, np.full((4, L), 1 / L), atol=1e-15)
  assert np.abs(linear.weights).max() <= V**-0.5 and np.unique(linear.weights).size == V * C


@pytest.mark.parametrize(('reads_probs', 'reads_tokens'), [(True, False), (False, True)])
def test_a_control_is_blind_to_what_it_does_not_read(reads_probs, reads_tokens, rng):
  """Other tokens, or other predictions, leave its scores and weights as they are; what it reads does not."""
  kind = heads.Attention(C, KEY_SIZE, VALUE_SIZE, 1.0, reads_probs=reads_probs, reads_tokens=reads_tokens)
  run = functools.partial(weigh_and_score, temperature=1.0)
  of = lambda *inputs: in_float64(lambda head, *inputs: run(head, *kind.read(*inputs)), head, *inputs)
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng, 6)
  other_probs, permuted = random_inputs(rng, 6)[0], rng.permuted(tokens, axis=-1)
  weights, scores = of(token_probs, tokens)
  for (other_weights, other_scores), is_read in (
    (of(other_probs, tokens), reads_probs),
    (of(token_probs, permuted), reads_tokens),
  ):
    assert (np.abs(other_scores - scores).max() > 1e-3) == is_read
    assert is_read or (other_weights == weights).all() and (other_scores == scores).all()


def test_attention_on_a_constant_is_a_bag_of_words(rng):
  """Its score is a sum over positions of a weight by position alone times a value by word alone."""
  kind = heads.Attention(C, KEY_SIZE, VALUE_SIZE, 1.0, reads_probs=False)
  head, (token_probs, tokens) = random_head(rng, 0), random_inputs(rng, 7, length=T)
  weights, scores = in_float64_at(1.0, head, *(np.asarray(x) for x in kind.read(token_probs, tokens)))
  np.testing.assert_array_equal(weights, np.broadcast_to(weights[0], weights.shape))
  words = (head.value_weights.mean(1) * head.token_embeddings) @ head.output
  np.testing.assert_allclose(scores, np.einsum('t,ntc->nc', weights[0], words[tokens]), atol=1e-6)
