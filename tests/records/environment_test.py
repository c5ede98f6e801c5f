"""What is recorded of where numbers came from, and when two such places differ."""

import copy
import subprocess

import jax
import pytest

from experiments.records import environment


def test_an_environment_names_code_versions_and_devices():
  """Commit, versions, platform, and a kind for each device that was given."""
  here = environment.environment(jax.devices()[:1] * 3)
  root = environment.pathlib.Path(environment.__file__).parent
  head = subprocess.run(['git', '-C', root, 'rev-parse', 'HEAD'], capture_output=True, text=True).stdout.strip()
  assert here['commit'] == (head or 'unknown')
  assert here['packages']['jax'] == jax.__version__
  assert here['devices'] == [jax.devices()[0].device_kind] * 3


@pytest.mark.parametrize('lacks', ['git', 'a clone'])
def test_without_git_or_a_clone_the_commit_is_unknown(monkeypatch, tmp_path, lacks):
  """The run goes on; an installed copy inside of another repository does not name that one's commit."""
  if lacks == 'git':
    monkeypatch.setenv('PATH', str(tmp_path))
  else:
    subprocess.run(['git', 'init', '-q', tmp_path], check=True)
    monkeypatch.setattr(environment, '__file__', str(tmp_path / 'site/experiments/records/environment.py'))
  here = environment._process.__wrapped__()
  assert here['commit'] == 'unknown' and here['uncommitted_changes'] is False


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    (lambda there: there['packages'].update(jax='0.9.9'), [f'jax 0.9.9 (here {jax.__version__})']),
    (lambda there: there.update(platform='Linux arm64'), ['platform Linux arm64 (here ']),
    (lambda there: there.update(cpu='64 x another'), ['cpu 64 x another (here ']),
    (lambda there: there.update(devices=['cpu'] * 8), ['devices 8 x cpu (here 1 x ']),
    (lambda there: there.update(devices=['NVIDIA H100']), ['devices 1 x NVIDIA H100 (here 1 x ']),
    (lambda there: there.update(commit='0' * 40, command=['other'], uncommitted_changes=True), []),
    (lambda there: there['packages'].update(matplotlib='1.0'), []),
  ],
)
def test_differences_are_those_that_may_change_bits(change, words):
  """Platform, devices and the libraries that compute; neither the commit, nor the command, nor a plotting library."""
  here = environment.environment(jax.devices()[:1])
  there = copy.deepcopy(here)
  change(there)
  found = environment.differences(there, here)
  assert len(found) == len(words)
  for sentence, start in zip(found, words):
    assert sentence.startswith(start)


def test_an_environment_that_was_changed_is_not_compared(tmp_path):
  """Its name is the hash of what was written."""
  made = environment.keep(tmp_path, environment.environment(jax.devices()))
  assert list(environment.load(tmp_path, [{'environment': made}, {'environment': made}, {}])) == [made]
  path = tmp_path / environment.FOLDER / f'{made}.json'
  path.write_text(path.read_text().replace('"processes": 1', '"processes": 2'))
  assert environment.load(tmp_path, [{'environment': made}]) == {}
