"""A model of the user's own is tuned like any other, resumed and in the table."""

import dataclasses

from conftest import dirichlet_hmm
import numpy as np
import pytest
from run_cases import exact_settings, QUIET

from experiments.pipeline import process_check, sweep
from experiments.records import load
from experiments.settings import own_code
from experiments.settings.fields import SettingsError
from hmm_jax.model import ExactModel
from hmm_jax.processes import mess3

SETTINGS = exact_settings(num_states=(4,), models=('own', 'exact'), model='mine:build')


def test_a_model_of_ones_own_is_tuned_resumed_and_shown(tmp_path, monkeypatch):
  """One that is the exact model has its numbers; where the file of its module changes, its records alone are others."""
  ids = []
  for digest in ('one', 'another'):
    function = own_code.Function(lambda hmm, key: (ExactModel(10), hmm), digest)
    monkeypatch.setitem(own_code._imported, 'mine:build', function)
    sweep.run(SETTINGS, tmp_path, QUIET)
    records = load(tmp_path).set_index('model')
    ids.append(records['fit_id'])
  numbers = records.select_dtypes('number')
  assert numbers.loc['own'].equals(numbers.loc['exact']) and list(ids[0] == ids[1]) == [True, False]
  assert 'head\nown model' in sweep.tables(records.reset_index(), SETTINGS)['accuracy'].frame


class Scores(ExactModel):
  """Predicts what is no probability."""

  def predict(self, params, embeddings, positions=None):
    return super().predict(params, embeddings, positions) - 1


class AllPositions(ExactModel):
  """Predicts at all positions, whichever are read."""

  def predict(self, params, embeddings, positions=None):
    return super().predict(params, embeddings)


def _exits(*_):
  raise SystemExit(0)


@pytest.mark.parametrize(
  ('call', 'valid'),
  [
    (lambda *_: (ExactModel(4), dirichlet_hmm(np.random.default_rng(0), 3)), r'\(1, 1, 10\), not \(1, 1, 4\)'),
    (lambda hmm, _: (AllPositions(10), hmm), r'\(1, 1, 10\), not \(1, 2, 10\)'),
    (lambda hmm, _: (Scores(10), hmm), r'are probabilities, not \[-'),
    (_exits, 'which raised SystemExit'),
  ],
)
def test_what_is_no_model_is_refused(monkeypatch, call, valid):
  """Another vocabulary, predictions that ignore `positions` or are no probabilities, and a function that exits."""
  monkeypatch.setitem(own_code._imported, 'mine:build', own_code.Function(call, ''))
  with pytest.raises(SettingsError, match=f"^model is 'mine:build'.*{valid}"):
    sweep.check(SETTINGS)


def test_a_model_is_tried_on_the_given_process(monkeypatch):
  """It is called with the process alone, and not with a draw."""
  tried = []
  call = lambda hmm, _: (ExactModel(hmm.num_tokens), tried.append(hmm.num_tokens) or hmm)
  monkeypatch.setitem(own_code._imported, 'mine:build', own_code.Function(call, ''))
  settings = dataclasses.replace(SETTINGS, distribution='mess3-0123456789ab')
  sweep.check(settings)
  process_check.check(settings, mess3())
  assert tried == [3]
