"""What is recorded of where numbers came from, and when two such places differ."""

import copy
import subprocess

import jax
import pytest

from experiments.records import environment


@pytest.fixture
def here():
  return environment.environment(jax.devices()[:1] * 3)


def test_an_environment_names_code_versions_and_devices(here):
  """Commit, versions, and a kind for each device that was given."""
  root = environment.pathlib.Path(environment.__file__).parent
  head = subprocess.run(['git', '-C', root, 'rev-parse', 'HEAD'], capture_output=True, text=True).stdout.strip()
  assert here['commit'] == (head or 'unknown') and here['packages']['jax'] == jax.__version__
  assert here['devices'] == [jax.devices()[0].device_kind] * 3


def test_without_a_clone_the_commit_is_unknown(monkeypatch, tmp_path):
  """An installed copy inside of another repository does not name that one's commit."""
  subprocess.run(['git', 'init', '-q', tmp_path], check=True)
  monkeypatch.setattr(environment, '__file__', str(tmp_path / 'site/experiments/records/environment.py'))
  found = environment.of_process.__wrapped__()
  assert found['commit'] == 'unknown' and found['uncommitted_changes'] is False


CHANGES = {
  'jax': lambda there: there['packages'].update(jax='0.9.9'),
  'platform': lambda there: there.update(platform='Linux arm64'),
  'cpu': lambda there: there.update(cpu='64 x another'),
  'devices': lambda there: there.update(devices=['cpu'] * 2),
  'XLA_FLAGS': lambda there: there.update(xla_flags='--another'),
  'processes': lambda there: there.update(processes=2),
}


def test_differences_are_those_that_may_change_bits(here):
  """Platform, devices and the libraries that compute; neither the commit, nor a library that plots."""
  there = copy.deepcopy(here)
  there.update(commit='0' * 40, uncommitted_changes=True)
  there['packages'].update(matplotlib='1.0')
  assert environment.differences(there, here) == []
  for name, change in CHANGES.items():
    there = copy.deepcopy(here)
    change(there)
    (found,) = environment.differences(there, here)
    assert found.startswith(f'{name} ')


def test_an_environment_that_was_changed_is_not_compared(tmp_path, here):
  """Its name is the hash of what was written."""
  made = environment.keep(tmp_path, here)
  assert list(environment.load(tmp_path, [{'environment': made}, {'environment': made}, {}])) == [made]
  path = tmp_path / environment.FOLDER / f'{made}.json'
  path.write_text(path.read_text().replace('"processes": 1', '"processes": 2'))
  assert environment.load(tmp_path, [{'environment': made}]) == {}
