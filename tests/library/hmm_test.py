"""Facts about the HMM: validation, the paper's draw, and other libraries' formats."""

from inference_cases import SPARSE
import jax
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.parametrize('hmm', [SPARSE, dense_hmm(np.random.default_rng(0), 2)], ids=['states', 'a memory'])
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
  """Of one key, temperature times log probabilities are the same logits, spread over at most 1, other for each row.

  At a low temperature one permutation is left.
  """
  logits = []
  for t in (0.5, 2.0):
    temperatures = dict(initial_temperature=t, transition_temperature=1e-7, emission_temperature=t)
    hmm = hmm_lib.random_hmm(jax.random.key(0), 6, 6, **temperatures)
    logits.append(t * np.diff(np.log(np.vstack([hmm.initial_probs, hmm.emission_matrix]))))
  np.testing.assert_allclose(*logits, atol=1e-5)
  assert np.abs(logits[0]).max() <= 1 and len(np.unique(logits[0].round(4), axis=0)) == 7
  np.testing.assert_allclose(np.sort(hmm.transition_matrix), np.tile(np.eye(6)[-1], (6, 1)), atol=1e-5)


def test_random_hmm_depends_on_its_key_alone():
  """One key gives one HMM, another key changes every field."""
  first, again, other = (hmm_lib.random_hmm(jax.random.key(seed), 8, 8, num_permutations=3) for seed in (0, 0, 1))
  for field, same, changed in zip(first, again, other):
    np.testing.assert_array_equal(field, same)
    assert np.abs(field - changed).max() > 1e-3


def test_parameters_of_other_libraries_are_validated():
  """They are refused by the name of our field; several emissions per step are none of ours."""
  with pytest.raises(ValueError, match='^transition_matrix '):
    hmm_lib.from_hmmlearn(np.full(2, 0.5), np.ones((2, 2)), np.full((2, 3), 1 / 3))
  with pytest.raises(ValueError, match='^emission_probs '):
    hmm_lib.from_dynamax(np.full(2, 0.5), np.full((2, 2), 0.5), np.full((2, 2, 4), 0.25))
