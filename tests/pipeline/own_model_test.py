"""A model of the user's own is tuned like any other, resumed and in the table."""

from conftest import dirichlet_hmm
import numpy as np
import pytest
from run_cases import exact_settings, QUIET

from experiments.pipeline import sweep
from experiments.records import load
from experiments.settings import own_code
from experiments.settings.fields import SettingsError
from hmm_jax.model import ExactModel

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


def test_a_model_of_another_vocabulary_is_refused(monkeypatch):
  made = ExactModel(4), dirichlet_hmm(np.random.default_rng(0), 3)
  monkeypatch.setitem(own_code._imported, 'mine:build', own_code.Function(lambda *_: made, ''))
  with pytest.raises(SettingsError, match=r"^model is 'mine:build'.* \(1, 2, 10\), and not \(1, 2, 4\)"):
    sweep.check(SETTINGS)
