"""The campaign in small: some scenarios of each kind, every bad input, and that what is lost is seen."""

import os
import pathlib
from unittest import mock

import pytest

from . import bad_inputs, bench as bench_lib
from .scenarios import SCENARIOS

ROOT = pathlib.Path(__file__).parents[2]
# Of each kind those that need no BERT; the whole table is for `python -m tests.faults`.
CHOSEN = {
  'kills': ['as writing begins, at 50% of its beginnings'],
  'damage': ['flip: records'],
  'signals': ['SIGTERM as tuning begins, at 95% of its beginnings'],
  'races': ['two on one workdir, the second after 0%'],
  'disks': ['full as writing begins, 60%'],
  'nan': ['epoch 1 of tuning'],
  'resuming': ['a method added'],
}
SMALL = [scenario for scenario in SCENARIOS if scenario.name in CHOSEN[scenario.kind] and not scenario.without]
# Of the sizes at which main_test.py compiles the same programs.
EXACT = (
  *('num_states=6', 'num_trials=2', 'models=exact', 'methods=head', 'figures=()', 'downstream.num_train=64'),
  *('head.num_epochs=1', 'prompt.num_epochs=1', 'attention.num_epochs=1'),
)


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
  """Processes are forked from one that has this environment, and leave compiled programs where tests keep them."""
  with mock.patch.dict(os.environ, JAX_PLATFORMS='cpu', PYTHONPATH=str(ROOT)):
    programs = os.environ['JAX_COMPILATION_CACHE_DIR']
    yield bench_lib.Bench(tmp_path_factory.mktemp('faults'), EXACT, programs, is_warm=True)


@pytest.mark.parametrize('scenario', SMALL, ids=lambda scenario: f'{scenario.kind}: {scenario.name}')
def test_the_same_command_goes_on_to_the_same_bits(bench, scenario):
  """Whatever has been done to a run or to its files."""
  try:
    assert bench.lost(scenario) == ''
  except PermissionError as error:
    pytest.skip(str(error))


def test_every_kind_is_met():
  """And each has a row of every name that is chosen here."""
  assert {scenario.kind for scenario in SCENARIOS} == {*CHOSEN}
  assert len(SMALL) == sum(map(len, CHOSEN.values()))


@pytest.mark.parametrize('bad', bad_inputs.BAD, ids=lambda bad: ' '.join(bad.arguments)[:60])
def test_bad_input_is_refused(bad):
  """In one sentence, with status 2 and nothing written."""
  assert bad_inputs.verdict(bad) == ''


def test_what_is_not_equal_is_lost(bench, tmp_path):
  """An array with another bit, and a record that is missing."""
  found = dict(bench.left)
  assert bench_lib.differs(found, bench.left) == ''
  assert bench_lib.differs({**found, 'results.jsonl': []}, bench.left) == 'results.jsonl is another'
  name = next(name for name in found if ':' in name)
  dtype, shape, content = found[name]
  assert bench_lib.differs({**found, name: (dtype, shape, content[::-1] + b'1')}, bench.left) == f'{name} is another'
  del found[name]
  assert bench_lib.differs(found, bench.left) == f'{name} is missing'
