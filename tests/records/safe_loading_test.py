"""Files of others: nothing absurd is allocated, and no path is taken from them. Ruff bans what unpickles."""

import dataclasses
import json
import os
import sys

import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.own import data
from experiments.pipeline import sweep, verify
from experiments.records import files
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from hmm_jax.distributions.files import load_distribution


@pytest.mark.parametrize('arrays', [[np.zeros(1500), np.zeros(1500)], [np.array([{}])]])
def test_absurd_arrays_are_refused_before_they_are_allocated(tmp_path, monkeypatch, arrays):
  """Too large together, or objects."""
  np.savez_compressed(tmp_path / 'arrays.npz', *arrays)
  monkeypatch.setattr(files, 'MOST_ARRAYS', 20_000)
  with pytest.raises(ValueError):
    files.read_arrays(tmp_path / 'arrays.npz')


def _hole(path):
  path.touch()
  os.truncate(path, 2**41)


READERS = {
  'a.json': load_distribution,
  'a.npz': load_distribution,
  'a.npy': lambda path: data.tokens(str(path), 2),
  'a': files.digest,
}


@pytest.mark.parametrize('make', [os.mkfifo, _hole])
@pytest.mark.parametrize('name', READERS)
def test_only_regular_files_of_a_sane_size_are_read(tmp_path, name, make):
  """A pipe that nobody writes to would block, and a hole of 2 TB would fill the memory."""
  make(tmp_path / name)
  with pytest.raises(ValueError):
    READERS[name](tmp_path / name)


def _read_back(workdir, recorded, pretrained):
  """Settings of a folder of records."""
  (workdir / 'config.json').write_text(json.dumps({'schema_version': 2, **recorded}))
  files.write_json_lines(workdir / 'results.jsonl', [{'schema_version': 2}])
  return verify.recorded_settings(workdir, pretrained, registry.SETTINGS)


def test_settings_that_are_read_back_choose_no_path(tmp_path):
  """Neither where programs are kept, which are run, nor where models are; and no code by its name."""
  chosen = settings_of('smoke', compilation_cache='/chosen', pretrained='/chosen')
  recorded = dataclasses.asdict(chosen)
  found = dataclasses.asdict(*_read_back(tmp_path, recorded, 'mine'))
  assert (found['compilation_cache'], found['pretrained']) == ('auto', 'mine') and '/chosen' not in json.dumps(found)
  for field, value in (('experiment', 'os.path'), ('models', '../evil')):
    with pytest.raises(SettingsError, match=f'{field}.*{value}'):
      _read_back(tmp_path, recorded | {field: value}, 'mine')


def test_no_module_is_imported_because_a_record_names_it(tmp_path):
  """Settings that are read back, and name one, do not run."""
  recorded = dataclasses.asdict(settings_of('smoke', models=('own',), model='this:s'))
  grid = _read_back(tmp_path, recorded, '')
  with pytest.raises(SettingsError, match="^model is 'this:s'.* record"):
    sweep.run(grid, tmp_path, QUIET)
  assert 'this' not in sys.modules
