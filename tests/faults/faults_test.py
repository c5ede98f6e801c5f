"""The campaign: scenarios that no other test has, without BERT, and every bad input; whole where FAULTS is set."""

import os
import pathlib
from unittest import mock

from conftest import ROOT
import pytest
from run_cases import run_command

from . import bad_inputs, bench as bench_lib
from .scenarios import SCENARIOS

WHOLE = bool(os.environ.get('FAULTS'))
# tests/records/trials_test.py damages records and arrays.
IN_SMALL = {'as writing begins', 'SIGTERM as tuning begins', 'two on one workdir, the second after 0%'}
CHOSEN = [scenario for scenario in SCENARIOS if WHOLE or scenario.name in IN_SMALL]
# A head without a prompt has the same bits however many tasks are tuned side by side; a prompt has not.
FIELDS = ('num_trials=2', 'methods=prompt', 'figures=()', 'tasks_per_trial=2')
BERT = ('num_states=4', 'models=bert', 'measure.num_documents=1', 'pretrain.checkpoint_every=10')
# These sizes share main_test.py's compiled programs.
EXACT = ('num_states=6', 'models=exact')


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
  """Processes are forked from one that has this environment."""
  with mock.patch.dict(os.environ, JAX_PLATFORMS='cpu', PYTHONPATH=str(ROOT)):
    yield bench_lib.Bench(tmp_path_factory.mktemp('faults'), FIELDS + (BERT if WHOLE else EXACT))


@pytest.mark.campaign
@pytest.mark.parametrize('scenario', CHOSEN, ids=lambda scenario: f'{scenario.kind}: {scenario.name}')
def test_the_same_command_goes_on_to_the_same_bits(bench, scenario):
  """Whatever has been done to a run or to its files."""
  bench.check(scenario)


def _there():
  """Every folder here, and every file with its content."""
  return {path: path.is_file() and path.read_bytes() for path in pathlib.Path().rglob('*')}


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore::RuntimeWarning')
@pytest.mark.parametrize(('words', 'says', 'files'), bad_inputs.BAD, ids=lambda word: ' '.join(word)[:60])
def test_bad_input_is_refused(words, says, files, tmp_path, monkeypatch):
  """In one sentence with status 2 that names the field and its value, and nothing is written."""
  monkeypatch.chdir(tmp_path)
  for name, content in files.items():
    path = pathlib.Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
  before = _there()
  status, _, said = run_command(*words)
  assert status == 2 and said.count('\n') == 1 and len(said) < 1000 and all(text in said for text in says)
  assert _there() == before
