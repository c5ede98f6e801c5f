"""Activations and patches, known exactly on the exact model, and pictures."""

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest

import hmm_jax as hj
from hmm_jax.models.model import representation

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T = 3, SMALLEST.num_tokens, 5
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(V + 1, size=(6, T))
BERT = SMALLEST.clone(num_layers=2)
PARAMS = random_params(BERT)
MODEL = hj.BertModel(BERT)
HMM, EXACT = float32_hmm(0, H, V), hj.ExactModel(V)


@pytest.fixture(scope='module')
def streams():
  return hj.activations(MODEL, PARAMS, TOKENS)


def test_layers_are_named_and_the_last_is_the_representation(streams):
  """One text gives what it gives among others, and the names asked for are those returned."""
  assert list(streams) == ['embeddings', 'layer_1', 'layer_2']
  np.testing.assert_array_equal(streams['layer_2'], representation(MODEL, PARAMS, TOKENS))
  (name, alone), *rest = hj.activations(MODEL, PARAMS, TOKENS[1], ['layer_1']).items()
  assert name == 'layer_1' and not rest
  np.testing.assert_allclose(alone, streams['layer_1'][1], atol=1e-5)


def test_activations_and_exact_beliefs_are_written_for_numpy(streams, tmp_path):
  """Of another vocabulary nothing is written."""
  hj.save_activations(tmp_path / 'some.npz', MODEL, PARAMS, TOKENS, HMM)
  written = np.load(tmp_path / 'some.npz', allow_pickle=False)
  assert list(written) == ['tokens', *streams, 'beliefs']
  jax.tree.map(np.testing.assert_array_equal, {name: written[name] for name in streams}, streams)
  np.testing.assert_array_equal(written['beliefs'], hj.activations(EXACT, HMM, TOKENS)['beliefs'])
  causal = hj.ExactModel(V, causal=True)
  hj.save_activations(tmp_path / 'some.npz', causal, HMM, TOKENS, HMM)
  written = np.load(tmp_path / 'some.npz', allow_pickle=False)
  np.testing.assert_array_equal(written['beliefs'], hj.activations(causal, HMM, TOKENS)['beliefs'])
  with pytest.raises(ValueError, match='num_tokens 4; valid is 5'):
    hj.save_activations(tmp_path / 'other.npz', MODEL, PARAMS, TOKENS, float32_hmm(0, H, V + 1))
  assert [path.name for path in tmp_path.iterdir()] == ['some.npz']


def test_activations_that_numpy_cannot_write_are_widened_and_a_name_is_not_taken_twice(tmp_path):
  narrow = hj.BertModel(BERT.clone(dtype=jnp.bfloat16))
  hj.save_activations(tmp_path / 'some.npz', narrow, PARAMS, TOKENS, HMM)
  expected = np.asarray(hj.activations(narrow, PARAMS, TOKENS)['layer_1'], np.float32)
  np.testing.assert_array_equal(np.load(tmp_path / 'some.npz', allow_pickle=False)['layer_1'], expected)
  with pytest.raises(ValueError, match="activation 'beliefs' of the model"):
    hj.save_activations(tmp_path / 'other.npz', EXACT, float32_hmm(1, H, V), TOKENS, HMM)
  assert [path.name for path in tmp_path.iterdir()] == ['some.npz']


def test_scanned_layers_have_the_same_activations(streams):
  first, last = PARAMS['layers_0'], PARAMS['layers_1']
  others = {name: leaf for name, leaf in PARAMS.items() if not name.startswith('layers')}
  params = others | {'scanned': jax.tree.map(lambda leaf: leaf[None], first), 'last': last}
  scanned = hj.activations(hj.BertModel(BERT.clone(scan_layers=True)), params, TOKENS)
  jax.tree.map(np.testing.assert_array_equal, scanned, streams)


def test_attention_weighs_the_values_of_a_layer():
  """Weights sum to 1 over the last axis, and follow the order of positions: swapped texts swap both axes.

  Without position embeddings a permuted text has permuted weights.
  """
  params = PARAMS | {'position_embedding': 0 * PARAMS['position_embedding']}
  weights = hj.attention_patterns(MODEL, params, TOKENS[0])
  assert weights.shape == (2, BERT.num_heads, T, T)
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
  order = RNG.permutation(T)
  permuted = hj.attention_patterns(MODEL, params, TOKENS[0][order])
  np.testing.assert_allclose(permuted, weights[:, :, order][..., order], atol=1e-5)


def test_the_exact_model_decodes_whatever_belief_it_is_given():
  """A patch gives the patched belief's law. A prompt comes before the text. Float64 stays."""
  wide = jax.tree.map(np.float64, HMM)
  beliefs = hj.activations(EXACT, wide, TOKENS)['beliefs']
  assert beliefs.dtype == np.float64
  swapped = hj.with_activations(EXACT, HMM, TOKENS, {'beliefs': beliefs[::-1]})
  np.testing.assert_allclose(swapped, beliefs[::-1] @ wide.emission_matrix, atol=1e-6)
  prompt = np.float32([[1, 0, 0.5]])
  prompted = hj.activations(EXACT, HMM, TOKENS, prompt=prompt)['beliefs']
  rows = np.concatenate([np.broadcast_to(prompt, (len(TOKENS), 1, H)), rows_of(HMM, TOKENS)], axis=1)
  np.testing.assert_allclose(prompted, log_space_posterior(HMM, rows).leave_one_out_probs, atol=1e-5)


def test_patches_of_bert(streams):
  """The identity changes no bit, another context's layer gives its prediction, and later layers read a patch."""
  expected = hj.token_probs(MODEL, PARAMS, TOKENS)
  patched = lambda replace, **options: hj.with_activations(MODEL, PARAMS, TOKENS, replace, **options)
  np.testing.assert_array_equal(patched(dict.fromkeys(streams, lambda x: x)), expected)
  swapped = patched({'layer_1': streams['layer_1'][::-1]}, positions=np.array([2]))
  np.testing.assert_allclose(swapped, expected[::-1, [2]], atol=1e-5)
  elsewhere = patched({'layer_1': lambda x: x.at[:, 0].set(0)}, positions=np.array([2]))
  assert np.abs(elsewhere - expected[:, [2]]).max() > 1e-3


def swapped(tree):
  """The tree with its bytes in the other order."""
  return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype.newbyteorder()), tree)


@pytest.mark.parametrize('is_first', [True, False])
def test_the_order_of_bytes_changes_no_bit(streams, is_first):
  """Whether programs of these shapes were called before or not."""
  if is_first:
    jax.clear_caches()
  layer = streams['layer_1']
  patched = lambda params, rows: hj.with_activations(MODEL, params, TOKENS, {'layer_1': rows})
  tree_equal = lambda x, y: jax.tree.map(np.testing.assert_array_equal, x, y)
  tree_equal(hj.activations(MODEL, swapped(PARAMS), TOKENS), streams)
  tree_equal(hj.token_probs(MODEL, swapped(PARAMS), TOKENS), hj.token_probs(MODEL, PARAMS, TOKENS))
  tree_equal(patched(swapped(PARAMS), swapped(layer)), patched(PARAMS, layer))
  direct = lambda params: MODEL.predict(params, MODEL.embed(params, TOKENS))
  tree_equal(direct(swapped(PARAMS)), direct(PARAMS))


def with_bias(change):
  return PARAMS | {'output_bias': change(PARAMS['output_bias'])}


NO_ARRAYS = [lambda x: np.ma.masked_array(x, True), lambda x: x + 1j, lambda x: 'words']


@pytest.mark.parametrize(
  'patch', [change(np.ones(8)) for change in NO_ARRAYS] + [None, lambda x: None, lambda x: x + 1j]
)
def test_a_patch_that_is_no_array_of_real_numbers_is_refused(patch):
  with pytest.raises(ValueError, match=r"^replace\['layer_1'\] "):
    hj.with_activations(MODEL, PARAMS, TOKENS, {'layer_1': patch})


@pytest.mark.parametrize('params', [*map(with_bias, NO_ARRAYS), with_bias(lambda x: x[1:]), {'params': PARAMS}, None])
@pytest.mark.parametrize('call', [hj.token_probs, hj.activations, hj.attention_patterns])
def test_parameters_that_do_not_fit_are_refused(call, params):
  with pytest.raises(ValueError, match='^params'):
    call(MODEL, params, TOKENS)


@pytest.mark.parametrize('shape', [(2, 0), ()])
@pytest.mark.parametrize(
  'call', [hj.token_probs, hj.activations, hj.attention_patterns, lambda *args: hj.with_activations(*args, {})]
)
def test_texts_without_a_token_are_refused(call, shape):
  with pytest.raises(ValueError, match='^tokens '):
    call(MODEL, PARAMS, np.zeros(shape, int))


@pytest.mark.parametrize(
  ('name', 'call'),
  [
    ('prompt', lambda: hj.activations(MODEL, PARAMS, TOKENS, prompt=np.ones(8))),
    ('positions', lambda: hj.token_probs(MODEL, PARAMS, TOKENS[0], [[0, 1]])),
    ('positions', lambda: hj.token_probs(MODEL, PARAMS, TOKENS, [[0, 1]] * 2)),
    ('positions', lambda: hj.at_positions(np.eye(3), 1)),
    ('replace', lambda: hj.with_activations(MODEL, PARAMS, TOKENS, [1])),
    ('replace', lambda: hj.with_activations(EXACT, HMM, TOKENS, {'layer_1': 0})),
    ('replace', lambda: hj.with_activations(EXACT, HMM, TOKENS, {'beliefs': np.ones(2)})),
    ('layers', lambda: hj.activations(MODEL, PARAMS, TOKENS, ['layer_3'])),
    ('layers', lambda: hj.attention_patterns(EXACT, HMM, TOKENS)),
    ('table', lambda: hj.plots.layers({'a': {}})),
    ('table', lambda: hj.plots.layers({})),
    ('table', lambda: hj.plots.layers({'a': {'layer_1': ()}})),
    ('table', lambda: hj.plots.layers({'a': {'layer_1': 'b'}})),
    ('table', lambda: hj.plots.layers({'a': (1, 2, 3, 4)})),
    ('table', lambda: hj.plots.layers({'a': (3, 1, 2)})),
    ('values', lambda: hj.plots.simplex(np.eye(3), np.ones((3, 4)))),
    ('beliefs', lambda: hj.plots.simplex(np.ones((5, 4)))),
  ],
)
def test_what_does_not_fit_is_refused_by_its_name(name, call):
  with pytest.raises(ValueError, match=f'^{name}'):
    call()


def test_a_model_with_a_representation_alone_offers_it_and_refuses_a_patch():
  class Own(type(EXACT)):
    predict_visiting = hj.MaskedLM.predict_visiting

  own = Own(V)
  assert list(hj.activations(own, HMM, TOKENS)) == ['representation']
  with pytest.raises(ValueError, match='predict_visiting'):
    hj.with_activations(own, HMM, TOKENS, {'representation': 0})


def test_pictures_show_the_numbers():
  """Beliefs lie at their barycentric places; a pair's second number is the half-width of a bar, or of a band."""
  matplotlib.use('agg')
  ax = hj.plots.simplex([[1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]], values=[0.0, 1.0])
  np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0.5, 0.75**0.5 / 3], [0.75, 0.75**0.5 / 2]])
  corners = {text.get_text(): text.get_position() for text in ax.texts}
  assert corners['0'] == (0, 0) and corners['1'] == (1, 0) and corners['2'] == pytest.approx((0.5, 0.75**0.5))
  ax = hj.plots.layers({'bert': {'embeddings': 0.5, 'layer_1': (0.8, 0.1)}, 'table': (0.3, 0.1, 0.5)})
  (bars,) = ax.containers
  np.testing.assert_allclose(bars.lines[0].get_ydata(), [0.5, 0.8])
  np.testing.assert_allclose(np.array(bars.lines[2][0].get_segments())[1, :, 1], [0.7, 0.9])
  np.testing.assert_allclose(ax.patches[0].get_bbox().intervaly, [0.1, 0.5])
  # A mean of equal numbers, out of their range by a rounding.
  hj.plots.layers({'bert': {'layer_1': (np.nextafter(0.1, 1), 0.1, 0.1)}, 'table': (np.nextafter(0.1, 0), 0.1, 0.1)})
  one = np.float32(0.7)
  hj.plots.layers({'bert': {'layer_1': np.array([np.nextafter(one, np.float32(1)), 0.6, one])}, 'table': True})


@pytest.mark.parametrize(
  ('lines', 'order'),
  [
    ([['layer_2'], ['layer_10', 'layer_9'], ['embeddings']], ['embeddings', 'layer_2', 'layer_9', 'layer_10']),
    ([['layer_1', 'embeddings']], ['embeddings', 'layer_1']),
    ([['in', 'out'], ['in', 'middle', 'out']], ['in', 'middle', 'out']),
    ([['norm', 'layer_1'], ['layer_2', 'layer_3']], ['layer_1', 'layer_2', 'layer_3', 'norm']),
  ],
)
def test_the_axis_of_layers_runs_from_first_to_last(lines, order):
  """In whatever order lines name them: no line doubles back, and each point stands over its name."""
  table = {f'line {number}': {name: order.index(name) for name in names} for number, names in enumerate(lines)}
  ax = hj.plots.layers(table)
  ax.figure.canvas.draw()
  assert [label.get_text() for label in ax.get_xticklabels()] == order
  for bars in ax.containers:
    x, y = bars.lines[0].get_data(orig=False)
    assert list(x) == list(y) == sorted(x)


def test_lines_do_not_share_an_axis_with_another_drawing():
  ax = hj.plots.layers({'bert': {'layer_2': 0.5}})
  with pytest.raises(ValueError, match='^ax '):
    hj.plots.layers({'other': {'layer_1': 0.5}}, ax)


def test_names_are_drawn_as_they_are():
  """In the legend and on the axis: one that begins with _, and one between two $, which is no mathematics here."""
  names = ['_mine', 'a $b$', r'$\bad$', 'other']
  ax = hj.plots.layers(dict.fromkeys(names[:2], {1: 0.5, 'x$\\frac$2': 0.6}) | dict.fromkeys(names[2:], 0.3))
  ax.figure.canvas.draw()
  assert [text.get_text() for text in ax.get_legend().get_texts()] == names
  assert [label.get_text() for label in ax.get_xticklabels()] == ['1', 'x$\\frac$2']
