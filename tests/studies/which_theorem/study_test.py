"""The facts about Figure 3 (left) at smoke scale: whose tasks they are, what is recorded and what tables say."""

from conftest import assert_same_bits
import jax
import numpy as np
import pandas as pd
import pytest
import rich.console

from configs import prompt_vs_head, which_theorem
from experiments.analysis import figures
from experiments.analysis.statistics import mean_interval, select
from experiments.analysis.tables import as_text
from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import frames
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Settings
from experiments.studies import registry
from experiments.studies.which_theorem import certificate, grid, linearity, tables
from experiments.studies.which_theorem.study import STUDY
from hmm_jax.model import ExactModel

pytestmark = pytest.mark.usefixtures('without_optimisation')


REPORTER = Reporter(rich.console.Console(quiet=True))
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
def workdir(tmp_path_factory):
  """The workdir of a finished run: two HMMs of one size, and no BERT."""
  found, settings = tmp_path_factory.mktemp('finished'), _settings(**ONE_SIZE)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(pretraining, 'params_along', _nearing)
    patch.setattr(pretraining, 'tuned_model', lambda bert: ExactModel(bert.num_tokens))
    patch.setattr(figures, 'FORMATS', {'png': {}})
    STUDY.check(settings)
    STUDY.run(settings, found, REPORTER)
    STUDY.show(settings, found, REPORTER)
  return found


def test_tasks_are_those_of_prompt_vs_head():
  """HMM, inputs, labels and mu are the very arrays that a trial of it draws, and so is the key of its pretraining."""
  settings = registry.from_config(prompt_vs_head.get_config('smoke'))
  ours = grid.trials(_settings(**ONE_SIZE))
  assert [(trial.point.num_states, trial.trial) for trial in ours] == [(4, 0), (4, 1)]
  for our in ours:
    one, trial = grid.draw(our), our._replace(settings=settings)
    assert_same_bits(*(jax.random.key_data(t.keys().pretraining) for t in (trial, our)))
    with jax.default_matmul_precision('float32'):
      hmm, downstream = trial_lib.draw(trial)
    assert_same_bits(tuple(hmm), tuple(one.hmm))
    assert_same_bits(downstream.inputs, one.downstream.inputs)
    for task, same in zip(downstream.tasks, one.downstream.tasks, strict=True):
      assert_same_bits((task.labels, task.task_weights), (same.labels, same.task_weights))
      scores = one.state_probs @ np.asarray(same.task_weights, np.float64).T
      np.testing.assert_array_equal(scores.argmax(-1), same.labels)


@pytest.mark.parametrize('scale', which_theorem.SCALES)
def test_what_is_drawn_by_is_what_prompt_vs_head_has(scale):
  """Every setting of it that decides distribution, text, tasks or pretraining, at the same scale."""
  ours, theirs = _settings(scale), registry.from_config(prompt_vs_head.get_config(scale))
  assert isinstance(ours, Settings)
  for name in ('seed', 'tasks_per_trial', 'hmm', 'memory', 'corpus', 'bert', 'pretrain', 'measure', 'downstream'):
    assert getattr(ours, name) == getattr(theirs, name), name
  if scale == 'small':
    assert ours.draws() == registry.from_config(prompt_vs_head.get_config('evidence')).draws()


def test_every_task_has_a_row_and_every_checkpoint(workdir):
  """In order, each with what the tables need; four states over ten tokens are linear and separable by float64 too."""
  records = frames.load(workdir)
  rows, tasks = select(records, part='linearity'), range(_settings().tasks_per_trial)
  expected = [(*hmm, task) for hmm in ((4, 0), (4, 1)) for task in tasks]
  assert list(zip(rows['num_states'], rows['trial'], rows['task'])) == expected
  assert rows[['linear', 'separable', 'clear_separable']].all(axis=None)
  assert (rows['head_size'] > 0).all() and (rows['unexplained'] < 1e-6).all()
  assert (rows['reached_dimension'] == 4).all() and rows['majority_accuracy'].between(0.01, 0.99).all()
  assert set(rows['3.5'][0]) == {'0.0', '0.001', '0.01', '0.1'} and rows['3.1'].str['1e-09'].all()
  rows = select(records, part='kl')
  assert list(zip(rows['step'], rows['task'])) == [(step, task) for step in (0, 20, 40) for task in tasks]
  assert (rows['kl'] > 0).all() and (rows['exact_accuracy'] > 0.9).all()
  assert select(rows, step=40)['from_kl'].min() > 0.5 > select(rows, step=0)['from_kl'].max()


def test_a_run_shows_tables_and_figures(workdir):
  """Without accuracies of prompt_vs_head, whose records are of other tasks; figures are drawn."""
  found = STUDY.tables(frames.load(workdir), _settings(**ONE_SIZE))
  assert list(found) == ['cells', 'clear_cells', 'distances', 'prompts', 'proofs', 'certificate']
  assert (workdir / 'table.txt').read_text() == '\n'.join(map(as_text, found.values()))
  for name in ('which_theorem', 'kl'):
    assert (workdir / f'{name}.png').stat().st_size


def test_the_fixed_head_is_put_to_the_very_model():
  """On the exact G as the model all is certified that is right."""
  drawn = grid.draw(grid.trials(_settings())[0])
  head = certificate.fixed_head(_settings(), drawn, drawn.downstream.tasks[0].labels)
  same = certificate.measured(drawn, head, *drawn.split_rows('test', drawn.token_probs), 0)
  assert same['accuracy'] == same['certified'] == same['from_kl'] == same['exact_accuracy'] > 0.9


def test_separable_is_a_head_or_a_proof_and_else_open():
  """A class boundary at a difference of 1e-11 in one token is found, labels at random are refused unless G may be far
  off, and the head of a linear score is right without a search."""
  rng = np.random.default_rng(0)
  features = rng.dirichlet(np.ones(4), 40)
  features[:, 3] = 1e-11 * rng.random(40)
  ask = lambda labels, error=1e-15, is_right=False: linearity.separable(
    features[: len(labels)], labels, np.full(len(labels), is_right), 2, error, 1e-9
  )
  mixed = rng.integers(2, size=40)
  assert ask((features[:, 3] > 5e-12).astype(int)) is True
  assert ask(mixed) is False and ask(mixed, error=0.3) is None
  assert ask(np.zeros(0, int)) is None
  assert ask(mixed, is_right=True) is True


def test_what_is_unexplained_is_a_share_of_the_standard_deviation():
  """Nothing of a linear score, all of one that features say nothing of, a known share of a mixture."""
  rng = np.random.default_rng(0)
  features = np.append(np.ones((400, 1)), rng.normal(size=(400, 2)), axis=1)
  linear, rest = features @ [[1.0], [2], [3]], rng.normal(size=(400, 1))
  assert linearity.unexplained(features, linear) < 1e-12
  assert linearity.unexplained(features, 5 * rest) > 0.99
  assert linearity.unexplained(features, np.hstack([linear, linear + rest])) == pytest.approx(1 / np.sqrt(27), rel=0.2)


def _row(num_states, trial, task, linear, separable, **fields):
  return {
    **{'part': 'linearity', 'num_states': num_states, 'trial': trial, 'task': task, 'majority_accuracy': 0.6},
    **{'linear': linear, 'separable': separable, 'clear_separable': True, 'near_tie_share': 0.25, **fields},
  }


HAND_MADE = pd.DataFrame(
  [
    *(_row(2, trial, task, True, True) for trial in range(3) for task in range(2)),
    *(_row(4, trial, task, task == 0, True) for trial in range(3) for task in range(2)),
    *(_row(30, trial, task, False, bool(trial) if task else None) for trial in range(3) for task in range(2)),
  ]
)


def test_cells_count_tasks_and_average_over_hmms():
  """By hand: open tasks are in no cell and in no share, and each HMM counts once."""
  rows = tables.cell_table(HAND_MADE, 'separable', '').frame.to_numpy().tolist()
  assert [row[:8] for row in rows] == [
    ['2', '3', '6', '6', '0', '0', '0', '0'],
    ['4', '3', '6', '3', '3', '0', '0', '0'],
    ['30', '3', '6', '0', '2', '1', '0', '3'],
  ]
  assert [row[9] for row in rows] == ['25.0 ± 0.0'] * 3 and rows[2][8] == str(mean_interval([0, 100, 100]))
  assert tables.cell_table(HAND_MADE, 'clear_separable', '').frame.iloc[-1, 3:8].tolist() == ['0', '6', '0', '0', '0']


def _prompt_row(num_states, trial, decision, **changes):
  values = {'3.5': False, 'constant_prompt': decision, 'error': 1e-9, 'accuracy': 0.75, **changes}
  if decision != 'yes':
    values |= {'error': None, 'accuracy': None}
  of_task = {'num_states': num_states, 'trial': trial, 'task': 0, 'majority_accuracy': 0.5, 'no_prompt': 'open'}
  return {**of_task, **{name: {'0.0': value, '0.001': value} for name, value in values.items()}}


def test_prompts_count_outcomes_by_epsilon():
  """The unit is the HMM, what is not built has no accuracy, and an error of 1e-3 is not solved to 1e-6."""
  rows = [_prompt_row(4, trial, 'yes', **{'3.5': trial > 0}) for trial in range(3)]
  rows[2]['error']['0.001'] = 1e-3
  rows += [_prompt_row(30, 0, 'no'), {**_prompt_row(30, 1, 'undecided'), 'no_prompt': 'certified'}]
  records = pd.DataFrame(rows)
  assert tables.prompt_table(records).frame.to_numpy().tolist() == [
    ['4', '3', '3', '0', '2', '3', '0', '0', '3', '75.0 ± 0.0', '50.0 ± 0.0'],
    ['4', '3', '3', '0.001', '2', '3', '0', '0', '2', '75.0 ± 0.0', '50.0 ± 0.0'],
    ['30', '2', '2', '0', '0', '0', '1', '1', '0', '', ''],
    ['30', '2', '2', '0.001', '0', '0', '1', '1', '0', '', ''],
  ]
  assert tables.proof_table(records).frame.to_numpy().tolist() == [
    ['4', '3', '0', '3', '0'],
    ['30', '2', '1', '1', '0'],
  ]


def test_accuracies_are_joined_by_task_and_not_given_for_others():
  """Means over HMMs by kind of task; another majority class is another task."""
  linearity = select(HAND_MADE, num_states=4)
  prompts = pd.DataFrame([_prompt_row(4, trial, 'yes' if trial else 'no') for trial in range(3)])
  prompts['majority_accuracy'] = 0.6
  pairs = [key.split() for key in {**tables.HEADS, **tables.PROMPTS}]
  grid = linearity[['num_states', 'trial', 'task', 'majority_accuracy']].merge(
    pd.DataFrame(pairs, columns=['model', 'method']), how='cross'
  )
  grid['accuracy'] = 0.5 + 0.1 * grid['trial']
  found = tables.accuracy_tables(linearity, prompts, grid)
  assert found['accuracy'].frame.to_numpy()[:, :3].tolist() == [
    ['linear, separable', '3', '3'],
    ['not linear, separable', '3', '3'],
  ]
  assert found['accuracy'].frame.iloc[0, 3] == str(mean_interval([50, 60, 70]))
  assert found['prompt_accuracy'].frame.iloc[:2, 1:6].to_numpy().tolist() == [
    ['0', 'the condition, not 3.5', '2', '2', '65.0'],
    ['0', 'neither', '1', '1', '50.0'],
  ]
  grid.loc[grid['trial'] == 0, 'majority_accuracy'] = 0.7
  assert tables.accuracy_tables(linearity, prompts, grid)['accuracy'].frame['HMMs'].tolist() == ['2', '2']
  assert tables.accuracy_tables(linearity, prompts, grid.assign(majority_accuracy=0.7)) == {}


def test_the_records_of_the_page_are_as_it_says():
  """No more is certified than is right, and numbers of the words that stand in no table."""
  records = frames.load(tables.GRID.parents[1] / 'which_theorem')
  linearity, prompts, kl = (select(records, part=part) for part in ('linearity', 'prompts', 'kl'))
  bounds = kl[['accuracy', 'certified', 'from_total_variation', 'from_kl']].to_numpy()
  assert len(kl) == 168 and (np.diff(bounds) <= 0).all()
  task = ['num_states', 'trial', 'task']
  majorities = linearity.set_index(task)['majority_accuracy'].loc[kl.set_index(task).index]
  assert (kl['from_kl'].to_numpy() > majorities.to_numpy()).sum() == 34
  other = linearity[~linearity['linear'].astype(bool)]
  assert [other['3.5'].str[level].str['1e-09'].sum() for level in ('0.0', '0.1')] == [12, 79]
  solved = select(tables.by_epsilon(prompts), constant_prompt='yes')
  beyond = solved[~solved['3.5'].astype(bool)].groupby('epsilon').size()
  assert solved.groupby('epsilon').size().tolist() == [91, 160, 161] and beyond.tolist() == [5, 20, 16]


@pytest.mark.parametrize(
  ('field', 'value', 'valid'),
  [
    ('memory.sizes', (2,), 'HMMs without a memory'),
    ('certificate.num_states', (5,), r'of num_states, \(4, 6\)'),
    ('certificate.checkpoints', (0, 15), 'multiples of pretrain.steps_per_call, 10'),
    ('certificate.checkpoints', (20, 10), 'ascending'),
  ],
)
def test_what_is_wrong_is_named(field, value, valid):
  with pytest.raises(SettingsError, match=f'^{field} is .*; valid is .*{valid}'):
    _settings(**{field: value})
