"""Facts about exact posteriors: sums over every path in rational numbers, and the agreement of float64 inference."""

from fractions import Fraction
import itertools

from conftest import dirichlet_hmm, in_float64, joint_hmm, path_probs, state_paths
import jax
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest
import rationals

from hmm_jax import hmm as hmm_lib, inference
from hmm_jax.hmm import HMM

T = 3
# A chain of thirds and halves with zeros: after token 1 comes no token 0 but right at the start.
SMALL = HMM(
  [Fraction(1, 3), Fraction(2, 3), Fraction(0)],
  [[0, Fraction(1, 2), Fraction(1, 2)], [0, Fraction(1, 7), Fraction(6, 7)], [0, 0, Fraction(1)]],
  [[Fraction(1, 5), Fraction(4, 5)], [Fraction(1), 0], [0, Fraction(1)]],
)
SIZES = dict(num_states=2, num_tokens=3)
SMALL = HMM(*(np.array(rows, object) + Fraction(0) for rows in SMALL))


def is_exact(array):
  return all(type(value) is Fraction for value in np.ravel(array))


def enumerated_state_probs(hmm, rows, position, leave_out):
  """P[H_t | rows] by a sum over all paths, in the numbers of its arguments; zeros where none is possible."""
  rows = np.array(rows, object)
  if leave_out:
    rows[position] = Fraction(1)
  probs = path_probs(hmm, rows)
  at = state_paths(hmm.num_states, len(rows))[:, position]
  weights = [sum(probs[at == h], Fraction(0)) for h in range(hmm.num_states)]
  total = sum(weights)
  return [weight / total if total else Fraction(0) for weight in weights]


def test_every_float_is_the_fraction_that_it_is():
  """`exact` loses no bit of a float or an integer and keeps the shape."""
  rng = np.random.default_rng(0)
  array = np.ldexp(rng.standard_normal((2, 3)), rng.integers(-300, 300, (2, 3)))
  fractions = rationals.exact(array)
  assert fractions.shape == (2, 3) and is_exact(fractions)
  np.testing.assert_array_equal(fractions.astype(float), array)
  assert rationals.exact(np.float32(0.1)).item() == Fraction(13421773, 2**27)
  assert rationals.exact([[0, 1]]).tolist() == [[Fraction(0), Fraction(1)]]


def test_the_rows_of_an_exact_hmm_sum_to_one():
  """Each row is that of the floats over its exact sum."""
  draw = HMM(*map(np.float32, dirichlet_hmm(np.random.default_rng(1), 4, 5)))
  hmm = rationals.exact_hmm(draw)
  for rows, drawn in zip(hmm, draw, strict=True):
    assert is_exact(rows) and rows.shape == drawn.shape
    assert np.ravel(rows.sum(-1)).tolist() == [1] * (rows.size // rows.shape[-1])
    for row, floats in zip(rows.reshape(-1, rows.shape[-1]), np.reshape(drawn, (-1, rows.shape[-1])), strict=True):
      total = sum(Fraction(value) for value in floats.tolist())
      assert row.tolist() == [Fraction(value) / total for value in floats.tolist()]


@pytest.mark.parametrize('num_cells', [1, 2])
def test_a_memory_is_flattened_without_rounding(num_cells):
  """The joint chain of a `MemoryHMM` is its definition, in all 53 bits of its float64 numbers."""
  memory = dense_hmm(np.random.default_rng(num_cells), num_cells, **SIZES)
  hmm, expected = rationals.exact_hmm(memory), joint_hmm(memory)
  for rows, floats in zip(hmm, expected, strict=True):
    assert is_exact(rows) and np.ravel(rows.sum(-1)).tolist() == [1] * (rows.size // rows.shape[-1])
    np.testing.assert_allclose(rows.astype(float), floats, rtol=1e-15, atol=0)


@pytest.mark.parametrize('name', ['small', 'drawn', 'memory'])
def test_state_probs_equal_the_sum_over_all_paths(name):
  """Exactly, for every text of tokens and [MASK]s, at each position, given it or not; 0 where that is impossible."""
  rng = np.random.default_rng(2)
  hmm = {
    'small': SMALL,
    'drawn': rationals.exact_hmm(dirichlet_hmm(rng, 2, 2)),
    'memory': rationals.exact_hmm(dense_hmm(rng, 1, **SIZES)),
  }[name]
  impossible = 0
  for tokens in itertools.product(range(hmm.num_tokens + 1), repeat=T):
    rows = rationals.likelihood_rows(hmm, tokens)
    for position, leave_out in itertools.product(range(T), [True, False]):
      probs = rationals.state_probs(hmm, rows, position, leave_out)
      assert is_exact(probs)
      assert probs.tolist() == enumerated_state_probs(hmm, rows, position, leave_out)
      impossible += not probs.any()
  assert bool(impossible) == (name == 'small')


def test_a_prompt_row_is_evidence_like_any_other():
  """A row of other numbers before the text counts as the likelihood of a fake token."""
  prompt = np.array([Fraction(1, 2), Fraction(0), Fraction(3, 4)], object)
  for tokens in itertools.product(range(3), repeat=2):
    rows = [prompt, *rationals.likelihood_rows(SMALL, tokens)]
    for position in range(3):
      expected = enumerated_state_probs(SMALL, rows, position, True)
      assert rationals.state_probs(SMALL, rows, position, True).tolist() == expected


def test_token_probs_are_the_share_of_each_token_among_texts():
  """G_t[v] = P[x with v at t] / P[x with anything at t], from the probabilities of whole texts alone."""
  text_probs = {
    tokens: path_probs(SMALL, np.array(rationals.likelihood_rows(SMALL, tokens))).sum()
    for tokens in itertools.product(range(2), repeat=T)
  }
  impossible = 0
  for tokens, position in itertools.product(text_probs, range(T)):
    alike = [text_probs[(*tokens[:position], v, *tokens[position + 1 :])] for v in range(2)]
    expected = [prob / sum(alike) if sum(alike) else 0 for prob in alike]
    rows = rationals.likelihood_rows(SMALL, tokens)
    assert rationals.token_probs(SMALL, rows, position).tolist() == expected
    impossible += not any(alike)
  assert impossible


@jax.jit
def inferred(distribution, likelihoods):
  posterior = inference.forward_backward(distribution, likelihoods)
  return posterior, hmm_lib.conditional_token_probs(distribution, likelihoods)


def assert_inference_agrees(distribution, texts):
  """hmm_jax inference in float64 gives the exact posteriors and predictions to 1e-12, at every position."""
  hmm = rationals.exact_hmm(distribution)
  rows_of_texts = [rationals.likelihood_rows(hmm, tokens) for tokens in texts]
  posterior, token_probs = in_float64(inferred, distribution, np.array(rows_of_texts).astype(float))
  for text, position in itertools.product(range(len(texts)), range(len(texts[0]))):
    rows, at = rows_of_texts[text], (text, position)
    left_out = rationals.state_probs(hmm, rows, position, leave_out=True).astype(float)
    given = rationals.state_probs(hmm, rows, position, leave_out=False).astype(float)
    predicted = rationals.token_probs(hmm, rows, position).astype(float)
    np.testing.assert_allclose(posterior.leave_one_out_probs[at], left_out, atol=1e-12)
    np.testing.assert_allclose(posterior.smoothed_probs[at], given, atol=1e-12)
    np.testing.assert_allclose(token_probs[at], predicted, atol=1e-12)


def test_float64_inference_agrees_on_random_chains():
  """On a soft chain, a near-deterministic one, a cycle that makes most texts impossible, and a memory."""
  rng = np.random.default_rng(3)
  sure = HMM(*(rng.dirichlet(np.full(size, 0.05), shape) for size, shape in ((4, None), (4, 4), (5, 4))))
  cycle = HMM(np.full(4, 0.25), np.roll(np.eye(4), 1, axis=1), np.eye(4, 5))
  for hmm in (dirichlet_hmm(rng, 4, 5), sure, cycle):
    assert_inference_agrees(hmm, rng.integers(6, size=(4, 5)).tolist())
  assert_inference_agrees(dense_hmm(rng, 2, per_memory=True, **SIZES), rng.integers(4, size=(4, 5)).tolist())
