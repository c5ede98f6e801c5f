"""Plans: what end points may be of; `pages_test` redraws the tables of docs/results."""

from figures_cases import record
from pandas import DataFrame as frame
import pytest

from configs import base
from experiments.analysis import grid_tables, plans
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point, Settings
from experiments.studies import registry


def _point(*fits, **fields):
  """An end point as a config has it."""
  config = dict(registry.config_lib.at_scale(registry.config_lib.shipped('prompt_vs_head')).to_dict())
  config['plan'] = (base.end_point('point', *fits, **fields),)
  (point,) = registry.config_lib.from_record(config, {'prompt_vs_head': Settings}).plan
  return point


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
  """Two rivals have a task each that they are best on, 50% and 60%; a third task has one of them alone."""
  both = ('bert', 'prompt'), ('none', 'table')
  records = [record(Point(4), *fit, 0.5, task=task) for fit in both for task in range(3)]
  records += [record(Point(4), 'none', 'tokens', accuracy, task=task) for task, accuracy in enumerate((0.4, 0.6))]
  point = _point(('bert', 'prompt'), ('none', 'table', 'tokens'))
  found = plans.differences(point, grid_tables.prepared(frame(records)))
  assert found.tolist() == pytest.approx([-5])
