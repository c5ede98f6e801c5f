"""Recorded environments."""

import jax

from experiments.records import environment


def test_an_environment_that_was_changed_is_not_read(tmp_path):
  """Its name is the hash of what was written."""
  made = environment.keep(tmp_path, environment.environment(jax.devices()[0]))
  assert list(environment.load(tmp_path, [{'environment': made}, {'environment': made}, {}])) == [made]
  path = tmp_path / environment.FOLDER / f'{made}.json'
  path.write_text(path.read_text().replace('"processes": 1', '"processes": 2'))
  assert environment.load(tmp_path, [{'environment': made}]) == {}
