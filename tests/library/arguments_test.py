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
  tuner_lib.tune_epoch(tuner_lib.TuneState(np.zeros((2, 1)), (), 0), KEY, None, None, (), np.zeros((5, 4)), labels)


def _prompted(model, params, width):
  model.predict_prompted(params, np.ones((2, 1, width), np.float32), TOKENS, np.array([1]))


@pytest.mark.parametrize(
  ('name', 'call'),
  [
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, WRONG_ID, OBSERVED)),
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, jnp.int32([-1]), jnp.ones(1, bool))),
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, [1.5], [1])),
    ('positions', lambda: hj.token_probs(hj.ExactModel(4), HIDDEN, TOKENS, [4])),
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
    *(('temperature', lambda t=t: heads.softmax_or_argmax(np.ones(3), t)) for t in (-1, 1e-38, np.nan)),
    ('cell_index', lambda: MEMORY._replace(cell_index=np.array([0, 2, 1])).validate()),
    ('inputs', lambda: token_readers.nearest_first([[4, 0], [4, 4]], 4)),
    ('attention', lambda: SMALLEST.clone(causal=True, attention='cudnn').init(KEY, TOKENS)),
    ('width', lambda: SMALLEST.clone(width=9).init(KEY, TOKENS)),
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


@pytest.mark.parametrize(
  'x',
  CONTAINERS.values(),
  ids=CONTAINERS,
)
def test_equal_numbers_are_the_same_array(x):
  """As a field that is validated and used, and as an argument, regardless of earlier compilation."""
  plain = hj.HMM(SQUARES[0], SQUARES, SQUARES)
  expected, given = hj.forward_backward(plain, SQUARES), hj.HMM(SQUARES[0], x, x)
  for posterior in (hj.forward_backward(given, SQUARES), hj.forward_backward(plain, x)):
    np.testing.assert_allclose(posterior.smoothed_probs, expected.smoothed_probs, 1e-6)


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


def test_tokens_that_fill_a_narrow_type_are_read_as_any():
  """[MASK] does not fit 8 bits."""
  hmm, tokens = hj.HMM(np.ones(1), np.eye(1), np.full((1, 256), 1 / 256)), np.uint8([[255, 0]])
  masked = tasks.hide(tokens, 256)
  assert masked.tolist() == [[256, 0]] and token_readers.tokens_around(tokens, 255, 1).max() > 255
  np.testing.assert_allclose(tasks.hidden_state_probs(hmm, masked), 1)


def test_inside_of_jit_an_impossible_id_makes_nan_and_no_neighbour_differs():
  """No row of another token: the evidence and the posteriors of that text are NaN, those of the other as without it."""
  posterior = jax.jit(lambda tokens: hj.forward_backward(HIDDEN, hj.token_likelihoods(HIDDEN, tokens, OBSERVED)))
  for wrong in (4, -1):
    found = posterior(np.where(WRONG_ID == 4, wrong, WRONG_ID))
    assert np.isnan(found.marginal_loglik[1]) and np.isnan(found.smoothed_probs[1]).all()
    np.testing.assert_array_equal(found.smoothed_probs[0], posterior(TOKENS).smoothed_probs[0])
