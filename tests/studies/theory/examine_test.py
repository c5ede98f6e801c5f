"""A user's own HMM: read as it was written, refused where it is wrong, and reported on as the theorems say."""

import json
import re

import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.records import load, results
from experiments.settings.fields import SettingsError
from experiments.studies.theory import examine, problem_file
from hmm_jax import theory

# Two states, three tokens, independent columns of W.
HEALTHY = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[0.5, 0.5, 0], [0, 0.25, 0.75]],
  'task_weights': [1.0, -2.0],
}
MEMORY = {
  **HEALTHY,
  'emission_matrix': [HEALTHY['emission_matrix'], [[0, 1, 0], [0, 0.5, 0.5]]],
  'task_weights': [[1, 0], [0, 1]],
  'memory_probs': [[0.25, 0.25], [0.25, 0.25]],
  'cell_index': [0, 1],
  'cell': 1,
}


def _settings(path, **changes):
  """Sampled texts are as many and as long as those that are enumerated of 3 tokens, so that both share a program."""
  few = {'max_sequences': 130, 'num_sampled': 120, 'sampled_length': 4} | changes
  return settings_of('smoke', 'examine', distribution=str(path), **few)


def _loaded(tmp_path, entries):
  path = tmp_path / 'hmm.json'
  path.write_text(json.dumps(entries, default=np.ndarray.tolist))
  return problem_file.load(str(path), 0)


def _by_name(records):
  """Records by statement: `Assumption 3.1`, `Theorem 3.3 enumerated`, `Theorem 3.3 sampled`."""
  kind = lambda record: re.split(r'\W', record.get('texts', ''))[0]
  return {f'{record["statement"]} {kind(record)}'.strip(): record for record in records}


@pytest.mark.parametrize('entries', [HEALTHY, {**MEMORY, 'initial_probs': np.full((2, 2, 2), 0.5)}])
def test_a_file_is_read_as_it_was_written(tmp_path, entries):
  """A score of one row has a second of zeros."""
  problem = _loaded(tmp_path, entries)
  for name, array in problem.hmm._asdict().items():
    np.testing.assert_array_equal(array, entries[name])
  assert getattr(problem, 'cell', None) == entries.get('cell')
  np.testing.assert_array_equal(problem.task_weights[0], np.atleast_2d(entries['task_weights'])[0])
  assert problem.task_weights.shape == (2, 2)


@pytest.mark.parametrize(
  ('base', 'changes', 'named'),
  [
    (HEALTHY, {'mu': [1, 0]}, 'mu'),
    (HEALTHY, {'silent_probs': [1, 1]}, 'silent_probs'),
    (HEALTHY, {'task_weights': [1, 2, 3]}, 'task_weights'),
    (MEMORY, {'cell': 2}, 'cell is 2'),
  ],
)
def test_wrong_contents_are_refused(tmp_path, base, changes, named):
  """The file and the key are named."""
  with pytest.raises(SettingsError, match=f'^distribution is .*{re.escape(str(tmp_path))}.*{named}'):
    _loaded(tmp_path, base | changes)


def test_a_task_that_is_not_given_is_drawn():
  """The seed decides it."""
  tasks = [problem_file.load('mess3', seed).task_weights.tolist() for seed in (0, 0, 1)]
  assert np.shape(tasks[0]) == (2, 3) and tasks[0] == tasks[1] != tasks[2]


@pytest.mark.slow
def test_a_changed_file_is_examined_anew(tmp_path):
  """Every record is in a table; P[H_1 = 0 | x] lies between 1/3 and 0.6, (1, -2) has one label."""
  path, workdir, found = tmp_path / 'mine.json', tmp_path / 'run', []
  for changes in ({}, {'task_weights': [1.0, -1.2]}):
    path.write_text(json.dumps(HEALTHY | changes))
    examine.STUDY.run([_settings(path)], workdir, QUIET)
    found.append(_by_name(results.load(workdir)))
  one_label, task = (records['Task enumerated'] for records in found)
  assert one_label['majority'] == 1 > task['majority'] and one_label['warning'] and not task['warning']
  assert task['task_weights'] == [[1, -1.2], [0, 0]]
  tables = examine.STUDY.tables(load(workdir), None).values()
  assert sum(len(table.frame) for table in tables) == len(found[1])


@pytest.mark.slow
def test_only_a_prompt_is_right_if_3_1_fails():
  """The sets of Assumption 3.5, the prompt of B, and a proof that every linear head is wrong somewhere."""
  records = _by_name(examine.examined(theory.head_fails_prompt_succeeds(), _settings('', num_sampled=30)))
  witness = records['Assumption 3.5']['witness']
  assert witness == {'essential_states': [0, 1], 'prompt_states': [2], 'exhaustive': True}
  assert not records['Theorem 3.3']['exists'] and '3.1' in records['Theorem 3.3']['reason']
  assert records['Task sampled']['covered_by'] == ['Theorem 3.6']
  for texts in ('enumerated', 'sampled'):
    row = records[f'Theorem 3.6 {texts}']
    assert row['wrong'] == 0 < row['in_region'] and row['prompt'] == [[0, 0, 1]]
  assert records['Linear head']['outcome'] == 'certified'
