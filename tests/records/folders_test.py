"""Records and tuned arrays that were changed, cut or lost: named, set aside, and missing from then on."""

import contextlib
import json
import pathlib
import shutil
from unittest import mock

import jax
import numpy as np
import pytest

from configs import prompt_vs_head
from experiments.pipeline import pretraining, sweep, trial as trial_lib
from experiments.records import environment, files, folders, manifests, results, status, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import timing
from experiments.settings import config as config_lib
from experiments.settings.grid import Point
from experiments.studies import registry, runner


class _Said(list):
  """What a reporter says."""

  say = list.append


@pytest.fixture
def trial(tmp_path):
  """With the records of two methods, written one after the other."""
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4,), models=('exact',), tasks_per_trial=1)
  trial = trial_lib.Trial(registry.from_config(config), Point(4), 0, tmp_path)
  for method in ('head', 'prompt'):
    _add(trial, method)
  files.append_json_line(trial.timing_path, {'seconds': 1})
  return trial


def _add(trial, method):
  trainable = {'head': np.arange(3.0), 'prompt': np.ones(2)}
  trial_records.add(trial, 'exact', method, [Tuned(0, trainable, {'accuracy': 0.5})], {'kl_at_mask': 0.0})


def _complete(trial):
  """What a run says of its trials, and which trials it finds missing, before any is run."""
  said, missing = _Said(), []
  fill = lambda grid, numbers, time_budget, reporter: missing.append(bool(grid['one'].missing())) or []
  with mock.patch.object(sweep, 'fill', fill):
    sweep.complete(trial.settings, {'one': trial}, None, lambda: None, said)
  return said, missing[0]


def _digit(path):
  """Another number, in a file that is JSON still."""
  text = path.read_text()
  path.write_text(text.replace('0.5', '0.6', 1) if '0.5' in text else text.replace('"tasks": [0]', '"tasks": [1]', 1))


def _other(old, new):
  """Something else in a file that is JSON still."""
  return lambda path: path.write_text(path.read_text().replace(old, new, 1))


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


CUT = lambda path: path.write_bytes(path.read_bytes()[:-9])
FAULTS = [
  (folders.RECORDS_NAME, _digit, 'records.jsonl has other bytes'),
  (folders.RECORDS_NAME, CUT, "records.jsonl' is damaged"),
  (results.ENVIRONMENT_NAME, _digit, 'environment.jsonl has other bytes'),
  (results.ENVIRONMENT_NAME, CUT, "environment.jsonl' is damaged"),
  (folders.RECORDS_NAME, _other('"schema_version": 1', '"schema_version": 0'), 'records.jsonl has other bytes'),
  (folders.RECORDS_NAME, pathlib.Path.unlink, 'records.jsonl is missing'),
  (results.ENVIRONMENT_NAME, _other('"platform"', '"qlatform"'), 'environment.jsonl has other bytes'),
  (manifests.NAME, CUT, 'manifest.json cannot be read'),
  (manifests.NAME, lambda path: path.write_text('{"records": 3}'), 'manifest.json is not of records'),
  ('tuned/exact-head-task0.npz', _flip, 'exact-head-task0.npz has other bytes'),
  ('tuned/exact-head-task0.npz', CUT, 'exact-head-task0.npz has'),
  ('tuned/exact-prompt-task0.npz', pathlib.Path.unlink, 'exact-prompt-task0.npz is missing'),
]


@pytest.mark.parametrize(('name', 'change', 'words'), FAULTS)
def test_a_trial_that_was_changed_is_named_and_done_again(trial, name, change, words):
  """All that was read with it lies beside as it was found; what is done again is as it was before the change."""
  whole = {path: file.read_bytes() for path, file in files.tree(trial.directory).items()}
  change(trial.directory / name)
  found = {path: file.read_bytes() for path, file in files.tree(trial.directory).items()}
  folders.check_schema(trial.workdir)
  (said,), is_missing = _complete(trial)
  assert is_missing and words in said and str(trial.directory) in said
  aside = trial.directory / files.ASIDE
  assert {path: file.read_bytes() for path, file in files.tree(aside).items()} == found
  for method in ('head', 'prompt'):
    _add(trial, method)
  for path in ('records.jsonl', 'tuned/exact-head-task0.npz', 'tuned/exact-prompt-task0.npz'):
    assert (trial.directory / path).read_bytes() == whole[path]
  assert _complete(trial) == ([], False)


def test_what_is_whole_is_left_alone(trial):
  """Also where lines of environments and arrays were added by whom was killed before the records, or the manifest."""
  assert _complete(trial) == ([], False)
  before, manifest = trial.records_path.read_bytes(), (trial.directory / manifests.NAME).read_bytes()
  _add(trial, 'probe')
  trial.records_path.write_bytes(before)
  assert _complete(trial) == ([], False)
  (trial.directory / manifests.NAME).write_bytes(manifest)
  assert _complete(trial) == ([], False)
  (trial.directory / manifests.NAME).unlink()
  assert _complete(trial) == ([], False)


def test_changed_records_are_never_counted(trial):
  """By nobody who looks, a merge among them, even where no run has set them aside; nor does it stop another trial."""
  _digit(trial.records_path)
  assert trial.records() == [] and len(trial.missing()) == 2
  CUT(trial.records_path)
  assert trial.records() == [] and len(trial.missing()) == 2
  folders.check_schema(trial.workdir)


BESIDE = [
  *(fault for fault in FAULTS if fault[0].startswith((results.ENVIRONMENT_NAME, folders.ARRAYS, manifests.NAME)))
]


@pytest.mark.parametrize(('name', 'change', 'words'), BESIDE)
def test_records_beside_what_was_changed_are_never_counted(trial, name, change, words):
  """Environments and arrays are the records' own; a method that is added meanwhile loses no row of the others."""
  change(trial.directory / name)
  assert trial.records() == [] and trial.missing() == trial.wanted()
  assert status.state(trial)[0] == 'missing' and sweep._read([trial], trial_lib.Trial.records).trials == []
  if not name.startswith(folders.ARRAYS):
    return
  _add(trial, 'probe')
  assert len(files.read_json_lines(trial.records_path)) == 3 and folders.fault(trial.directory)


def test_records_of_another_trial_are_not_counted(trial, tmp_path):
  """All that a copy of a trial's directory over another holds is as it was written, and of another trial."""
  other = trial_lib.Trial(trial.settings, trial.point, 1, tmp_path)
  shutil.copytree(trial.directory, other.directory)
  said = _Said()
  assert other.missing() == other.wanted() and folders.read(other.directory) == []
  assert sweep.write(tmp_path, trial.settings, [trial, other], trial_lib.Trial.records, said) == [trial]
  wrong = f'{other.directory}: its files are of {trial.id}'
  assert said[0] == f'{wrong}; none of it is counted, and a run sets it aside'
  (sentence,) = folders.set_aside_bad(other.directory)
  assert sentence.startswith(wrong) and (other.directory / files.ASIDE / folders.RECORDS_NAME).exists()


def test_what_another_process_adds_while_records_are_read_is_no_damage(trial, monkeypatch):
  """They are compared as they were read, with a manifest that is no older."""
  read, looks = manifests.read, []

  def added(*of):
    found = read(*of)
    if not looks:
      looks.append(1)
      _add(trial, 'probe')
    return found

  monkeypatch.setattr(manifests, 'read', added)
  assert len(folders.read(trial.directory)) == 2 and len(folders.read(trial.directory)) == 3


def test_a_line_of_the_environment_that_names_no_record_is_no_failure(trial):
  """As of a process that was killed before the manifest knew of it, and was changed since."""
  for line in ({'tasks': 3}, {'tasks': [0], 'method': 'head'}, {'tasks': [[0]], 'model': 'exact', 'method': 'head'}):
    files.append_json_line(trial.environment_path, line)
  assert len(trial.records()) == 2 and trial_records.made_elsewhere(trial) == []
  assert 'lacks its fields' in folders.fault(trial.directory)
  trial.records_path.unlink()
  assert 'records.jsonl is missing' in folders.fault(trial.directory)


def test_of_a_kill_before_the_first_records_nothing_is_said(trial, tmp_path):
  """Nor of records that were lost since, which look alike; of the lines that it left none may lack its fields."""
  trial = trial._replace(workdir=tmp_path / 'one')
  _add(trial, 'head')
  trial.records_path.unlink()
  assert folders.set_aside_bad(trial.directory) == []
  _other('"platform"', '"qlatform"')(trial.environment_path)
  (said,) = folders.set_aside_bad(trial.directory)
  assert 'lacks its fields' in said and not trial.environment_path.exists()


def test_a_kill_before_the_records_leaves_those_of_before(trial, monkeypatch):
  """The manifest comes first: it knows both."""
  before = trial.records_path.read_bytes()
  monkeypatch.setattr(folders.manifests, 'write', _killed)
  with pytest.raises(KeyboardInterrupt):
    _add(trial, 'probe')
  assert trial.records_path.read_bytes() == before and not trial.missing() and folders.fault(trial.directory) is None


def _killed(*_):
  raise KeyboardInterrupt


@pytest.mark.parametrize('moves', range(5))
def test_a_kill_while_things_are_set_aside_seals_no_damage(trial, tmp_path, moves, monkeypatch):
  """Of a trial of one method, whose manifest cannot tell lost records from those that were never written."""
  trial = trial._replace(workdir=tmp_path / 'one')
  _add(trial, 'head')
  _digit(trial.environment_path)
  damaged, set_aside, done = trial.environment_path.read_bytes(), files.set_aside, []
  monkeypatch.setattr(files, 'set_aside', lambda *of: done.append(set_aside(*of)) if len(done) < moves else _killed())
  with contextlib.suppress(KeyboardInterrupt):
    folders.set_aside_bad(trial.directory)
  monkeypatch.undo()
  folders.set_aside_bad(trial.directory)
  _add(trial, 'head')
  assert damaged[:-1] not in trial.environment_path.read_bytes() and len(trial.records()) == 1
  assert damaged in [file.read_bytes() for file in files.tree(trial.directory / files.ASIDE).values()]


def _merged(trial):
  """What a merge of a single trial says."""
  said = _Said()
  assert sweep.write(trial.workdir, trial.settings, [trial], trial_lib.Trial.records, said) == [trial]
  return said


def test_a_torn_timing_stops_no_merge(trial, monkeypatch):
  """It decides nothing: its lines are left out, with a word; a run that adds to it sets it aside."""
  assert _merged(trial) == []
  CUT(trial.timing_path)
  (said,) = _merged(trial)
  assert str(trial.timing_path) in said and (trial.workdir / 'timing.jsonl').read_bytes() == b''
  assert _complete(trial) == ([], False)
  monkeypatch.setattr(trial_lib, 'draw', _killed)
  _digit(trial.records_path)
  said = _Said()
  said.clock = timing.Clock()
  with pytest.raises(KeyboardInterrupt):
    trial_lib.run(trial, said)
  assert len(said) == 1 and str(trial.timing_path) in said[0] and len(files.read_json_lines(trial.timing_path)) == 1


def test_a_merge_says_which_records_cannot_be_verified(trial):
  """Those of a version before manifests, or whose manifest was lost."""
  (trial.directory / manifests.NAME).unlink()
  (said,) = _merged(trial)
  assert str(trial.directory) in said and 'cannot be verified' in said


def test_records_from_nowhere_are_never_counted(trial):
  """Where what they came from cannot be read, everybody may look, and nobody counts them."""
  CUT(trial.environment_path)
  assert trial.records() == [] and len(trial.missing()) == 2


def test_lines_that_are_added_to_are_begun_again(tmp_path):
  """Of a pretrained model, whose lines decide nothing; those that can be read stay."""
  path = tmp_path / 'timing.jsonl'
  assert folders.set_aside_torn(path) == []
  files.append_json_line(path, {'step': 1})
  assert folders.set_aside_torn(path) == []
  path.write_text('{"step"')
  (said,) = folders.set_aside_torn(path)
  assert str(path) in said and not path.exists() and (tmp_path / files.ASIDE / 'timing.jsonl').read_text() == '{"step"'


def test_an_environment_without_its_fields_is_damaged(tmp_path):
  """A flipped bit in the name of a field leaves JSON that nothing can be compared with."""
  path, here = tmp_path / results.ENVIRONMENT_NAME, environment.environment(jax.devices())
  files.write_json_lines(path, [here])
  assert pretraining._set_aside_torn(tmp_path) == []
  for name in ('platform', 'devices', 'packages'):
    files.write_json_lines(path, [here, {f'q{field}' if field == name else field: here[field] for field in here}])
    (said,) = pretraining._set_aside_torn(tmp_path)
    assert str(path) in said and not path.exists()
  (tmp_path / timing.FILE_NAME).write_text('{')
  assert len(pretraining._set_aside_torn(tmp_path)) == 1


def test_process_0_alone_reads_and_writes_records(trial, monkeypatch):
  """The others may not have the directory."""
  monkeypatch.setattr(folders.distributed, 'is_writer', lambda: False)
  folders.write(trial.workdir / 'elsewhere', [{'a': 1}], {})
  assert not (trial.workdir / 'elsewhere').exists() and folders.read(trial.workdir / 'elsewhere') == []


def test_a_part_that_was_changed_is_run_again(tmp_path):
  """And only that one; what was kept of the others is read back."""
  settings, ran, said = registry.from_config(config_lib.shipped('example_4_1')['get_config']()), [], _Said()

  class Reporter(_Said):
    class clock:
      phase = staticmethod(lambda name: trial_lib.contextlib.nullcontext())

  def part(name):
    return lambda *_: ran.append(name) or [{'value': 0.5, 'begun': (tmp_path / results.CONFIG_NAME).exists()}]

  both, said = {name: part(name) for name in ('one', 'other')}, Reporter()
  for _ in range(2):
    runner.run(settings, both, tmp_path, said)
  assert ran == ['one', 'other'] and not said and all(row['begun'] for row in results.load(tmp_path))
  written = (tmp_path / results.FILE_NAME).read_bytes()
  (path,) = tmp_path.glob('parts/*/other/records.jsonl')
  _digit(path)
  runner.run(settings, both, tmp_path, said)
  assert ran == ['one', 'other', 'other'] and len(said) == 1 and 'records.jsonl has other bytes' in said[0]
  assert (tmp_path / results.FILE_NAME).read_bytes() == written
  assert [json.loads(line)['value'] for line in path.read_text().splitlines()] == [0.5]


def test_a_large_file_is_read_again_once_it_is_written_again(tmp_path, monkeypatch):
  """And not before: a trial is looked at often, and its arrays may be large."""
  path, reads, read = tmp_path / 'array', [], manifests._entry
  monkeypatch.setattr(manifests, '_entry', lambda path: reads.append(path) or read(path))
  path.write_bytes(bytes(manifests._LARGE))
  first = manifests.entry(path)
  assert manifests.entry(path) == first == manifests.entry_of(bytes(manifests._LARGE)) and len(reads) == 1
  files.write_whole(path, b'1' + bytes(manifests._LARGE - 1))
  assert manifests.entry(path) != first and len(reads) == 2
