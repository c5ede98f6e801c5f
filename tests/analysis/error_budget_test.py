"""The error budget: signed steps of records made by hand, what is said of them, and what is drawn."""

import io

import numpy as np
from pandas import DataFrame as frame
import pytest
import rich.console
import scipy.stats

from experiments.analysis import error_budget, statistics
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.groups import FigureSettings
from experiments.studies import registry

HEAD, ATTENTION, PROMPT = error_budget.WAYS.values()
SETTINGS = FigureSettings(width=6.4, height=4.2, dpi=50, paper_overlay=False)
# Accuracies in percent by task of each of three HMMs: the best head and what bounds it, converged on G and on BERT, and
# the protocol, which gains on BERT in the last HMM.
LEVELS = {
  0: [(90, 95, 85, 80, 79), (94, 97, 89, 84, 83)],
  1: [(92, 96, 85, 81, 80), (92, 96, 87, 83, 82)],
  2: [(93, 97, 88, 83, 84)],
}


def _record(stage, trial, task, accuracy, at_most=None, num_states=4, memory_size=0):
  _, model, method = stage
  return dict(
    experiment='prompt_vs_head',
    scale='evidence',
    seed=0,
    num_states=num_states,
    memory_size=memory_size,
    num_cells=int(memory_size > 0),
    trial=trial,
    task=task,
    model=model,
    method=method,
    accuracy=accuracy / 100,
    accuracy_at_most=None if at_most is None else at_most / 100,
    majority_accuracy=0.5,
    near_tie_share=0.0,
    kl_at_mask=0.1,
    excess_mlm_loss=0.1,
  )


def _of_head(levels=None, **where):
  records = []
  for trial, tasks in (levels or LEVELS).items():
    for task, (best, at_most, *rest) in enumerate(tasks):
      records.append(_record(HEAD[0], trial, task, best, at_most, **where))
      records += [_record(stage, trial, task, value, **where) for stage, value in zip(HEAD[1:], rest)]
  return records


def _of(which, levels, **where):
  """Of a budget without a bracket: by HMM and task, the accuracies of its stages."""
  at = lambda trial, task, values: zip(which, [trial] * 9, [task] * 9, values)
  rows = [
    row for trial, tasks in levels.items() for task, values in enumerate(tasks) for row in at(trial, task, values)
  ]
  return [_record(*row, **where) for row in rows]


def test_steps_are_means_of_hmms_with_t_intervals():
  """Each step is the mean over HMMs of means over tasks, and starts where the last one ended; gains are negative."""
  records = frame(_of_head())
  found = error_budget.lost(records, HEAD)
  expected = [[8, 8, 7], [5, 6, 5], [5, 4, 5], [1, 1, -1]]
  for lost, values in zip(found, expected, strict=True):
    np.testing.assert_allclose(lost.values, values)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert lost.mean == pytest.approx(np.mean(values))
    assert lost.half_width == pytest.approx((high - low) / 2)
  levels = error_budget.levels(records, HEAD)
  np.testing.assert_allclose(levels, 100 - np.cumsum([[0, 0, 0], *expected], axis=0).T)
  bound, after, *_ = error_budget.lost(error_budget.at_most(records), HEAD)
  np.testing.assert_allclose(bound.values, [4, 4, 3])
  np.testing.assert_allclose(after.values, [9, 10, 9])


def test_a_stage_that_is_missing_takes_its_tasks_with_it():
  """Steps need all stages on the same task: a task without one of them takes no part, and without any there is none."""
  without = [r for r in _of_head() if r['method'] != 'head_best']
  assert not len(error_budget.levels(frame(without), HEAD))
  assert error_budget.figure(frame(without), SETTINGS) is None and not error_budget.tables(frame(without))
  unpaired = [r for r in _of_head() if (r['model'], r['trial'], r['task']) != ('bert', 0, 1)]
  *_, approximation, optimisation = error_budget.lost(frame(unpaired), HEAD)
  np.testing.assert_allclose(approximation.values, [5, 4, 5])
  np.testing.assert_allclose(optimisation.values, [1, 1, -1])
  one_hmm = error_budget.lost(frame([r for r in _of_head() if r['trial'] == 0]), HEAD)
  assert [len(lost.values) for lost in one_hmm] == [1] * 4 and all(np.isnan(lost.half_width) for lost in one_hmm)


def _even(*levels):
  """Three HMMs with a task each, a little apart, of these levels in percent."""
  return {trial: [tuple(value + 0.1 * trial * (value < 100) for value in levels)] for trial in range(3)}


@pytest.mark.parametrize(
  ('levels', 'expected'),
  [
    (_even(100, 100, 98, 80, 79), 'approximation'),
    (_even(80, 81, 78, 78, 77), 'degeneracy'),
    # The best head is somewhere between 80 and 99: what is lost to degeneracy may be lost to the sample.
    (_even(80, 99, 78, 78, 77), None),
    # Even if the best head is the one found, more is lost after it.
    (_even(97, 99, 78, 78, 77), 'sample and surrogate'),
    (_even(100, 100, 90, 80, 79), None),
    ({0: [(100, 100, 100, 80, 79)], 1: [(100, 100, 98, 97, 60)], 2: [(100, 100, 100, 85, 84)]}, None),
    ({trial: tasks for trial, tasks in _even(100, 100, 98, 80, 79).items() if trial < 2}, None),
    # The largest of losses, and no loss at all.
    (_even(100, 100, 100, 100, 100), None),
  ],
  ids=['one', 'proven', 'within the bracket', 'after the bracket', 'two', 'noise', 'two HMMs', 'none'],
)
def test_the_largest_loss_is_told_apart_by_paired_intervals(levels, expected):
  assert error_budget.largest_loss(frame(_of_head(levels)), HEAD) == expected


def test_a_pairing_tells_apart_what_two_intervals_do_not():
  """HMMs that differ by 30 points, in each of which approximation loses 2 more than optimisation."""
  losses = {0: (30, 28), 1: (15, 13.2), 2: (2.5, 0.6)}
  levels = {trial: [(100, 100, 100, 100 - a, 100 - a - b)] for trial, (a, b) in losses.items()}
  records = _of_head(levels)
  apart, together = error_budget.lost(frame(records), HEAD)[2:]
  assert apart.mean - apart.half_width < together.mean
  # Not from 0 though: three HMMs so far apart say little of either.
  assert error_budget.largest_loss(frame(records), HEAD) is None
  shifted = {trial: [(100, 100, 100, 80 - a, 60 - a - b)] for trial, (a, b) in losses.items()}
  first, second = error_budget.lost(frame(_of_head(shifted)), HEAD)[2:]
  assert first.mean - first.half_width < second.mean + second.half_width
  assert error_budget.largest_loss(frame(_of_head(shifted)), HEAD) == 'approximation'


def test_the_largest_loss_is_apart_from_no_loss_at_all():
  """Of five HMMs one loses 10 points before the oracle prompt: more than after it in each, but not surely anything."""
  levels = {trial: [(99, 100, 100)] for trial in range(4)} | {4: [(90, 85, 76.1)]}
  records = frame(_of(PROMPT, levels))
  first, *others = error_budget.lost(records, PROMPT)
  apart = [statistics.mean_interval(first.values - other.values) for other in others]
  assert all(difference.mean > difference.half_width for difference in apart)
  assert first.mean < first.half_width and error_budget.largest_loss(records, PROMPT) is None


def test_tables_name_the_largest_loss_by_size_and_of_all_hmms_together():
  """A row a size and one of all HMMs, of each kind of text; HMMs of all sizes are units together."""
  sizes = {4: _even(100, 100, 98, 80, 79), 10: _even(100, 100, 90, 80, 79), 30: _even(80, 81, 78, 78, 77)}
  records = [r for size, levels in sizes.items() for r in _of_head(levels, num_states=size)]
  (found,) = error_budget.tables(frame(records)).values()
  assert list(found.frame['|H|']) == ['4', '10', '30', 'all'] and list(found.frame['n']) == ['3', '3', '3', '9']
  assert list(found.frame['largest']) == ['approximation', 'not significant', 'degeneracy', 'not significant']
  lost = [[one.mean for one in error_budget.lost(frame(_of_head(levels)), HEAD)] for levels in sizes.values()]
  last = found.frame.iloc[-1, 2:7]
  assert [cell.split()[0] for cell in last.drop('of that\nproven')] == [f'{mean:.1f}' for mean in np.mean(lost, axis=0)]
  memory = [
    r
    for size in (2, 3)
    for r in _of(ATTENTION, {trial: [(99 - size, 90, 80 + trial)] for trial in range(2 + size)}, memory_size=size)
  ]
  of_both = error_budget.tables(frame(records + memory))
  assert list(of_both) == ['budget_head_vanilla', 'budget_attention_memory']
  of_memory = of_both['budget_attention_memory'].frame
  assert list(of_memory['|M|']) == ['2', '3', 'all'] and list(of_memory['n']) == ['4', '5', '9']
  assert list(of_memory['largest']) == ['not significant', 'optimisation', 'optimisation']


def test_hmms_of_all_sizes_are_units_together():
  """A loss that is too uneven within each size of three HMMs is significant over twelve."""
  levels = {trial: [(100, 100, 100, 92 + 3 * trial, 91 + 3 * trial)] for trial in range(3)}
  records = [r for size in (4, 8, 10, 30) for r in _of_head(levels, num_states=size)]
  (found,) = error_budget.tables(frame(records)).values()
  assert list(found.frame['largest']) == ['not significant'] * 4 + ['approximation']
  half_width = scipy.stats.t.ppf(0.975, 11) * scipy.stats.sem([8, 5, 2] * 4)
  assert found.frame['approximation\nto converged head, BERT'].iloc[-1] == f'5.0 ± {half_width:.1f}'


def test_the_figure_floats_each_step_between_its_stages():
  """Bars from start to end, hollow where a step gains; intervals of the table, of one HMM none; and the bound."""
  records = _of_head() + _of(PROMPT, {trial: [(95, 90 + trial, 96)] for trial in range(3)})
  figure = error_budget.figure(frame(records), SETTINGS)
  head, prompt = figure.axes
  for axes, which in ((head, HEAD), (prompt, PROMPT)):
    patches = [patch for container in axes.containers if hasattr(container, 'patches') for patch in container.patches]
    bars = [bar for bar in patches if np.isfinite(bar.get_height())]
    means, lost = error_budget.levels(frame(records), which).mean(0), error_budget.lost(frame(records), which)
    assert [bar.get_y() for bar in bars] == pytest.approx(means[:-1])
    assert [bar.get_y() + bar.get_height() for bar in bars] == pytest.approx(means[1:])
    hollow = [bar.get_facecolor()[:3] == (1, 1, 1) for bar in bars]
    assert hollow == [one.mean < 0 for one in lost]
    stems = [c.lines[2][0].get_segments()[0][:, 1] for c in axes.containers if hasattr(c, 'lines')]
    for (low, high), end, one in zip(stems, means[1:], lost, strict=True):
      assert (high - low) / 2 == pytest.approx(one.half_width) and (high + low) / 2 == pytest.approx(end)
  assert 'may beat' in prompt.get_title() and any(hollow)
  (bound,) = [line for line in head.collections if line.get_label() == 'proven degeneracy']
  assert bound.get_segments()[0][:, 1] == pytest.approx([100 - 11 / 3] * 2)
  assert max(head.get_yticks()) <= 100 and {text.get_text() for text in head.get_xticklabels()} == {'4'}
  of_one = error_budget.figure(frame([r for r in records if r['trial'] == 0]), SETTINGS)
  stems = [c.lines[2][0] for axes in of_one.axes for c in axes.containers if hasattr(c, 'lines')]
  assert not any(segment.size for stem in stems for segment in stem.get_segments())


def test_a_run_draws_its_budget_and_keeps_it_out_of_the_first_table(tmp_path):
  """That table is of what the protocol trains; other fits and the losses follow."""
  config = config_lib.shipped('prompt_vs_head')['get_config']('smoke')
  config.figures = ('budget',)
  settings = registry.from_config(config)
  results.write(tmp_path, settings, _of_head())
  show = registry.EXPERIMENTS['prompt_vs_head'].show
  show(settings, tmp_path, Reporter(rich.console.Console(file=io.StringIO())))
  methods, losses = (tmp_path / 'table.txt').read_text().split('Points of accuracy lost')
  protocol, others = methods.split("Beyond the paper's protocol")
  assert 'converged' not in protocol and 'head' in protocol and 'converged head' in others
  assert 'of that' in losses and 'converged head, BERT' in losses
  assert (tmp_path / 'budget.png').exists()
  results.write(tmp_path, settings, [record for record in _of_head() if record['method'] == 'head_converged'])
  show(settings, tmp_path, Reporter(rich.console.Console(file=io.StringIO())))
  assert 'converged head' in (tmp_path / 'table.txt').read_text()
