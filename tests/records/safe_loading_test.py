"""Files of others: nothing is unpickled or run, nothing absurd is allocated, and no path is taken from them."""

import dataclasses
import json
import pathlib
import re
import sys

import numpy as np
import pytest
from run_cases import add_record, exact_settings, QUIET, settings_of

from experiments.pipeline import sweep, verify
from experiments.records import environment, files, results, trial_records
from experiments.settings.fields import SettingsError
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]
# What a line has that runs or unpickles what it reads.
UNSAFE = re.compile(
  r'^\s*(import|from) (_?pickle|cloudpickle|dill|joblib|marshal|shelve)\b'
  r'|(?<![.\w])(eval|exec|__import__)\(|read_pickle|fromfile|torch\.load|yaml\.(full_|unsafe_)?load\('
  r'|(np|jnp|numpy)\.load\((?!.*allow_pickle=False)|allow_pickle=(?!False)'
)
# The snippet of a page of ours, which is tested as a reader would run it, and programs that tests hold themselves.
ALLOWED = {'tests/library/theory/problems/counterexamples_test.py', 'tests/forked.py'}


def test_nothing_is_unpickled_or_run():
  """In the library, the experiments, the configs and the tests."""
  paths = [path for room in ('hmm_jax', 'experiments', 'configs', 'tests') for path in (ROOT / room).rglob('*.py')]
  unsafe = {path for path in paths if any(map(UNSAFE.search, path.read_text().splitlines()))}
  assert {str(path.relative_to(ROOT)) for path in unsafe - {pathlib.Path(__file__)}} - ALLOWED == set()
  assert ROOT / 'tests' / 'forked.py' in unsafe


ABSURD = {
  'too large together': lambda path: np.savez_compressed(path, a=np.zeros(1500), b=np.zeros(1500)),
  'objects': lambda path: np.savez(path, a=np.array([{}])),
  'one array': lambda path: path.write_bytes(bytes(8)),
}


@pytest.mark.parametrize('kind', ABSURD)
def test_absurd_arrays_are_refused_before_they_are_allocated(tmp_path, monkeypatch, kind):
  """More than they may have is declared in the archive."""
  ABSURD[kind](tmp_path / 'arrays.npz')
  monkeypatch.setattr(files, 'MOST_ARRAYS', 20_000)
  with pytest.raises(ValueError):
    files.read_arrays(tmp_path / 'arrays.npz')


def test_a_long_file_is_not_read(tmp_path, monkeypatch):
  """Its size is looked at first."""
  monkeypatch.setattr(files, 'MOST_JSON', 3)
  (tmp_path / 'rows').write_text('1234')
  monkeypatch.setattr(pathlib.Path, 'read_bytes', None)
  with pytest.raises(ValueError, match='4 bytes'):
    files.read_json(tmp_path / 'rows')


def test_settings_that_are_read_back_choose_no_path(tmp_path):
  """Neither where programs are kept, which are run, nor where models are; and no code by its name."""
  chosen = settings_of(compilation_cache='/chosen', pretrained='/chosen')
  recorded = {'schema_version': results.SCHEMA_VERSION, **dataclasses.asdict(chosen)}

  def read(**changes):
    (tmp_path / results.CONFIG_NAME).write_text(json.dumps(recorded | changes))
    return verify.recorded_settings(results.config(tmp_path), 'mine', registry.SETTINGS)

  found = read()
  assert (found.compilation_cache, found.pretrained) == ('auto', 'mine')
  assert '/chosen' not in json.dumps(dataclasses.asdict(found))
  for field, value in (('experiment', '../evil'), ('experiment', 'os.path'), ('models', '../evil')):
    with pytest.raises(SettingsError, match=f'^{field}.*{value}'):
      read(**{field: value})


@pytest.fixture
def opened():
  """The paths of files that are opened, as Python tells."""
  found, is_on = [], [True]
  sys.addaudithook(lambda event, words: found.append(str(words[0])) if is_on and event == 'open' else None)
  yield found
  is_on.clear()


def test_records_that_are_read_back_choose_no_path(tmp_path, opened):
  """Whatever their texts say, nothing outside the workdir is opened to verify, merge, plan or draw them."""
  secret, workdir, settings = tmp_path / 'secret', tmp_path / 'workdir', exact_settings(num_states=(4,))
  trial = next(iter(sweep.trials(settings, workdir).values()))
  add_record(trial)
  (path,) = trial.paths().values()
  record = files.read_sealed(path)
  # The file of its environment, so that one that is chosen would be found.
  (workdir / environment.FOLDER).rename(secret)
  for word in (f'../../secret/{record["environment"]}', str(secret / record['environment'])):
    evil = {name: word if isinstance(value, str) and name != 'trial_id' else value for name, value in record.items()}
    evil |= {'model': 'exact', 'method': 'head', 'paths': [word], 'arrays': word}
    files.write_sealed(path, evil)
    results.write(workdir, settings, [evil])
    opened.clear()
    trial_records.plan(trial, QUIET)
    assert environment.load(workdir, [*results.load(workdir), evil]) == {}
    sweep.merge(settings, workdir, QUIET)
    assert opened and not [path for path in opened if 'secret' in path]
