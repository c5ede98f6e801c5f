"""The facts about Figure 3 (left): whose tasks they are, how each is decided, and what the shipped records say."""

from conftest import assert_same_bits
import jax
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import trial as trial_lib
from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.settings.trial import trials
from experiments.studies.which_theorem import kinds_of_tasks, study

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _settings(scale='smoke', **changes):
  return settings_of(scale, 'which_theorem', **changes)


ONE_SIZE = _settings(num_states=(4,), num_trials_by_size=())


def test_every_task_has_a_row(reduced_run):
  """Three HMMs of fewer states than tokens, which are linear and separable by float64 too."""
  rows, tasks = load(reduced_run('which_theorem', 'smoke')), range(ONE_SIZE.tasks_per_trial)
  expected = [(*hmm, task) for hmm in ((4, 0), (4, 1), (6, 0)) for task in tasks]
  assert list(zip(rows['num_states'], rows['trial'], rows['task'])) == expected
  assert rows[['linear', 'separable', 'clear_separable']].all(axis=None)
  assert (rows['unexplained'] < 1e-6).all() and (rows['reached_dimension'] == rows['num_states']).all()
  assert set(study.STUDY.figures(rows, ONE_SIZE)) == {'which_theorem'}


def test_tasks_are_those_of_prompt_vs_head():
  """HMM, inputs, labels and mu are the very arrays that a trial of it draws; labels are those of the score."""
  (our, _), settings = trials(ONE_SIZE), settings_of('smoke')
  our_hmm, ours, state_probs = study.draw(our)
  with jax.default_matmul_precision('float32'):
    hmm, downstream = trial_lib.draw(our._replace(settings=settings))
  assert_same_bits((*hmm, downstream.inputs), (*our_hmm, ours.inputs))
  for task, same in zip(downstream.tasks, ours.tasks, strict=True):
    assert_same_bits((task.labels, task.task_weights), (same.labels, same.task_weights))
    scores = state_probs @ np.asarray(same.task_weights, np.float64).T
    np.testing.assert_array_equal(scores.argmax(-1), same.labels)


def test_separable_is_a_head_or_a_proof_and_else_open():
  """A class boundary at a difference of 1e-11 in one token is found, labels at random are refused unless G may be far
  off, and the head of a linear score is right without a search."""
  rng = np.random.default_rng(0)
  features = rng.dirichlet(np.ones(4), 40)
  features[:, 3] = 1e-11 * rng.random(40)
  mixed = rng.integers(2, size=40)
  ask = lambda labels, error=1e-15, is_right=False: study.separable(
    features[: len(labels)], labels, np.full(len(labels), is_right), 2, error, 1e-9
  )
  assert ask((features[:, 3] > 5e-12).astype(int)) is True
  assert ask(mixed) is False and ask(mixed, error=0.3) is None
  assert ask(mixed[:0]) is None and ask(mixed, is_right=True) is True


def test_the_unexplained_share_is_in_standard_deviations():
  """The noise, of variance 9, in a score of variance 1 + 4 + 9."""
  rng = np.random.default_rng(0)
  features = np.append(np.ones((4000, 1)), rng.normal(size=(4000, 2)), axis=1)
  found = study.unexplained(features, features @ [[5.0], [1], [2]] + rng.normal(0, 3, (4000, 1)))
  assert found == pytest.approx(3 / np.sqrt(14), rel=0.05)


RECORDS = load(kinds_of_tasks.GRID.parents[1] / 'which_theorem')


def test_the_page_agrees_with_its_records():
  """Numbers of the words that stand in no table."""
  other = RECORDS[~RECORDS['linear'].astype(bool)]
  assert [other['3.5'].str[level].str['1e-09'].sum() for level in ('0.0', '0.1')] == [12, 79]
  large = RECORDS[RECORDS['num_states'] >= 25]
  clear = large['clear_separable'].eq(True)
  assert [clear.sum(), (clear & large['separable'].eq(False)).sum()] == [27, 24]


def test_accuracies_of_other_tasks_are_not_joined():
  """Another majority class is another task."""
  accuracies = RECORDS.assign(model='exact', method='head', accuracy=0.5)
  accuracies['majority_accuracy'] += 0.01
  assert kinds_of_tasks.accuracy_table(RECORDS, accuracies) == {}


def test_a_memory_is_refused():
  with pytest.raises(SettingsError, match='^memory.sizes is '):
    _settings(**{'memory.sizes': (2,)})


def test_the_table_of_distances_counts_every_task_at_its_size():
  cells = kinds_of_tasks._distance_table(RECORDS).frame.set_index('')
  holds = RECORDS['3.5'].str['0.0'].str['1e-09'].groupby(RECORDS['num_states'])
  assert cells.loc['3.5, epsilon 0, rank 1e-09: tasks'].to_dict() == {
    f'H = {size}': f'{of_size.sum()}/{len(of_size)}' for size, of_size in holds
  }
