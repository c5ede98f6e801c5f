"""Options of JAX that a user may have set change no answer and end in no error."""

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import numpy as np
import pytest

import hmm_jax as hj

BERT = SMALLEST.clone(num_layers=2, max_positions=64)
PARAMS = random_params(BERT)
# A run of them all compiles a program once.
OPTIONS = {
  'strict': {
    'jax_numpy_rank_promotion': 'raise',
    'jax_numpy_dtype_promotion': 'strict',
    'jax_debug_nans': True,
    'jax_debug_infs': True,
    'jax_default_matmul_precision': 'highest',
  },
  'wide': {'jax_enable_x64': True},
}
pytestmark = pytest.mark.slow

HMM = float32_hmm(0, 3, 4)
TOKENS = np.random.default_rng(0).integers(4, size=(6, 5))
SEEN = np.ones((6, 5), bool)


def answers(folder):
  """What calls of most users return for given numbers, and beside it what they tune and pretrain, in float64."""
  key, rows = jax.random.key(0), hj.token_likelihoods(HMM, TOKENS, SEEN)
  loss = lambda hmm, rows: -hj.forward_backward(hmm, rows).marginal_loglik.sum()
  model, task = hj.BertModel(BERT), hj.draw_task(HMM, key, length=5, num_train=20, num_test=10)
  hj.save(folder / 'model', model, PARAMS, HMM)
  found = {
    'posterior': hj.forward_backward(HMM, rows),
    'slopes': jax.jit(jax.grad(loss, argnums=(0, 1)))(HMM, rows),
    'loaded': hj.token_probs(*hj.load(folder / 'model')[:2], TOKENS),
  }
  drawn = {
    'tuned': hj.tune(model, PARAMS, HMM, task, prompt_length=2).prompt,
    'pretrained': hj.pretrain(HMM, key, steps=1, bert=BERT).params,
  }
  return jax.tree.map(np.float64, (found, drawn))


@pytest.fixture(scope='module')
def expected(tmp_path_factory):
  return answers(tmp_path_factory.mktemp('default'))


@pytest.mark.parametrize('options', OPTIONS)
def test_options_of_jax_change_no_answer(options, expected, tmp_path):
  """But for random numbers, of which JAX draws others in 64 bits."""
  before = {name: getattr(jax.config, name) for name in OPTIONS[options]}
  _set(OPTIONS[options])
  try:
    found = answers(tmp_path)
  finally:
    _set(before)
  count = 1 if options == 'wide' else 2
  close = lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3)
  jax.tree.map(close, found[:count], expected[:count])
  assert jax.tree.map(np.shape, found) == jax.tree.map(np.shape, expected)


def _set(options):
  for name, value in options.items():
    jax.config.update(name, value)
