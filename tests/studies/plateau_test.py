"""BERTs along their pretraining: what is recorded, when one has left the plateau, and what is refused."""

import numpy as np
import pytest
from run_cases import finished_study
from schema_cases import kinds_of
import scipy.stats
from settings_cases import settings_of

from experiments.pipeline import pretraining
from experiments.records import results
from experiments.settings.fields import SettingsError
from experiments.studies import plateau
from hmm_jax.models.bayes_gap import Ideal
from hmm_jax.models.model import ExactModel

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _settings(**changes):
  return settings_of('smoke', 'plateau', **dict(num_states=(4,), num_trials=1, methods=('head', 'table')) | changes)


def _leaving(settings, hmm, key, steps, reporter):
  """In place of a pretraining: emissions that are all alike, then those of the HMM."""
  for step in steps:
    share = step / steps[-1]
    yield step, hmm._replace(emission_matrix=np.float32(share * hmm.emission_matrix + (1 - share) / 10))


def test_each_checkpoint_has_its_distance_and_its_accuracies(tmp_path, monkeypatch):
  """Steps between checkpoints have only a KL, and a reader without a model no step; KL falls from the gap to 0."""
  monkeypatch.setattr(pretraining, 'params_along', _leaving)
  monkeypatch.setattr(pretraining, 'tuned_model', lambda bert: ExactModel(bert.num_tokens))
  settings = _settings(checkpoints=(20, 40), pretrain__measure_every=10)
  shown, records = finished_study(plateau.STUDY, settings, tmp_path), results.load(tmp_path)
  tasks = range(settings.tasks_per_trial)
  expected = [(None, 'table', task) for task in tasks] + [(0, None, None), (10, None, None)]
  expected += [*((20, 'head', task) for task in tasks), (30, None, None), *((40, 'head', task) for task in tasks)]
  assert [(row['step'], row['method'], row['task']) for row in records] == expected
  assert {kinds_of(row) for row in records} == {('plateau',)}
  gaps = {row['step']: row['kl_at_mask'] / row['unigram_gap'] for row in records if row['step'] is not None}
  assert gaps[0] > 1 > gaps[10] > gaps[20] > gaps[30] > gaps[40] == pytest.approx(0, abs=1e-6)
  assert '1/1' in shown and (tmp_path / 'plateau.png').exists()


def test_the_unigram_gap_is_that_of_the_best_constant_prediction():
  """The mean KL to the mean of G, which is the least."""
  probs = np.random.default_rng(0).dirichlet([0.3] * 4, 50)
  gap = plateau.unigram_gap(Ideal(None, None, None, probs[:, None]))
  assert gap == pytest.approx(scipy.stats.entropy(probs, probs.mean(0)[None], axis=1).mean())


@pytest.mark.parametrize(
  ('field', 'changes'),
  [
    ('checkpoints', dict(checkpoints=(40, 20))),
    ('checkpoints', dict(checkpoints=(20,))),
    ('checkpoints', dict(checkpoints=(15, 40))),
    ('models', dict(models=('bert', 'exact'))),
    ('memory.sizes', dict(memory__sizes=(2,))),
  ],
)
def test_settings_that_the_study_cannot_run_are_refused(field, changes):
  """Steps that are out of order, end early or within a call of the program; other models and text."""
  with pytest.raises(SettingsError, match=f'^{field} is'):
    _settings(**changes)
