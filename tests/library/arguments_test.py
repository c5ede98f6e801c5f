"""No silent mistake: what public functions say of ids, rows, weights and shapes that are wrong."""

import re

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import pytest

import hmm_jax as hj
from hmm_jax import tuning
from hmm_jax.inference import last_filtered

pytestmark = pytest.mark.usefixtures('without_optimisation')

HIDDEN = jax.tree.map(np.asarray, float32_hmm(0, 3, 4))
MEMORY = float32(dense_hmm(np.random.default_rng(1), 1))
TOKENS, OBSERVED = np.int32([[0, 3, 2, 1], [1, 0, 2, 2]]), np.ones((2, 4), bool)
ROWS = np.asarray(HIDDEN.emission_matrix).T[TOKENS]
OFF = HIDDEN._replace(transition_matrix=HIDDEN.transition_matrix + 0.1 * np.eye(3, dtype=np.float32))
KEY = jax.random.key(0)
WRONG_ID = np.int32([[0, 3, 2, 1], [1, 4, 2, 2]])


def _epoch(labels):
  """An epoch of two tasks on five inputs, whose labels are looked at first."""
  state = tuning.TuneState(np.zeros((2, 1)), (), np.int32(0))
  tuning.tune_epoch(state, jax.random.key(0), None, None, (), np.zeros((5, 4)), labels)


def _prompted(model, params, width):
  model.predict_prompted(params, np.ones((2, 1, width), np.float32), TOKENS, np.array([1]))


@pytest.mark.parametrize(
  ('sentence', 'call'),
  [
    ('tokens contain 4; valid are integers from 0 to 3', lambda: hj.token_likelihoods(HIDDEN, WRONG_ID, OBSERVED)),
    ('tokens contain -1; valid', lambda: hj.token_likelihoods(HIDDEN, jnp.int32([-1]), jnp.ones(1, bool))),
    ('tokens contain 5; valid are integers from 0 to 4', lambda: hj.token_probs(hj.ExactModel(4), HIDDEN, TOKENS + 2)),
    (
      'positions contain 4; valid are integers from 0 to 3',
      lambda: hj.token_probs(hj.ExactModel(4), HIDDEN, TOKENS, [4]),
    ),
    ('transition_matrix has a row that sums to 1.1; valid is 1', lambda: hj.forward_backward(OFF, ROWS)),
    ('memory_probs has a row that sums to 2', lambda: hj.to_hmm(MEMORY._replace(memory_probs=jnp.ones(2)))),
    (
      'likelihoods contain -1.0; valid are finite numbers of at least 0',
      lambda: last_filtered(HIDDEN, -np.ones((2, 3))),
    ),
    ('likelihoods contain nan; valid', lambda: hj.cell_posterior(MEMORY, likelihoods=jnp.full((2, 6), jnp.nan))),
    ('likelihoods contain -1; valid', lambda: hj.forward_backward(HIDDEN, [[1, 1, -1]])),
    ('likelihoods have shape (3,); valid is [..., T, 3]', lambda: hj.forward_backward(HIDDEN, np.ones(3))),
    ('likelihoods have shape (3,); valid is [T, 3]', lambda: hj.most_likely_states(HIDDEN, np.ones(3))),
    ('tokens are of type float64; valid are integers', lambda: hj.token_likelihoods(HIDDEN, [1.5], [1])),
    ('task_weights have shape (1, 3); valid is', lambda: hj.DownstreamTask(np.ones((1, 3)), KEY).examples(HIDDEN)),
    ('task_weights have an entry that', lambda: hj.DownstreamTask(np.full((2, 3), np.nan), KEY).examples(HIDDEN)),
    ('steps is 1.5; valid', lambda: hj.pretrain(HIDDEN, KEY, steps=1.5)),
    ('num_tokens 7; valid is 4', lambda: hj.token_probs(hj.ExactModel(7), HIDDEN, TOKENS)),
    ('a prompt have shape (2, 1, 5); valid is [..., 3]', lambda: _prompted(hj.ExactModel(4), HIDDEN, 5)),
    (
      'a prompt have shape (2, 1, 1, 1); valid is [..., 8]',
      lambda: _prompted(hj.BertModel(SMALLEST), random_params(SMALLEST), 1),
    ),
    ('labels have shape (1, 5); valid is (2, 5), tasks and inputs', lambda: _epoch(np.zeros((1, 5), int))),
  ],
)
def test_what_is_wrong_is_refused(sentence, call):
  """In a sentence that names the argument or field, its value and what is valid."""
  with pytest.raises(ValueError, match=re.escape(sentence)):
    call()


def test_lists_are_arrays():
  """A distribution, tokens and what is observed may be lists, and give what the arrays give."""
  listed = hj.MemoryHMM(*(np.asarray(x).tolist() for x in MEMORY))
  rows = hj.token_likelihoods(listed, TOKENS[0].tolist(), OBSERVED[0].tolist())
  expected = hj.token_likelihoods(MEMORY, TOKENS[0], OBSERVED[0])
  np.testing.assert_array_equal(rows, expected)
  found = hj.forward_backward(listed, np.asarray(rows).tolist()).smoothed_probs
  np.testing.assert_array_equal(found, hj.forward_backward(MEMORY, expected).smoothed_probs)


def test_what_is_not_observed_may_be_any_id():
  """[MASK], or what fills up a ragged text, is a row of ones, and slopes by the parameters stay finite."""
  observed = np.array([[True, False, True, False]])
  rows = lambda hmm: hj.token_likelihoods(hmm, np.int32([[0, 4, 2, -7]]), observed)
  np.testing.assert_array_equal(rows(HIDDEN)[0, 1::2], 1)
  slopes = jax.jit(jax.grad(lambda hmm: rows(hmm).sum()))(HIDDEN)
  np.testing.assert_array_equal(slopes.emission_matrix, np.tile([1, 0, 1, 0], (3, 1)))


def test_inside_of_jit_an_impossible_id_makes_nan_and_no_neighbour_differs():
  """No row of another token: the evidence and the posteriors of that text are NaN, those of the other as without it."""
  posterior = jax.jit(lambda tokens: hj.forward_backward(HIDDEN, hj.token_likelihoods(HIDDEN, tokens, OBSERVED)))
  for wrong in (4, -1):
    found = posterior(np.where(WRONG_ID == 4, wrong, WRONG_ID))
    assert np.isnan(found.marginal_loglik[1]) and np.isnan(found.smoothed_probs[1]).all()
    np.testing.assert_array_equal(found.smoothed_probs[0], posterior(TOKENS).smoothed_probs[0])
