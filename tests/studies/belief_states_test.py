"""The study of belief states on the exact model, where R^2 is 1 and patches are exact; records on file."""

from conftest import DOCS
import jax
import numpy as np
from oracles import log_space_posterior, rows_of
import pandas as pd
import pytest
from run_cases import QUIET
from schema_cases import kinds_of
from settings_cases import settings_of

from experiments.analysis.tables import select
from experiments.pipeline import pretraining, trial
from experiments.records import load, results
from experiments.settings.fields import SettingsError
from experiments.studies import belief_states
import hmm_jax as hj

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

KEY, EXACT = jax.random.key(0), hj.ExactModel(3)
# All of one size, so that they share their programs.
HMM = jax.tree.map(np.float32, hj.random_hmm(KEY, 3, 3, emission_temperature=0.3))
ON_FILE = DOCS / 'results' / 'belief_states'


def _settings(**changes):
  return settings_of('smoke', 'belief_states', num_texts=200, **changes)


@pytest.mark.parametrize('place', [0, -1, None])
def test_texts_have_the_beliefs_of_their_mask(place):
  texts = belief_states.draw(_settings(), HMM, place, KEY)
  is_masked = texts.inputs == 3
  assert (is_masked.sum(1) == 1).all() and texts.read(is_masked).all()
  assert {*is_masked.argmax(1)} == ({*range(9)} if place is None else {place % 9})
  expected = texts.read(log_space_posterior(HMM, rows_of(HMM, texts.inputs)).leave_one_out_probs)
  np.testing.assert_allclose(texts.beliefs, expected, atol=1e-5)
  np.testing.assert_allclose(texts.token_probs, expected @ HMM.emission_matrix, atol=1e-5)


def test_the_belief_of_a_memory_sums_over_hidden_states():
  hmm = hj.random_memory_hmm(KEY, 2, 4, 3)
  texts = belief_states.draw(_settings(), hmm, 0, KEY)
  joint = log_space_posterior(hmm, rows_of(hmm, texts.inputs)).smoothed_probs[:, 0]
  np.testing.assert_allclose(texts.beliefs[:, 0], joint[:, :4].sum(1), atol=1e-5)


def test_the_exact_model_holds_the_belief_and_predicts_from_it():
  """Its layer has an R^2 of 1 and its prediction no KL; a window of tokens has less.

  Every patch that moves the belief to the other text's gives its prediction; its complement changes nothing.
  """
  texts = belief_states.draw(_settings(), HMM, 0, KEY)
  readers = belief_states.layers(EXACT, HMM, texts) | belief_states.controls(texts)
  scores = belief_states.scores(readers, texts, KEY)
  assert scores['window']['r_squared'] < 0.99 < scores['beliefs']['r_squared']
  assert np.shape(scores['table']['points']) == (20, 3)
  assert belief_states.prediction(texts, EXACT, HMM)['prediction']['kl'] == pytest.approx(0, abs=1e-5)
  patched = belief_states.patches(texts, EXACT, HMM, HMM, KEY)['beliefs']
  assert [fields['share'] for fields in patched.values()] == pytest.approx([1, 0, 0, 1], abs=1e-3)


def test_an_infinite_kl_is_left_out(monkeypatch):
  monkeypatch.setattr(belief_states, 'mean_kl', lambda *_: np.inf)
  texts = belief_states.draw(_settings(), HMM, 0, KEY)
  assert belief_states.prediction(texts, EXACT, HMM) == {'prediction': {}}


def test_each_part_records_every_design_and_checkpoint(tmp_path, monkeypatch):
  """The beliefs of three states at a fixed place are recorded; with a memory nothing is patched."""
  monkeypatch.setattr(pretraining, 'params_along', lambda planned, steps, _: ((step, planned.text) for step in steps))
  monkeypatch.setattr(pretraining, 'tuned_model', lambda _: EXACT)
  # An exact belief that a patch moves off the simplex has no KL.
  monkeypatch.setattr(belief_states, 'patches', lambda *_: {'beliefs': {'none': {'kl': 1.0, 'share': 1.0}}})
  # Another process would compile other programs.
  monkeypatch.setattr(trial, 'draw_distribution', lambda *_: HMM)
  belief_states.STUDY.run(_settings(num_states=(3,), temperatures=(0.01,), hmm__num_tokens=3), tmp_path, QUIET)
  records = results.load(tmp_path)
  assert {kinds_of(record) for record in records} == {('belief_states',)}
  frame = pd.DataFrame(records)
  probed = select(frame, reader='beliefs').dropna(subset='step')
  # Three processes, two designs, three steps.
  assert probed.groupby(['process', 'design', 'step']).ngroups == len(probed) == 18
  assert set(frame.dropna(subset='points')['design']) == {'fixed'}
  assert select(frame, design='beliefs patched')['process'].tolist() == ['H3_T0.01', 'mess3']


def test_tables_show_the_records_on_file():
  """The fifth end point is a geometric mean of ratios; an interval on one side of the bound decides."""
  records = load(ON_FILE)
  layer = select(records, design='pooled', reader='layer_2')
  kls = layer.pivot(index=['process', 'hmm'], columns='step', values='kl')
  logs = np.log(kls[600] / kls[0]).drop(['mess3', 'memory'])
  tests = belief_states.tables(records, _settings(bert__num_layers=2))['tests'].frame
  assert tests['ratio'][4].startswith(f'{np.exp(logs.mean()):.2g} ')
  assert tests['outcome'].tolist()[1:5] == ['undecided', 'held', 'not held', 'held']


def test_triangles_are_in_the_exact_colours():
  figure = belief_states.figures(load(ON_FILE), _settings())['simplex']
  exact, *others = (axes.collections[0].get_facecolor() for axes in figure.axes)
  assert len(others) == 9 and all(np.array_equal(exact, other) for other in others)


def test_settings_that_the_study_cannot_run_are_refused():
  with pytest.raises(SettingsError, match='^temperatures is'):
    _settings(num_states=(4, 4), temperatures=(0.1, 0.1))
  with pytest.raises(SettingsError, match='^checkpoints is'):
    belief_states.STUDY.check(_settings(checkpoints=(20, 39)))
