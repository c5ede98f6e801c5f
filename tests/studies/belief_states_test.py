"""The study of belief states on the exact model, where R^2 is 1 and patches are exact; records on file."""

from conftest import DOCS
import jax
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest
from settings_cases import settings_of

from experiments.analysis.tables import select
from experiments.records import load
from experiments.studies import belief_states
import hmm_jax as hj

pytestmark = pytest.mark.slow

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


def test_each_part_records_every_design_and_checkpoint(reduced_run):
  """The beliefs of three states at a fixed place are recorded; with a memory nothing is patched."""
  records = load(reduced_run('belief_states', 'smoke'))
  probed = select(records, reader='beliefs').dropna(subset='step')
  assert (probed.groupby(['process', 'hmm', 'design'])['step'].nunique() == records['step'].nunique()).all()
  assert set(records.dropna(subset='points')['design']) == {'fixed'}
  assert 'memory' not in set(records[records['design'].str.endswith('patched')]['process'])
