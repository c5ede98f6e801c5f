"""Recorded environments, and when two of them differ."""

import jax
import pytest

from experiments.records import environment


@pytest.fixture
def here():
  return environment.environment(jax.devices()[:1] * 3)


@pytest.mark.parametrize(
  ('changes', 'named'),
  [(dict(commit='0' * 40), []), (dict(devices=['cpu'] * 2), ['devices']), (dict(xla_flags='--another'), ['xla_flags'])],
)
def test_differences_are_those_that_may_change_bits(here, changes, named):
  """Devices and the libraries that compute, neither the commit nor a library that plots."""
  assert [found.split()[0] for found in environment.differing([here | changes], here)] == named
  there = here | {'packages': here['packages'] | {'jax': '0.1', 'matplotlib': '0.1'}}
  assert [found.split()[0] for found in environment.differing([there], here)] == ['jax']


def test_an_environment_that_was_changed_is_not_compared(tmp_path, here):
  """Its name is the hash of what was written."""
  made = environment.keep(tmp_path, here)
  assert list(environment.load(tmp_path, [{'environment': made}, {'environment': made}, {}])) == [made]
  path = tmp_path / environment.FOLDER / f'{made}.json'
  path.write_text(path.read_text().replace('"processes": 1', '"processes": 2'))
  assert environment.load(tmp_path, [{'environment': made}]) == {}
