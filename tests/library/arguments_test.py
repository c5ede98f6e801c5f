"""Public functions refuse wrong ids, rows, weights and shapes."""

from fractions import Fraction

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import optax
import pytest
import scipy.sparse

import hmm_jax as hj
from hmm_jax.distributions import processes
from hmm_jax.models import masking, model as model_lib
from hmm_jax.models.shifted import Shifted
from hmm_jax.theory import assumptions
from hmm_jax.tuning import optimum, separability, tasks, token_readers

HIDDEN = jax.tree.map(np.asarray, float32_hmm(0, 3, 4))
MEMORY = float32(dense_hmm(np.random.default_rng(1), 1))
EXACT, MODEL, PARAMS = hj.ExactModel(4), hj.BertModel(SMALLEST), random_params(SMALLEST)
CAUSAL = hj.BertModel(SMALLEST.clone(causal=True))
TOKENS, OBSERVED = np.int32([[0, 3, 2, 1], [1, 0, 2, 2]]), np.ones((2, 4), bool)
ROWS = np.asarray(HIDDEN.emission_matrix).T[TOKENS]
OFF = HIDDEN._replace(transition_matrix=HIDDEN.transition_matrix + 0.1 * np.eye(3, dtype=np.float32))
KEY = jax.random.key(0)
TOO_MUCH = masking.Corruption(4, mask_rate=1.0, mask_share=0.8, random_share=0.3)
TASK = hj.DownstreamTask(np.eye(2, 3), KEY, length=4, num_train=20, num_test=10)
WRONG_ID = np.int32([[0, 3, 2, 1], [1, 4, 2, 2]])
# Beliefs, or features of examples of two classes.
LAWS, CLASSES = np.random.default_rng(0).dirichlet(np.ones(3), 50), np.arange(50) % 2
FIT = dict(num_classes=2, ridge=1e-3, tolerance=1e-9, max_iterations=99)


def _tune(model=EXACT, params=HIDDEN, task=TASK, prompt_length=0, **options):
  return hj.tune(model, params, HIDDEN, task, prompt_length=prompt_length, **options)


def _pretrain(**options):
  return hj.pretrain(HIDDEN, KEY, **options)


def _probe(features=LAWS, targets=LAWS, **options):
  return hj.probe(features, targets, KEY, **options)


@pytest.mark.parametrize(
  ('name', 'call'),
  [
    # Ids, rows and distributions.
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, WRONG_ID, OBSERVED)),
    ('tokens', lambda: hj.token_likelihoods(HIDDEN, [1.5], [1])),
    ('transition_matrix', lambda: hj.forward_backward(OFF, ROWS)),
    ('cell_index', lambda: MEMORY._replace(cell_index=np.array([0, 2, 1])).validate()),
    ('likelihoods', lambda: hj.cell_posterior(MEMORY, likelihoods=jnp.full((2, 6), jnp.nan))),
    ('likelihoods', lambda: hj.forward_backward(HIDDEN, np.ones(3))),
    ('hmm', lambda: hj.to_dynamax(MEMORY)),
    ('hmm .*swapped', lambda: hj.pretrain(0, HIDDEN)),
    ('length', lambda: hj.sample(KEY, HIDDEN, length=10**12)),
    ('num_states', lambda: hj.random_hmm(KEY, 10**9, 4)),
    ('emission_temperature', lambda: hj.random_hmm(KEY, 3, 4, emission_temperature=float('nan'))),
    ('transition_matrices', lambda: processes.from_transition_matrices(np.ones((2, 2, 3)) / 6)),
    ('the shape of transition_matrices is .3, 3.; valid', lambda: hj.from_transition_matrices(np.eye(3))),
    ('transition_matrices in row 1 sums to 0.9', lambda: hj.from_transition_matrices([np.diag([1, 0.9])])),
    ('transition_matrices', lambda: processes.from_transition_matrices([[[1.5, -0.5], [0, 1]]])),
    # Several stationary laws.
    ('transition_matrices', lambda: processes.from_transition_matrices(np.eye(2)[None])),
    ('the shape of process', lambda: hj.beliefs(TOKENS, HIDDEN)),
    ('process', lambda: hj.beliefs([[1], [1, 2]], TOKENS)),
    ('mess3 has .*alpha, x', lambda: processes.named('mess3:alfa=1')),
    ('mess3 has .*alpha, x', lambda: processes.named('mess3:alpha=two')),
    ('tokens, where observed', lambda: hj.token_likelihoods(HIDDEN, [4])),
    # Models.
    ('model .*swapped', lambda: hj.activations(PARAMS, MODEL, TOKENS)),
    ('directory', lambda: hj.save(MODEL, PARAMS, '/none')),
    ('distribution', lambda: hj.save('/none', MODEL, HIDDEN, PARAMS)),
    ('layers', lambda: hj.activations(MODEL, PARAMS, TOKENS, 'layer_1')),
    ('positions', lambda: hj.token_probs(EXACT, HIDDEN, TOKENS, [4])),
    ('tokens', lambda: hj.token_probs(EXACT, HIDDEN, np.zeros((2, 0), int))),
    ('the model has num_tokens', lambda: hj.token_probs(hj.ExactModel(7), HIDDEN, TOKENS)),
    ('params', lambda: hj.activations(MODEL, PARAMS | {'output_bias': np.ones(3)}, TOKENS)),
    ('embeddings or a prompt', lambda: MODEL.predict_prompted(PARAMS, np.ones((2, 1, 1)), TOKENS, np.array([1]))),
    ('prompt', lambda: hj.activations(MODEL, PARAMS, TOKENS, prompt=np.ones(8))),
    ('layers', lambda: hj.activations(MODEL, PARAMS, TOKENS, ['layer_3'])),
    ('layers', lambda: hj.attention_patterns(EXACT, HIDDEN, TOKENS)),
    ('replace', lambda: hj.with_activations(EXACT, HIDDEN, TOKENS, {'layer_1': 0})),
    ('replace', lambda: hj.with_activations(EXACT, HIDDEN, TOKENS, {'beliefs': np.ones(2)})),
    ('the activation', lambda: hj.save_activations('/none', EXACT, float32_hmm(1, 3, 4), TOKENS, HIDDEN)),
    ('width', lambda: SMALLEST.clone(width=9).init(KEY, TOKENS)),
    ('place', lambda: model_lib.prepend(np.ones((1, 1)), np.ones((1, 4, 1)), 4)),
    ('mask_share', lambda: masking.corrupt(KEY, TOO_MUCH, TOKENS)),
    # Pretraining.
    ('learning_rate', lambda: _pretrain(learning_rate=-1.0)),
    ('learning_rate and optimizer', lambda: _pretrain(learning_rate=0.1, optimizer=optax.sgd(0.1))),
    ('optimizer', lambda: _pretrain(optimizer=optax.adam)),
    ('model', lambda: _pretrain(model=3)),
    ('bert', lambda: _pretrain(bert=3)),
    ('callback', lambda: _pretrain(callback=3)),
    ('corpus', lambda: _pretrain(corpus=np.zeros((1, 4, 8), int))),
    # A BERT of six positions.
    ('chunk_length', lambda: _pretrain(document_length=9, bert=SMALLEST)),
    # Tasks and tuning.
    ('task_weights', lambda: TASK._replace(task_weights=np.ones((1, 3))).examples(HIDDEN)),
    ('task_weights', lambda: TASK._replace(task_weights=np.full((2, 3), np.nan)).examples(HIDDEN)),
    ('task_weights', lambda: assumptions.contrasts([[1.0, 2.0]] * 2)),
    ('labels', lambda: TASK._replace(task_weights=lambda *_: [0]).examples(HIDDEN)),
    ('labels', lambda: TASK._replace(task_weights=lambda texts, _: texts[:, 0]).examples(HIDDEN)),
    ('hidden', lambda: TASK._replace(hidden=2).examples(HIDDEN)),
    ('hidden', lambda: _tune(CAUSAL, PARAMS)),
    ('task', lambda: _tune(task=None)),
    ('schedule', lambda: _tune(schedule=3)),
    ('task and inputs', lambda: _tune(inputs=TOKENS)),
    ('labels', lambda: _tune(task=None, inputs=[[0, 1]], labels=[0, 1])),
    ('params', lambda: _tune(MODEL, {})),
    ('head', lambda: _tune(head=3)),
    ('head', lambda: _tune(head=hj.Linear(3))),
    ('batch_size', lambda: _tune(schedule=hj.Schedule(0.1, 1, 64, 1, 0.0, 1.0))),
    # No room for the text, or for a prompt beside it.
    ('length', lambda: _tune(MODEL, PARAMS, TASK._replace(length=7))),
    ('prompt_length', lambda: _tune(MODEL, PARAMS, prompt_length=3)),
    ('prompt', lambda: _tune(Shifted(MODEL), PARAMS, prompt_length=2)),
    ('tokens', lambda: _tune().predict([4, 1, 0])),
    # Fits.
    ('labels', lambda: optimum.converged_head(LAWS, CLASSES.astype(bool), **FIT)),
    ('labels', lambda: separability.linear_separation(LAWS, CLASSES[:5], 2, 1e-9)),
    ('max_iterations', lambda: optimum.converged_head(LAWS, CLASSES, **FIT | {'max_iterations': 1})),
    ('kind', lambda: _probe(kind='linear')),
    ('targets', lambda: _probe(targets=LAWS[:5])),
    ('targets', lambda: _probe(targets=2 * LAWS, kind='softmax')),
    ('features', lambda: _probe(kind='table')),
    ('splits', lambda: _probe(splits=(-0.8, 1.2, 0.6))),
    ('splits', lambda: _probe(LAWS[:2], LAWS[:2])),
    ('values', lambda: hj.plots.simplex(np.eye(3), np.ones((3, 4)))),
  ],
)
def test_wrong_arguments_are_refused_by_their_names(name, call):
  with pytest.raises(ValueError, match=f'^(the shape of )?{name}\\b'):
    call()


SQUARES = np.array([[0.5, 0.5], [0.25, 0.75]])
CONTAINERS = {
  'a list of rows': [jnp.asarray(row) for row in SQUARES],
  'fractions': [[Fraction(1, 2), 0.5], [Fraction(1, 4), Fraction(3, 4)]],
  'foreign bytes': SQUARES.astype('>f8'),
}


@pytest.mark.parametrize('x', CONTAINERS.values(), ids=CONTAINERS)
def test_equal_numbers_are_the_same_array(x):
  """As a field that is validated and used, and as an argument, regardless of earlier compilation."""
  plain = hj.HMM(SQUARES[0], SQUARES, SQUARES)
  expected, given = hj.forward_backward(plain, SQUARES), hj.HMM(SQUARES[0], x, x)
  for posterior in (hj.forward_backward(given, SQUARES), hj.forward_backward(plain, x)):
    np.testing.assert_allclose(posterior.smoothed_probs, expected.smoothed_probs, 1e-6)


REFUSED = {
  'masked rows': [np.ma.array(row, mask=row > 0.7) for row in SQUARES],
  'sparse': scipy.sparse.csr_array(SQUARES),
  'complex': SQUARES.astype(complex),
  'a key': KEY,
}


@pytest.mark.parametrize('x', REFUSED.values(), ids=REFUSED)
def test_a_lossy_conversion_is_refused(x):
  """By the name of the argument or field."""
  plain = hj.HMM(SQUARES[0], SQUARES, SQUARES)
  with pytest.raises(ValueError, match='likelihoods'):
    hj.forward_backward(plain, x)
  with pytest.raises(ValueError, match='emission_matrix'):
    plain._replace(emission_matrix=x).validate()


def test_tokens_that_fill_a_narrow_type_are_read_as_any():
  """[MASK] does not fit 8 bits."""
  tokens = np.uint8([[255, 0]])
  assert tasks.hide(tokens, 256).tolist() == [[256, 0]]
  assert token_readers.tokens_around(tokens, 255, 1).max() > 255


def test_inside_of_jit_an_impossible_id_makes_nan_and_no_neighbour_differs():
  """No row of another token: the evidence and the posteriors of that text are NaN, those of the other as without it."""
  posterior = jax.jit(lambda tokens: hj.forward_backward(HIDDEN, hj.token_likelihoods(HIDDEN, tokens, OBSERVED)))
  for wrong in (4, -1):
    found = posterior(np.where(WRONG_ID == 4, wrong, WRONG_ID))
    assert np.isnan(found.marginal_loglik[1]) and np.isnan(found.smoothed_probs[1]).all()
    np.testing.assert_array_equal(found.smoothed_probs[0], posterior(TOKENS).smoothed_probs[0])
