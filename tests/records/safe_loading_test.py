"""Files of others: nothing is unpickled or run, nothing absurd is allocated, and no path is taken from them."""

import ast
import dataclasses
import io
import json
import pathlib
import re
import sys
import zipfile

import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import sweep, verify
from experiments.records import environment, files, results, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.theory import problem_file

ROOT = pathlib.Path(__file__).parents[2]
MODULES = {
  'pickle',
  'cPickle',
  '_pickle',
  'cloudpickle',
  'dill',
  'joblib',
  'marshal',
  'shelve',
}
CALLS = {'eval', 'exec', '__import__'}
# Of a module that may be imported for something else.
ATTRIBUTES = {
  'torch.load',
  'jnp.load',
  'yaml.load',
  'yaml.full_load',
  'yaml.unsafe_load',
  'pandas.read_pickle',
  'numpy.fromfile',
}
WORDS = re.compile('|'.join([*MODULES, r'\bload\(', *(rf'\b{name}\(' for name in CALLS), 'allow_pickle', 'fromfile']))
# The snippet of a page of ours, which is tested as a reader would run it, and programs that tests hold themselves.
ALLOWED = {('tests/library/theory/problems/counterexamples_page_test.py', 'exec'), ('tests/forked.py', 'exec')}


def _unsafe(source):
  """What of a program may run or unpickle what it reads."""
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      yield from (name.name for name in node.names if name.name.split('.')[0] in MODULES)
    elif isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] in MODULES:
      yield node.module
    elif isinstance(node, ast.Call):
      name = ast.unparse(node.func)
      allows = [keyword.value for keyword in node.keywords if keyword.arg == 'allow_pickle']
      is_false = [isinstance(value, ast.Constant) and value.value is False for value in allows]
      if name in CALLS | ATTRIBUTES or (allows and not all(is_false)):
        yield name
      if name in ('np.load', 'numpy.load') and not allows:
        yield name


def test_nothing_is_unpickled_or_run():
  """In the library, the experiments, the configs, the tests and the programs that tests start."""
  paths = [path for room in ('hmm_jax', 'experiments', 'configs', 'tests') for path in (ROOT / room).rglob('*.py')]
  sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths if path != pathlib.Path(__file__)}
  named = {place: source for place, source in sources.items() if WORDS.search(source)}
  assert len(sources) > 200 and len(named) > len(ALLOWED)
  assert {(place, name) for place, source in named.items() for name in _unsafe(source)} == ALLOWED
  # Programs in texts, which no tree shows.
  assert not [place for place, source in sources.items() if re.search(rf'import.*\b({"|".join(MODULES)})\b', source)]


@pytest.mark.parametrize(
  'source',
  [
    'import pickle',
    'from dill import loads',
    'import cloudpickle as json',
    'np.load(path)',
    'np.load(path, allow_pickle=True)',
    'np.load(path, allow_pickle=chosen)',
    'eval(text)',
    'x = [torch.load(path)]',
    'yaml.load(text)',
  ],
)
def test_what_runs_what_it_reads_is_seen(source):
  """The walk finds it, and nothing in what is safe."""
  assert list(_unsafe(source)) and not list(_unsafe('np.load(path, allow_pickle=False)\njson.loads(text)'))


def _npy(shape, data=b'', dtype='<f8', version=(1, 0)):
  """The bytes of an array whose header declares a shape."""
  content = io.BytesIO()
  header = {'descr': dtype, 'fortran_order': False, 'shape': shape}
  write = np.lib.format.write_array_header_1_0 if version == (1, 0) else np.lib.format.write_array_header_2_0
  write(content, header)
  return content.getvalue() + data


def _npz(path, **members):
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name, content in members.items():
      archive.writestr(f'{name}.npy', content)
  return path


def test_arrays_come_back_as_they_went(tmp_path):
  """Compressed or not, in every number type and order, empty and without an axis."""
  arrays = {'a': np.arange(6.0).reshape(2, 3), 'b': np.asfortranarray(np.ones((3, 2), np.int32)), 'c': np.float32(2)}
  arrays |= {'d': np.zeros((0, 4)), 'e': np.zeros(10**6)}
  for save in (np.savez, np.savez_compressed):
    save(tmp_path / 'arrays.npz', **arrays)
    found = files.read_arrays(tmp_path / 'arrays.npz')
    assert set(found) == set(arrays)
    for name in arrays:
      np.testing.assert_array_equal(found[name], arrays[name])
      assert found[name].dtype == arrays[name].dtype


ABSURD = {
  'declared in the header': lambda path: _npz(path, a=_npy((10**8, 10**8), b'0' * 64)),
  'less than is there': lambda path: _npz(path, a=_npy((1,), bytes(2**20))),
  'overflowing': lambda path: _npz(path, a=_npy((2**62, 4), b'')),
  'objects': lambda path: np.savez(path, a=np.array([{}])),
  'many': lambda path: _npz(path, **dict.fromkeys('abc', _npy((2**10,), bytes(2**13)))),
  'no version': lambda path: _npz(path, a=b'\x93NUMPY\x09\x00' + bytes(64)),
  'one array': lambda path: path.write_bytes(_npy((1,), bytes(8))),
}


@pytest.mark.parametrize('kind', ABSURD)
def test_absurd_arrays_are_refused_before_they_are_allocated(tmp_path, monkeypatch, kind):
  """In a sentence of the user's file; more than it may have is declared in the archive, or does not come."""
  ABSURD[kind](tmp_path / 'hmm.npz')
  monkeypatch.setattr(files, 'MOST_ARRAYS', 20_000)
  with pytest.raises(SettingsError, match="^hmm_file is '.*hmm.npz', which cannot be read as an HMM with its task [(]"):
    problem_file.load(tmp_path / 'hmm.npz')


def test_an_archive_that_lies_about_its_size_is_refused(tmp_path):
  """Which says that it has few bytes and holds many: what is more than it says is not read."""
  path = _npz(tmp_path / 'hmm.npz', a=_npy((2**17,), bytes(2**20)))
  data = path.read_bytes()
  size = len(_npy((2**17,), bytes(2**20))).to_bytes(4, 'little')
  assert data.count(size) == 2
  path.write_bytes(data.replace(size, (200).to_bytes(4, 'little')))
  with pytest.raises(zipfile.BadZipFile):
    files.read_arrays(path)


@pytest.mark.parametrize(
  'content', ['[' * 10**5, '{"a":' * 10**5, f'{{"a": {"9" * 10**5}}}', f'{{"a": "{"b" * 10**6}"}}']
)
def test_absurd_json_is_refused(tmp_path, monkeypatch, content):
  """Nested, long numbers and long files: of records, of settings, and of users."""
  monkeypatch.setattr(files, 'MOST_JSON', 600_000)
  for name in ('results.jsonl', 'config.json', 'hmm.json'):
    (tmp_path / name).write_text(content)
  with pytest.raises(SettingsError, match="results.jsonl' is damaged"):
    files.read_json_lines(tmp_path / 'results.jsonl')
  with pytest.raises(SettingsError, match='config.json cannot be parsed'):
    verify._settings(results.config(tmp_path), '', registry.SETTINGS)
  with pytest.raises(SettingsError, match='cannot be read as an HMM'):
    problem_file.load(tmp_path / 'hmm.json')


def test_a_long_file_is_not_read(tmp_path, monkeypatch):
  """Its size is looked at first."""
  monkeypatch.setattr(files, 'MOST_JSON', 3)
  (tmp_path / 'rows').write_text('1234')
  monkeypatch.setattr(pathlib.Path, 'read_text', None)
  with pytest.raises(ValueError, match='4 bytes; valid is at most 3'):
    files.read_bytes(tmp_path / 'rows')


def test_settings_that_are_read_back_choose_no_path(tmp_path):
  """Neither where programs are kept, which are run, nor where models are; and no code by its name."""
  config = prompt_vs_head.get_config('smoke')
  config.update(compilation_cache='/chosen', pretrained='/chosen', debug_nans=True, time_budget=3.0)
  recorded = {'schema_version': results.SCHEMA_VERSION, **dataclasses.asdict(registry.from_config(config))}
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(recorded))
  found = verify._settings(results.config(tmp_path), 'mine', registry.SETTINGS)
  assert (found.compilation_cache, found.pretrained) == ('auto', 'mine')
  assert '/chosen' not in json.dumps(dataclasses.asdict(found))
  for field, value in (('experiment', '../evil'), ('experiment', 'os.path'), ('models', '../evil')):
    path.write_text(json.dumps(recorded | {field: value}))
    with pytest.raises(SettingsError, match=rf"^{field}.* is '{value}'; valid is "):
      verify._settings(results.config(tmp_path), '', registry.SETTINGS)


def test_records_that_are_read_back_choose_no_path(tmp_path, opened):
  """Whatever their texts say, nothing outside the workdir is opened to verify, merge, plan or draw them."""
  secret, workdir = tmp_path / 'secret', tmp_path / 'workdir'
  config = prompt_vs_head.get_config('smoke')
  config.update(models=('exact',), methods=('head',), tasks_per_trial=1)
  settings = registry.from_config(config)
  trial = next(iter(sweep.trials(settings, workdir).values()))
  trial_records.add(trial, 'exact', 'head', [Tuned(0, {'head': np.zeros(2)}, {'accuracy': 0.5})], {})
  ((path, record),) = [(path, files.read_sealed(path)) for path in trial.paths().values()]
  environment_path = secret / f'{record["environment"]}.json'
  secret.mkdir()
  (workdir / 'environments' / environment_path.name).rename(environment_path)
  for word in (f'../../secret/{record["environment"]}', str(environment_path.with_suffix('')), '../secret'):
    evil = {name: word if isinstance(value, str) and name != 'trial_id' else value for name, value in record.items()}
    evil |= {'model': 'exact', 'method': 'head', 'paths': [word], 'arrays': word}
    files.write_sealed(path, evil)
    results.write(workdir, settings, [evil])
    opened.clear()
    trial_records.plan(trial, Reporter(rich.console.Console(quiet=True)))
    assert environment.load(workdir, [*results.load(workdir), evil]) == {}
    sweep.merge(settings, workdir, Reporter(rich.console.Console(quiet=True)))
    assert opened and not [path for path in opened if str(path).startswith(str(secret))]
    assert not any('secret' in str(path) for path in opened)


@pytest.fixture
def opened():
  """The paths of files that are opened, as Python tells."""
  found, is_on = [], [True]
  sys.addaudithook(lambda event, words: found.append(words[0]) if is_on and event == 'open' else None)
  yield found
  is_on.clear()
