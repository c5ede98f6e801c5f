"""Distributions in files: the same bits again, the published schema, and what is refused."""

import io
import json
import re

from conftest import DOCS
from hmm_cases import float32_hmm
import jsonschema
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest

from hmm_jax.distributions import files, processes
from hmm_jax.distributions.files import load_distribution, save_distribution

SCHEMA = jsonschema.Draft202012Validator(json.loads((DOCS / 'schemas' / 'distribution.json').read_text()))
MEMORY = dense_hmm(np.random.default_rng(0), 2, per_memory=True)._replace(cell_index=np.int32([0, 1, 0]))


@pytest.mark.parametrize('suffix', ['.json', '.npz'])
@pytest.mark.parametrize('distribution', [float32_hmm(0, 3, 4), MEMORY, processes.even()])
def test_a_file_gives_the_same_numbers(tmp_path, monkeypatch, suffix, distribution):
  """Saving and loading keeps every bit, also with ~ in the path; a .json file satisfies its schema."""
  path, word = tmp_path / f'mine{suffix}', f'~/mine{suffix}'
  monkeypatch.setenv('HOME', str(tmp_path))
  save_distribution(word, distribution)
  for loaded, array in zip(load_distribution(word), distribution, strict=True):
    np.testing.assert_array_equal(loaded, array)
  if suffix == '.json':
    SCHEMA.validate(json.loads(path.read_text()))


@pytest.mark.parametrize('name', ['mess3', 'even'])
def test_an_example_follows_the_schema(name):
  """And has the arrays of the process that it is named after; the schema refuses what it has no key for."""
  path = DOCS / 'examples' / f'{name}.json'
  content = json.loads(path.read_text())
  SCHEMA.validate(content)
  assert not SCHEMA.is_valid(content | {'num_states': 2})
  for loaded, made in zip(load_distribution(path), processes.NAMED[name]()):
    np.testing.assert_allclose(loaded, made, atol=1e-15)


def _npz(array):
  """The bytes of an archive of one array."""
  archive = io.BytesIO()
  np.savez(archive, initial_probs=array)
  return archive.getvalue()


def _json(**changes):
  """The bytes of a file that is right but for these keys."""
  return json.dumps(MEMORY._asdict() | changes, default=np.ndarray.tolist).encode()


@pytest.mark.parametrize(
  ('suffix', 'content', 'reason'),
  [
    ('.json', _json(initial_probs=[1.0]), 'the shape of initial_probs'),
    ('.json', _json(cell_index=[0, 2**32, 0]), 'cell_index has the entry'),
    ('.json', _json(num_states=10**12), 'the keys are'),
    ('.json', b'[0.5, 0.5]', 'cannot be read'),
    ('.npz', _npz(np.zeros(40_000)), 'cannot be read .it has 320,128 bytes'),
  ],
)
def test_wrong_files_are_refused(tmp_path, monkeypatch, suffix, content, reason):
  """In one sentence, with the key or with the path; files of more bytes than the limit are not read."""
  monkeypatch.setattr(files, 'MAX_BYTES', 300_000)
  path = tmp_path / f'mine{suffix}'
  path.write_bytes(content)
  with pytest.raises(ValueError, match=f'^({re.escape(repr(str(path)))} )?{reason}.*; valid'):
    load_distribution(path)
