"""Recipes of pretraining: what they may change, what they may cost, and what is said of them."""

import dataclasses
import io
import json
import pathlib
import shutil

from conftest import assert_same_bits
import jax
import numpy as np
import pandas as pd
import pytest
import rich.console
import scipy.stats

from configs import prompt_vs_head, recipes as config_file
from experiments.pipeline import cost, pretraining, trial as trial_lib
from experiments.records import checkpoints, environment, results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import recipes, registry
from hmm_jax import sharding

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(scale='smoke', **changes):
  config = config_file.get_config(scale)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return registry.from_config(config)


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
  ('variant', 'words'),
  [
    ('pretrain.learning_rat=1', 'learning_rat=1.*pretrain.learning_rate'),
    ('seed=1', 'seed=1.*one of corpus'),
    ('pretrain.batch_size=2.5', 'batch_size.*2.5.*int'),
    ('pretrain.mask_rate=2', 'mask_rate is 2.0'),
    ('pretrain.optimizer=sgd', "optimizer is 'sgd'.*adamw, muon"),
    ('corpus.chunk_length=10000', 'chunk_length'),
    ('bert.scan_layers=false', "scan_layers is 'false'; valid is True or False"),
    ('bert.num_layers=3', 'num_layers=3.*bert.max_positions, bert.dropout_rate'),
  ],
)
def test_a_variant_that_cannot_be_is_refused(variant, words):
  """One sentence has the variant and what is wrong in it."""
  with pytest.raises(SettingsError, match=f'variants has .{variant}.: .*{words}'):
    _settings(variants=(variant,))


def test_booleans_are_those_of_python():
  """'False' is not true."""
  settings = _settings(bert__num_layers=2)
  assert [settings.recipe(f'bert.scan_layers={value}').bert.scan_layers for value in (True, False)] == [True, False]


@pytest.mark.parametrize('models', [('exact',), ('bert', 'exact')])
def test_a_recipe_is_of_bert_alone(models):
  """No accuracy is averaged over models, and nothing is pretrained of the exact one."""
  with pytest.raises(SettingsError, match=r"models is .*; valid is \('bert',\)"):
    _settings(models=models)


@pytest.mark.parametrize(
  'variants',
  [('pretrain.b2=0.999',), ('pretrain.b2=0.9', 'pretrain.b2=0.90'), ('pretrain.measure_every=20',), ('',), (' ',)],
)
def test_recipes_of_one_model_are_refused(variants):
  """What names a model is the same for both: as the base is, twice the same, or measured elsewhere alone."""
  with pytest.raises(SettingsError, match='variants is .*; valid is recipes, FIELD=VALUE, that differ'):
    _settings(variants=variants)


def test_recipes_meet_the_same_distributions_and_text():
  """Recipes differ in the id of their models and in no key."""
  settings = _settings('small')
  (point,) = settings.grid()
  trials = [trial_lib.Trial(recipe, point, 1, pathlib.Path('runs')) for recipe in settings.recipes().values()]
  assert len({trial.pretraining_id for trial in trials}) == len(trials) == 13
  keys = [jax.random.key_data(jax.numpy.stack(trial.keys())).tolist() for trial in trials]
  assert all(key == keys[0] for key in keys)


def test_the_base_of_the_study_is_the_recipe_before_it():
  """Whatever the default is now, the study compares with AdamW at 2e-3 on batches of 32 for 1250 steps."""
  p = _settings('finalists').recipe('').pretrain
  assert (p.optimizer, p.learning_rate, p.batch_size, p.num_steps) == ('adamw', 2e-3, 32, 1250)
  assert (p.decay, p.b2, p.warmup_steps, p.mask_rate) == ('linear', 0.999, 100, 0.15)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run of the smoke scale: its workdir, its settings, and what it printed."""
  workdir, settings = tmp_path_factory.mktemp('finished'), _settings(num_states=(4,))
  return workdir, settings, _run(settings, workdir)


def _run(settings, workdir):
  reporter = Reporter(rich.console.Console(file=io.StringIO()))
  recipes.STUDY.run(settings, workdir, reporter)
  recipes.STUDY.show(settings, workdir, reporter)
  return reporter.console.file.getvalue()


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


def test_a_second_run_only_reports(finished):
  """Nothing is pretrained or tuned again, and the records are the same."""
  workdir, settings, _ = finished
  before = (workdir / 'results.jsonl').read_bytes()
  assert 'pretraining' not in _run(settings, workdir)
  assert (workdir / 'results.jsonl').read_bytes() == before


def test_a_pretrained_model_that_is_gone_is_named(finished, tmp_path):
  """Records without the way of their pretraining are no record of a recipe."""
  workdir, settings, _ = finished
  copy = shutil.copytree(workdir, tmp_path / 'copy')
  shutil.rmtree(copy / 'pretrained')
  before = (copy / 'results.jsonl').read_bytes()
  with pytest.raises(
    SettingsError, match=f'{copy}/pretrained/.* of .*/trials/.* has no good checkpoint .*; valid is to delete both'
  ):
    _run(settings, copy)
  assert (copy / 'results.jsonl').read_bytes() == before and not (copy / 'pretrained').exists()


def test_the_way_of_a_pretraining_is_that_of_its_checkpoint(finished, tmp_path):
  """Whose bytes are known, not that of metrics.jsonl beside it."""
  workdir, settings, _ = finished
  copy = shutil.copytree(workdir, tmp_path / 'copy')
  trial, *_ = recipes.STUDY.trials(settings, copy).values()
  way = [json.loads(line) for line in (trial.pretrained_directory / 'metrics.jsonl').read_text().splitlines()]
  (trial.pretrained_directory / 'metrics.jsonl').unlink()
  assert recipes.metrics_of(trial) == way
  last = trial.pretrained_directory / checkpoints.NAME / str(way[-1]['step'])
  (last / checkpoints.CHECKSUMS).rename(tmp_path / 'checksums')
  assert recipes.metrics_of(trial) == way
  (tmp_path / 'checksums').rename(last / checkpoints.CHECKSUMS)
  metrics = last / 'metrics' / 'metrics'
  metrics.write_text(metrics.read_text().replace('0', '1', 1))
  with pytest.raises(SettingsError, match='has no good checkpoint of its last step'):
    recipes.metrics_of(trial)


def test_a_checkpoint_holds_the_state_of_muon(tmp_path):
  """What a run with Muon saves comes back bit by bit, so that it continues as if it had not stopped."""
  recipe, mesh = _settings().recipe('pretrain.optimizer=muon'), sharding.make_mesh()
  init, _ = pretraining.compiled(recipe.bert_module(), recipe.pretrain, 40, mesh)
  state = init(jax.device_put(jax.random.key(3), sharding.replicated(mesh)))
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    saved.save(1, state, [])
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    restored, _ = saved.restore(checkpoints.sharded_like(state, sharding.replicated(mesh)))
  assert_same_bits(restored, state)


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


def test_the_share_that_reaches_a_kl_is_where_the_curve_crosses():
  """KL that falls tenfold every 10 steps meets it where its logarithm says."""
  curve = [(0, 1.0), (10, 0.1), (20, 0.01), (40, 0.001)]
  assert recipes.share_to_reach(curve, 0.02) == pytest.approx((10 + 10 * np.log(0.1 / 0.02) / np.log(10)) / 40)
  assert recipes.share_to_reach(curve, 0.001) == pytest.approx(1)
  assert np.isnan(recipes.share_to_reach(curve, 0.0001))


def test_a_ratio_has_the_t_interval_of_its_logarithm():
  """From three values on; fewer have their geometric mean alone."""
  ratios = [0.5, 0.8, 0.9, 0.4]
  low, high = scipy.stats.t.interval(0.95, 3, np.log(ratios).mean(), scipy.stats.sem(np.log(ratios)))
  assert recipes.ratio(ratios) == f'{scipy.stats.gmean(ratios):.2f} [{np.exp(low):.2f}, {np.exp(high):.2f}]'
  assert recipes.ratio([0.5, 0.08]) == '0.20'


def _rows(records):
  return recipes.tables(pd.DataFrame(records), None)['recipes'].frame.values.tolist()


def test_the_table_pairs_recipes_by_distribution():
  """Ratios and differences are with the base on the same trial; where a recipe never gets there, its row says so."""
  records = []
  for trial, kl in enumerate((0.1, 0.4, 0.2)):
    records.append(_record(trial, 'base', [[0, 2.0], [10, kl]]))
    records.append(_record(trial, 'pretrain.b2=0.9', [[0, 2.0], [10, kl / 2]], accuracy=0.6))
    records.append(_record(trial, 'bert.init_stddev=1', [[0, 2.0], [10, kl * (0.5 if trial else 2)]]))
  first, second, third = _rows(records)
  assert first[:6] == ['4', 'base', '3', '10', '1.00', '0.2000']
  assert second[1] == 'b2=0.9' and '0.50 [0.50, 0.50]' in second and second[-2:] == ['60.0', '10.0 ± 0.0']
  assert third[1] == 'init_stddev=1' and '2 of 3 do' in third


def test_without_its_base_a_recipe_is_not_compared():
  """Pairs are with the trials that have a base; without any, the cells of ratio and difference are empty."""
  records = [_record(0, 'pretrain.b2=0.9', [[0, 2.0], [10, 0.1]])]
  (row,) = _rows(records)
  assert row == ['4', 'b2=0.9', '1', '10', '1.00', '0.1000', '0.3000', '50.0']
  records += [_record(1, 'base', [[0, 2.0], [10, 0.2]]), _record(1, 'pretrain.b2=0.9', [[0, 2.0], [10, 0.1]])]
  (row,) = [row for row in _rows(records) if row[1] == 'b2=0.9']
  assert row[:3] == ['4', 'b2=0.9', '2'] and row[6:8] == ['0.50', '0.50']


def test_curves_of_other_measurements_are_averaged_between_them():
  """The logarithm of KL is linear between measurements, and the line has the steps of both curves."""
  curves = [[[0, 1.0], [10, 0.01]], [[0, 1.0], [4, 1.0], [10, 0.0001]]]
  records = [_record(trial, 'pretrain.b2=0.9', curve) for trial, curve in enumerate(curves)]
  records = [record | dict(experiment='recipes', scale='small', seed=0) for record in records]
  (axes,) = recipes.figures(pd.DataFrame(records), _settings('small'))['recipes'].axes
  (line,) = axes.lines
  np.testing.assert_allclose(line.get_xdata(), [0, 0.4, 1])
  np.testing.assert_allclose(line.get_ydata(), [1, 10**-0.4, 10**-3])
  assert line.get_color() != 'black'


def test_recipes_are_drawn_apart():
  """Thirteen lines, no two of one colour, marker, dash and filling; the base without a marker."""
  names = ['base', *config_file.get_config().variants]
  records = [_record(0, name, [[0, 2.0], [10, 0.1 + 0.01 * index]]) for index, name in enumerate(names)]
  records = [record | dict(experiment='recipes', scale='small', seed=0) for record in records]
  (axes,) = recipes.figures(pd.DataFrame(records), _settings('small'))['recipes'].axes
  look = lambda line: (line.get_color(), line.get_marker(), line.get_linestyle(), line.get_markerfacecolor())
  assert len({look(line) for line in axes.lines}) == len(axes.lines) == len(names) == 13
