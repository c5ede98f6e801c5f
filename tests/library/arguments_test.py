"""Public functions refuse wrong ids, rows, weights and shapes."""

from fractions import Fraction

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.sparse

import hmm_jax as hj
from hmm_jax.inference import pairs
from hmm_jax.models import bayes_gap, masking, model as model_lib
from hmm_jax.tuning import heads, tasks, token_readers, tuner as tuner_lib

pytestmark = pytest.mark.usefixtures('without_optimisation')

HIDDEN = jax.tree.map(np.asarray, float32_hmm(0, 3, 4))
MEMORY = float32(dense_hmm(np.random.default_rng(1), 1))
TOKENS, OBSERVED = np.int32([[0, 3, 2, 1], [1, 0, 2, 2]]), np.ones((2, 4), bool)
ROWS = np.asarray(HIDDEN.emission_matrix).T[TOKENS]
OFF = HIDDEN._replace(transition_matrix=HIDDEN.transition_matrix + 0.1 * np.eye(3, dtype=np.float32))
KEY = jax.random.key(0)
TOO_MUCH = masking.Corruption(4, mask_rate=1.0, mask_share=0.8, random_share=0.3)
OWN_TASK = hj.DownstreamTask(np.eye(2, 3), KEY)
WRONG_ID = np.int32([[0, 3, 2, 1], [1, 4, 2, 2]])


def _epoch(labels):
  """An epoch of two tasks on five inputs, whose labels are looked at first."""
  state = tuner_lib.TuneState(np.zeros((2, 1)), (), np.int32(0))
  tuner_lib.tune_epoch(state, jax.random.key(0), None, None, (), np.zeros((5, 4)), labels)


def _prompted(model, params, width):
  model.predict_prompted(params, np.ones((2, 1, width), np.float32), TOKENS, np.array([1]))


def _probs(tokens, *positions):
  return hj.token_probs(hj.ExactModel(4), HIDDEN, tokens, *positions)


@pytest.mark.parametrize(
  ('name', 'call'),
  [
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, WRONG_ID, OBSERVED)),
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, jnp.int32([-1]), jnp.ones(1, bool))),
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, [1.5], [1])),
    ('tokens', lambda: _probs(TOKENS + 2)),
    ('positions', lambda: _probs(TOKENS, [4])),
    ('positions', lambda: _probs(TOKENS, [-1])),
    ('transition_matrix', lambda: hj.forward_backward(OFF, ROWS)),
    ('memory_probs', lambda: hj.to_hmm(MEMORY._replace(memory_probs=jnp.ones(2)))),
    ('likelihoods', lambda: hj.cell_posterior(MEMORY, likelihoods=jnp.full((2, 6), jnp.nan))),
    ('likelihoods', lambda: hj.forward_backward(HIDDEN, [[1, 1, -1]])),
    ('likelihoods', lambda: hj.forward_backward(HIDDEN, np.ones(3))),
    ('between', lambda: pairs.probs_before(HIDDEN, -np.ones_like(ROWS), ROWS)),
    ('task_weights', lambda: hj.DownstreamTask(np.ones((1, 3)), KEY).examples(HIDDEN)),
    ('task_weights', lambda: hj.DownstreamTask(np.full((2, 3), np.nan), KEY).examples(HIDDEN)),
    ('steps', lambda: hj.pretrain(HIDDEN, KEY, steps=1.5)),
    ('learning_rate', lambda: hj.pretrain(HIDDEN, KEY, learning_rate=-1.0)),
    ('learning_rate', lambda: hj.pretrain(HIDDEN, KEY, learning_rate=optax.constant_schedule(1.0))),
    ('optimizer', lambda: hj.pretrain(HIDDEN, KEY, optimizer=optax.adam)),
    ('corpus', lambda: hj.pretrain(HIDDEN, KEY, corpus=np.zeros((1, 4, 8), int))),
    ('corpus', lambda: hj.pretrain(HIDDEN, KEY, corpus=np.zeros((0, 8), int))),
    ('document_length', lambda: hj.pretrain(HIDDEN, KEY, document_length=10**9)),
    ('task and inputs', lambda: hj.tune(hj.ExactModel(HIDDEN.num_tokens), HIDDEN, HIDDEN, OWN_TASK, inputs=TOKENS)),
    ('the model has num_tokens', lambda: hj.token_probs(hj.ExactModel(7), HIDDEN, TOKENS)),
    ('embeddings or a prompt', lambda: _prompted(hj.BertModel(SMALLEST), random_params(SMALLEST), 1)),
    ('length', lambda: hj.sample(KEY, HIDDEN, length=10**12)),
    ('num_states', lambda: hj.random_hmm(KEY, 10**9, 4)),
    ('emission_temperature', lambda: hj.random_hmm(KEY, 3, 4, emission_temperature=float('nan'))),
    ('params', lambda: hj.tune(hj.BertModel(SMALLEST), {}, HIDDEN, OWN_TASK)),
    ('task', lambda: hj.tune(hj.BertModel(SMALLEST), {}, HIDDEN, None)),
    ('labels', lambda: _epoch(np.zeros((1, 5), int))),
    ('place', lambda: model_lib.prepend(np.ones((1, 1)), np.ones((1, 4, 1)), 4)),
    ('hidden', lambda: tasks.hide(TOKENS, 4, 4)),
    ('documents', lambda: bayes_gap.ideal_next_tokens(HIDDEN, WRONG_ID)),
    ('hmm', lambda: hj.to_dynamax(MEMORY)),
    ('mask_share', lambda: masking.corrupt(KEY, TOO_MUCH, TOKENS)),
    ('temperature', lambda: heads.softmax_or_argmax(np.ones(3), -1)),
  ],
)
def test_wrong_arguments_are_refused_by_their_names(name, call):
  with pytest.raises(ValueError, match=f'^{name}\\b'):
    call()


SQUARES = np.array([[0.5, 0.5], [0.25, 0.75]])
CONTAINERS = {
  'a list of rows': [jnp.asarray(row) for row in SQUARES],
  'a table': pd.DataFrame(SQUARES),
  'fractions': [[Fraction(1, 2), 0.5], [Fraction(1, 4), Fraction(3, 4)]],
  'foreign bytes': SQUARES.astype('>f8'),
}


def _tensor():
  torch = pytest.importorskip('torch')
  return torch.tensor(SQUARES, dtype=torch.bfloat16, requires_grad=True)


@pytest.mark.parametrize(
  'make',
  [*(lambda x=x: x for x in CONTAINERS.values()), pytest.param(_tensor, marks=pytest.mark.parity)],
  ids=[*CONTAINERS, 'a tensor'],
)
def test_equal_numbers_are_the_same_array(make):
  """As a field that is validated and used, and as an argument, regardless of earlier compilation."""
  x, plain = make(), hj.HMM(SQUARES[0], SQUARES, SQUARES)
  expected, given = hj.forward_backward(plain, SQUARES), hj.HMM(SQUARES[0], x, x)
  for posterior in (hj.forward_backward(given, SQUARES), hj.forward_backward(plain, x)):
    np.testing.assert_allclose(posterior.smoothed_probs, expected.smoothed_probs, 1e-6)
  likelihoods = [hj.token_likelihoods(hmm, np.arange(2), np.ones(2, bool)) for hmm in (given, plain)]
  np.testing.assert_array_equal(*likelihoods)


REFUSED = {
  'masked': np.ma.array(SQUARES, mask=SQUARES > 0.7),
  'masked rows': [np.ma.array(row, mask=row > 0.7) for row in SQUARES],
  'sparse': scipy.sparse.csr_array(SQUARES),
  'complex': SQUARES.astype(complex),
  'below the least float64': [[0.5, Fraction(1, 10**400)], [0.25, 0.75]],
  'a key': KEY,
  'objects': np.array([[None, 0.5], ['0.25', 0.75]]),
  'infinite': np.array([[0.5, np.inf], [0.25, 0.75]]),
}


@pytest.mark.parametrize('x', REFUSED.values(), ids=REFUSED)
def test_a_lossy_conversion_is_refused(x):
  """By the name of the argument or field, also after a plain call of that shape has been compiled."""
  plain = hj.HMM(SQUARES[0], SQUARES, SQUARES)
  hj.forward_backward(plain, SQUARES)
  with pytest.raises(ValueError, match='likelihoods'):
    hj.forward_backward(plain, x)
  with pytest.raises(ValueError, match='emission_matrix'):
    plain._replace(emission_matrix=x).validate()
  with pytest.raises(ValueError, match='task_weights'):
    hj.DownstreamTask(x, KEY).examples(plain)


def test_an_unobserved_position_may_have_any_id():
  """[MASK], or what fills up a ragged text: slopes by the parameters are those of the others."""
  observed = np.array([[True, False, True, False]])
  total = lambda hmm: hj.token_likelihoods(hmm, np.int32([[0, 4, 2, -7]]), observed).sum()
  slopes = jax.jit(jax.grad(total))(HIDDEN)
  np.testing.assert_array_equal(slopes.emission_matrix, np.tile([1, 0, 1, 0], (3, 1)))


def test_inside_of_jit_an_impossible_id_makes_nan_and_no_neighbour_differs():
  """No row of another token: the evidence and the posteriors of that text are NaN, those of the other as without it."""
  posterior = jax.jit(lambda tokens: hj.forward_backward(HIDDEN, hj.token_likelihoods(HIDDEN, tokens, OBSERVED)))
  for wrong in (4, -1):
    found = posterior(np.where(WRONG_ID == 4, wrong, WRONG_ID))
    assert np.isnan(found.marginal_loglik[1]) and np.isnan(found.smoothed_probs[1]).all()
    np.testing.assert_array_equal(found.smoothed_probs[0], posterior(TOKENS).smoothed_probs[0])


SHOWN = hj.HMM(np.float32([0.5, 0.5]), np.float32([[0, 1], [1, 0]]), np.eye(256, dtype=np.float32)[[0, 44]])
ENDS = np.array([[0, 255], [1, 255]])
REMEMBERED = hj.MemoryHMM(
  SHOWN.initial_probs, np.float32([1]), np.float32([[1]]), np.int32([0]), SHOWN.emission_matrix[:, None]
)


@pytest.mark.parametrize(
  'read',
  [
    lambda tokens: hj.token_probs(hj.ExactModel(256), SHOWN, tokens),
    lambda tokens: hj.token_probs(hj.ExactModel(256), SHOWN, jnp.asarray(tokens)),
    lambda tokens: hj.activations(hj.ExactModel(256), SHOWN, tokens)['beliefs'],
    lambda tokens: hj.theory.prefix_bound(SHOWN, tokens),
    lambda tokens: tasks.hidden_state_probs(SHOWN, tokens),
    lambda tokens: tasks.silent_state_probs(SHOWN, tokens),
    lambda tokens: tasks.posterior_cell_probs(REMEMBERED, 0 * tokens),
    lambda tokens: token_readers.tokens_around(tokens, 255, 1),
    lambda tokens: token_readers.table_means(ENDS.astype(tokens.dtype), np.eye(2), ENDS.astype(tokens.dtype)),
  ],
)
def test_tokens_that_fill_a_narrow_type_are_read_as_any(read):
  """V and V + 1 do not fit 8 bits: [MASK], the ends of a text, the numbers of sequences."""
  tokens = np.uint8([[44, 0], [0, 44]])
  np.testing.assert_array_equal(read(tokens), read(tokens.astype(np.int32)))


@pytest.mark.parametrize('kind', [bool, np.uint8, np.int32])
def test_inside_of_jit_an_impossible_id_makes_nan_of_integers_too(kind):
  hmm = hj.HMM(np.ones(1), np.eye(1), np.ones((1, 1), kind))
  assert np.isnan(jax.jit(hj.token_likelihoods)(hmm, np.array([1]), np.array([True]))).all()
