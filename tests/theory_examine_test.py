"""A user's own HMM as an experiment: what is printed, and what is refused."""

import dataclasses
import io
import json

import pytest
import rich.console

from configs import examine as config_file
from experiments import config as config_lib
from experiments import results
from experiments.progress import Reporter
from experiments.settings import SettingsError
from experiments.theory import examine

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(path, **changes):
  return dataclasses.replace(config_lib.from_config(config_file.get_config('smoke')), hmm_file=str(path), **changes)


def test_a_users_file_is_examined_anew(tmp_path):
  """Tables of its assumptions and constructions, and no figure; a changed file has other records."""
  path, workdir = tmp_path / 'mine.json', tmp_path / 'run'
  content = {
    'initial_probs': [0.5, 0.5],
    'transition_matrix': [[0.9, 0.1], [0.2, 0.8]],
    'emission_matrix': [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]],
  }
  found = []
  for task_weights in ([1.0, -1.0], [1.0, -2.0]):
    path.write_text(json.dumps({**content, 'task_weights': task_weights}))
    reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
    for step in (examine.run, examine.show):
      step(_settings(path), workdir, reporter)
    found.append(results.load(workdir))
  printed = reporter.console.file.getvalue()
  assert 'Theorem 3.3' in printed and '100.00' in printed and not list(workdir.glob('*.png'))
  assert found[0] != found[1]


def test_a_bad_file_is_refused_before_anything_runs(tmp_path):
  """One sentence that names the path."""
  with pytest.raises(SettingsError, match='nothing.json'):
    examine.check(_settings(tmp_path / 'nothing.json'))


@pytest.mark.parametrize(('field', 'value'), [('max_sequences', 2**20 + 1), ('rank_threshold', 0.0)])
def test_what_is_wrong_is_named(field, value):
  with pytest.raises(SettingsError, match=f'^{field} is {value}; valid is'):
    _settings('mine.json', **{field: value})
