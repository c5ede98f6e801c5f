"""Every experiment, at every scale that a CPU runs, by its command with the numbers of `reduce`: what it leaves."""

import functools
import os

import pytest
from run_cases import finished_command
from schema_cases import kinds_of

from experiments.analysis.figures import FORMATS
from experiments.records import load, results
from experiments.settings import config as config_lib, lists
from experiments.studies import registry

pytestmark = pytest.mark.slow

# Scales with the paper's sizes, in which `reduce` leaves little.
_OF_PAPER = {'paper', 'paper_v1', 'official', 'tuned', 'gpu'}
# Fields of which a user may run a single value.
_SINGLE = ('num_states', 'trial', 'hmm', 'process', 'task', 'model', 'method')

_shipped = functools.cache(config_lib.shipped)
EVERY = [(name, scale) for name in registry.EXPERIMENTS for scale in config_lib.scales(_shipped(name))]
RUN = [(name, scale) for name, scale in EVERY if scale not in _OF_PAPER]


def _configs(experiment, scale):
  """The fields of an experiment at a scale by name, and with the numbers of `reduce`."""
  config, reduced = (config_lib.at_scale(_shipped(experiment), scale) for _ in range(2))
  _shipped(experiment)['reduce'](reduced)
  assert registry.from_config(reduced)
  return [dict(lists.flat(each.to_dict())) for each in (config, reduced)]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('runs')


@pytest.fixture
def run(folder, monkeypatch):
  """The folder of records of an experiment at a scale, which runs once."""
  monkeypatch.chdir(folder)
  # Without it the benchmark compiles a peer with a compiler that leaves threads and files.
  monkeypatch.setenv('TORCHDYNAMO_DISABLE', '1')

  def finished(experiment, scale):
    workdir = folder / 'runs' / f'{experiment}-{scale}'
    if not workdir.exists():
      config, reduced = _configs(experiment, scale)
      words = [f'--config.{name}={value}' for name, value in reduced.items() if value != config[name]]
      cache = os.environ['JAX_COMPILATION_CACHE_DIR']
      words += ['--config.fast_compilation', f'--config.compilation_cache={cache}']
      finished_command(f'--config={experiment}:{scale}', *words)
    return workdir

  return finished


def _is_number(value):
  """True for a number, or a tuple of some."""
  entries = value if type(value) is tuple else (value,)
  return bool(entries) and all(type(entry) in (int, float) for entry in entries)


@pytest.mark.parametrize(('experiment', 'scale'), EVERY)
def test_reduced_settings_differ_in_numbers_alone(experiment, scale):
  """None becomes 0 or was 0, which switches off; a tuple has fewer, at least one."""
  config, reduced = _configs(experiment, scale)
  for name in config:
    both = config[name], reduced[name]
    assert both[0] == both[1] or (all(map(_is_number, both)) and all(both) and type(both[0]) is type(both[1])), name


@pytest.mark.parametrize(('experiment', 'scale'), RUN)
def test_a_run_leaves_what_it_promises(experiment, scale, run):
  """Records, each of one kind; tables; figures, those that the config names too, in each format and in the report."""
  workdir = run(experiment, scale)
  assert all(len(kinds_of(record)) == 1 for record in results.load(workdir))
  settings = registry.from_record(results.config(workdir))
  drawn = {path.stem for path in workdir.glob('*.png')}
  assert drawn >= {*getattr(settings, 'figures', ())}
  assert all((workdir / f'{name}.{extension}').stat().st_size for name in drawn for extension in FORMATS)
  report = (workdir / 'report.html').read_text()
  assert report.count('<figure') == len(drawn) and '<table' in report and (workdir / 'table.txt').read_text()


@pytest.mark.parametrize('experiment', registry.EXPERIMENTS)
def test_a_part_of_the_records_is_shown(experiment, run):
  """As of a run of one HMM, trial, size, task, model or method alone."""
  study, records = registry.EXPERIMENTS[experiment], load(workdir := run(experiment, 'smoke'), environment=True)
  settings = registry.from_record(results.config(workdir))
  for name in filter(records.__contains__, _SINGLE):
    for value in records[name].dropna().unique():
      shown = records[(records[name] == value) | records[name].isna()].reset_index(drop=True)
      assert study.tables(shown, settings), (name, value)
      study.figures(shown, settings)
