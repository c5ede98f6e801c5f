"""The command line: the whole path at smoke scale, its list and help, what a second run does, and one that resumes."""

import json
import pathlib
import shutil
from typing import NamedTuple

import jax
import pytest
from run_cases import CHEAP, finished_command, run_command

from experiments.runtime import jax_options

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('cheap_commands')]

SMOKE = '--config=configs/prompt_vs_head.py:smoke'
PROMPT = (SMOKE, '--config.num_states=6', *CHEAP)


class Finished(NamedTuple):
  """A workdir in which PROMPT ran, and the files that it left."""

  workdir: pathlib.Path
  files: dict[str, bytes]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('finished')
  finished_command(*PROMPT, f'--workdir={workdir}')
  return Finished(workdir, _files(workdir))


def _files(workdir):
  """Everything that must not depend on the machine or on interruptions."""
  patterns = 'pretrained/*/metrics.jsonl', 'results.jsonl', 'table.txt', 'trials/*/*.npz'
  paths = (path for pattern in patterns for path in workdir.glob(pattern))
  return {str(path.relative_to(workdir)): path.read_bytes() for path in paths}


def _rows(text):
  return [json.loads(line) for line in text.splitlines()]


def _records(files):
  return _rows(files['results.jsonl'])


def _drawn(*names):
  return {f'{name}.{extension}' for name in names for extension in ('png', 'pdf', 'svg')}


def test_a_second_run_only_reports(finished):
  """The same command again changes no file but the report, which is the same."""
  times = lambda: {path: path.stat().st_mtime_ns for path in finished.workdir.glob('trials/*/*')}
  before = times()
  assert 'pretraining' not in finished_command(*PROMPT, f'--workdir={finished.workdir}')
  assert _files(finished.workdir) == finished.files
  assert times() == before


@pytest.fixture
def recorded(finished, tmp_path):
  """The records of the finished run, without its trials and models."""
  for name in ('config.json', 'results.jsonl'):
    shutil.copy(finished.workdir / name, tmp_path)
  return tmp_path


def test_a_folder_of_records_is_verified(recorded):
  """Its trials are run again, pretraining included, to the same bits; the folder is as it was."""
  contents = lambda: {path: path.read_bytes() for path in recorded.rglob('*') if path.is_file()}
  before = contents()
  printed = finished_command('--mode=verify', f'--workdir={recorded}')
  assert 'pretraining 40/40' in printed and '12 records of 1 trials' in printed
  assert contents() == before


def test_a_tampered_record_is_not_verified(finished, recorded):
  """Exit code 1, for a number that was changed."""
  path = recorded / 'results.jsonl'
  path.write_text(path.read_text().replace('"accuracy": 0', '"accuracy": 2', 1))
  code, _, err = run_command(
    '--mode=verify', f'--workdir={recorded}', f'--pretrained={finished.workdir / "pretrained"}'
  )
  assert code == 1 and 'accuracy' in err


def test_report_needs_only_records(finished, tmp_path):
  """`--mode=report` needs results.jsonl and nothing else, not what the run needed, and draws the same bytes."""
  (tmp_path / 'results.jsonl').write_bytes(finished.files['results.jsonl'])
  finished_command(*PROMPT, '--config.mesh.data=64', '--mode=report', f'--workdir={tmp_path}')
  for name in _drawn('figure_3_left') | {'table.txt'}:
    assert (tmp_path / name).read_bytes() == (finished.workdir / name).read_bytes()


def test_a_run_resumes_after_its_time_budget_to_the_same_bits(finished, tmp_path):
  """Pretraining stops at its next checkpoint, with exit code 0 and what is left in the last line; then it goes on."""
  budget = (*PROMPT, f'--workdir={tmp_path}', '--config.time_budget=1e-9')
  *_, last = finished_command(*budget).splitlines()
  assert last.startswith('0 of 1 trials')
  (checkpoint,) = tmp_path.glob('pretrained/*/checkpoints/*')
  assert checkpoint.name == '20' and not (tmp_path / 'table.txt').exists()
  assert 'pretraining 40/40' in finished_command(*budget)
  made, whole = _files(tmp_path), finished.files
  assert _records(made) == _records(whole) and {name: whole[name] for name in made} == made
  (timing,) = tmp_path.glob('trials/*/timing.jsonl')
  assert len(_rows(timing.read_text())) == 2


def test_settings_that_decide_bits_are_applied_at_the_start():
  """The generator is pinned."""
  with jax.default_prng_impl('rbg'), jax.threefry_partitionable(False):
    jax_options.set_up('')
  assert jax.config.jax_default_prng_impl == 'threefry2x32' and jax.config.jax_threefry_partitionable
