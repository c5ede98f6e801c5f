"""Plans: differences of end points on records made by hand, and what is said of them."""

import dataclasses

from figures_cases import prompt_records, record, table_records
from pandas import DataFrame as frame
import pytest

from configs import base
from experiments.analysis import grid_tables, plans
from experiments.analysis.statistics import interval
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point, Settings
from experiments.settings.plan import EndPoint
from experiments.studies import registry


def _point(*fits, **fields):
  """An end point as a config has it."""
  config = dict(registry.config_lib.at_scale(registry.config_lib.shipped('prompt_vs_head')).to_dict())
  config['plan'] = (base.end_point('point', *fits, **fields),)
  (point,) = registry.config_lib.from_record(config, {'prompt_vs_head': Settings}).plan
  return point


def _row(point, records):
  (row,) = plans.tables([point], grid_tables.prepared(frame(records)))['plan'].frame.to_dict('records')
  return row


def test_an_end_point_is_the_mean_over_hmms_of_differences_by_task():
  """HMMs of several sizes are strata."""
  records = prompt_records(3)
  for row in records:
    row['accuracy'] += 0.01 * row['trial'] ** 2 * (row['method'] == 'prompt')
  values = [10, 11, 14]
  row = _row(_point(('bert', 'prompt'), ('bert', 'head'), num_states=(10,), above=0), records)
  assert (row['n'], row['|H|'], row['difference']) == ('3', '10', str(interval(values)))
  assert row['p'] == f'{interval(values).p_value:.2g}'
  row = _row(_point(('bert', 'prompt'), ('bert', 'head')), records)
  assert row['n'] == '9' and row['difference'].startswith(f'{sum(values) / 3:.1f} ±')


def test_an_end_point_may_be_of_another_field():
  """In points, less a multiple of the second; KL in nats; records that lack it are no row."""
  fields = dict(tv_moved=0.5, tv_at_mask=0.1)
  records = [record(Point(4), 'bert', 'prompt', 0.5, trial=trial, **fields) for trial in range(3)]
  fit = ('bert', 'prompt')
  assert (
    _row(_point(fit, fit, field='tv_moved', second_field='tv_at_mask', times=2), records)['difference'][:4] == '30.0'
  )
  assert _row(_point(fit, field='kl_at_mask', below=0.3), records)['outcome'] == 'held'
  assert not plans.tables([_point(fit, field='tv_movable')], grid_tables.prepared(frame(records)))


def test_records_from_before_plans_have_that_of_the_shipped_config():
  """A folder of `beyond:masks` says nothing of a plan."""
  settings = registry.from_config(registry.config_lib.at_scale(registry.config_lib.shipped('beyond')))
  assert len(settings.plan) == 5 and all(isinstance(point, EndPoint) for point in settings.plan)


@pytest.mark.parametrize(
  ('fits', 'fields'),
  [
    ([('bert',)], {}),
    ([('bert', 'prompt', 'head')], {}),
    ([('bert', 'no_method')], {}),
    ([('bert', 'prompt'), ('none',)], {}),
    ([('bert', 'prompt')], dict(field='acuracy')),
  ],
)
def test_an_end_point_of_what_no_record_can_have_is_refused(fits, fields):
  with pytest.raises(SettingsError, match='^plan'):
    _point(*fits, **fields)


def test_the_largest_of_several_fits_is_of_tasks_that_all_have():
  """The best counts on each. An end point without records is named, not left out without a word."""
  records = table_records()
  tables = [row for row in records if row['method'] == 'table' and row['task'] < 2]
  # 10 points below the table on one task, and above it on another; the table's third task has no such rival.
  records += [row | {'method': 'tokens', 'accuracy': row['accuracy'] + 0.2 * row['task'] - 0.1} for row in tables]
  point = _point(('bert', 'prompt'), ('none', 'table', 'tokens'), num_states=(4,))
  assert _row(point, records)['difference'].startswith('-10.0')
  grid = grid_tables.prepared(frame(records))
  absent = dataclasses.replace(_point(('bert', 'shift')), name='absent')
  assert plans.tables([point, absent], grid)['plan'].title.endswith('without records: absent')
  assert not plans.tables([absent], grid)
