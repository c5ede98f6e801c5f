"""Distributions in files: the same bits again, the published schema, and what is refused."""

import io
import json
import pathlib
import re
import zipfile

from conftest import assert_same_bits
from hmm_cases import float32_hmm
import jsonschema
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import pytest

from hmm_jax import distribution_files, processes
from hmm_jax.distribution_files import load_distribution, read_fields, save_distribution

DOCS = pathlib.Path(__file__).parents[2] / 'docs'
SCHEMA = jsonschema.Draft202012Validator(json.loads((DOCS / 'schemas' / 'distribution.json').read_text()))
HEALTHY = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[0.5, 0.5], [0.25, 0.75]],
}
MEMORY = dense_hmm(np.random.default_rng(0), 2, per_memory=True)


@pytest.mark.parametrize('suffix', ['.json', '.npz'])
@pytest.mark.parametrize('distribution', [float32_hmm(0, 3, 4), processes.mess3(), MEMORY, float32(MEMORY)])
def test_a_file_gives_the_same_bits(tmp_path, suffix, distribution):
  """Of every array, its type included; a .json file is as the schema says."""
  path = tmp_path / f'mine{suffix}'
  save_distribution(path, distribution)
  loaded = load_distribution(str(path))
  assert_same_bits(loaded, distribution)
  assert [array.dtype for array in loaded] == [array.dtype for array in distribution]
  if suffix == '.json':
    SCHEMA.validate(json.loads(path.read_text()))


def test_examples_are_as_the_schema_says(tmp_path):
  """And have the arrays of the processes that they are named after; T is saved as it is."""
  for name in ('mess3', 'even'):
    path = DOCS / 'examples' / f'{name}.json'
    SCHEMA.validate(json.loads(path.read_text()))
    for loaded, made in zip(load_distribution(path), processes.NAMED[name]()):
      np.testing.assert_allclose(loaded, made, atol=1e-15)
  matrices = read_fields(path)['transition_matrices']
  save_distribution(tmp_path / 'even.npz', matrices)
  np.testing.assert_array_equal(read_fields(tmp_path / 'even.npz')['transition_matrices'], matrices)


@pytest.mark.parametrize(
  ('changes', 'named', 'is_as_the_schema_says'),
  [
    ({'initial_probs': [1.0]}, 'initial_probs has shape', True),
    ({'transition_matrix': [[0.5, 0.4], [0.5, 0.5]]}, 'transition_matrix has a row that sums to 0.9', True),
    ({'emission_matrix': [[1, 0], [-1, 2]]}, 'emission_matrix has an entry that is negative', False),
    ({'emission_matrix': [[1, 0], [float('nan'), 1]]}, 'emission_matrix has an entry', True),
    ({'emission_matrix': [[1, 0], [1]]}, 'emission_matrix is', True),
    ({'initial_probs': 'ab'}, 'initial_probs is', False),
    ({'num_states': 10**12}, 'the keys are .*num_states', False),
    ({'dtypes': {'initial_probs': 'object'}}, 'dtypes are', False),
  ],
)
def test_wrong_contents_are_refused(tmp_path, changes, named, is_as_the_schema_says):
  """In one sentence that names the key; by the schema too, but where shapes disagree or rows do not sum to 1."""
  path = tmp_path / 'mine.json'
  path.write_text(json.dumps(HEALTHY | changes))
  with pytest.raises(ValueError, match=named):
    load_distribution(path)
  assert SCHEMA.is_valid(HEALTHY | changes) == is_as_the_schema_says


def _npz(array, old=b'', new=b''):
  """The bytes of an archive of one array, some bytes of which are replaced."""
  member, archive = io.BytesIO(), io.BytesIO()
  np.save(member, array)
  with zipfile.ZipFile(archive, 'w') as file:
    file.writestr('initial_probs.npy', member.getvalue().replace(old, new))
  return archive.getvalue()


@pytest.mark.parametrize(
  ('name', 'content', 'reason'),
  [
    ('mine.npz', _npz([0.5], b'(1,), }            ', b'(1000000000000,), }'), 'allocate|EOF'),
    ('mine.npz', _npz([print]), 'allow_pickle=False'),
    ('mine.json', b'[' * 200_000, 'recursion'),
    ('mine.json', b'\x89PNG', 'decode'),
    ('mine.json', b'[0.5, 0.5]', 'valid is an object'),
    ('mine.txt', b'{}', 'ends in'),
  ],
)
def test_unreadable_files_are_refused(tmp_path, name, content, reason):
  """In one sentence with the path."""
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=f'^{re.escape(repr(str(path)))} .*({reason}).*; valid'):
    load_distribution(path)


@pytest.mark.parametrize('suffix', ['.json', '.npz'])
def test_large_files_are_refused_before_they_are_read(tmp_path, monkeypatch, suffix):
  """By their size, of an archive unpacked."""
  path = tmp_path / f'mine{suffix}'
  save_distribution(path, MEMORY)
  monkeypatch.setattr(distribution_files, 'MAX_BYTES', 100)
  with pytest.raises(ValueError, match='valid are at most 100'):
    load_distribution(path)


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
  """And a file that is not there is an OSError."""
  for name, matrices in (('mine.json', np.ones((1, 1, 1)) / 2), ('mine.txt', np.ones((1, 1, 1)))):
    with pytest.raises(ValueError):
      save_distribution(tmp_path / name, matrices)
    assert not list(tmp_path.iterdir())
  with pytest.raises(FileNotFoundError):
    load_distribution(tmp_path / 'mine.json')
