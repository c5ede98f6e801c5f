"""Every experiment, at every scale that a CPU runs, by its command with the numbers of `reduce`: what it leaves."""

import numpy as np
import pytest
import reduced_runs
from schema_cases import kinds_of
from settings_cases import shipped

from experiments.analysis.figures import FORMATS
from experiments.records import load, results
from experiments.settings import config as config_lib
from experiments.studies import registry

pytestmark = pytest.mark.slow

# Scales with the paper's sizes, in which `reduce` leaves little.
_OF_PAPER = {'paper', 'paper_v1', 'official', 'tuned', 'gpu'}
# Fields of which a user may run a single value; of those that number something, the first.
_SINGLE = ('num_states', 'model', 'method')
_FIRST = ('trial', 'hmm', 'task')


def _is_number(value):
  """True for a number, or a tuple of some."""
  entries = value if type(value) is tuple else (value,)
  return bool(entries) and all(type(entry) in (int, float) for entry in entries)


def _structure(experiment, scale):
  """What a scale runs, whatever its numbers, in words."""
  _, reduced = map(reduced_runs.fields, reduced_runs.configs(experiment, scale))
  of_numbers = {name: any(np.atleast_1d(value)) for name, value in reduced.items() if _is_number(value)}
  return str(reduced | of_numbers | dict(experiment=experiment, scale='', plan=()))


EVERY = [(name, scale) for name in registry.EXPERIMENTS for scale in config_lib.scales(shipped(name))]
# The default scale, the first, has the numbers of `reduce` as `smoke`.
_DEFAULT = {name: config_lib.scales(shipped(name))[0] for name in registry.EXPERIMENTS}
_ON_A_CPU = [(name, scale) for name, scale in EVERY if scale not in {*_OF_PAPER, _DEFAULT[name]}]
# The last, such as `smoke`, of those that differ in numbers alone.
RUN = [*{_structure(*one): one for one in _ON_A_CPU}.values()]


@pytest.mark.parametrize(('experiment', 'scale'), EVERY)
def test_reduced_settings_differ_in_numbers_alone(experiment, scale):
  """None becomes 0 or was 0, which switches off; a tuple has fewer, at least one."""
  configs = reduced_runs.configs(experiment, scale)
  assert all(map(registry.from_config, configs))
  config, reduced = map(reduced_runs.fields, configs)
  plans = [[point | dict(num_states=(), step=0) for point in each.pop('plan', ())] for each in (config, reduced)]
  assert plans[0] == plans[1]
  for name in config:
    both = config[name], reduced[name]
    assert both[0] == both[1] or (all(map(_is_number, both)) and all(both) and type(both[0]) is type(both[1])), name


@pytest.mark.parametrize('experiment', registry.EXPERIMENTS)
def test_smoke_is_the_reduced_default(experiment):
  """So that a run of the one is a run of the other."""
  smoke, _ = reduced_runs.configs(experiment, 'smoke')
  _, reduced = reduced_runs.configs(experiment, _DEFAULT[experiment])
  assert shipped(experiment)['get_config']().scale == _DEFAULT[experiment]
  assert {**smoke.to_dict(), 'scale': _DEFAULT[experiment]} == reduced.to_dict()


@pytest.mark.parametrize(('experiment', 'scale'), RUN)
def test_a_run_leaves_what_it_promises(experiment, scale, reduced_run):
  """Records, each of one kind; tables; figures, those that the config names too, in each format and in the report."""
  workdir = reduced_run(experiment, scale)
  assert all(len(kinds_of(record)) == 1 for record in results.load(workdir))
  settings = registry.from_record(results.configs(workdir)[0])
  drawn = {path.stem for path in workdir.glob('*.png')}
  assert drawn >= {*getattr(settings, 'figures', ())}
  assert all((workdir / f'{name}.{extension}').stat().st_size for name in drawn for extension in FORMATS)
  report = (workdir / 'report.html').read_text()
  assert report.count('<figure') == len(drawn) and '<table' in report and (workdir / 'table.txt').read_text()


@pytest.mark.parametrize('experiment', registry.EXPERIMENTS)
def test_a_part_of_the_records_is_shown(experiment, reduced_run):
  """As of a run of one HMM, trial, size, task, model or method alone."""
  study, records = registry.EXPERIMENTS[experiment], load(workdir := reduced_run(experiment, 'smoke'), environment=True)
  settings = registry.from_record(results.configs(workdir)[0])
  for name in filter(records.__contains__, _SINGLE + _FIRST):
    for value in [0] if name in _FIRST else records[name].dropna().unique():
      shown = records[(records[name] == value) | records[name].isna()].reset_index(drop=True)
      assert study.tables(shown, settings), (name, value)
      study.figures(shown, settings)
