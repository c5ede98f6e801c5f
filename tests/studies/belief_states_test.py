"""The study of belief states on the exact model, where R^2 is 1 and patches are exact; tables of planted records."""

import functools
import itertools
import types

from experiments.studies.belief_states.study import STUDY
import jax
from matplotlib.figure import Figure
import numpy as np
from oracles import log_space_posterior, rows_of
import pandas as pd
import pytest
from run_cases import QUIET
from schema_cases import kinds_of
from settings_cases import settings_of

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import results
from experiments.settings.fields import SettingsError
from experiments.studies.belief_states import measure, report
import hmm_jax as hj
from hmm_jax.distributions.processes import mess3

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

KEY, EXACT = jax.random.key(0), hj.ExactModel(3)
# All of one size, so that they share their programs.
HMM = jax.tree.map(np.float32, hj.random_hmm(KEY, 3, 3, emission_temperature=0.3))


def _settings(**changes):
  return settings_of('smoke', 'belief_states', **dict(num_texts=200) | changes)


def _texts(hmm, design, place=0):
  return measure.draw(_settings(), hmm, design, place, KEY)


@pytest.mark.parametrize(('design', 'place'), [('fixed', -1), ('pooled', 0), ('visible', 0)])
def test_texts_have_the_beliefs_of_the_position_that_is_read(design, place):
  """One [MASK], which is read, or several beside a token that is read, whose belief has seen it."""
  probed, others = _texts(HMM, design, place)
  assert len(probed.inputs) == 200 and len(others.inputs) == 20
  for texts in (probed, others):
    is_masked = texts.inputs == 3
    assert (is_masked.sum(1) == 1).all() == (design != 'visible') == texts.read(is_masked).all()
    assert texts.read(is_masked).any() == (design != 'visible')
    assert set(texts.positions) <= ({8} if design == 'fixed' else set(range(9)))
    posterior = log_space_posterior(HMM, rows_of(HMM, texts.inputs))
    np.testing.assert_allclose(texts.beliefs, texts.read(posterior.smoothed_probs), atol=1e-5)
    expected = texts.read(posterior.leave_one_out_probs) @ np.float64(HMM.emission_matrix)
    np.testing.assert_allclose(texts.token_probs, expected, atol=1e-5)
  assert len(set(probed.positions)) == (1 if design == 'fixed' else 9)


def test_the_belief_of_a_memory_sums_over_hidden_states():
  hmm = hj.random_memory_hmm(KEY, 2, 4, 3)
  _, texts = _texts(hmm, 'fixed')
  joint = texts.read(log_space_posterior(hmm, rows_of(hmm, texts.inputs)).smoothed_probs)
  np.testing.assert_allclose(texts.beliefs, np.stack([joint[:, :4].sum(1), joint[:, 4:].sum(1)], 1), atol=1e-5)


def test_the_exact_model_holds_the_belief_and_predicts_from_it():
  """Its layer has an R^2 of 1, and none with shuffled beliefs, and its prediction no KL; readers of tokens have less.

  Every patch that moves the belief to the other text's gives its prediction; its complement changes nothing.
  """
  texts = _texts(HMM, 'fixed')
  found = measure.scores(functools.partial(measure.layers, EXACT, HMM), texts, KEY)
  controls = measure.scores(measure.controls, texts, KEY)
  assert found['beliefs']['r_squared'] == pytest.approx(1, abs=1e-4) and found['shuffled']['r_squared'] < 0.2
  assert measure.prediction(texts, EXACT, HMM)['prediction']['kl'] == pytest.approx(0, abs=1e-5)
  assert all(controls[name]['r_squared'] < 0.99 for name in ('window', 'table'))
  assert measure.exact(texts)['exact']['largest'] == pytest.approx(texts[0].beliefs.max(1).mean())
  (patched,) = measure.patches(texts, EXACT, HMM, HMM, KEY).values()
  shares = {name: fields['share'] for name, fields in patched.items()}
  assert patched['none']['kl'] > 0.01 and shares.pop('none') == 1 and shares.pop('random') > 0.5
  assert shares.pop('complement') == pytest.approx(1, abs=1e-3)
  assert len(shares) == 7 and list(shares.values()) == pytest.approx([0] * 7, abs=1e-3)


def test_an_infinite_kl_is_left_out(monkeypatch):
  monkeypatch.setattr(hj, 'token_probs', lambda *_: np.zeros((20, 1, 3)))
  assert measure.prediction(_texts(HMM, 'pooled'), EXACT, HMM) == {'prediction': {}}


def test_a_prompt_without_evidence_moves_no_belief_of_a_stationary_process():
  """Rows of ones change nothing; a row that is 1 on one state leaves what that state can reach in one step."""
  hmm, rows = jax.tree.map(np.float32, mess3()), np.ones((4, 3), np.float32)
  texts = _texts(hmm, 'fixed')
  found = measure.prompted(texts, EXACT, hmm, rows)['beliefs']
  assert found['shift'] == pytest.approx(0, abs=1e-5)
  assert found['distance'] == pytest.approx(found['distance_prompted'], abs=1e-5)
  rows[-1] = [1, 0, 0]
  _, others = texts
  moved = log_space_posterior(hmm._replace(initial_probs=hmm.transition_matrix[0]), rows_of(hmm, others.inputs))
  expected = np.abs(others.read(moved.smoothed_probs) - others.beliefs).sum(1).mean() / 2
  assert measure.prompted(texts, EXACT, hmm, rows)['beliefs']['shift'] == pytest.approx(expected, abs=1e-5)


def test_each_part_records_every_design_and_checkpoint(tmp_path, monkeypatch):
  """Between the ends of pretraining only pooled positions are probed; the beliefs of three states are recorded."""
  monkeypatch.setattr(pretraining, 'params_along', lambda settings, hmm, key, steps, _: ((step, hmm) for step in steps))
  monkeypatch.setattr(pretraining, 'tuned_model', lambda _: EXACT)
  monkeypatch.setattr(hj, 'tune', lambda *_, **__: types.SimpleNamespace(prompt=np.ones((2, 3), np.float32)))
  # An exact belief that a patch moves off the simplex has no KL.
  monkeypatch.setattr(measure, 'patches', lambda *_: {'beliefs': {'none': {'kl': 1.0, 'share': 1.0}}})
  # Another process would compile other programs.
  monkeypatch.setattr(trial_lib, 'draw_distribution', lambda *_: HMM)
  settings = _settings(num_states=(3,), temperatures=(0.01,), hmm__num_tokens=3)
  STUDY.run(settings, tmp_path, QUIET)
  records = results.load(tmp_path)
  assert {kinds_of(record) for record in records} == {('belief_states',)}
  frame = pd.DataFrame(records)
  assert set(frame['process']) == {'H3_T0.01', 'mess3', 'memory'}
  for _, of in frame.groupby('process'):
    probed = of[of['reader'] == 'beliefs'].dropna(subset='step')
    expected = {*itertools.product(measure.DESIGNS, (0, 40)), ('pooled', 20)}
    assert {*zip(probed['design'], probed['step'])} == expected
  points = frame.dropna(subset='points')
  assert set(points['design']) == {'fixed'} and {len(value) for value in points['points']} == {20}
  assert set(frame[frame['design'] == 'prompt']['process']) == {'H3_T0.01'}
  assert set(frame[frame['design'] == 'beliefs patched']['process']) == {'H3_T0.01', 'mess3'}


def _rows(process, number, design, step, **kls):
  same = {'process': process, 'hmm': number, 'design': design, 'step': step, 'r_squared': 0.5}
  return [{**same, 'reader': name, 'kl': kl, 'share': kl / 4} for name, kl in kls.items()]


def _planted(kl, kl_of_paper):
  """Records of three HMMs at each of two temperatures; the table has KL 1 nat and the layer about the KL given."""
  rows = []
  for number, (process, value) in itertools.product(range(3), [('H4_T0.01', kl_of_paper), ('H6_T0.1', kl)]):
    hmm, near = (process, number), 1 + 0.01 * number
    for design in measure.DESIGNS:
      rows += _rows(*hmm, design, None, table=1.0, window=0.1, **{'exact G': 0.7})
      rows += _rows(*hmm, design, 0, layer_1=4.0, prediction=2.0)
      rows += _rows(*hmm, design, 20, layer_1=3.0, prediction=1.5)
      rows += _rows(*hmm, design, 40, layer_1=value * near, prediction=0.5, shuffled=4.0)
      rows.append({'process': process, 'hmm': number, 'design': design, 'reader': 'exact', 'largest': 0.9})
    rows += _rows(*hmm, 'layer_1 patched', None, none=4.0, encoding=0.4 * near, complement=3.8 * near)
    rows.append({'process': process, 'hmm': number, 'design': 'prompt', 'reader': 'layer_1', 'distance': 0.2})
  for reader, order in ('exact', [0, 1, 2]), ('table', [2, 1, 0]):
    points = {'points': np.eye(3)[order].tolist(), 'r_squared': 1.0}
    rows.append({'process': 'mess3', 'hmm': 0, 'design': 'fixed', 'reader': reader, **points})
  frame = pd.DataFrame(rows).assign(experiment='belief_states', scale='smoke', seed=47)
  return frame.assign(distance_prompted=2 * frame['distance'], shift=3 * frame['distance'])


def test_tables_and_figures_show_the_records():
  """Ratios of end points are geometric means; a triangle is drawn in the exact colours."""
  records, settings = _planted(0.5, 2.0), _settings()
  tables = report.tables(records, settings)
  # Against table, table, window, table of the paper's draws, untrained; encoding twice, complement.
  tests = tables['tests'].frame
  ratios = [0.505, 0.505, 0.198, 0.495, 0.252, 0.101, 0.101, 1.04]
  assert tests['ratio'].str.split().str[0].astype(float).tolist() == pytest.approx(ratios, rel=0.05)
  assert tests['expected below'].tolist() == ['1'] * 5 + ['0.05', '0.5', '1.11']
  assert (tests['p, Holm'].astype(float) < 0.05).all()
  kl = tables['kl'].frame.set_index(['process', 'design'])
  assert kl.loc[('H6_T0.1', 'pooled'), ['layer_1', 'untrained layer_1', 'table']].tolist() == ['0.505', '4', '1']
  assert tables['r_squared'].frame['exact'].tolist()[0] == '0.9'
  assert tables['patches'].frame['encoding'].tolist() == ['0.101'] * 2
  assert tables['prompts'].frame['layer_1'].tolist() == ['0.2', '0.4', '0.6'] * 2
  figures = report.figures(records, settings)
  assert [*figures] == ['layers', 'along', 'patches', 'simplex']
  layer, prediction = (line.get_xydata() for line in figures['along'].axes[0].lines)
  np.testing.assert_allclose(layer, [[0, 1], [20, 0.75], [40, 0.505]])
  np.testing.assert_allclose(prediction, [[0, 0.5], [20, 0.375], [40, 0.125]])
  exact, table = (axes.collections[0] for axes in figures['simplex'].axes)
  np.testing.assert_allclose(exact.get_facecolor(), table.get_facecolor())
  np.testing.assert_allclose(exact.get_offsets(), table.get_offsets()[::-1])


def test_embeddings_are_drawn_before_layers():
  names = [f'{of}{layer}' for of in ('', 'untrained ') for layer in ('embeddings', 'layer_1', 'layer_2')]
  readers = [*names, 'exact G', 'window', 'table', 'shuffled']
  axes = Figure().subplots()
  report._draw_layers(axes, pd.DataFrame({'reader': readers, 'kl': 1.0}))
  assert [label.get_text() for label in axes.get_xticklabels()] == ['emb.', 'layer_1', 'layer_2']


def test_settings_that_the_study_cannot_run_are_refused():
  with pytest.raises(SettingsError, match='^temperatures is'):
    _settings(num_states=(4, 4), temperatures=(0.1, 0.1))
