"""The facts about Figure 3 (left) at smoke scale: whose tasks they are, what is recorded and what the page says."""

import io

from conftest import assert_same_bits
import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head, which_theorem
from experiments.analysis import figures, pages
from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Settings
from experiments.studies import registry
from experiments.studies.which_theorem import accuracy, certificate, grid, linearity, page, report, sentences, study
from hmm_jax.model import ExactModel

pytestmark = pytest.mark.usefixtures('without_optimisation')


ONE_SIZE = {'num_states': (4,), 'num_trials_by_size': ()}


def _settings(scale='smoke', **changes):
  config = which_theorem.get_config(scale)
  config.update_from_flattened_dict(changes)
  return registry.from_config(config)


def _nearing(settings, hmm, key, steps, reporter):
  """In place of a pretraining: exact models of HMMs whose emissions come nearer to the true ones step by step."""
  for step in steps:
    share = 0.5 * 0.001 ** (step / steps[-1])
    yield step, hmm._replace(emission_matrix=np.float32((1 - share) * hmm.emission_matrix + share / 10))


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run, and what it printed; two HMMs of one size, and no BERT."""
  workdir, settings = tmp_path_factory.mktemp('finished'), _settings(**ONE_SIZE)
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(pretraining, 'params_along', _nearing)
    patch.setattr(pretraining, 'tuned_model', lambda bert: ExactModel(bert.num_tokens))
    patch.setattr(figures, 'FORMATS', ('png',))
    study.check(settings)
    study.run(settings, workdir, reporter)
    study.show(settings, workdir, reporter)
  return workdir, reporter.console.file.getvalue()


@pytest.fixture(scope='module')
def records(finished):
  return results.load(finished[0])


def test_tasks_are_those_of_prompt_vs_head(monkeypatch, tmp_path):
  """HMM, inputs, labels and mu are the very arrays that a trial of it draws, and so is the key of its pretraining."""
  settings = registry.from_config(prompt_vs_head.get_config('smoke'))
  drawn = [grid.draw(trial) for trial in grid.trials(_settings(**ONE_SIZE))]
  assert [(one.trial.point.num_states, one.trial.trial) for one in drawn] == [(4, 0), (4, 1)]
  for one in drawn:
    trial = one.trial._replace(settings=settings)
    assert_same_bits(*(jax.random.key_data(t.keys().pretraining) for t in (trial, one.trial)))
    with jax.default_matmul_precision('float32'):
      hmm, downstream = trial_lib.draw(trial)
    assert_same_bits(tuple(hmm), tuple(one.hmm))
    assert_same_bits(downstream.inputs, one.downstream.inputs)
    for task, same in zip(downstream.tasks, one.downstream.tasks, strict=True):
      assert_same_bits((task.labels, task.task_weights), (same.labels, same.task_weights))
      scores = one.state_probs @ np.asarray(same.task_weights, np.float64).T
      np.testing.assert_array_equal(scores.argmax(-1), same.labels)

  class Drawn(Exception):
    """A trial drew by what the facts are drawn by."""

  def draw(trial):
    raise Drawn

  monkeypatch.setattr(trial_lib, 'draw', draw)
  with pytest.raises(Drawn):
    trial_lib.run(trial._replace(workdir=tmp_path), Reporter(rich.console.Console(quiet=True)))


@pytest.mark.parametrize('scale', which_theorem.SCALES)
def test_what_is_drawn_by_is_what_prompt_vs_head_has(scale):
  """Every setting of it that decides distribution, text, tasks or pretraining, at the same scale."""
  ours, theirs = _settings(scale), registry.from_config(prompt_vs_head.get_config(scale))
  assert isinstance(ours, Settings)
  for name in ('seed', 'tasks_per_trial', 'hmm', 'memory', 'corpus', 'bert', 'pretrain', 'measure', 'downstream'):
    assert getattr(ours, name) == getattr(theirs, name), name
  trials = [(trial.point.num_states, trial.trial) for trial in grid.trials(ours)]
  if scale == 'small':
    assert ours.draws() == registry.from_config(prompt_vs_head.get_config('evidence')).draws()
  of_size = {'small': {4: 7, 8: 5, 10: 7, 12: 5, 15: 5, 25: 5, 30: 7}, 'smoke': {4: 2, 6: 1}}[scale]
  assert trials == [(size, number) for size, count in of_size.items() for number in range(count)]


def test_every_task_has_a_row_and_every_checkpoint(records):
  """In order, each with what the tables need; four states over ten tokens are linear and separable by float64 too."""
  rows = report.part_records(records, 'linearity')
  tasks = range(_settings().tasks_per_trial)
  expected = [(*hmm, task) for hmm in ((4, 0), (4, 1)) for task in tasks]
  assert [(row['num_states'], row['trial'], row['task']) for row in rows] == expected
  for row in rows:
    assert (
      row['linear']
      and row['separable']
      and row['clear_separable']
      and row['head_size'] > 0
      and row['unexplained'] < 1e-6
    )
    assert row['reached_dimension'] == row['num_states'] and 0 < row['majority_accuracy'] < 1
    assert set(row['3.5']) == {'0.0', '0.001', '0.01', '0.1'} and row['3.1']['1e-09']
  rows = report.part_records(records, 'kl')
  assert [(row['num_states'], row['step'], row['task']) for row in rows] == [
    (4, step, task) for step in (0, 20, 40) for task in tasks
  ]
  assert all(row['accuracy'] >= row['certified'] >= row['from_total_variation'] >= row['from_kl'] for row in rows)
  assert all(row['kl'] > 0 and row['exact_accuracy'] > 0.9 for row in rows)
  assert (
    min(row['from_kl'] for row in rows if row['step'] == 40)
    > 0.5
    > max(row['from_kl'] for row in rows if row['step'] == 0)
  )


def test_tables_and_figures_of_a_run(finished, records):
  """Each table is printed, kept, and has a row for each size or step; each figure is drawn."""
  workdir, printed = finished
  assert (workdir / 'table.txt').read_text().strip() in printed and len(report.tables(records)) == len(report.TABLES)
  assert len(report.cell_table(records).rows) == 1 and len(report.certificate_table(records).rows) == 3
  for name in ('which_theorem', 'kl'):
    assert f'{name}.png' in printed and (workdir / f'{name}.png').stat().st_size


def test_the_fixed_head_is_put_to_the_very_model(monkeypatch):
  """On the exact G as the model all is certified that is right; and a certificate above the accuracy is an error."""
  drawn = grid.draw(grid.trials(_settings())[0])
  head = certificate.fixed_head(_settings(), drawn, drawn.downstream.tasks[0].labels)
  (probs,) = drawn.split_rows('test', drawn.token_probs)
  same = certificate.measured(drawn, head, probs, 0)
  assert same['accuracy'] == same['certified'] == same['from_kl'] == same['exact_accuracy'] > 0.9
  found = certificate.certify(head, probs, probs, drawn.split_rows('test', drawn.downstream.tasks[0].labels)[0])
  monkeypatch.setattr(certificate, 'certify', lambda *_: found._replace(accuracy=found.certified - 0.01))
  with pytest.raises(RuntimeError, match='of which each share is to be at most the one before'):
    certificate.measured(drawn, head, probs, 0)


def test_separable_is_a_head_or_a_proof_and_else_open():
  """A class boundary at a difference of 1e-11 in one token is found, labels at random are refused unless G may be far
  off, and the head of a linear score is right without a search."""
  rng = np.random.default_rng(0)
  features = rng.dirichlet(np.ones(4), 40)
  features[:, 3] = 1e-11 * rng.random(40)
  ask = lambda labels, error=1e-15, states=features, head=None: linearity.separable(
    features[: len(labels)], states[: len(labels)], labels, 2, head, error, 1e-9
  )
  mixed = rng.integers(2, size=40)
  assert ask((features[:, 3] > 5e-12).astype(int)) is True
  assert ask(mixed) is False and ask(mixed, error=0.3) is None
  assert ask(np.zeros(0, int)) is None
  scores = np.eye(2)[mixed]
  assert ask(mixed, states=scores, head=np.eye(2)) is True and ask(mixed, states=1 - scores, head=np.eye(2)) is False


def test_what_is_unexplained_is_a_share_of_the_standard_deviation():
  """Nothing of a linear score, all of one that features say nothing of, a known share of a mixture."""
  rng = np.random.default_rng(0)
  features = np.append(np.ones((400, 1)), rng.normal(size=(400, 2)), axis=1)
  linear, rest = features @ [[1.0], [2], [3]], rng.normal(size=(400, 1))
  assert linearity.unexplained(features, linear) < 1e-12
  assert linearity.unexplained(features, 5 * rest) > 0.99
  assert linearity.unexplained(features, np.hstack([linear, linear + rest])) == pytest.approx(1 / np.sqrt(27), rel=0.2)


def _row(num_states, trial, task, linear, separable, **fields):
  exact = {'3.1': {'1e-09': linear}, '3.5': {'0.0': {'1e-09': not task}, '0.1': {'1e-09': True}}, 'exhaustive': {}}
  return {
    **{'part': 'linearity', 'num_states': num_states, 'trial': trial, 'task': task, 'majority_accuracy': 0.6},
    **{'linear': linear, 'separable': separable, 'head_size': 10.0**num_states if linear else None, **exact},
    **{'reached_dimension': num_states, 'unexplained': 0.5, 'clear_separable': True, 'near_tie_share': 0.25, **fields},
  }


HAND_MADE = [
  *(_row(2, trial, task, True, True) for trial in range(3) for task in range(2)),
  *(_row(4, trial, task, task == 0, True) for trial in range(3) for task in range(2)),
  *(_row(30, trial, task, False, bool(trial) if task else None) for trial in range(3) for task in range(2)),
]


def test_cells_and_sentences_count_tasks_and_average_over_hmms():
  """By hand: undecided tasks are in no cell and in no share, and each HMM counts once."""
  rows = report.cell_table(HAND_MADE).rows
  assert [row[:8] for row in rows] == [
    ['2', '3', '6', '6', '0', '0', '0', '0'],
    ['4', '3', '6', '3', '3', '0', '0', '0'],
    ['30', '3', '6', '0', '2', '1', '0', '3'],
  ]
  assert [row[3:8] for row in report.clear_cell_table(HAND_MADE).rows][-1] == ['0', '6', '0', '0', '0']
  assert report.percent(HAND_MADE[-6:], lambda row: row['separable']).values.tolist() == [0, 100, 100]
  assert report.over_hmms(HAND_MADE[:1] + HAND_MADE[6:12], lambda row: row['linear']).values.tolist() == [
    1,
    0.5,
    0.5,
    0.5,
  ]
  said = sentences.linearity(HAND_MADE)
  assert 'exactly linear in all 6 tasks at H = 2, 3 of 6 at H = 4, none of 6 at H = 30.' in said
  assert 'makes it so in all 6 tasks at H = 2, none of 12 at H = 4 and 30.' in said
  assert '18 tasks of 9 HMMs' in said and '1e+02 at H = 2, 1e+04 at H = 4' in said
  said = sentences.separability(HAND_MADE)
  assert 'All test inputs, where the score is not linear: 5 of 9 tasks, and 3 open; 83.3 ± ' in said
  assert 'Without near ties, where the score is not linear: 9 of 9 tasks; 100.0 ± 0.0% by HMM, over 6 HMMs.' in said
  assert '25.0 ± 0.0% of the test inputs' in said
  assert 'Of the 9 tasks whose score is not linear Assumption 3.5 holds in 3 exactly, 9 with' in sentences.prompting(
    HAND_MADE
  )


def test_accuracies_are_joined_by_task_and_refused_for_another():
  """Means over HMMs by kind of task; a method that was not run has no column; another majority is another task."""
  trial = lambda row, **fields: {
    **{name: row[name] for name in ('num_states', 'trial', 'task', 'majority_accuracy')},
    **{'memory_size': 0, 'model': 'exact', 'method': 'head', 'accuracy': 0.5 + 0.1 * row['trial'], **fields},
  }
  trials = [trial(row) for row in HAND_MADE[:6]] + [trial(HAND_MADE[0], memory_size=2, majority_accuracy=0.1)]
  table = accuracy.accuracy_table(HAND_MADE, trials)
  assert table.columns == ['score and labels', 'HMMs', 'tasks', 'head, exact G', 'majority class']
  assert [row[:3] for row in table.rows] == [['linear, separable', '3', '6']] and table.rows[0][3].startswith('60.0 ± ')
  assert accuracy.accuracy_table(HAND_MADE, []) is None
  with pytest.raises(ValueError, match='is not that of the trials'):
    accuracy.accuracy_table(HAND_MADE, [trial(HAND_MADE[0], majority_accuracy=0.7)])


def test_prompts_are_joined_by_what_holds_of_their_task():
  """A row for each size, epsilon and kind that there is, over its HMMs; other parts take no part."""
  row = lambda trial, task: {
    **{'part': 'prompts', 'num_states': 4, 'trial': trial, 'task': task, 'majority_accuracy': 0.6},
    **{'3.5': {'0.0': False, '0.01': True}, 'constant_prompt': {'0.0': 'yes' if task else 'no', '0.01': 'yes'}},
  }
  rows = [row(trial, task) for trial in range(2) for task in range(2)]
  tuned = [
    {**one, 'memory_size': 0, 'model': 'exact', 'method': 'oracle_prompt', 'accuracy': 0.8 + 0.1 * one['task']}
    for one in rows
  ]
  table = accuracy.prompt_table([*HAND_MADE, *rows], tuned)
  assert table.columns[3:] == ['HMMs', 'tasks', 'oracle prompt, exact G', 'majority class']
  assert [one[1:6] for one in table.rows] == [
    ['0', 'the condition, not 3.5', '2', '2', '90.0'],
    ['0', 'neither', '2', '2', '80.0'],
    ['0.01', '3.5 and the condition', '2', '4', '85.0'],
  ]


@pytest.mark.parametrize(
  ('field', 'value', 'valid'),
  [
    ('downstream.label_state', 'silent', "'first'"),
    ('memory.sizes', (2,), 'HMMs without a memory'),
    ('num_trials_by_size', (2,), r'\(\), or 2 numbers'),
    ('certificate.num_states', (5,), r'of num_states, \(4, 6\)'),
    ('certificate.num_trials', 3, 'at most 2'),
    ('certificate.checkpoints', (0, 15), 'multiples of pretrain.steps_per_call, 10'),
    ('certificate.checkpoints', (0, 50), 'up to pretrain.num_steps'),
    ('certificate.checkpoints', (20, 10), 'ascending'),
    ('near_tie', 0.0, 'positive'),
    ('margin', 0.0, 'positive'),
    ('levels.rank_levels', (1.0,), 'below 1'),
  ],
)
def test_what_is_wrong_is_named(field, value, valid):
  with pytest.raises(SettingsError, match=f'^{field} is .*; valid is .*{valid}'):
    _settings(**{field: value})


def test_the_page_is_what_the_records_give():
  """Tables and sentences with numbers are rendered; none was typed."""
  text = page.PAGE.read_text()
  assert pages.filled(text, page.section) == text
  named = {match[2] for match in pages.BLOCK.finditer(text)}
  assert named == {*report.TABLES, *sentences.SENTENCES, *page.ACCURACIES, 'prompts', 'took'}
