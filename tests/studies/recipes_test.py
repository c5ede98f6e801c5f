"""Recipes of pretraining: what they may change, what they may cost, and what is said of them."""

import dataclasses
import pathlib
import shutil

import jax
import numpy as np
import pandas as pd
import pytest
from run_cases import finished_study
import scipy.stats
from settings_cases import settings_of

from configs import prompt_vs_head, recipes as config_file
from experiments.pipeline import cost, trial as trial_lib
from experiments.records import checkpoints, environment, files, results
from experiments.settings.fields import SettingsError
from experiments.studies import recipes, registry

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _settings(scale='smoke', **changes):
  return settings_of(scale, 'recipes', **changes)


def _operations(settings):
  """Those of a whole pretraining."""
  return settings.pretrain.num_steps * cost.pretraining_step(settings)


@pytest.mark.parametrize('scale', config_file.SCALES)
def test_no_recipe_takes_more_operations_than_the_base(scale):
  """Each takes all that the base's operations pay for, down to a whole call of the compiled steps; or what it names."""
  settings = _settings(scale)
  whole = _operations(settings)
  for name, recipe in settings.recipes().items():
    total, p = _operations(recipe), recipe.pretrain
    assert total <= whole * (1 + 1e-9)
    assert whole < total * (1 + p.steps_per_call / p.num_steps) or 'num_steps' in name


def test_tuned_differs_from_the_paper_in_training_alone():
  """The scale `tuned` has the paper's model, text and tasks, and no more operations than `paper`."""
  paper, tuned = (registry.from_config(prompt_vs_head.get_config(scale)) for scale in ('paper', 'tuned'))
  steps = dict(scale='paper', pretrain=paper.pretrain)
  assert dataclasses.replace(tuned, **steps) == paper != tuned
  assert 0.97 * _operations(paper) < _operations(tuned) <= _operations(paper)


def test_a_recipe_changes_what_it_says_and_its_steps():
  """Beside the named field the steps change, the warm-up with them, unless they are named themselves."""
  settings = _settings('small')
  half = settings.recipe('pretrain.batch_size=16 bert.init_stddev=0.1')
  steps = dict(num_steps=1000, warmup_steps=80, measure_every=100, checkpoint_every=100, batch_size=16)
  assert half.pretrain == dataclasses.replace(settings.pretrain, **steps)
  assert half.bert == dataclasses.replace(settings.bert, init_stddev=0.1)
  assert half.corpus == settings.corpus
  named = settings.recipe('pretrain.batch_size=64 pretrain.num_steps=70 pretrain.warmup_steps=3').pretrain
  assert (named.num_steps, named.warmup_steps) == (70, 3)


@pytest.mark.parametrize(
  'variants',
  [
    ('pretrain.learning_rat=1',),
    ('seed=1',),
    ('pretrain.batch_size=2.5',),
    ('bert.scan_layers=false',),
    ('pretrain.mask_rate=2',),
    ('bert.num_layers=3',),
    # Two recipes that name one model: the base, or twice the same.
    ('pretrain.b2=0.999',),
    ('pretrain.b2=0.9', 'pretrain.b2=0.90'),
  ],
)
def test_a_variant_that_cannot_be_is_refused(variants):
  with pytest.raises(SettingsError, match='^variants '):
    _settings(variants=variants)


def test_recipes_meet_the_same_distributions_and_text():
  """Recipes differ in the id of their models and in no key."""
  settings = _settings('small')
  (point,) = settings.grid()
  trials = [trial_lib.Trial(recipe, point, 1, pathlib.Path('runs')) for recipe in settings.recipes().values()]
  assert len({trial.pretraining_id for trial in trials}) == len(trials) == 13
  keys = [jax.random.key_data(jax.numpy.stack(trial.keys())).tolist() for trial in trials]
  assert all(key == keys[0] for key in keys)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run of the smoke scale: its workdir, its settings, and what it printed."""
  workdir, settings = tmp_path_factory.mktemp('finished'), _settings(num_states=(4,))
  return workdir, settings, finished_study(recipes.STUDY, settings, workdir)


def test_a_run_records_each_recipe_with_its_way(finished):
  """One record a recipe, whose curve ends at its last step and its distance from the ideal model; table and figure."""
  workdir, settings, printed = finished
  records = results.load(workdir)
  assert [record['recipe'] for record in records] == ['base', *settings.variants]
  for record in records:
    assert record['curve'][0][0] == 0 and record['curve'][-1] == [record['num_steps'], record['kl_at_mask']]
    assert 0 < record['operations'] <= 1 and set(record['accuracy']) == {'head'}
  assert 'optimizer=adamw' in printed and (workdir / 'recipes.png').exists()
  assert len(environment.load(workdir, records)) == 1


def test_the_way_of_a_pretraining_is_that_of_its_checkpoint(finished, tmp_path):
  """It is not that of metrics.jsonl beside it; without a good one nothing is on record of a recipe."""
  workdir, settings, _ = finished
  copy = shutil.copytree(workdir, tmp_path / 'copy')
  trial, *_ = recipes.STUDY.trials(settings, copy).values()
  way = files.read_json_lines(trial.pretrained_directory / 'metrics.jsonl')
  (trial.pretrained_directory / 'metrics.jsonl').unlink()
  assert recipes.metrics_of(trial) == way
  metrics = trial.pretrained_directory / checkpoints.NAME / str(way[-1]['step']) / 'metrics' / 'metrics'
  metrics.write_text(metrics.read_text().replace('0', '1', 1))
  with pytest.raises(SettingsError):
    recipes.metrics_of(trial)


def _record(trial, recipe, curve, operations=1.0, accuracy=0.5):
  kl = curve[-1][1]
  return dict(
    recipe=recipe,
    num_states=4,
    memory_size=0,
    num_cells=0,
    trial=trial,
    num_steps=curve[-1][0],
    operations=operations,
    kl_at_mask=kl,
    kl_over_positions=2 * kl,
    excess_mlm_loss=3 * kl,
    accuracy={'head': accuracy},
    curve=curve,
  )


def test_the_table_pairs_recipes_by_distribution():
  """Ratios, with the t interval of their logarithm, and differences are with the base on the same trial.

  The share that reaches the base's KL is where the logarithm of the curve crosses it.
  """
  records, shares, ratios = [], [], (0.5, 0.8, 0.4)
  for trial, (kl, ratio) in enumerate(zip((0.1, 0.4, 0.2), ratios)):
    records.append(_record(trial, 'base', [[0, 2.0], [10, kl]]))
    records.append(_record(trial, 'pretrain.b2=0.9', [[0, 2.0], [4, 1.0], [10, kl * ratio]], 0.5, 0.6))
    records.append(_record(trial, 'bert.init_stddev=1', [[0, 2.0], [10, kl * (0.5 if trial else 2)]]))
    shares.append((4 + 6 * np.log(kl) / np.log(kl * ratio)) / 10)
  found = recipes.tables(pd.DataFrame(records), None)['recipes'].frame
  rows = found.rename(columns=lambda heading: heading.replace('\n', ' ')).to_dict('records')
  low, high = scipy.stats.t.interval(0.95, 2, np.log(ratios).mean(), scipy.stats.sem(np.log(ratios)))
  expected = {'recipe': 'b2=0.9', 'operations': '0.50', 'head accuracy': '60.0', 'head - base': '10.0 ± 0.0'}
  expected['KL at [MASK] / base'] = f'{scipy.stats.gmean(ratios):.2f} [{np.exp(low):.2f}, {np.exp(high):.2f}]'
  expected["share to reach the base's KL"] = f'{np.mean(shares) / 2:.2f}'
  assert expected.items() <= rows[1].items()
  assert rows[0]['KL at [MASK]'] == '0.2000' and rows[2]["share to reach the base's KL"] == '2 of 3 reach'
