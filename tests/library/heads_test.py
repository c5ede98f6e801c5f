"""Facts about heads: scores by hand, equations (4.1) and (4.2) position by position, ties, and the released code's."""

from conftest import in_float64
import jax
import numpy as np
from oracles import attention_by_the_paper, attention_by_the_released_code
import pytest
import scipy.stats

from hmm_jax.tuning import heads
from hmm_jax.tuning.heads import Attention, AttentionHead, Linear, OfficialAttention

V, C, P, T = 4, 3, 2, 5
KEY_SIZE, VALUE_SIZE = 3, 6


@pytest.fixture
def rng():
  return np.random.default_rng(0)


def random_head(rng, prompt_length=P):
  """A float64 head without a zero in it."""
  shapes = (KEY_SIZE,), (KEY_SIZE, V), (prompt_length + T, KEY_SIZE), (VALUE_SIZE, V), (V + 1, VALUE_SIZE)
  return AttentionHead(*(rng.normal(size=shape) for shape in (*shapes, (prompt_length, VALUE_SIZE), (VALUE_SIZE, C))))


def random_inputs(rng, batch, length=P + T):
  """Token probabilities [batch, length, V] and tokens [batch, T], of which [MASK] is one."""
  tokens = rng.integers(0, V, (batch, T))
  tokens[:, 0] = V
  return rng.dirichlet(np.ones(V), (batch, length)), tokens


def weights_and_scores(kind, head, token_probs, tokens):
  """In float64."""

  def run(head, *inputs):
    features = kind.read(*inputs)
    return kind.attend(head, features), kind.scores(head, features)

  return in_float64(jax.jit(run), head, token_probs, tokens)


@pytest.mark.parametrize(
  ('argmax', 'prompt_length', 'reads_probs', 'reads_tokens'),
  [(True, P, True, True), (False, P, False, True), (False, 0, True, False)],
)
def test_weights_and_scores_are_the_papers(argmax, prompt_length, reads_probs, reads_tokens, rng):
  """They are (4.1) and (4.2), with the rows of a prompt before the tokens.

  A control that reads only its part has those of uniform predictions, or of token 0 everywhere.
  """
  head = random_head(rng, prompt_length)
  kind = Attention(C, KEY_SIZE, VALUE_SIZE, argmax, reads_probs, reads_tokens)
  token_probs, tokens = random_inputs(rng, 6, prompt_length + T)
  read = token_probs if reads_probs else np.full_like(token_probs, 1 / V), tokens * reads_tokens
  expected = [attention_by_the_paper(head, *each, argmax) for each in zip(*read, strict=True)]
  for ours, by_paper in zip(weights_and_scores(kind, head, token_probs, tokens), zip(*expected), strict=True):
    np.testing.assert_allclose(ours, by_paper, atol=1e-12)


def test_argmax_averages_over_ties_but_for_rounding():
  """Logits within 4e-11 of the largest share alike, relative to it where it is above 1; beyond, nothing is shared."""
  shares = np.array([0, -3e-11, -6e-11, -1])
  logits = np.vstack([1e-3 + shares, 1 + shares, 100 + 100 * shares, [-1e30, -1e30, -2e30, -3e30]])
  weights = in_float64(heads.argmax_weights, logits)
  np.testing.assert_array_equal(weights, [[0.5, 0.5, 0, 0]] * 4)


@pytest.mark.slow
def test_init_has_pytorchs_spreads():
  """Matrices are uniform within fan-in^-1/2, embeddings normal, positions zero."""
  head = Attention(C, key_size=80, value_size=90).init(jax.random.key(0), 70, 40, 11)
  assert not head.positions.any()
  linear = Linear(200).init(jax.random.key(0), 70, 40, 11)
  for draws in (head.key_weights, head.value_weights, linear.weights):
    assert scipy.stats.kstest(np.ravel(draws) * 70**0.5, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-4
  for draws in (head.token_embeddings, head.prompt_embeddings):
    assert scipy.stats.kstest(np.ravel(draws), 'norm').pvalue > 1e-4


def test_the_official_head_attends_for_each_token_apart(rng):
  """Each token's probability is averaged with an attention of its own, at the start a mean over positions."""
  kind = OfficialAttention(C)
  start = kind.init(jax.random.key(0), V, P, T)
  assert not start.query.any()
  token_probs, tokens = random_inputs(rng, 4)
  for head in (start, start._replace(query=3 * rng.normal(size=V))):
    expected = [attention_by_the_released_code(head, row) for row in token_probs]
    for ours, theirs in zip(weights_and_scores(kind, head, token_probs, tokens), zip(*expected), strict=True):
      np.testing.assert_allclose(ours, theirs, atol=1e-13)
