"""Facts about the HMM: validation, the paper's draw, likelihood rows, and other libraries' formats."""

from dynamax.hidden_markov_model import CategoricalHMM
from hmm_cases import float32_hmm, sparse_hmm
import hmmlearn.hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib, inference

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.parametrize('hmm', [sparse_hmm(), dense_hmm(np.random.default_rng(0), 2)], ids=['states', 'a memory'])
def test_validate_names_the_field_that_is_wrong(hmm):
  """A shape, an entry that is no probability and a row with another sum are reported by the name of the field."""
  assert hmm.validate() is hmm
  for field in set(hmm._fields) - {'cell_index'}:
    probs = np.array(getattr(hmm, field), np.float64)
    negative, more = probs.copy(), probs.copy()
    negative.flat[:2] += [-2, 2]  # The row still sums to 1.
    more.flat[-1] += 0.5
    for wrong in (probs[..., :0], probs[None], negative, more, np.full_like(probs, np.inf)):
      with pytest.raises(ValueError, match=f'^{field} has'):
        hmm._replace(**{field: wrong}).validate()


def test_the_papers_draw():
  """Transitions are a mixture of permutations, so that columns sum to 1 too; every state can be first.

  H permutations leave (1 - 1/H)^H of the entries 0, and weights that underflow more. Of the emissions those are 0 whose
  logits are 87 below the largest: of |X| = 10 about one in twenty.
  """
  drawn = [hmm_lib.random_hmm(jax.random.key(seed), 8, 10).validate() for seed in range(40)]
  initial, transitions, emissions = (np.stack([hmm[i] for hmm in drawn]) for i in range(3))
  np.testing.assert_allclose(transitions.sum(1), 1, atol=1e-5)
  assert (1 - 1 / 8) ** 8 - 0.02 < (transitions == 0).mean() < 0.42
  assert initial.all() and 0.03 < (emissions == 0).mean() < 0.07


@pytest.mark.parametrize('num_permutations', [1, 3])
def test_number_of_permutations_bounds_the_support(num_permutations):
  """A mixture of k permutations has at most k successors per state; equally mixed, entries are multiples of 1 / k."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), 8, 10, num_permutations=num_permutations, transition_temperature=1e6)
  assert (np.asarray(hmm.transition_matrix) > 0).sum(1).max() == num_permutations
  multiples = np.asarray(hmm.transition_matrix) * num_permutations
  np.testing.assert_allclose(multiples, multiples.round(), atol=1e-4)


def test_temperature_divides_the_logits():
  """Of one key, temperature times log probabilities are the same logits, spread over at most 1.

  As the temperature of the mixing weights falls one permutation is left.
  """
  logits, temperatures = [], (0.5, 2.0)
  for t in temperatures:
    hmm = hmm_lib.random_hmm(
      jax.random.key(0), 6, 10, transition_temperature=1e-7, initial_temperature=t, emission_temperature=4 * t
    )
    log_probs = [np.log(hmm.initial_probs) * t, *(np.log(hmm.emission_matrix) * 4 * t)]
    logits.append(np.concatenate([x - x.max() for x in log_probs]))
  np.testing.assert_allclose(*logits, atol=1e-5)
  assert -1 <= logits[0].min() < -0.1
  np.testing.assert_allclose(np.sort(hmm.transition_matrix), np.tile(np.eye(6)[-1], (6, 1)), atol=1e-5)


def test_random_hmm_depends_on_its_key_alone():
  """One key gives one HMM, another key changes every field, and no two rows of a draw are the same numbers."""
  temperatures = dict(initial_temperature=1.0, transition_temperature=1.0, emission_temperature=1.0)
  first, again, other = (hmm_lib.random_hmm(jax.random.key(seed), 8, 8, **temperatures) for seed in (0, 0, 1))
  for field, same, changed in zip(first, again, other):
    np.testing.assert_array_equal(field, same)
    assert np.abs(field - changed).max() > 1e-3
  rows = np.concatenate([first.initial_probs[None], first.emission_matrix])
  assert len(np.unique(rows.round(4), axis=0)) == 9


def test_token_likelihoods_are_emission_columns_or_ones():
  """An observed token is its column of the emission matrix; any other position, its id in range or not, is ones."""
  hmm = float32_hmm(0, 3, 4)
  tokens = jnp.array([[0, 3, 4], [2, 250, 1]], jnp.uint8)
  rows = hmm_lib.token_likelihoods(hmm, tokens, jnp.array([[True, True, False], [True, False, False]]))
  column, ones = np.asarray(hmm.emission_matrix).T, np.ones(3)
  np.testing.assert_array_equal(rows, [[column[0], column[3], ones], [column[2], ones, ones]])


def test_other_libraries_round_trip():
  """Models of dynamax and hmmlearn of our parameters have our log-likelihood, and their parameters are ours again."""
  hmm, tokens = float32_hmm(0, 3, 4), np.random.default_rng(1).integers(4, size=20)
  loglik = inference.forward_backward(hmm, hmm.emission_matrix.T[tokens]).marginal_loglik
  parameters, _ = CategoricalHMM(3, emission_dim=1, num_classes=4).initialize(**hmm_lib.to_dynamax(hmm))
  theirs = CategoricalHMM(3, emission_dim=1, num_classes=4).marginal_log_prob(parameters, jnp.asarray(tokens)[:, None])
  np.testing.assert_allclose(loglik, theirs, rtol=1e-5)
  of_dynamax = parameters.initial.probs, parameters.transitions.transition_matrix, parameters.emissions.probs
  model, attributes = hmmlearn.hmm.CategoricalHMM(n_components=3, n_features=4), hmm_lib.to_hmmlearn(hmm)
  for name, value in attributes.items():
    setattr(model, name, value)
  np.testing.assert_allclose(loglik, model.score(tokens[:, None]), rtol=1e-5)
  for again in (hmm_lib.from_dynamax(*of_dynamax), hmm_lib.from_hmmlearn(**attributes)):
    for mine, other in zip(hmm, again, strict=True):
      np.testing.assert_allclose(mine, other, rtol=0, atol=1e-6)


def test_parameters_of_other_libraries_are_validated():
  """They are refused by the name of our field; several emissions per step are none of ours."""
  with pytest.raises(ValueError, match='^transition_matrix has a row'):
    hmm_lib.from_hmmlearn(np.full(2, 0.5), np.ones((2, 2)), np.full((2, 3), 1 / 3))
  for shape in ((3, 4), (3, 2, 4)):
    with pytest.raises(ValueError, match='^emission_probs has shape'):
      hmm_lib.from_dynamax(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), np.full(shape, 0.25))
