"""Pretraining as the experiments run it: which mesh, which chunks, one model for several trials."""

import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest
from run_cases import run_trial
from settings_cases import settings_of

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records.files import read_arrays, read_json_lines
from experiments.records.trials import TEXTS, TrialFolder
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial


@pytest.mark.parametrize(
  ('field', 'processes', 'changes'),
  [
    ('mesh', 1, dict(mesh__data=3, mesh__tensor=3)),
    ('mesh', 2, dict(mesh__data=2, mesh__tensor=2)),
    ('pretrain.batch_size is 12; valid is a multiple of mesh.data, 8', 1, dict(pretrain__batch_size=12)),
    ('bert.num_heads is 2; valid is a multiple of mesh.tensor, 4', 1, dict(mesh__tensor=4)),
    ('pretrained', 1, dict(pretrained='/proc/nothing')),
    (None, 1, dict(mesh__data=-1, mesh__tensor=2)),
    (None, 1, dict(mesh__data=2, mesh__tensor=1)),
  ],
)
def test_a_machine_must_fit_the_settings(field, processes, changes, monkeypatch):
  """A mesh takes all of eight devices or, in one process, fewer; its axes divide the batch and the layers."""
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  monkeypatch.setattr(jax, 'process_count', lambda: processes)
  settings = settings_of('smoke', **changes)
  if field is None:
    pretraining.check_machine(settings)
    assert settings.mesh.sizes(8) in [(4, 2), (2, 1)]
  else:
    with pytest.raises(SettingsError, match=f'^{field}'):
      pretraining.check_machine(settings)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A trial of each model at three states that has been run."""
  settings = settings_of('smoke', num_states=(3,), methods=('head',), shown_texts=2)
  folder = TrialFolder(Trial(settings, Point(3), 0), tmp_path_factory.mktemp('finished'))
  run_trial(folder)
  return folder


@pytest.mark.slow
def test_texts_are_kept_beside_the_records(finished):
  """The first test texts, with what the exact model makes of the first token, and of each given the others."""
  kept, hmm = read_arrays(finished.directory / TEXTS), trial_lib.distribution_of(finished.trial)
  downstream = trial_lib.tasks_of(finished.trial, hmm)
  tokens = downstream.inputs[downstream.splits['test']][:2]
  np.testing.assert_array_equal(kept['tokens'], tokens)
  probs = log_space_conditional(hmm, rows_of(hmm, tokens))
  np.testing.assert_allclose(kept['at_mask'][:, 0], probs[:, 0], atol=1e-6)
  np.testing.assert_allclose(kept['of_token'][:, 0, 3], probs[[0, 1], 3, tokens[:, 3]], atol=1e-6)
  np.testing.assert_allclose(kept['state_probs'][:, 0], downstream.label_probs(tokens).max(-1), atol=1e-6)


@pytest.mark.slow
def test_the_distance_from_the_ideal_model_is_recorded(finished):
  """At every measured step of BERT its loss is above the Bayes floor; the exact model has no distance."""
  rows = read_json_lines(finished.pretrained_directory / 'metrics.jsonl')
  for row in rows:
    assert 0 < row['excess_mlm_loss'] == pytest.approx(row['mlm_loss'] - row['bayes_floor'], abs=1e-4)
  (exact, *_) = [row for row in finished.records().values() if row['model'] == 'exact']
  assert len(rows) == 3 and abs(exact['kl_at_mask']) < 1e-5 and abs(exact['tv_over_positions']) < 1e-5
