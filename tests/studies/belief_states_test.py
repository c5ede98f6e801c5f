"""The study of belief states on the exact model, where R^2 is 1 and patches are exact; tables of planted records."""

import itertools
import types

import jax
import numpy as np
from oracles import log_space_posterior, rows_of
import pandas as pd
import pytest
from run_cases import QUIET
from schema_cases import kinds_of
from settings_cases import settings_of

from experiments.pipeline import pretraining
from experiments.records import results
from experiments.settings.fields import SettingsError
from experiments.studies.belief_states import measure, report
from experiments.studies.belief_states.study import STUDY
import hmm_jax as hj
from hmm_jax.distributions.processes import mess3

pytestmark = pytest.mark.usefixtures('without_optimisation')

KEY = jax.random.key(0)
HMM = hj.random_hmm(KEY, 5, 3, emission_temperature=0.3)
# The order of the three beliefs that are drawn, by reader.
BELIEFS = {'exact': [0, 1, 2], 'table': [2, 1, 0]}


def _settings(**changes):
  return settings_of('smoke', 'belief_states', **dict(num_texts=200, num_held_out=20) | changes)


def _texts(hmm, design, place=0):
  return measure.draw(_settings(), hmm, design, place, KEY)


@pytest.fixture(scope='module')
def fixed():
  return measure.Probing(_texts(HMM, 'fixed'), 200, KEY)


@pytest.mark.parametrize(('design', 'place', 'most'), [('fixed', -1, 1), ('pooled', 0, 1), ('visible', 0, 9)])
def test_texts_have_the_beliefs_of_the_position_that_is_read(design, place, most):
  """One [MASK], which is read, or several beside a token that is read, whose belief has seen it."""
  texts = _texts(HMM, design, place)
  is_masked = texts.inputs == 3
  assert (is_masked.sum(1) <= most).all() and (texts.read(is_masked) == (design != 'visible')).all()
  assert set(texts.positions) == ({8} if design == 'fixed' else set(range(9)))
  posterior = log_space_posterior(HMM, rows_of(HMM, texts.inputs))
  np.testing.assert_allclose(texts.beliefs, texts.read(posterior.smoothed_probs), atol=1e-5)
  expected = texts.read(posterior.leave_one_out_probs) @ np.float64(HMM.emission_matrix)
  np.testing.assert_allclose(texts.token_probs, expected, atol=1e-5)


def test_the_belief_of_a_memory_sums_over_hidden_states():
  hmm = hj.random_memory_hmm(KEY, 2, 4, 3)
  texts = _texts(hmm, 'fixed')
  joint = texts.read(log_space_posterior(hmm, rows_of(hmm, texts.inputs)).smoothed_probs)
  np.testing.assert_allclose(texts.beliefs, np.stack([joint[:, :4].sum(1), joint[:, 4:].sum(1)], 1), atol=1e-5)


def test_the_exact_model_holds_the_belief_and_predicts_from_it(fixed):
  """Its layer has an R^2 of 1, and none with shuffled beliefs, and its prediction no KL; controls have less."""
  found = measure.layers(fixed, hj.ExactModel(3), HMM)
  assert found['r_squared', 'beliefs'] == pytest.approx(1, abs=1e-4) and found['r_squared', 'shuffled'] < 0.2
  assert found['kl', 'prediction'] == pytest.approx(0, abs=1e-5)
  controls = measure.controls(fixed, 2)
  assert all(controls['r_squared', name] < 0.99 for name in ('exact G', 'window', 'table'))
  beliefs = fixed.texts.beliefs
  assert controls['entropy', 'exact'] == pytest.approx(-(beliefs * np.log(beliefs)).sum(1).mean())
  assert found['share', 'beliefs'] * controls['kl', 'mean belief'] == pytest.approx(found['kl', 'beliefs'], rel=0.1)


def test_patches_of_the_exact_model_are_exact(fixed):
  """All that moves the belief to the other text's gives its prediction; its complement and no patch change nothing."""
  found = {patch: kl for (patch, _), kl in measure.patches(fixed, hj.ExactModel(3), HMM, HMM).items()}
  for patch in ('full', 'encoding', 'belief subspace', 'PCA', 'pseudo-inverse'):
    assert found[patch] == pytest.approx(0, abs=1e-3), patch
  assert found['complement'] == pytest.approx(1, abs=1e-3) and found['none'] > 0.01
  assert found['random'] > 0.5 and found['belief, rank of tokens'] > found['belief subspace']


def test_a_prompt_without_evidence_moves_no_belief_of_a_stationary_process(monkeypatch):
  """Rows of ones change nothing; a row that is 1 on one state leaves what that state can reach in one step."""
  hmm = jax.tree.map(np.float32, mess3())
  probing = measure.Probing(_texts(hmm, 'fixed'), 200, KEY)
  rows = np.ones((4, 3), np.float32)
  monkeypatch.setattr(hj, 'tune', lambda *_, **__: types.SimpleNamespace(prompt=rows, accuracy=0.5))
  run = lambda: measure.prompted(probing, hj.ExactModel(3), hmm, hmm, _settings())
  found = run()
  assert found['total variation', 'beliefs'] == pytest.approx(0, abs=1e-5)
  assert found['distance', 'beliefs'] == pytest.approx(found['distance, prompted', 'beliefs'], abs=1e-5)
  rows[-1] = [1, 0, 0]
  texts = probing.texts.part(200, None)
  posterior = log_space_posterior(hmm._replace(initial_probs=hmm.transition_matrix[0]), rows_of(hmm, texts.inputs))
  expected = np.abs(texts.read(posterior.smoothed_probs) - texts.beliefs).sum(1).mean() / 2
  assert run()['total variation', 'beliefs'] == pytest.approx(expected, abs=1e-5)


def _along(settings, hmm, key, steps, reporter):
  """In place of a pretraining: the HMM at every step."""
  return ((step, hmm) for step in steps)


def test_each_part_records_every_design_and_checkpoint(tmp_path, monkeypatch):
  """Controls have no step; between the ends only pooled positions are probed; a memory is not patched."""
  monkeypatch.setattr(pretraining, 'params_along', _along)
  monkeypatch.setattr(pretraining, 'tuned_model', lambda bert: hj.ExactModel(bert.num_tokens))
  settings = _settings(num_states=(4,), temperatures=(0.1,))
  STUDY.run(settings, tmp_path, QUIET)
  records = results.load(tmp_path)
  assert {kinds_of(record) for record in records} == {('belief_states',)}
  frame = pd.DataFrame(records)
  for process, of in frame.groupby('process'):
    probed = of[of['reader'] == 'beliefs'].dropna(subset='step')
    expected = {*itertools.product(measure.DESIGNS, (0, 40)), ('pooled', 20)}
    assert {*zip(probed['design'], probed['step'])} == expected
    assert (of['design'] == 'patch').any() == (process != 'M2')
  points = frame[frame['measure'] == 'points']
  assert set(points['process']) == {'mess3'} and {len(value) for value in points['value']} == {20}


def _planted(kl, kl_of_paper):
  """Records of three HMMs at each of two temperatures; the table has KL 1 nat and the layer about the KL given."""
  rows = []
  for number, (process, value) in itertools.product(range(3), [('H4_T0.01', kl_of_paper), ('H6_T0.1', kl)]):
    of_hmm = dict(experiment='belief_states', scale='smoke', seed=47, process=process, hmm=number)
    near = 1 + 0.01 * number

    def add(design, step, name, of_hmm=of_hmm, **by_reader):
      same = of_hmm | dict(design=design, step=step, measure=name)
      rows.extend(same | dict(reader=reader.replace('_', ' '), value=one) for reader, one in by_reader.items())

    for design, name in itertools.product(measure.DESIGNS, ('kl', 'r_squared')):
      add(design, None, name, table=1.0, window=0.1, exact_G=0.7)
      for step, one in (0, 4.0), (40, value * near):
        add(design, step, name, embeddings=4.0, shuffled=4.0)
        rows.append(rows[-1] | dict(reader='layer_1', value=one))
    for step, one in (0, 1.0), (20, 0.75), (40, 0.25):
      add('pooled', step, 'share', prediction=one / 2)
      rows.append(rows[-1] | dict(reader='layer_1', value=one))
    add('fixed', None, 'entropy', exact=0.3)
    for design, name, one in ('patch', 'none', 1.0), ('patch', 'encoding', 0.1), ('patch', 'complement', 0.95):
      rows.append(of_hmm | dict(design=design, step=None, measure=name, reader='layer_1', value=one * near))
    rows.append(rows[-1] | dict(design='prompt', measure='distance'))
  points = rows[0] | dict(process='mess3', design='fixed', step=None, measure='points')
  rows += [points | dict(reader=reader, value=np.eye(3)[order].tolist()) for reader, order in BELIEFS.items()]
  return pd.DataFrame(rows)


def test_end_points_hold_or_are_refuted_by_the_sign_of_their_means():
  """A layer at half the table's KL is below it, and above the window's; of the paper's draws the table wins."""
  verdicts = lambda *kls: report.tables(_planted(*kls), _settings())['tests'].frame['verdict'].tolist()
  # Against table, table, window, table of the paper's draws, untrained; encoding at .05 and .5, complement.
  assert verdicts(0.5, 2.0) == ['holds'] * 5 + ['refuted', 'holds', 'holds']
  assert verdicts(2.0, 0.5)[:5] == ['refuted', 'refuted', 'holds', 'refuted', 'holds']


def test_tables_and_figures_show_the_records():
  """Means over HMMs by process and design; lines fall towards the origin; a triangle in the exact colours."""
  records, settings = _planted(0.5, 2.0), _settings()
  tables = report.tables(records, settings)
  kl = tables['kl'].frame.set_index(['process', 'design'])
  assert kl.loc[('H6_T0.1', 'visible'), ['layer_1', 'untrained layer_1', 'table']].tolist() == ['0.505', '4', '1']
  assert 'embeddings' not in kl
  along = tables['along'].frame.set_index(['process', 'step'])
  assert along.loc[('H6_T0.1', '20.0'), ['layer_1', 'prediction']].tolist() == ['0.75', '0.375']
  figures = report.figures(records, settings)
  assert [*figures] == ['layers_kl', 'layers_r_squared', 'along', 'patches', 'simplex']
  line = figures['along'].axes[0].lines[0].get_xydata()
  np.testing.assert_allclose(line[np.argsort(line[:, 0])], [[12.5, 25], [37.5, 75], [50, 100]])
  bars = {bar.get_y(): bar.get_width() for bar in figures['patches'].axes[0].patches}
  np.testing.assert_allclose(sorted(bars.values()), [0.101, 0.9595])
  exact, table = (axes.collections[0] for axes in figures['simplex'].axes)
  np.testing.assert_allclose(exact.get_facecolor(), table.get_facecolor())
  np.testing.assert_allclose(exact.get_offsets(), table.get_offsets()[::-1])


@pytest.mark.parametrize(
  ('field', 'changes'),
  [
    ('temperatures', dict(temperatures=(0.1,))),
    ('temperatures', dict(num_states=(4, 4), temperatures=(0.1, 0.1))),
    ('checkpoints', dict(checkpoints=(20, 40))),
    ('named', dict(named=('mess4',))),
  ],
)
def test_settings_that_the_study_cannot_run_are_refused(field, changes):
  with pytest.raises(SettingsError, match=f'^{field} is'):
    _settings(**changes)
