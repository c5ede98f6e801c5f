"""Files of others: nothing is unpickled or run, nothing absurd is allocated, and no path is taken from them."""

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import sys

import numpy as np
import pytest
from settings_cases import settings_of

from experiments import main as main_lib
from experiments.pipeline import verify
from experiments.records import files, results
from experiments.settings.fields import SettingsError
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]
# What a line has that runs or unpickles what it reads.
UNSAFE = re.compile(
  r'^\s*(import|from) (_?pickle|cloudpickle|dill|joblib|marshal|shelve)\b'
  r'|(?<![.\w])(eval|exec|__import__)\(|read_pickle|fromfile|torch\.load|yaml\.(full_|unsafe_)?load\('
  r'|(np|jnp|numpy)\.load\((?!.*allow_pickle=False)|allow_pickle=(?!False)'
)
# Pages of ours, which are tested as a reader would run them, and programs that tests hold themselves.
ALLOWED = {'tests/library/theory/problems/counterexamples_test.py', 'tests/how_to_test.py', 'tests/forked.py'}


def test_nothing_is_unpickled_or_run():
  """In the library, the experiments, the configs and the tests."""
  paths = [path for room in ('hmm_jax', 'experiments', 'configs', 'tests') for path in (ROOT / room).rglob('*.py')]
  unsafe = {path for path in paths if any(map(UNSAFE.search, path.read_text().splitlines()))}
  assert {str(path.relative_to(ROOT)) for path in unsafe - {pathlib.Path(__file__)}} - ALLOWED == set()
  assert ROOT / 'tests' / 'forked.py' in unsafe


ABSURD = {
  'too large together': lambda path: np.savez_compressed(path, a=np.zeros(1500), b=np.zeros(1500)),
  'objects': lambda path: np.savez(path, a=np.array([{}])),
}


@pytest.mark.parametrize('kind', ABSURD)
def test_absurd_arrays_are_refused_before_they_are_allocated(tmp_path, monkeypatch, kind):
  """More than they may have is declared in the archive."""
  ABSURD[kind](tmp_path / 'arrays.npz')
  monkeypatch.setattr(files, 'MOST_ARRAYS', 20_000)
  with pytest.raises(ValueError):
    files.read_arrays(tmp_path / 'arrays.npz')


def test_settings_that_are_read_back_choose_no_path():
  """Neither where programs are kept, which are run, nor where models are; and no code by its name."""
  chosen = settings_of('smoke', compilation_cache='/chosen', pretrained='/chosen')
  recorded = dataclasses.asdict(chosen)
  found = dataclasses.asdict(verify.recorded_settings(recorded, 'mine', registry.SETTINGS))
  assert (found['compilation_cache'], found['pretrained']) == ('auto', 'mine') and '/chosen' not in json.dumps(found)
  for field, value in (('experiment', 'os.path'), ('models', '../evil')):
    with pytest.raises(SettingsError, match=f'^{field}.*{value}'):
      verify.recorded_settings(recorded | {field: value}, 'mine', registry.SETTINGS)


@pytest.mark.parametrize('mode', ['verify', 'report', 'merge', 'status'])
def test_no_module_is_imported_because_a_record_names_it(tmp_path, monkeypatch, mode):
  """Settings on record name one, and a record is of its model; no command runs it that does not name it itself."""
  (tmp_path / 'named_by_a_record.py').write_text('build = print')
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(main_lib, 'set_up', lambda settings: None)
  recorded = settings_of('smoke', num_states=(4,), models=('own',), model='named_by_a_record:build')
  with (ROOT / 'docs' / 'results' / 'small' / 'figure_3_left' / results.FILE_NAME).open() as lines:
    record = json.loads(next(lines)) | {'model': 'own'}
  results.write(tmp_path / 'work', recorded, [record])
  said, words = io.StringIO(), ['--config=prompt_vs_head:smoke', f'--mode={mode}', f'--workdir={tmp_path / "work"}']
  with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
    status = main_lib.main(['main', *words])
  assert 'named_by_a_record' not in sys.modules
  # What is to be run again cannot be without it.
  assert (status == 2 and 'named_by_a_record:build' in said.getvalue()) == (mode == 'verify')
