"""Processes of labelled matrices: beliefs over the states that were given, and processes made of others."""

import functools
import io
import itertools

from memory_hmm_cases import dense_hmm
import numpy as np
from oracles import beliefs_of_paths
import pytest

import hmm_jax as hj
from hmm_jax.distributions.files import load_distribution, save_distribution

P = hj.processes
pytestmark = pytest.mark.usefixtures('without_optimisation')

EVEN = P.even(0.3).transition_matrices
# State 2 leads to state 0 and is never entered.
WITH_A_STATE_BEFORE = np.pad(EVEN, ((0, 0), (0, 1), (0, 1)))
WITH_A_STATE_BEFORE[:, 2, 0] = 0.5


def _any_matrices():
  """T [3, 3, 3] with zeros, where tokens and states decide nothing of each other."""
  rng = np.random.default_rng(0)
  T = rng.random((3, 3, 3)) * (rng.random((3, 3, 3)) < 0.7)
  return T / T.sum((0, 2))[:, None]


CASES = {
  'even': (P.even(0.3), 4),
  'random_random_xor': (P.random_random_xor(0.7, 0.6), 3),
  'the next state decides the token': (
    hj.from_transition_matrices(P.mess3().transition_matrix * P.mess3().emission_matrix.T[:, None]),
    3,
  ),
  'from a law of its own': (hj.from_transition_matrices(_any_matrices(), [0.75, 0.25, 0]), 3),
  'a state that does not occur': (hj.from_transition_matrices(WITH_A_STATE_BEFORE), 3),
}


def _texts(num_tokens, length):
  return np.array(list(itertools.product(range(num_tokens), repeat=length)))


def _probs(process, texts):
  """pi T[x_1] ... T[x_n] 1 of each text."""
  T, start = P.edges(process)
  return [functools.reduce(np.matmul, T[text], start).sum() for text in texts]


def _beliefs(process, texts, causal=True):
  return np.array([beliefs_of_paths(*P.edges(process), text, causal) for text in texts])


@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize(('process', 'length'), CASES.values(), ids=CASES)
def test_beliefs_are_sums_over_paths_of_the_given_states(process, length, causal):
  """For every text with [MASK]s; zeros after impossible evidence."""
  T, texts = process.transition_matrices, _texts(process.num_tokens + 1, length)
  expected = [beliefs_of_paths(T, process.start_probs, text, causal) for text in texts]
  np.testing.assert_allclose(hj.beliefs(process, texts, causal=causal), expected, atol=1e-13)


@pytest.mark.parametrize('causal', [False, True])
def test_beliefs_stand_beside_the_rows_of_a_model(causal):
  """A causal belief gives the next token's law; those of an HMM and of a memory are the exact model's own."""
  model, texts = hj.ExactModel(2, causal), _texts(3, 4)
  even = P.even(0.3)
  if causal:
    token_probs = hj.token_probs(model, even, texts)
    np.testing.assert_allclose(hj.beliefs(even, texts, causal=True) @ EVEN.sum(2).T, token_probs, atol=1e-6)
  for hmm in (P.named('left_to_right:num_states=2'), dense_hmm(np.random.default_rng(0), 2, num_tokens=2)):
    expected = hj.activations(model, hmm, texts)['beliefs']
    np.testing.assert_allclose(hj.beliefs(hmm, texts, causal=causal), expected, atol=1e-6)


def test_matrices_stay_in_files(tmp_path):
  """Those of distributions, models and activations; beliefs in the last are over the states that were given."""
  process, texts = hj.from_transition_matrices(EVEN, [0.25, 0.75]), _texts(2, 4)
  for name in ('even.json', 'even.npz'):
    save_distribution(tmp_path / name, process)
    for loaded, saved in zip(load_distribution(tmp_path / name), process, strict=True):
      np.testing.assert_array_equal(loaded, saved)
  hj.save(tmp_path / 'model', hj.ExactModel(2), process)
  np.testing.assert_array_equal(hj.load(tmp_path / 'model')[1].transition_matrices, EVEN)
  file = io.BytesIO()
  hj.save_activations(file, hj.ExactModel(2, causal=True), process, texts, process, layers=[])
  arrays = np.load(io.BytesIO(file.getvalue()))
  np.testing.assert_array_equal(arrays['transition_matrices'], EVEN)
  np.testing.assert_array_equal(arrays['beliefs'], hj.beliefs(process, texts, causal=True))


def test_a_text_with_bos_goes_on_as_the_process():
  """It begins with token V, and the beliefs after it are those of the process."""
  process, texts = P.with_bos(EVEN), _texts(2, 4)
  texts_with_bos = np.insert(texts, 0, 2, axis=1)
  np.testing.assert_allclose(_probs(process, texts_with_bos), _probs(EVEN, texts), atol=1e-15)
  beliefs = _beliefs(process, texts_with_bos)
  np.testing.assert_allclose(beliefs[:, 1:, :2], _beliefs(EVEN, texts), atol=1e-14)
  assert (beliefs[:, 0] == [0, 0, 1]).all()


@pytest.mark.parametrize('causal', [False, True])
def test_factors_of_a_product_keep_their_beliefs(causal):
  """Each has those of its own text."""
  factors = P.mess3(), EVEN
  process, texts = P.product(*factors), np.random.default_rng(0).integers(6, size=(20, 4))
  beliefs = P.factor_probs(_beliefs(process, texts, causal), (3, 2))
  for factor, of_factor, belief in zip(factors, np.unravel_index(texts, (3, 2)), beliefs, strict=True):
    np.testing.assert_allclose(belief, _beliefs(factor, of_factor, causal) * belief.any(-1, keepdims=True), atol=1e-14)


def test_a_text_tells_which_process_of_a_mixture_it_is_of():
  """By Bayes' rule from the probabilities of the text in each."""
  parts, weights = [P.golden_mean(0.3), EVEN, P.random_random_xor()], np.array([0.5, 0.2, 0.3])
  process, texts = P.mixture(parts, weights), _texts(2, 4)
  joint = weights * np.stack([_probs(part, texts) for part in parts], axis=-1)
  np.testing.assert_allclose(_probs(process, texts), joint.sum(-1), atol=1e-15)
  after_the_text = _beliefs(process, np.insert(texts, 4, 2, axis=1))[:, -1]
  posterior = P.component_probs(after_the_text, (2, 2, 5))
  np.testing.assert_allclose(posterior * joint.sum(-1, keepdims=True), joint, atol=1e-15)


def test_a_mixture_needs_one_vocabulary_and_probabilities():
  for parts, weights in (([P.mess3(), P.even()], [0.5, 0.5]), ([P.even(), P.even()], [0.5, 0.6])):
    with pytest.raises(ValueError, match='processes have|weights has'):
      P.mixture(parts, weights)


def test_a_named_process_takes_parameters():
  np.testing.assert_array_equal(P.named('left_to_right:num_states=3:stay=0.5')[1], P.left_to_right(3, 0.5)[1])
  assert P.named('mess4') is None
  for word, error in (('mess3:beta=1', TypeError), ('mess3:alpha', ValueError), ('mess3:alpha=2', ValueError)):
    with pytest.raises(error):
      P.named(word)
