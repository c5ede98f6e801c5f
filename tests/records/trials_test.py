"""Records of a trial: which count, which are corrupt, renamed and made again, and what a kill leaves."""

import pathlib
import types

import pytest
from run_cases import add_record, cut, flip
from settings_cases import settings_of

from experiments.records.trials import Name, TrialFolder
from experiments.settings.grid import Point
from experiments.settings.trial import Trial

HEAD = Name(0, 'exact', 'head')


def _planned(folder):
  """The missing records of a trial, and the messages about them."""
  said = []
  return set(folder.missing(types.SimpleNamespace(say=said.append))), said


def _folder(workdir, **changes):
  return TrialFolder(Trial(settings_of('smoke', **changes), Point(4), 0), workdir)


@pytest.fixture
def folder(tmp_path):
  """With the records of two methods."""
  folder = _folder(tmp_path, num_states=(4,), models=('exact',), methods=('head', 'prompt'), tasks_per_trial=1)
  for method in ('head', 'prompt'):
    add_record(folder, method=method)
  return folder


def test_records_are_those_that_are_asked_for(tmp_path):
  """A method or task that is no longer asked for stays on file, is not reported, and is not missing.

  Fits to the exact G are not missing on BERT, nor fine-tuning on the exact model, nor a table on any.
  """
  every = _folder(tmp_path, methods=('head', 'prompt'))
  fewer = _folder(tmp_path, methods=('head', 'oracle_prompt', 'finetune', 'table'), tasks_per_trial=1)
  for model in ('bert', 'exact'):
    for method in ('head', 'prompt'):
      add_record(every, model, method, (0, 1))
  assert [*fewer.records()] == [Name(0, 'bert', 'head'), HEAD]
  missing = {Name(0, *fit) for fit in (('exact', 'oracle_prompt'), ('bert', 'finetune'), ('none', 'table'))}
  assert set(fewer.missing()) == missing
  assert len(every.records()) == 8 and not every.missing()


def test_another_fit_is_another_record(tmp_path):
  """Records of another ridge stay on file beside their arrays and are not reported; those of schedules stay."""
  methods = 'head', 'head_converged'
  one, other = (
    _folder(tmp_path, models=('exact',), methods=methods, tasks_per_trial=1, converged__ridge=ridge)
    for ridge in (1e-6, 1e-3)
  )
  for method in methods:
    add_record(one, method=method)
  assert one.trial.id == other.trial.id and other.missing() == [Name(0, 'exact', 'head_converged')]
  add_record(other, method='head_converged')
  assert not one.missing() and not other.missing()


def _other_number(path):
  """The file is JSON still."""
  path.write_text(path.read_text().replace('0.5', '0.6', 1))


def _directory(path):
  """Put a directory in the place of the file."""
  path.unlink()
  path.mkdir()


FAULTS = [
  ('.json', _other_number),
  ('.json', cut),
  ('.npz', flip),
  ('.npz', pathlib.Path.unlink),
  ('.npz', _directory),
]


@pytest.mark.parametrize(('suffix', 'damage'), FAULTS)
def test_a_corrupt_record_or_array_is_named_renamed_and_made_again(folder, suffix, damage):
  """Record and array are renamed, beside those renamed before; nobody counts a corrupt record."""
  path, renamed = folder.paths()[HEAD], set()
  for number in ('', '-2'):
    damage(path.with_suffix(suffix))
    there = [one.name for one in (path, path.with_suffix('.npz')) if one.exists()]
    renamed |= {f'{name}.corrupt{number}' for name in there}
    assert (HEAD in folder.missing()) == (suffix == '.json')
    missing, (said,) = _planned(folder)
    assert missing == {HEAD} == set(folder.missing()) and str(path) in said
    assert {one.name for one in folder.directory.glob('*.corrupt*')} == renamed
    add_record(folder)
    assert [*folder.records()] == [HEAD, Name(0, 'exact', 'prompt')]


def test_a_record_of_another_trial_is_made_again(folder):
  """Another directory was copied over this one."""
  other = folder._replace(trial=folder.trial._replace(number=1))
  folder.directory.rename(other.directory)
  assert other.records() == {}
  missing, (first, _) = _planned(other)
  assert folder.trial.id in first and missing == set(other.missing()) == other.paths().keys()
