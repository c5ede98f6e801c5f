"""Facts about the HMM: validation, the paper's draw, the exact G, and other libraries' formats."""

from conftest import dirichlet_hmm, in_float64, path_probs
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


@pytest.mark.parametrize(
  'field, shape',
  [
    ('initial_probs', (2,)),
    ('initial_probs', (3, 1)),
    ('transition_matrix', (3, 2)),
    ('transition_matrix', (4, 4)),
    ('emission_matrix', (4,)),
    ('emission_matrix', (0, 4)),
    ('emission_matrix', (3, 0)),
  ],
)
def test_validate_names_the_field_of_the_wrong_shape(field, shape):
  """A shape that does not fit the others is reported under its own name."""
  with pytest.raises(ValueError, match=rf'^{field} has shape'):
    sparse_hmm()._replace(**{field: np.full(shape, 1 / max(1, shape[-1]))}).validate()


@pytest.mark.parametrize('field', HMM._fields)
@pytest.mark.parametrize('change', [-0.1, np.nan, np.inf], ids=['negative', 'nan', 'inf'])
def test_validate_names_the_field_of_a_wrong_entry(field, change):
  """An entry that is no probability is reported, though the row may still sum to 1."""
  probs = np.array(getattr(sparse_hmm(), field), np.float64)
  row = probs.reshape(-1, probs.shape[-1])[0]
  row[1] += row[0] - change
  row[0] = change
  with pytest.raises(ValueError, match=rf'^{field} has an entry'):
    sparse_hmm()._replace(**{field: probs}).validate()


@pytest.mark.parametrize('field', HMM._fields)
def test_validate_names_the_field_of_a_wrong_sum(field):
  """A row that sums to other than 1 is reported with its sum."""
  probs = np.array(getattr(sparse_hmm(), field), np.float64)
  probs.reshape(-1, probs.shape[-1])[-1] *= 1.5
  with pytest.raises(ValueError, match=rf'^{field} has a row that sums to 1.5'):
    sparse_hmm()._replace(**{field: probs}).validate()


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


def enumerated_conditional(hmm, tokens):
  """P[X_i = v | x_{-i}] as the evidence with x_i = v over the evidence without x_i, [T, V]."""
  rows = hmm.emission_matrix.T[tokens]

  def evidence(i, row):
    replaced = rows.copy()
    replaced[i] = row
    return path_probs(hmm, replaced).sum()

  columns = hmm.emission_matrix.T
  return np.array(
    [
      [evidence(i, column) / max(evidence(i, np.ones(len(column))), 1e-300) for column in columns]
      for i in range(len(tokens))
    ]
  )


def exact_g(hmm, tokens):
  tokens = jnp.asarray(tokens)
  return hmm_lib.conditional_token_probs(hmm, hmm_lib.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool)))


def test_conditional_token_probs_equal_enumeration():
  """Row i of G is P[X_i | X_{-i}], a ratio of two sums over state paths."""
  rng = np.random.default_rng(0)
  hmm, tokens = dirichlet_hmm(rng, 3, 4), rng.integers(4, size=5)
  np.testing.assert_allclose(in_float64(exact_g, hmm, tokens), enumerated_conditional(hmm, tokens), rtol=0, atol=1e-12)


def test_conditional_token_probs_ignore_their_own_token():
  """Changing x_i leaves row i of G, and moves other rows; leading axes are batches."""
  hmm, tokens = float32_hmm(0, 3, 4), np.array([0, 1, 2, 3, 0])
  changed = np.tile(tokens, (5, 1))
  changed[np.arange(5), np.arange(5)] = (tokens + 1) % 4
  plain, batch = exact_g(hmm, tokens), exact_g(hmm, changed)
  assert batch.shape == (5, 5, 4)
  np.testing.assert_allclose(batch[np.arange(5), np.arange(5)], plain, rtol=0, atol=1e-6)
  assert all(np.abs(np.delete(batch[i] - plain, i, 0)).max() > 1e-3 for i in range(5))


def test_conditional_token_probs_are_zero_on_impossible_evidence():
  """Where X_{-i} cannot occur row i of G is 0; where leaving out x_i makes it possible the row is a distribution."""
  hmm = HMM(jnp.array([0.5, 0.5]), jnp.eye(2), jnp.eye(2))
  np.testing.assert_array_equal(exact_g(hmm, [0, 0, 1, 0]), [[0, 0], [0, 0], [1, 0], [0, 0]])


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
