"""Facts about attention heads: equations (4.1) and (4.2) position by position, their limit, and the released code's."""

import functools

from conftest import in_float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hmm_jax import attention_head
from hmm_jax.attention_head import AttentionHead
from hmm_jax.attention_head import OfficialAttentionHead
from hmm_jax.heads import LinearHead

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


def by_the_paper(head, token_probs, tokens, temperature):
  """The weights of (4.1) and the scores of (4.2) for one sequence, a position and a class at a time."""
  logits = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(token_probs, head.positions, strict=True)]
  if temperature:
    weights = np.exp((np.array(logits) - max(logits)) / temperature)
  else:
    weights = np.array([float(logit == max(logits)) for logit in logits])
  weights = weights / weights.sum()
  embeddings = [*head.prompt_embeddings, *(head.token_embeddings[token] for token in tokens)]
  scores = np.zeros(head.output.shape[1])
  for weight, g, embedding in zip(weights, token_probs, embeddings, strict=True):
    for c, b in enumerate(head.output.T):
      scores[c] += weight * (b @ ((head.value_weights @ g) * embedding))
  return weights, scores


@pytest.mark.parametrize('prompt_length', [0, P])
@pytest.mark.parametrize('temperature', [0.0, 0.2, 1.0, 3.0])
def test_weights_and_scores_are_the_papers(temperature, prompt_length, rng):
  """Weights and the scores of three classes are (4.1) and (4.2), with the rows of a prompt before the tokens."""
  head = random_head(rng, prompt_length)
  token_probs, tokens = random_inputs(rng, 2, 3, length=prompt_length + T)
  weigh = functools.partial(attention_head.attention_weights, temperature=temperature)
  score = functools.partial(attention_head.attention_scores, temperature=temperature)
  weights = in_float64(weigh, head, token_probs)
  scores = in_float64(score, head, token_probs, tokens)
  assert weights.shape == (2, 3, prompt_length + T) and scores.shape == (2, 3, C)
  for at in np.ndindex(2, 3):
    expected_weights, expected_scores = by_the_paper(head, token_probs[at], tokens[at], temperature)
    np.testing.assert_allclose(weights[at], expected_weights, atol=1e-13)
    np.testing.assert_allclose(scores[at], expected_scores, atol=1e-12)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-14)


def test_float32_agrees_with_float64(rng):
  """In float32, under jit, scores and weights are those of float64 to seven digits of the terms they sum."""
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng, 50)
  sequence_head = attention_head.attention_head(V, C, key_size=KEY_SIZE, value_size=VALUE_SIZE, temperature=0.5)
  single = jax.tree.map(jnp.float32, head)
  scores = jax.jit(sequence_head.scores)(single, jnp.float32(token_probs), jnp.array(tokens))
  weights = jax.jit(sequence_head.attend)(single, jnp.float32(token_probs))
  expected = [by_the_paper(head, *each, 0.5) for each in zip(token_probs, tokens, strict=True)]
  np.testing.assert_allclose(weights, [pair[0] for pair in expected], atol=1e-5)
  np.testing.assert_allclose(scores, [pair[1] for pair in expected], atol=1e-4)
  assert scores.dtype == weights.dtype == jnp.float32


def test_a_falling_temperature_tends_to_argmax(rng):
  """Scores approach those of temperature 0, and where two positions tie exactly, the mean of their two values."""
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng)
  token_probs[3], head.positions[3] = token_probs[1], head.positions[1]
  # The pair is made the largest: a step along the query raises both alike.
  step = head.query * 10 / (head.query @ head.query)
  head.positions[[1, 3]] += step
  hard = in_float64(functools.partial(attention_head.attention_scores, temperature=0.0), head, token_probs, tokens)
  weights = in_float64(functools.partial(attention_head.attention_weights, temperature=0.0), head, token_probs)
  np.testing.assert_array_equal(weights, [0, 0.5, 0, 0.5, 0, 0, 0])
  values = [
    head.output.T @ ((head.value_weights @ token_probs[1]) * embedding)
    for embedding in (head.prompt_embeddings[1], head.token_embeddings[tokens[1]])
  ]
  np.testing.assert_allclose(hard, np.mean(values, 0), atol=1e-12)
  distances = []
  for temperature in (8.0, 2.0, 0.5, 0.1):
    score = functools.partial(attention_head.attention_scores, temperature=temperature)
    distances.append(np.abs(in_float64(score, head, token_probs, tokens) - hard).max())
  assert distances == sorted(distances, reverse=True) and distances[0] > 0.1 and distances[-1] < 1e-12


def test_argmax_averages_over_all_where_all_tie(rng):
  """A query of zeros attends to every position alike, at temperature 0 as at any other."""
  head, (token_probs, _) = random_head(rng), random_inputs(rng, 4)
  head = head._replace(query=np.zeros(KEY_SIZE))
  for temperature in (0.0, 1.0):
    weigh = functools.partial(attention_head.attention_weights, temperature=temperature)
    np.testing.assert_allclose(in_float64(weigh, head, token_probs), np.full((4, L), 1 / L), atol=1e-15)


def test_argmax_averages_over_exact_ties_alone():
  """A logit next to the largest gets nothing, however close; equal ones share alike, whatever their size."""
  logits = np.array([[2, 2 - 1e-12, 2, -1], [1e30, 0, 0, 0], [-1e30, -2e30, -3e30, -1e30]])
  weights = in_float64(lambda logits: attention_head.softmax_or_argmax(logits, 0.0), logits)
  np.testing.assert_array_equal(weights, [[0.5, 0, 0.5, 0], [1, 0, 0, 0], [0.5, 0, 0, 0.5]])


@pytest.mark.parametrize('place', [0, P - 1, P, L - 1])
@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_a_head_made_to_look_at_one_position_returns_its_value(temperature, place, rng):
  """Position embeddings can single out one position, of the prompt or of the tokens, and the score is its value."""
  token_probs, tokens = random_inputs(rng, 8)
  positions = np.zeros((L, 1))
  positions[place] = 1000.0
  head = AttentionHead(
    query=np.ones(1),
    key_weights=np.ones((1, V)),
    positions=positions,
    value_weights=np.eye(V),
    token_embeddings=rng.normal(size=(V + 1, V)),
    prompt_embeddings=rng.normal(size=(P, V)),
    output=np.eye(V),
  )
  score = functools.partial(attention_head.attention_scores, temperature=temperature)
  scores = in_float64(score, head, token_probs, tokens)
  embedding = head.prompt_embeddings[place] if place < P else head.token_embeddings[tokens[:, place - P]]
  np.testing.assert_allclose(scores, token_probs[:, place] * embedding, atol=1e-14)


def test_a_head_made_to_look_for_a_prediction_finds_it(rng):
  """Keys can single out the positions that predict a certain token, wherever they are (Theorem 4.3's use of them)."""
  is_sure = rng.permuted(np.tile(np.arange(L) < 2, (6, 1)), axis=-1)
  token_probs = np.where(is_sure[..., None], [0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4])
  head = random_head(rng)._replace(query=np.ones(1), key_weights=np.array([[1.0, 0, 0, 0]]), positions=np.zeros((L, 1)))
  weights = in_float64(functools.partial(attention_head.attention_weights, temperature=0.0), head, token_probs)
  np.testing.assert_array_equal(weights, is_sure / 2)


@pytest.mark.parametrize('temperature', [0.0, 0.4])
def test_gradients_are_pytorchs(temperature, rng):
  """Every parameter's gradient, and that of the predictions, is PyTorch's for the loop over positions, in float64."""
  torch = pytest.importorskip('torch', reason="needs torch: pip install -e '.[parity]'")
  head, (token_probs, tokens) = random_head(rng), random_inputs(rng, 3)
  direction = rng.normal(size=(3, C))

  def ours(head, token_probs):
    scores = attention_head.attention_scores(head, token_probs, jnp.array(tokens), temperature)
    return (direction * jnp.sin(scores)).sum()

  grads = in_float64(jax.grad(ours, (0, 1)), head, token_probs)

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
  sequence_head = attention_head.attention_head(70, C, key_size=80, value_size=90, temperature=1.0)
  head = jax.jit(lambda key: sequence_head.init(key, 40, 11))(jax.random.key(0))
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


def test_the_same_head_is_the_same_object():
  """Heads of equal sizes are one object, so that what is compiled for one is compiled for all."""
  make = functools.partial(attention_head.attention_head, V, C, key_size=2, value_size=3)
  assert make(temperature=1.0) is make(temperature=1.0)
  assert make(temperature=1.0) is not make(temperature=0.0)
  assert attention_head.official_attention_head(V, C) is attention_head.official_attention_head(V, C)


def official(rng):
  return OfficialAttentionHead(3 * rng.normal(size=V), LinearHead(rng.normal(size=(V, C)), rng.normal(size=C)))


def test_the_official_head_attends_for_each_token_apart(rng):
  """Each token's probability is averaged with an attention of its own; weights are the mean of these attentions."""
  head, (token_probs, tokens) = official(rng), random_inputs(rng, 4)
  sequence_head = attention_head.official_attention_head(V, C)
  scores = in_float64(sequence_head.scores, head, token_probs, tokens)
  weights = in_float64(sequence_head.attend, head, token_probs)
  for row, row_scores, row_weights in zip(token_probs, scores, weights, strict=True):
    means, attentions = np.zeros(V), np.zeros((V, L))
    for v in range(V):
      logits = np.exp(head.query[v] * row[:, v])
      attentions[v] = logits / logits.sum()
      means[v] = sum(attentions[v, i] * row[i, v] for i in range(L))
    np.testing.assert_allclose(row_scores, means @ head.linear.weights + head.linear.bias, atol=1e-13)
    np.testing.assert_allclose(row_weights, attentions.mean(0), atol=1e-14)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-14)


def test_the_official_head_starts_as_the_mean_over_positions(rng):
  """Before training it is a linear head on the mean prediction, whatever the lengths of prompt and input."""
  sequence_head = attention_head.official_attention_head(V, C)
  head = sequence_head.init(jax.random.key(0), P, T)
  token_probs, tokens = random_inputs(rng, 4)
  scores = in_float64(sequence_head.scores, head, token_probs, tokens)
  linear = jax.tree.map(lambda x: np.asarray(x, np.float64), head.linear)
  np.testing.assert_allclose(scores, token_probs.mean(1) @ linear.weights + linear.bias, atol=1e-13)
  np.testing.assert_allclose(in_float64(sequence_head.attend, head, token_probs), np.full((4, L), 1 / L), atol=1e-15)
  assert np.abs(linear.weights).max() <= V**-0.5 and np.unique(linear.weights).size == V * C


def test_the_official_head_sees_neither_tokens_nor_places(rng):
  """Other tokens leave its scores as they are, and so does another order of the predictions."""
  head, (token_probs, tokens) = official(rng), random_inputs(rng, 4)
  sequence_head = attention_head.official_attention_head(V, C)
  scores = in_float64(sequence_head.scores, head, token_probs, tokens)
  np.testing.assert_array_equal(in_float64(sequence_head.scores, head, token_probs, (tokens + 1) % (V + 1)), scores)
  reordered = token_probs[:, rng.permutation(L)]
  np.testing.assert_allclose(in_float64(sequence_head.scores, head, reordered, tokens), scores, atol=1e-13)
