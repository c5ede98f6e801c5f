"""Facts about the HMM: validation, the paper's draw, likelihood rows, and other libraries' formats."""

from dynamax.hidden_markov_model import CategoricalHMM
from hmm_cases import float32_hmm, sparse_hmm
import hmmlearn.hmm
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib, inference
from hmm_jax.hmm import HMM

pytestmark = pytest.mark.usefixtures('without_optimisation')


def test_validate_returns_self():
  """A well-formed HMM passes through, the paper's draw and one with zeros alike."""
  for hmm in (sparse_hmm(), hmm_lib.random_hmm(jax.random.key(0), 30, 10)):
    assert hmm.validate() is hmm


def wrong_fields():
  """(field, value, the start of what is said of it) for each way in which a field can be wrong."""
  shapes = {
    'initial_probs': [(2,), (3, 1)],
    'transition_matrix': [(3, 2), (4, 4)],
    'emission_matrix': [(4,), (0, 4), (3, 0)],
  }
  for field, probs in sparse_hmm()._asdict().items():
    yield from ((field, np.full(shape, 1 / max(1, shape[-1])), 'has shape') for shape in shapes[field])
    for change in (-0.1, np.nan, np.inf):
      # Though the row may still sum to 1.
      wrong = np.array(probs, np.float64)
      row = wrong.reshape(-1, wrong.shape[-1])[0]
      row[:2] = change, row[0] + row[1] - change
      yield field, wrong, 'has an entry'
    wrong = np.array(probs, np.float64)
    wrong.reshape(-1, wrong.shape[-1])[-1] *= 1.5
    yield field, wrong, 'has a row that sums to 1.5'


@pytest.mark.parametrize('field, value, said', [*wrong_fields()])
def test_validate_names_the_field_that_is_wrong(field, value, said):
  """A shape, an entry that is no probability and a row with another sum are reported by the name of the field."""
  with pytest.raises(ValueError, match=f'^{field} {said}'):
    sparse_hmm()._replace(**{field: value}).validate()


@pytest.mark.parametrize('num_states', [1, 4, 30])
def test_random_hmm_is_stochastic(num_states):
  """Rows sum to 1, and so do the transition matrix's columns: it is a mixture of permutations."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), num_states, 10).validate()
  assert (hmm.num_states, hmm.num_tokens) == (num_states, 10)
  np.testing.assert_allclose(hmm.transition_matrix.sum(0), 1, atol=1e-5)


@pytest.mark.parametrize('num_permutations', [1, 2, 3])
def test_number_of_permutations_bounds_the_support(num_permutations):
  """A mixture of k permutations has at most k successors per state; equally mixed, entries are multiples of 1 / k."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), 8, 10, num_permutations=num_permutations, transition_temperature=1e6)
  assert (np.asarray(hmm.transition_matrix) > 0).sum(1).max() <= num_permutations
  multiples = np.asarray(hmm.transition_matrix) * num_permutations
  np.testing.assert_allclose(multiples, multiples.round(), atol=1e-4)


def test_the_papers_draw_is_sparse_in_its_transitions():
  """As H permutations leave (1 - 1/H)^H of the entries 0, and weights that underflow more; every state can be first.

  Of the emissions those are 0 whose logits are 87 below the largest: of |X| = 10 about one in twenty.
  """
  drawn = [hmm_lib.random_hmm(jax.random.key(seed), 8, 10) for seed in range(40)]
  share = {name: np.mean([np.asarray(getattr(hmm, name)) == 0 for hmm in drawn]) for name in HMM._fields}
  assert (1 - 1 / 8) ** 8 - 0.02 < share['transition_matrix'] < 0.42
  assert share['initial_probs'] == 0
  assert 0.03 < share['emission_matrix'] < 0.07


def test_low_transition_temperature_leaves_one_permutation():
  """As the temperature of the mixing weights falls the transition matrix becomes a permutation matrix."""
  matrix = hmm_lib.random_hmm(jax.random.key(0), 8, 10, transition_temperature=1e-7).transition_matrix
  np.testing.assert_allclose(np.sort(matrix, axis=1), np.tile(np.eye(8)[-1], (8, 1)), atol=1e-5)


@pytest.mark.parametrize('field', ['initial', 'emission'])
def test_temperature_divides_the_logits(field):
  """Of one key, temperature times log probabilities are the same logits, spread over at most 1."""
  name = {'initial': 'initial_probs', 'emission': 'emission_matrix'}[field]
  logits = []
  for temperature in (0.5, 2.0):
    hmm = hmm_lib.random_hmm(jax.random.key(0), 6, 10, **{f'{field}_temperature': temperature})
    log_probs = np.log(getattr(hmm, name))
    logits.append(temperature * (log_probs - log_probs.max(-1, keepdims=True)))
  np.testing.assert_allclose(*logits, atol=1e-5)
  assert -1 <= logits[0].min() < -0.1


def test_random_hmm_depends_on_its_key_alone():
  """One key gives one HMM, another key changes every field, and no two rows of a draw are the same numbers."""
  draw = lambda seed: hmm_lib.random_hmm(
    jax.random.key(seed), 8, 8, initial_temperature=1.0, transition_temperature=1.0, emission_temperature=1.0
  )
  for ours, again, other in zip(draw(0), draw(0), draw(1)):
    np.testing.assert_array_equal(ours, again)
    assert np.abs(ours - other).max() > 1e-3
  rows = np.concatenate([draw(0).initial_probs[None], draw(0).emission_matrix])
  assert len(np.unique(rows.round(4), axis=0)) == 9


def test_token_likelihoods_are_emission_columns_or_ones():
  """An observed token is its column of the emission matrix; any other position, its id in range or not, is ones."""
  hmm = float32_hmm(0, 3, 4)
  tokens = jnp.array([[0, 3, 4], [2, 250, 1]], jnp.uint8)
  rows = hmm_lib.token_likelihoods(hmm, tokens, jnp.array([[True, True, False], [True, False, False]]))
  column = np.asarray(hmm.emission_matrix).T
  ones = np.ones(3)
  np.testing.assert_array_equal(rows, [[column[0], column[3], ones], [column[2], ones, ones]])


def loglik(hmm, tokens):
  return inference.forward_backward(hmm, hmm.emission_matrix.T[tokens]).marginal_loglik


def test_dynamax_round_trip():
  """dynamax's model of our parameters gives the same log-likelihood, and its parameters are ours again."""
  hmm, tokens = float32_hmm(0, 3, 4), np.random.default_rng(1).integers(4, size=20)
  model = CategoricalHMM(3, emission_dim=1, num_classes=4)
  parameters, _ = model.initialize(**hmm_lib.to_dynamax(hmm))
  theirs = model.marginal_log_prob(parameters, jnp.asarray(tokens)[:, None])
  np.testing.assert_allclose(loglik(hmm, tokens), theirs, rtol=1e-5)
  again = hmm_lib.from_dynamax(
    parameters.initial.probs, parameters.transitions.transition_matrix, parameters.emissions.probs
  )
  for ours, theirs in zip(hmm, again):
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize('shape', [(3, 4), (3, 2, 4)])
def test_from_dynamax_wants_one_emission_a_step(shape):
  """Emission probabilities of another rank, or of several emissions per step, are refused by name."""
  with pytest.raises(ValueError, match='^emission_probs has shape'):
    hmm_lib.from_dynamax(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), np.full(shape, 0.25))


def test_hmmlearn_round_trip():
  """hmmlearn's model of our parameters gives the same log-likelihood, and its attributes are ours again."""
  hmm, tokens = hmm_lib.random_hmm(jax.random.key(0), 4, 10), np.array([0, 3, 9, 9, 1, 2])
  model = hmmlearn.hmm.CategoricalHMM(n_components=4, n_features=10)
  attributes = hmm_lib.to_hmmlearn(hmm)
  for name, value in attributes.items():
    assert value.dtype == np.float64
    setattr(model, name, value)
  np.testing.assert_allclose(loglik(hmm, tokens), model.score(tokens[:, None]), rtol=1e-5)
  for ours, theirs in zip(hmm, hmm_lib.from_hmmlearn(**attributes)):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_from_hmmlearn_validates():
  """Attributes that are no distributions are refused by the name of our field."""
  with pytest.raises(ValueError, match='^transition_matrix has a row'):
    hmm_lib.from_hmmlearn(np.full(2, 0.5), np.ones((2, 2)), np.full((2, 3), 1 / 3))
