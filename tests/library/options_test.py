"""Options of JAX that a user may have set change no answer and end in no error."""

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmm_jax as hj

BERT = SMALLEST.clone(num_layers=2, max_positions=64)
PARAMS = {causal: random_params(BERT.clone(causal=causal)) for causal in (False, True)}
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
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('without_optimisation')]

HMM = float32_hmm(0, 3, 4)
TOKENS = np.random.default_rng(0).integers(4, size=(6, 5))
SEEN = np.ones((6, 5), bool)


def answers(folder):
  """What calls of most users return for given numbers, and beside it what they draw, tune and pretrain, in float64."""
  key, rows = jax.random.key(0), hj.token_likelihoods(HMM, TOKENS, SEEN)
  loss = lambda hmm, rows: -hj.forward_backward(hmm, rows).marginal_loglik.sum()
  memory = hj.random_memory_hmm(key, memory_size=2, num_cells=2, num_states=4, num_tokens=4)
  drawn = {
    'hmm': hj.random_hmm(key, 3, 4),
    'memory': hj.memory_forward_backward(memory, hj.token_likelihoods(memory, TOKENS, SEEN)).smoothed_probs,
    'tokens': hj.sample_corpus(key, HMM, 6, 5),
  }
  found = {
    'posterior': hj.forward_backward(HMM, rows),
    'slopes': jax.jit(jax.grad(loss, argnums=(0, 1)))(HMM, rows),
    'path': hj.most_likely_states(HMM, rows[0]),
    'probe': hj.probe(np.eye(5)[TOKENS].reshape(6, -1), np.asarray(rows)[:, 0], key).fitted,
  }
  for causal, params in PARAMS.items():
    model, name = hj.BertModel(BERT.clone(causal=causal)), f'causal {causal}'
    probs = lambda params: model.predict(params, model.embed(params, jnp.asarray(TOKENS)))  # noqa: B023
    hj.save(folder / name, model, params, HMM)
    found[name] = {
      'activations': hj.activations(model, params, TOKENS),
      'patched': hj.with_activations(model, params, TOKENS, {'layer_1': lambda x: 2 * x}),
      'slopes': jax.grad(lambda params: probs(params)[0, 0, 0])(params),  # noqa: B023
      'loaded': hj.token_probs(*hj.load(folder / name)[:2], TOKENS),
    }
  task = hj.draw_task(HMM, key, length=5, num_train=20, num_test=10)
  drawn |= {
    'tuned': hj.tune(hj.BertModel(BERT), PARAMS[False], HMM, task, prompt_length=2).prompt,
    'pretrained': hj.pretrain(HMM, key, steps=1, bert=BERT)[1],
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
