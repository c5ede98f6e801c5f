"""Records that differ in fields of settings: their rows, their differences, and the figure against a field."""

import time

from figures_cases import figure_settings, lines_by_label, prompt_records
import pandas as pd
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import grid_figures, report, statistics

LENGTHS = (20, 1, 5)
# What a prompt gains from each further vector, in points, by task.
GAINS = 0.2, 0.25, 0.3


def _records(sizes=(10,), **fields):
  """Those of `prompt_records` on one HMM of each size at each value of the fields, named with __ for a dot."""
  rows = frame(prompt_records()).query('num_states in @sizes')
  for name, values in reversed(fields.items()):
    name = name.replace('__', '.')
    rows = frame({name: values}).merge(rows.drop(columns=name, errors='ignore'), how='cross')
  gains = rows['task'].map(dict(enumerate(GAINS))) * rows.get('prompt.length', 0) * (rows['method'] == 'prompt')
  return rows.assign(accuracy=rows['accuracy'] - 0.2 + gains / 100)


def _tables(records):
  return {name: table.frame for name, table in report.tables(records, False).items()}


def test_values_have_rows_and_paired_differences_from_the_first():
  """In the order of the records, for each size; Holm's correction is over values and sizes. The head has none."""
  tables = _tables(_records((4, 10), prompt__length=LENGTHS))
  places = [(str(length), size) for length in LENGTHS for size in ('4', '10')]
  rows_of = lambda name: [*zip(tables[name]['prompt.length'], tables[name]['|H|'])]
  assert rows_of('accuracy') == rows_of('differences') == places and rows_of('values') == 2 * places[2:]
  values = tables['values']
  assert [*filter(None, values['between values'])] == [
    f'prompt, {model}, minus prompt.length = 20' for model in ('BERT', 'exact G')
  ]
  gains = [[gain * (int(length) - 20) for gain in GAINS] for length, _ in places[2:]]
  assert [*values['difference']] == 2 * [str(statistics.mean_interval(some)) for some in gains]
  p_values = statistics.holm([scipy.stats.ttest_1samp(some, 0).pvalue for some in gains])
  assert [*values['p, Holm']] == 2 * [f'{p:.2g}' for p in p_values] and {*values['comparisons']} == {'4'}


def test_seeds_are_not_compared():
  """They share no HMM; and a single value has no column."""
  records = _records(seed=(0, 1), prompt__length=(5,))
  tables = _tables(records.assign(accuracy=records['accuracy'] + 0.01 * records['seed']))
  assert 'values' not in tables and [*tables['accuracy']['seed']] == ['0', '1']
  assert 'prompt.length' not in tables['accuracy']


def _of_trials(num_trials, **fields):
  """Records of HMMs at values of fields that change their draw, in which prompts lose 1, 3, 9, ... points by trial."""
  rows = frame(prompt_records(num_trials)).query("num_states == 10 and model == 'bert'")
  by_value = [
    rows.assign(**{name.replace('__', '.'): value}, accuracy=rows['accuracy'] - loss * 3 ** rows['trial'] / 100)
    for name, values in fields.items()
    for loss, value in enumerate(values)
  ]
  return pd.concat(by_value)


def test_hmms_of_other_draws_are_not_paired_by_task():
  """Two temperatures are two HMMs: one of each gives no test, and trials of one number are paired."""
  temperatures = dict(hmm__emission_temperature=(0.01, 0.5))
  one, several = (_tables(_of_trials(count, **temperatures)) for count in (1, 4))
  assert 'values' not in one and 'values' not in several
  assert [*one['values_of_draws']['difference']] == ['-1.0', '-1.0'] and 'p, Holm' not in one['values_of_draws']
  assert [*several['values_of_draws']['n']] == ['4', '4']
  losses = statistics.mean_interval([-1.0, -3, -9, -27])
  assert [*several['values_of_draws']['difference']] == [str(losses)] * 2
  assert [*several['values_of_draws']['p, Holm']] == [f'{losses.p_value:.2g}'] * 2


def test_given_processes_are_compared_by_trials_unpaired():
  """Their trials are pretraining seeds, which are no pairs."""
  records = _of_trials(4, distribution=('mess3-0123456789ab', 'ginc-0123456789ab'))
  found = _tables(records)['values_of_draws'].iloc[0]
  means = [
    of.groupby('trial')['accuracy'].mean() for _, of in records.query("method == 'head'").groupby('distribution')
  ]
  expected = scipy.stats.ttest_ind(*means, equal_var=False)
  assert found['p, Holm'] == f'{expected.pvalue:.2g}' and found['difference'].startswith('-10.0')


def test_the_tables_of_a_sweep_take_time_linear_in_its_points():
  """400 points take a second; comparing all methods on all models at each took 80."""
  values = _records(prompt__length=range(20), pretrain__learning_rate=[0.001 * rate for rate in range(20)])
  begun = time.process_time()
  tables = _tables(values)
  assert [len(tables[name]) for name in ('accuracy', 'differences')] == [400, 400]
  assert time.process_time() - begun < 5


def _drawn(records):
  return {axes.get_title(): axes for axes in grid_figures.against_fields(records, figure_settings()).axes}


def test_the_figure_has_the_field_on_its_axis():
  """A logarithmic one from a factor of 20 on; a name has a place of its own."""
  (axes,) = _drawn(_records(prompt__length=LENGTHS)).values()
  line = lines_by_label(axes)['prompt, pretrained BERT']
  assert [*line.get_xdata()] == [1, 5, 20] and line.get_ydata() == pytest.approx([67.25, 68.25, 72])
  assert (axes.get_xscale(), axes.get_xlabel()) == ('log', 'prompt.length')
  (axes,) = _drawn(_records(prompt__length=(1, 19))).values()
  assert axes.get_xscale() == 'linear'
  (axes,) = _drawn(_records(pretrain__optimizer=('muon', 'adamw'))).values()
  assert [tick.get_text() for tick in axes.get_xticklabels()] == ['muon', 'adamw']


def test_a_second_field_has_panels_and_so_have_the_fewer_of_sizes_and_methods():
  """Sizes that come with a process have none."""
  fields, sizes = dict(pretrain__optimizer=('adamw', 'muon'), prompt__length=LENGTHS), ['|H|=4', '|H|=10', '|H|=30']
  optimizers = ['pretrain.optimizer = adamw', 'pretrain.optimizer = muon']
  assert [*_drawn(_records(**fields))] == optimizers
  assert [*_drawn(_records((4, 10, 30), prompt__length=LENGTHS))] == sizes
  drawn = _drawn(_records((4, 10, 30), **fields).query("model == 'bert'"))
  assert [*drawn] == [f'{name}, {method} on bert' for name in optimizers for method in ('head', 'prompt')]
  assert all({*sizes} <= {*lines_by_label(axes)} for axes in drawn.values())
  given = _records((4, 10), distribution=('mess3', 'ginc')).query("(num_states == 4) == (distribution == 'ginc')")
  assert len(_drawn(given)) == 1
