"""Activations, patches and probes: known exactly on the exact model, and by formulas where the truth is planted."""

from bert_cases import random_params, SMALLEST
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest
import scipy.special
import scipy.stats

import hmm_jax as hj
from hmm_jax.layers import probes
from hmm_jax.models.model import representation
from hmm_jax.tuning import token_readers

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, V, T = 3, SMALLEST.num_tokens, 5
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(V + 1, size=(6, T))
BERT = SMALLEST.clone(num_layers=2)
PARAMS = random_params(BERT)
MODEL = hj.BertModel(BERT)
HMM, EXACT = float32_hmm(0, H, V), hj.ExactModel(V)
KEY = jax.random.key(0)
BELIEFS = RNG.dirichlet(np.ones(H), 20_000)


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
  """Its activations are the beliefs: an affine probe of them has R^2 1, and every patch gives the patched belief's law.

  Beliefs of a float64 distribution come in float64. A prompt comes before the text.
  """
  wide = jax.tree.map(np.float64, HMM)
  beliefs = hj.activations(EXACT, wide, TOKENS)['beliefs']
  assert beliefs.dtype == np.float64
  assert hj.probe(beliefs, beliefs @ RNG.normal(size=(H, 2)), KEY).r_squared == pytest.approx(1, abs=1e-9)
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


def changed(name, change):
  return PARAMS | {name: change(PARAMS[name])}


WORDS = 'valid is an array of real numbers that float64 holds'


@pytest.mark.parametrize(
  ('patch', 'reason'),
  [
    (np.ma.masked_array(np.ones(8), True), 'of type MaskedArray'),
    (np.ones(8) + 1j, 'of type ndarray of complex128'),
    (lambda x: x + 1j, 'complex64'),
    (None, 'None, of type NoneType'),
    (lambda x: None, 'None, of type NoneType'),
    ('words', "'words', of type str"),
  ],
)
def test_a_patch_that_is_no_array_of_real_numbers_is_refused(patch, reason):
  with pytest.raises(ValueError, match=rf"^replace\['layer_1'\] is .*{reason}.*; {WORDS}"):
    hj.with_activations(MODEL, PARAMS, TOKENS, {'layer_1': patch})


@pytest.mark.parametrize(
  ('params', 'message'),
  [
    (
      changed('output_bias', lambda x: np.ma.masked_array(x, True)),
      rf"params\['output_bias'\] is .*MaskedArray; {WORDS}",
    ),
    (changed('output_bias', lambda x: x + 1j), rf"params\['output_bias'\] is .*complex64; {WORDS}"),
    (changed('output_bias', lambda x: 'words'), rf"params\['output_bias'\] is 'words', of type str .*; {WORDS}"),
    (changed('output_bias', lambda x: x[1:]), 'params, a dict, do not fit the model '),
    ({'params': PARAMS}, 'params, a dict, do not fit the model '),
    (None, 'params, a NoneType, do not fit the model '),
  ],
)
@pytest.mark.parametrize('call', [hj.token_probs, hj.activations, hj.attention_patterns])
def test_parameters_that_do_not_fit_are_refused(call, params, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    call(MODEL, params, TOKENS)


@pytest.mark.parametrize('shape', [(2, 0), ()])
@pytest.mark.parametrize(
  'call', [hj.token_probs, hj.activations, hj.attention_patterns, lambda *args: hj.with_activations(*args, {})]
)
def test_texts_without_a_token_are_refused(call, shape):
  with pytest.raises(ValueError, match=r'^tokens have shape .*; valid is \[\.\.\., T\], T at least 1'):
    call(MODEL, PARAMS, np.zeros(shape, int))


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda: hj.activations(MODEL, PARAMS, TOKENS, prompt=np.ones(8)), r'prompt has shape \(8,\); valid is \[P, E\]'),
    (lambda: hj.token_probs(MODEL, PARAMS, TOKENS[0], [[0, 1]]), r'positions have shape \(1, 2\); valid is \[Q\]'),
    (lambda: hj.token_probs(MODEL, PARAMS, TOKENS, [[0, 1]] * 2), r'positions have shape \(2, 2\); .* axes \(6,\)'),
    (lambda: hj.at_positions(np.eye(3), 1), r'positions have shape \(\); valid is \[Q\]'),
    (lambda: hj.with_activations(MODEL, PARAMS, TOKENS, [1]), 'replace is a list; valid is a mapping'),
    (lambda: hj.plots.layers({'a': {}}), 'table is .*; valid is a number or a layer for each'),
    (lambda: hj.plots.layers({}), 'table is '),
    (lambda: hj.plots.layers({'a': {'layer_1': ()}}), r'table has \(\); valid is a number'),
    (lambda: hj.plots.simplex(np.eye(3), np.ones((3, 4))), r'values have shape \(3, 4\); valid is \(3,\) or \(3, 3\)'),
    (lambda: hj.plots.layers({'a': {'layer_1': 'b'}}), "table is 'b'"),
    (lambda: hj.activations(MODEL, PARAMS, TOKENS, ['layer_3']), "layers has 'layer_3'; valid are 'embeddings', "),
    (lambda: hj.attention_patterns(EXACT, HMM, TOKENS), "layers has 'attention'; valid are 'beliefs'"),
    (lambda: hj.with_activations(EXACT, HMM, TOKENS, {'layer_1': 0}), "replace has 'layer_1'; valid are 'beliefs'"),
    (
      lambda: hj.with_activations(EXACT, HMM, TOKENS, {'beliefs': np.ones(2)}),
      r"replace\['beliefs'\] has shape \(2,\)",
    ),
    (
      lambda: hj.probe(BELIEFS, BELIEFS, KEY, kind='linear'),
      "kind is 'linear'; valid are 'affine', 'softmax', 'table'",
    ),
    (lambda: hj.probe(BELIEFS, BELIEFS[:5], KEY), r'targets have shape \(5, 3\)'),
    (lambda: hj.probe(BELIEFS, 2 * BELIEFS, KEY, kind='softmax'), 'targets have .* sum'),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, kind='table'), 'features are of type float64'),
    (lambda: hj.probe(BELIEFS[:2], BELIEFS[:2], KEY), 'splits are .* of 2 texts'),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, splits=(-0.8, 1.2, 0.6)), 'splits are '),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, splits=(np.nan, 1, 1)), 'splits are '),
    (
      lambda: hj.probe(BELIEFS, BELIEFS, KEY, where=np.arange(20_000) < 2),
      'splits are .*, each with a text that counts',
    ),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, where=np.zeros(20_000, bool)), r'where has shape \(20000,\) and 0 True'),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, where=np.ones(19_999, bool)), r'where has shape \(19999,\) .*; valid'),
    (lambda: hj.probe(BELIEFS, BELIEFS, KEY, where=np.arange(20_000)), 'where has an entry other than'),
    (lambda: hj.probe(BELIEFS[:, :0], BELIEFS, KEY), r'features have shape \(20000, 0\)'),
    (lambda: hj.probe(np.nan * BELIEFS, BELIEFS, KEY), 'features or targets have an entry that is not finite'),
    (lambda: hj.plots.simplex(np.ones((5, 4))), r'beliefs have shape \(5, 4\)'),
  ],
)
def test_what_does_not_fit_is_refused(call, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    call()


def test_a_model_with_a_representation_alone_offers_it_and_refuses_a_patch():
  class Own(type(EXACT)):
    predict_visiting = hj.MaskedLM.predict_visiting

  own = Own(V)
  assert list(hj.activations(own, HMM, TOKENS)) == ['representation']
  with pytest.raises(ValueError, match='predict_visiting'):
    hj.with_activations(own, HMM, TOKENS, {'representation': 0})


def test_an_affine_probe_of_a_planted_embedding_has_the_analytic_r_squared():
  """The best affine map of x = b E + noise of variance s^2 leaves tr(S - S E (E^T S E + s^2)^-1 E^T S) of tr S."""
  draws = np.random.default_rng(1)
  embedding, noise = draws.normal(size=(H, 4)), 0.3
  features = BELIEFS @ embedding + noise * draws.normal(size=(len(BELIEFS), 4))
  cov = np.cov(BELIEFS.T)
  explained = cov @ embedding @ np.linalg.solve(embedding.T @ cov @ embedding + noise**2 * np.eye(4), embedding.T @ cov)
  found = hj.probe(features, BELIEFS, KEY)
  assert found.r_squared == pytest.approx(np.trace(explained) / np.trace(cov), abs=0.02)
  assert np.isnan(found.kl) and np.isnan(hj.probe(features, np.ones((len(features), 1)), KEY).r_squared)


def planted(kind, draws, scale=1.0):
  """Features, 20 of noise and two times .01 that decide the targets."""
  features = draws.normal(size=(400, 22)) * np.repeat([1, 0.01], [20, 2])
  targets = 100 * features[:, 20:] @ draws.normal(size=(2, H))
  return scale * features, scipy.special.softmax(targets, axis=1) if kind == 'softmax' else targets


@pytest.mark.parametrize('kind', ['affine', 'softmax'])
@pytest.mark.parametrize('scale', [1, 1e-170, 1e160, 10.0 ** np.arange(-11, 11)])
def test_small_features_are_read_beside_large_ones_in_any_unit(scale, kind):
  """Signals of .01 beside noise of 1, exactly linear: the loss on validation texts falls at the weakest penalties."""
  assert hj.probe(*planted(kind, np.random.default_rng(0), scale), KEY, kind=kind).r_squared > 1 - 1e-8


@pytest.mark.parametrize('losses', [[3, 4, 1, 2], [3, 1, 2, 1]])
@pytest.mark.parametrize('kind', ['affine', 'softmax', 'table'])
def test_a_local_minimum_is_passed_on_the_way_to_the_least(kind, losses, monkeypatch):
  """Of equal losses the stronger penalty is taken. A fit is stood in for by one whose loss is known."""
  laws = np.float64([[0.5, 0.5], [0.5, 0.5]])
  monkeypatch.setitem(probes._FITS, kind, lambda *_: (((loss,), number) for number, loss in enumerate(losses)))
  monkeypatch.setitem(probes._VALUES, kind, lambda rows, loss: np.tile([1 - 2.0**-loss, 2.0**-loss], (len(rows), 1)))
  assert hj.probe(np.zeros((20, 1), int), laws[[0] * 20], KEY, kind=kind).penalty == losses.index(min(losses))


@pytest.mark.parametrize('dtype', [np.float64, np.float32])
@pytest.mark.parametrize('kind', ['affine', 'softmax'])
def test_targets_that_are_constant_but_for_rounding_have_no_r_squared(kind, dtype):
  draws = np.random.default_rng(0)
  targets = (1 / 3 + np.finfo(dtype).eps * draws.integers(-1, 2, (200, 3)) / 2).astype(dtype)
  assert np.ptp(targets) > 0 and np.isnan(hj.probe(draws.normal(size=(200, 4)), targets, KEY, kind=kind).r_squared)


@pytest.mark.parametrize('dtype', [jnp.bfloat16, np.float16, np.float32, np.float64])
def test_numbers_that_differ_are_read_in_every_type(dtype):
  """Two that are 5 units of bfloat16 apart; a feature that is rarely on; a target beside a large constant."""
  draws = np.random.default_rng(0)
  is_on = draws.integers(2, size=(300, 1)).astype(float)
  near = jnp.asarray(1 + 5 / 128 * is_on, dtype)
  rare = jnp.asarray(draws.random((6000, 1)) < 0.002, dtype)
  for features, targets in (near, is_on), (is_on, near), (rare, rare), (is_on, np.hstack([is_on, 0 * is_on + 1e7])):
    assert hj.probe(features, targets, KEY).r_squared == pytest.approx(1)


def test_a_unit_of_targets_changes_no_r_squared():
  features, targets = planted('affine', np.random.default_rng(0))
  targets = targets + np.random.default_rng(1).normal(size=targets.shape)
  expected = hj.probe(features, targets, KEY)
  for unit in 2.0**-560, 2.0**530:
    found = hj.probe(features, unit * targets, KEY)
    assert found.r_squared == pytest.approx(expected.r_squared, rel=1e-12)
    np.testing.assert_allclose(found.fitted[0] / unit, expected.fitted[0])


@pytest.mark.parametrize('kind', ['affine', 'softmax'])
def test_shuffled_beliefs_have_no_r_squared(kind):
  """Over 8 shuffles the t interval of R^2 holds 0, or it is below by what fitting 6 numbers to 300 rows costs."""
  beliefs = BELIEFS[:500]
  found = [
    hj.probe(beliefs[:, :2], beliefs, key, kind=kind, shuffled=True).r_squared for key in jax.random.split(KEY, 8)
  ]
  half = scipy.stats.sem(found) * scipy.stats.t.ppf(0.975, 7)
  assert np.mean(found) - half < 0 < np.mean(found) + half + 6 / 300


def test_a_softmax_probe_recovers_planted_parameters():
  """Up to the mean over classes, which changes no probability; rows that `where` leaves out do not count."""
  draws = np.random.default_rng(1)
  weights, bias = draws.normal(size=(2, H)), draws.normal(size=H)
  features = draws.normal(size=(100, 4, 2)) * [1, 10] + 3
  targets = scipy.special.softmax(features @ weights + bias, axis=-1)
  where = draws.random((100, 4)) < 0.5
  targets[~where] = draws.dirichlet(np.ones(H), (~where).sum())
  found = hj.probe(features, targets, KEY, kind='softmax', where=where)
  centred = lambda rows: rows - rows.mean(-1, keepdims=True)
  np.testing.assert_allclose(found.fitted[0], centred(weights), atol=1e-2)
  np.testing.assert_allclose(found.fitted[1], centred(bias), atol=1e-2)
  assert 0 <= found.kl < 1e-6
  np.testing.assert_allclose(found(features)[where], targets[where], atol=1e-3)


def test_a_table_is_a_reader_without_a_model():
  """Beliefs that two tokens decide: the table of three tokens is exact, the one-hot window is affine and is not."""
  tokens = RNG.integers(V, size=(2000, 3))
  targets = np.eye(V)[(tokens[:, 1] + tokens[:, 2]) % V]
  around = token_readers.tokens_around(tokens, V, 1)[:, 2]
  assert around[:, 0].tolist() == tokens[:, 2].tolist() and (around[:, 1] == V + 1).all()
  table = hj.probe(around, targets, KEY, kind='table')
  assert table.r_squared > 0.999 and table.kl < 0.01
  window = token_readers.one_hot_window(tokens, V, 1)[:, 2]
  assert hj.probe(window, targets, KEY).r_squared < 0.1


def test_means_of_a_table_shrink_to_those_of_shorter_sequences():
  """By hand: M_0 = mean of all; two share one token, one shares two; a third token that all share changes nothing."""
  train, targets, prior = np.array([[0, 0, 7], [0, 1, 7], [1, 1, 7]]), np.array([[0.0], [3.0], [6.0]]), 2.0
  first = (3 + prior * 3) / (2 + prior)
  expected = [(3 + prior * first) / (1 + prior), first, 3]
  found = token_readers.table_means(train, targets, np.array([[0, 1, 7], [0, 2, 7], [2, 2, 7]]), prior=prior)
  np.testing.assert_allclose(found.ravel(), expected)


def test_pictures_show_the_numbers():
  """Beliefs lie at their barycentric places; a pair's second number is the half-width of a bar, or of a band."""
  matplotlib.use('agg')
  ax = hj.plots.simplex([[1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]], values=[0.0, 1.0])
  np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0.5, 0.75**0.5 / 3], [0.75, 0.75**0.5 / 2]])
  ax = hj.plots.layers({'bert': {'embeddings': 0.5, 'layer_1': (0.8, 0.1)}, 'table': (0.3, 0.1, 0.5)})
  (bars,) = ax.containers
  np.testing.assert_allclose(bars.lines[0].get_ydata(), [0.5, 0.8])
  np.testing.assert_allclose(np.array(bars.lines[2][0].get_segments())[1, :, 1], [0.7, 0.9])
  np.testing.assert_allclose(ax.patches[0].get_bbox().intervaly, [0.1, 0.5])
  with pytest.raises(ValueError, match=r'table has \(1, 2, 3, 4\); valid is'):
    hj.plots.layers({'table': (1, 2, 3, 4)})
  with pytest.raises(ValueError, match='table has .*; valid is'):
    hj.plots.layers({'table': (3, 1, 2)})
  # A mean of equal numbers, out of their range by a rounding.
  hj.plots.layers({'bert': {'layer_1': (np.nextafter(0.1, 1), 0.1, 0.1)}, 'table': (np.nextafter(0.1, 0), 0.1, 0.1)})


@pytest.mark.parametrize(
  ('lines', 'order'),
  [
    ([['layer_1', 'layer_2'], ['embeddings', 'layer_1', 'layer_2']], ['embeddings', 'layer_1', 'layer_2']),
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


def test_the_legend_has_every_name_as_it_is():
  names = ['_mine', 'a $b$', r'$\bad$', 'other']
  ax = hj.plots.layers(dict.fromkeys(names[:2], {'layer_1': 0.5}) | dict.fromkeys(names[2:], 0.3))
  ax.figure.canvas.draw()
  assert [text.get_text() for text in ax.get_legend().get_texts()] == names


def test_layers_of_any_name_are_drawn_as_they_are():
  """Numbers, and a name between two $, which is no mathematics here."""
  ax = hj.plots.layers({'a': {1: 0.5, 'x$\\frac$2': 0.6}})
  ax.figure.canvas.draw()
  assert [label.get_text() for label in ax.get_xticklabels()] == ['1', 'x$\\frac$2']


def test_a_probe_is_called_on_features_like_those_of_its_fit():
  features = np.random.default_rng(0).normal(size=(40, 3))
  probe = hj.probe(features, features, jax.random.key(0))
  tokens, laws = (features > 0).astype(int), np.full((40, 2), 0.5)
  table = hj.probe(tokens, laws, jax.random.key(0), kind='table')
  for call in (lambda: probe(features[:, :2]), lambda: table(tokens[:, :1])):
    with pytest.raises(ValueError, match='features have shape .*; valid is .*, as those of the fit'):
      call()
  for call in (lambda: probe(np.ma.masked_array(features, features > 1)), lambda: table(tokens + 0.5)):
    with pytest.raises(ValueError, match='features (is|are) '):
      call()
