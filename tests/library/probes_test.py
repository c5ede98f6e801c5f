"""Probes: fits by formulas where the truth is planted, controls, and what is refused."""

import jax
import numpy as np
import pytest
import scipy.special

import hmm_jax as hj
from hmm_jax.layers import probes
from hmm_jax.tuning import token_readers

H, V = 3, 4
RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
BELIEFS = RNG.dirichlet(np.ones(H), 500)


def planted(kind, draws, scale=1.0):
  """Features, 20 of noise and two times .01 that decide the targets."""
  features = draws.normal(size=(400, 22)) * np.repeat([1, 0.01], [20, 2])
  targets = 100 * features[:, 20:] @ draws.normal(size=(2, H))
  return scale * features, scipy.special.softmax(targets, axis=1) if kind == 'softmax' else targets


@pytest.mark.parametrize('kind', ['affine', 'softmax'])
@pytest.mark.parametrize('scale', [1, 1e-170, 1e160, 10.0 ** np.arange(-11, 11)])
def test_small_features_are_read_beside_large_ones_in_any_unit(scale, kind):
  """Signals of .01 beside noise of 1, exactly linear: the loss on validation texts falls at the weakest penalties."""
  assert hj.probe(*planted(kind, np.random.default_rng(0), scale), KEY, kind=kind).r_squared > 1 - 1e-8


def test_validation_chooses_the_ridge_and_test_texts_the_score(monkeypatch):
  """By normal equations on more noise than 30 training texts can average out; these themselves ask for the least."""
  parts, draws = np.split(np.arange(90), [30, 60]), np.random.default_rng(0)
  monkeypatch.setattr(probes, '_split', lambda *_: parts)
  features = draws.normal(size=(90, 25))
  targets = features[:, :1] + 2 * draws.normal(size=(90, 1))
  train, validation, test = parts
  rows = (features - features[train].mean(0)) / features[train].std(0)
  mean, moments = targets[train].mean(), rows[train].T @ np.hstack([rows[train], targets[train]]) / 30
  solved = lambda ridge: np.linalg.solve(moments[:, :-1] + ridge * np.eye(25), moments[:, -1:])
  of_ridge = {ridge: solved(ridge) for ridge in (1, 0.01, 1e-12)}
  squares = lambda texts, weights: np.square(targets[texts] - mean - rows[texts] @ weights).mean()
  best = min(of_ridge, key=lambda ridge: squares(validation, of_ridge[ridge]))
  found = hj.probe(features, targets, KEY)
  assert found.penalty == best == 1
  assert found.r_squared == pytest.approx(1 - squares(test, of_ridge[best]) / targets[test].var())


def test_shuffled_beliefs_have_no_r_squared():
  """Fitting 6 numbers to 300 rows costs some; unshuffled the fit is exact."""
  draws = [hj.probe(BELIEFS[:, :2], BELIEFS, KEY, shuffled=shuffled).r_squared for shuffled in (True, False)]
  assert abs(draws[0]) < 0.1 and draws[1] > 0.999


def test_a_softmax_probe_recovers_a_planted_one():
  """Its probabilities are the targets, at every position of a text."""
  draws = np.random.default_rng(1)
  weights, features = draws.normal(size=(2, H)), draws.normal(size=(100, 4, 2)) * [1, 10] + 3
  targets = scipy.special.softmax(features @ weights, axis=-1)
  found = hj.probe(features, targets, KEY, kind='softmax')
  assert 0 <= found.kl < 1e-6
  np.testing.assert_allclose(found(features), targets, atol=1e-3)


def test_a_table_is_a_reader_without_a_model():
  """Beliefs that two tokens decide: the table of three tokens is exact."""
  tokens = RNG.integers(V, size=(2000, 3))
  targets = np.eye(V)[(tokens[:, 1] + tokens[:, 2]) % V]
  table = hj.probe(token_readers.tokens_around(tokens, V, 1)[:, 2], targets, KEY, kind='table')
  assert table.r_squared > 0.999 and table.kl < 0.01


def test_means_of_a_table_shrink_to_those_of_shorter_sequences():
  """By hand: M_0 = mean of all; two share one token, one shares two; a third token that all share changes nothing."""
  train, targets, prior = np.array([[0, 0, 7], [0, 1, 7], [1, 1, 7]]), np.array([[0.0], [3.0], [6.0]]), 2.0
  first = (3 + prior * 3) / (2 + prior)
  expected = [(3 + prior * first) / (1 + prior), first, 3]
  found = token_readers.table_means(train, targets, np.array([[0, 1, 7], [0, 2, 7], [2, 2, 7]]), prior=prior)
  np.testing.assert_allclose(found.ravel(), expected)
