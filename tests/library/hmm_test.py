"""Facts about the HMM: validation, and the paper's draw."""

from inference_cases import SPARSE
import jax
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest

from hmm_jax.distributions import hmm as hmm_lib


@pytest.mark.parametrize('hmm', [SPARSE, dense_hmm(np.random.default_rng(0), 2)], ids=['states', 'a memory'])
def test_validate_names_the_field_that_is_wrong(hmm):
  """A shape, an entry that is no probability and a row with another sum are reported by the name of the field."""
  hmm.validate()
  for field in set(hmm._fields) - {'cell_index'}:
    probs = np.array(getattr(hmm, field), np.float64)
    negative, more = probs.copy(), probs.copy()
    negative.flat[:2] += [-2, 2]  # The row still sums to 1.
    more.flat[-1] += 0.5
    for wrong in (probs[..., :0], negative, more, np.full_like(probs, np.inf)):
      with pytest.raises(ValueError, match=f'^(the shape of )?{field} '):
        hmm._replace(**{field: wrong}).validate()


def test_the_papers_draw():
  """Transitions are a mixture of permutations, so that columns sum to 1 too; every state can be first.

  H permutations leave (1 - 1/H)^H of the entries 0, and weights that underflow more.
  """
  draw = jax.jit(jax.vmap(lambda key: hmm_lib.random_hmm(key, 8, 10)))
  drawn = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(0), 40)))
  for hmm in zip(*drawn):
    hmm_lib.HMM(*hmm).validate()
  np.testing.assert_allclose(drawn.transition_matrix.sum(1), 1, atol=1e-5)
  assert (1 - 1 / 8) ** 8 - 0.02 < (drawn.transition_matrix == 0).mean() < 0.42
  assert drawn.initial_probs.all()


@pytest.mark.slow
def test_temperature_divides_the_logits():
  """With one key, temperature times log probabilities are the same logits, within a range of 1, unequal across rows."""
  logits = []
  for t in (0.5, 2.0):
    hmm = hmm_lib.random_hmm(jax.random.key(0), 6, 6, initial_temperature=t, emission_temperature=t)
    logits.append(t * np.diff(np.log(np.vstack([hmm.initial_probs, hmm.emission_matrix]))))
  np.testing.assert_allclose(*logits, atol=1e-5)
  assert np.abs(logits[0]).max() <= 1 and len(np.unique(logits[0].round(4), axis=0)) == 7
