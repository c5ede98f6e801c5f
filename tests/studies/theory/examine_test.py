"""A user's own HMM: read as it was written, refused in one sentence, and reported on as the theorems say."""

import contextlib
import dataclasses
import io
import json
import re

from conftest import compiling_fast
import numpy as np
import pytest
import rich.console
from theory_cases import drawn

from configs import examine as config_file
from experiments.records import frames, results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.theory import examine, problem_file
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.problems.families import Sizes

# Two states, three tokens, independent columns of W.
HEALTHY = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[0.5, 0.5, 0], [0, 0.25, 0.75]],
  'task_weights': [1.0, -2.0],
}
# States 0 and 1 speak as 2 and 3 do, which state 4 alone leads to: W is dependent, but not on what 4 moves to.
IMITATED = {
  'initial_probs': [0.2] * 5,
  'transition_matrix': (
    np.array([[0, 4, 0, 0, 4], [5, 1, 0, 0, 2], [3, 2, 0, 1, 2], [0, 2, 2, 0, 4], [0, 0, 4, 4, 0]]) / 8
  ).tolist(),
  'emission_matrix': [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]],
  'task_weights': [0, 0, 1, -1, 0],
}
MEMORY = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.5, 0.5], [1, 0]],
  'emission_matrix': [[[1, 0, 0], [0, 0.5, 0.5]], [[0, 1, 0], [0, 0.5, 0.5]]],
  'task_weights': [[1, 0], [0, 1]],
  'memory_probs': [[0.25, 0.25], [0.25, 0.25]],
  'cell_index': [0, 1],
  'cell': 1,
}


def _written(path, entries):
  """The entries in a file of the path's kind."""
  if path.suffix == '.npz':
    np.savez(path, **entries)
  else:
    path.write_text(json.dumps({key: np.asarray(value).tolist() for key, value in entries.items()}))
  return path


def _entries(problem):
  """What a file says of a problem."""
  fields = problem._asdict()
  del fields['hmm'], fields['exact']
  return {**problem.hmm._asdict(), **fields}


def _settings(path, **changes):
  return dataclasses.replace(registry.from_config(config_file.get_config('smoke')), hmm_file=str(path), **changes)


def _report(problem, **changes):
  changes = dict(max_sequences=130, num_sampled=40, sampled_length=9) | changes
  records = examine.examined(problem, _settings('mine.json', **changes))
  found = json.loads(json.dumps(records, allow_nan=False))
  kind = lambda record: re.split(r'\W', record.get('texts', ''))[0]
  return {f'{record["statement"]} {kind(record)}'.strip(): record for record in found}


def _loaded(tmp_path, entries):
  return problem_file.load(_written(tmp_path / 'hmm.json', entries))


def _right_everywhere(records, theorem):
  found = [records[f'Theorem {theorem} {kind}'] for kind in ('enumerated', 'sampled')]
  return all(row['exists'] and row['outside_margin_in_region'] == 0 and row['in_region'] > 0 for row in found)


@pytest.fixture(autouse=True)
def _fast():
  with compiling_fast():
    yield


@pytest.mark.parametrize('suffix', ['.npz', '.json'])
@pytest.mark.parametrize('entries', [HEALTHY, MEMORY])
def test_a_file_is_read_as_it_was_written(tmp_path, suffix, entries):
  """Every array in float64, whatever the format; a score of one row has a second of zeros."""
  problem = problem_file.load(_written(tmp_path / f'hmm{suffix}', entries))
  assert isinstance(problem.hmm, MemoryHMM if 'cell' in entries else HMM)
  for name, array in problem.hmm._asdict().items():
    np.testing.assert_allclose(array, entries[name], rtol=1e-15)
    assert array.dtype == (np.int32 if name == 'cell_index' else np.float64)
  if 'cell' in entries:
    assert problem.cell == 1
    np.testing.assert_array_equal(problem.task_weights, entries['task_weights'])
  else:
    np.testing.assert_array_equal(problem.task_weights, [entries['task_weights'], np.zeros(problem.hmm.num_states)])
    np.testing.assert_array_equal(problem.silent_probs, problem.hmm.initial_probs)


def test_optional_shapes(tmp_path):
  """A silent law, several classes, and a first state that depends on the memory."""
  several = _loaded(tmp_path, {**HEALTHY, 'silent_probs': [0.25, 0.75], 'task_weights': [[1, 0], [0, 1], [0.5, 0.5]]})
  np.testing.assert_array_equal(several.silent_probs, [0.25, 0.75])
  assert several.task_weights.shape == (3, 2)
  by_memory = np.broadcast_to([0.25, 0.75], (2, 2, 2))
  assert _loaded(tmp_path, {**MEMORY, 'initial_probs': by_memory}).hmm.initial_probs.shape == (2, 2, 2)


def test_rows_are_divided_by_their_sums(tmp_path):
  """Rows that a file rounded sum to 1 to the last bits."""
  thirds = {**HEALTHY, 'emission_matrix': [[0.333333] * 3] * 2, 'silent_probs': [0.333333, 0.666666]}
  problem = _loaded(tmp_path, thirds)
  for rows in (*problem.hmm, problem.silent_probs):
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-15)


@pytest.mark.parametrize(
  ('base', 'changes', 'named'),
  [
    (HEALTHY, {'initial_probs': None}, 'its keys are'),
    (HEALTHY, {'mu': [1, 0]}, 'mu'),
    (HEALTHY, {'initial_probs': [0.5, 0.25]}, 'initial_probs'),
    (HEALTHY, {'silent_probs': [1.0]}, 'silent_probs'),
    (HEALTHY, {'transition_matrix': [[1, 0], [float('nan'), 1]]}, 'transition_matrix'),
    (HEALTHY, {'transition_matrix': [[1, 0], [-0.5, 1.5]]}, 'transition_matrix'),
    (HEALTHY, {'emission_matrix': []}, 'emission_matrix'),
    (HEALTHY, {'emission_matrix': [['a', 'b'], ['c', 'd']]}, 'emission_matrix'),
    (HEALTHY, {'task_weights': [1, 2, 3]}, 'task_weights'),
    (HEALTHY, {'task_weights': [[1, 2], [1, 2]]}, 'task_weights'),
    (HEALTHY, {'task_weights': [float('nan'), 1]}, 'task_weights'),
    (MEMORY, {'cell': 2}, 'cell is 2'),
    (MEMORY, {'cell_index': [0, 2]}, 'cell_index'),
    (MEMORY, {'memory_probs': [[0.25, 0.25], [0.25, 0.5]]}, 'memory_probs'),
    (MEMORY, {'memory_probs': np.full((2,) * 13, 2.0**-13)}, '4096'),
    (MEMORY, {'emission_matrix': [[1, 0, 0], [0, 1, 0]]}, 'emission_matrix'),
  ],
)
def test_wrong_contents_are_refused(tmp_path, base, changes, named):
  """One sentence names the file and the key."""
  entries = {key: value for key, value in {**base, **changes}.items() if value is not None}
  path = _written(tmp_path / 'hmm.npz', entries)
  with pytest.raises(SettingsError) as refusal:
    problem_file.load(path)
  assert str(path) in str(refusal.value) and named in str(refusal.value)


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('hmm.npz', None),
    ('hmm.txt', b''),
    ('hmm.npz', b'garbage'),
    ('hmm.npz', b'\x80\x04N.'),
    ('hmm.json', b'\xff\xfe\x00'),
    ('hmm.json', b'[1, 2]'),
    ('hmm.json', b'[' * 200_000),
    ('hmm.json', b'{"initial_probs": [[1.0], [0.5, 0.5]]}'),
  ],
)
def test_unreadable_files_are_refused(tmp_path, name, content):
  """One sentence with the path, before anything runs."""
  path = tmp_path / name
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(SettingsError, match=re.escape(str(path))):
    examine.STUDY.check(_settings(path))


def test_nothing_in_a_file_is_run(tmp_path):
  """An array of objects would be unpickled."""
  np.savez(tmp_path / 'object.npz', **{**HEALTHY, 'initial_probs': np.array([0.5, None], object)})
  with pytest.raises(SettingsError):
    problem_file.load(tmp_path / 'object.npz')


@pytest.mark.parametrize('suffix', ['.npz', '.json'])
def test_a_damaged_file_is_refused_or_read(tmp_path, suffix):
  """Whatever byte is lost or changed, the answer is a problem or a SettingsError."""
  whole, rng = _written(tmp_path / f'whole{suffix}', MEMORY).read_bytes(), np.random.default_rng(0)
  path = tmp_path / f'hmm{suffix}'
  for _ in range(60):
    damaged = bytearray(whole)
    for place in rng.integers(len(whole), size=rng.integers(1, 4)):
      damaged[place] = rng.integers(256)
    path.write_bytes(damaged[: rng.integers(len(whole) // 2, len(whole) + 1)] if rng.random() < 0.5 else damaged)
    with contextlib.suppress(SettingsError):
      problem_file.load(path)


def test_where_3_1_holds_both_constructions_are_right(tmp_path):
  """Every assumption of an HMM, no linear program, and both theorems right on every sequence."""
  records = _report(_loaded(tmp_path, HEALTHY))
  theorems = [f'Theorem {name} {kind}' for name in ('3.3', '3.6') for kind in ('enumerated', 'sampled')]
  assert list(records) == ['Assumption 3.1', 'Assumption 3.2', 'Assumption 3.5', *theorems]
  assert all(records[f'Assumption {name}']['holds'] for name in ('3.1', '3.2', '3.5'))
  smallest = np.linalg.svd(HEALTHY['emission_matrix'], compute_uv=False)[-1]
  assert records['Assumption 3.1']['closeness']['smallest_singular_value'] == pytest.approx(smallest)
  assert records['Assumption 3.2']['closeness'] == {'smallest_positive_prob': 0.25}
  for name in ('3.3', '3.6'):
    assert _right_everywhere(records, name)
    enumerated = records[f'Theorem {name} enumerated']
    assert enumerated['texts'] == 'enumerated to length 4'
    # Every sequence of 1 to 4 tokens is possible.
    assert enumerated['sequences'] == enumerated['in_region'] == 120
    assert records[f'Theorem {name} sampled']['sequences'] == 40


def test_where_3_1_fails_a_prompt_is_right_and_no_linear_head_is(tmp_path):
  """A dependence, the sets of Assumption 3.5, and a proof that every linear head is wrong somewhere."""
  records = _report(_loaded(tmp_path, IMITATED))
  W = np.array(IMITATED['emission_matrix']).T
  degenerate = records['Assumption 3.1']
  assert not degenerate['holds']
  np.testing.assert_allclose(W @ degenerate['witness']['dependence'], 0, atol=1e-12)
  assert degenerate['closeness'] == {'smallest_singular_value': 0.0, 'condition_number': None}
  assert records['Assumption 3.5']['witness'] == {
    'essential_states': [2, 3],
    'prompt_states': [4],
    'exhaustive': True,
  }
  assert not records['Theorem 3.3']['exists'] and 'Assumption 3.1 fails' in records['Theorem 3.3']['reason']
  assert _right_everywhere(records, '3.6')
  program = records['Linear head']
  assert (
    program['exists'] is False
    and 'confirmed in exact' in program['reason']
    and program['certificate']['residual'] < 1e-12
  )
  assert 0 < program['sequences'] < records['Theorem 3.6 enumerated']['sequences'] and program['length'] == 4
  certificate = program['certificate']
  tokens = np.array(certificate['tokens'])
  assert tokens.shape[1] == 4 and tokens.max() < 3
  assert set(certificate['label']) == {0, 1} and sum(certificate['weight']) == pytest.approx(1)


def test_a_linear_head_can_be_right_where_3_1_fails(tmp_path):
  """Without imitators' sources the same W has a head that is right on all, which the program finds."""
  moves = np.array([[2, 0, 0, 0, 6], [0, 2, 0, 0, 6], [4, 0, 0, 2, 2], [0, 4, 2, 0, 2], [0, 0, 4, 4, 0]]) / 8
  records = _report(_loaded(tmp_path, {**IMITATED, 'transition_matrix': moves, 'task_weights': [0, 0, 1, -2, 0]}))
  assert not records['Assumption 3.1']['holds']
  assert records['Linear head']['exists'] is True


@pytest.mark.parametrize('num_cells', [1, 2])
def test_memories(tmp_path, num_cells):
  """With one cell Theorem 4.6, with two 4.3, is right on every sequence of its region, and not on all."""
  if num_cells == 1:
    problem = drawn('4.6', 'planted', 1, Sizes(4, 5, 2, memory_size=3, num_cells=1))
  else:
    problem = drawn('4.3', 'planted', 3, Sizes(4, 5, 2, memory_size=2, num_cells=2))
  path = _written(tmp_path / 'hmm.npz', _entries(problem))
  records = _report(problem_file.load(path))
  theorem, relaxed = ('4.6', '4.5') if num_cells == 1 else ('C.6', 'C.5')
  names = list(dict.fromkeys(record['statement'] for record in records.values()))
  assert names == [
    *(f'Assumption {name}' for name in ('3.2', '4.2', '4.4', '4.4 relaxed', relaxed)),
    'Theorem 4.3',
    f'Theorem {theorem}',
  ]
  right = theorem if num_cells == 1 else '4.3'
  assert _right_everywhere(records, right)
  enumerated = records[f'Theorem {right} enumerated']
  assert enumerated['in_region'] < enumerated['sequences']
  assert 0 in records[f'Assumption {relaxed}']['witness']['recoverable_states']
  assert ('Theorem 4.3 sampled' in records) == records['Assumption 4.2']['holds']


def test_labels_do_not_depend_on_the_scale_of_mu(tmp_path):
  """Records of mu and of mu times a power of two are the same; so are those of two rows with the same contrast."""
  plain = _report(_loaded(tmp_path, HEALTHY))
  for weights in (np.multiply(HEALTHY['task_weights'], 2.0**-40), [[4, 1], [3, 3]]):
    assert _report(_loaded(tmp_path, {**HEALTHY, 'task_weights': weights})) == plain


def test_a_text_follows_the_silent_law(tmp_path):
  """Sampled texts are those of the label's chain, whatever the model takes for its first law: all are possible."""
  stuck = {
    **HEALTHY,
    'transition_matrix': [[0.5, 0.5], [0.5, 0.5]],
    'emission_matrix': [[1, 0, 0], [0, 0.5, 0.5]],
    'silent_probs': [0.125, 0.875],
  }
  records = _report(_loaded(tmp_path, stuck))
  assert records['Theorem 3.3 sampled']['sequences'] == 40


def test_too_large_a_vocabulary_is_sampled_alone(tmp_path):
  """Where even single tokens are too many to enumerate, long sequences are still checked."""
  records = _report(_loaded(tmp_path, HEALTHY), max_sequences=2)
  assert 'Theorem 3.3 enumerated' not in records and records['Theorem 3.3 sampled']['agreement'] == 1


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
    for step in (examine.STUDY.run, examine.STUDY.show):
      step(_settings(path), workdir, reporter)
    found.append(results.load(workdir))
  assert found[0] != found[1] and not list(workdir.glob('*.png'))
  rows = [row for table in examine.STUDY.tables(frames.load(workdir), None).values() for row in table.frame.iloc[:, 0]]
  assert set(rows) == {record['statement'] for record in found[1]}


@pytest.mark.parametrize(('field', 'value'), [('max_sequences', 2**20 + 1), ('rank_threshold', 0.0)])
def test_what_is_wrong_is_named(field, value):
  with pytest.raises(SettingsError, match=f'^{field} is {value}; valid is'):
    _settings('mine.json', **{field: value})
