"""The study of degradation at smoke scale: what is recorded, and what tables, figures and page say of records."""

import dataclasses
import io
import json

import jax
import numpy as np
from oracles import log_space_conditional
import pandas as pd
import pytest
import rich.console
import scipy.stats

from configs import degradation
from experiments.analysis import statistics
from experiments.records import frames
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import pages, registry
from experiments.studies.degradation import methods, models, problems, tables
from experiments.studies.degradation.figure import draw
from experiments.studies.degradation.problems import Condition
from experiments.studies.degradation.study import STUDY

pytestmark = pytest.mark.usefixtures('without_optimisation')

FOLDERS = {scale: pages.ROOT / 'docs' / 'results' / 'degradation' / scale for scale in ('small', 'bert')}
SMALL, BERT = map(frames.load, FOLDERS.values())
REPORTER = Reporter(rich.console.Console(file=io.StringIO(), width=80))

BUILT = "theorem's construction"
HEAD, PROMPT = 'converged head', 'trained prompt, converged head'


def _settings(**changes):
  return dataclasses.replace(registry.from_config(degradation.get_config('smoke')), **changes)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Of a finished run."""
  workdir = tmp_path_factory.mktemp('finished')
  STUDY.run(_settings(), workdir, REPORTER)
  return workdir


def test_every_condition_has_a_row_for_each_hmm(workdir):
  """Errors of the KL that was asked for, or less for a short context; all methods of the theorem, and the controls."""
  settings, records = _settings(), frames.load(workdir)
  for theorem, kind in (('3.3', 'singular_value'), ('3.6', 'leak')):
    of_theorem = statistics.select(records, theorem=theorem, part=f'exact-{theorem}', kind='task').to_dict('records')
    found = {(r['damage'], r['error'], r['level']) for r in of_theorem}
    assert found == {('', 'noise', 0.0), ('', 'noise', 0.01), ('', 'short_context', 0.001), (kind, 'noise', 0.01)}
    names = {'construction', 'weighted', 'converged_head', 'trained_head', 'converged_prompt', 'trained_prompt'}
    assert {*of_theorem[0]['accuracy']} == names | ({'converged_built'} if theorem == '3.6' else set())
    for record in of_theorem:
      assert record['kl'] == pytest.approx(record['level'], rel=0.01, abs=1e-6) or record['error'] == 'short_context'
      assert record['kl'] <= 1.01 * record['level'] + 1e-6
      assert record['gradient_norm'] < 1e-6 and all(0 <= value <= 1 for value in record['accuracy'].values())
      if record['damage'] == '' and record['level'] == 0:
        assert record['accuracy']['construction'] == record['accuracy']['weighted'] == 1
  assert len(statistics.select(records, part='bert-3.3')) == 2 * len(settings.bert.checkpoints)
  for model in ('exact', 'bert'):
    controls = statistics.select(records, part=f'{model}-3.6', kind='control')
    assert list(controls['hmm']) == [0, 1] and controls['kl'].isna().all()
    assert all({*accuracy} == {'converged_prompt', 'trained_prompt'} for accuracy in controls['accuracy'])
  for mass in statistics.select(records, part='exact-3.6')['mass']:
    assert all(0 <= value <= 1 + 1e-6 for value in mass.values())


def test_a_second_run_reads_back_what_is_finished(workdir, monkeypatch):
  """No part runs again, and the records are the same bytes."""
  before = (workdir / 'results.jsonl').read_bytes()
  monkeypatch.setattr(methods, 'measure', None)
  STUDY.run(_settings(), workdir, REPORTER)
  assert (workdir / 'results.jsonl').read_bytes() == before


def test_problems_are_balanced_in_every_version_and_their_g_is_exact():
  """Labels, G and G after the theorem's prompt agree with an oracle in log space; the control weighs no state of H*."""
  settings = _settings()
  key = jax.random.key(5)
  for theorem in problems.THEOREMS:
    for damage, problem in problems.draw(settings, theorem, key).items():
      assert np.bincount(problem.labels).max() <= settings.largest_majority * len(problem.labels)
      hmm = problem.hmm
      rows = np.vstack([hmm.emission_matrix.T, np.ones(hmm.num_states)])[problem.inputs]
      np.testing.assert_allclose(
        problem.ideal_after(None), log_space_conditional(hmm, rows)[:, 0], rtol=1e-6, atol=1e-9
      )
      if theorem == '3.6':
        prompt = problem.built_prompt
        before = np.broadcast_to(prompt, (len(rows), *prompt.shape))
        expected = log_space_conditional(hmm, np.concatenate([before, rows], axis=1))[:, 1]
        np.testing.assert_allclose(problem.ideal_after(prompt), expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(
          problem.ideal_after(None) @ problem.reader, problem.states[:, problem.inverted_states].sum(-1)
        )
        np.testing.assert_allclose(problem.reader[-1], -3)
        control = problems.about_other_states(settings, problem, key)
        assert not control.task_weights[:, problem.inverted_states].any() and damage[0] in ('', 'leak')
        assert (np.abs(control.task_weights).sum(0) > 0).sum() == len(problem.inverted_states)


def test_a_task_that_cannot_be_balanced_is_refused():
  """In one sentence that names the field; so is a control."""
  settings = _settings(max_draws=1, largest_majority=0.501)
  with pytest.raises(SettingsError, match='max_draws is 1; valid is more: for Theorem 3.3'):
    problems.draw(settings, '3.3', jax.random.key(0))
  problem = problems.draw(_settings(), '3.6', jax.random.key(5))[problems.UNDAMAGED]
  with pytest.raises(SettingsError, match='max_draws is 1; valid is more: for states outside'):
    problems.about_other_states(settings, problem, jax.random.key(0))


def test_a_mean_kl_is_that_of_its_definition():
  """Nats, averaged over inputs; a token that the ideal model excludes counts nothing."""
  ideal, probs = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[0.25, 0.5, 0.25], [0.5, 0.5, 0]])
  assert models.kl(ideal, probs) == pytest.approx((0.5 * np.log(2) + np.log(2)) / 2)


def _cells(records, name):
  """The cells of a table by (row, heading in one line)."""
  frame = tables.tables(records, None)[name].frame
  frame = frame.set_index(frame.columns[0]).rename(columns=lambda heading: heading.replace('\n', ' '))
  return frame.stack().to_dict()


def test_tables_have_the_means_and_differences_of_the_records():
  """By name and by numbers that are computed from the records alone, whatever the order of these."""
  names = [f'{name}_{theorem}' for name in ('accuracy', 'differences') for theorem in ('3_3', '3_6')]
  conditions = ['conditions_3_3', 'conditions_3_6']
  assert [*tables.tables(BERT, None)] == [*names, 'mass', 'prompts']
  assert [*tables.tables(SMALL, None)] == [*names, *conditions, 'mass']
  whole = statistics.select(SMALL, theorem='3.3', damage='', level=0.01)
  noise, short = (statistics.select(whole, error=error)['accuracy'] for error in ('noise', 'short_context'))
  head, built, with_short = (
    np.array([100 * r[name] for r in chosen])
    for chosen, name in ((noise, 'converged_head'), (noise, 'construction'), (short, 'construction'))
  )
  half_width = lambda values: scipy.stats.t.ppf(0.975, 19) * np.std(values, ddof=1) / np.sqrt(20)
  shuffled = SMALL.sample(frac=1, random_state=0)
  for name, heading, row, values in (
    ('accuracy_3_3', 'converged head', 'noise 0.01', head),
    ('differences_3_3', "converged head - theorem's construction", 'noise 0.01', head - built),
    ('conditions_3_3', "theorem's construction", 'short context 0.01', with_short - built),
  ):
    expected = f'{values.mean():.1f} ± {half_width(values):.1f}'
    assert _cells(SMALL, name)[row, heading] == _cells(shuffled, name)[row, heading] == expected
  exact = statistics.select(SMALL, theorem='3.6', damage='', error='noise', level=0)
  own, control = (statistics.select(exact, kind=kind) for kind in ('task', 'control'))
  moved = [100 * (one['trained'] - other['trained']) for one, other in zip(own['mass'], control['mass'])]
  expected = f'{np.mean(moved):.1f} ± {half_width(moved):.1f}*'
  assert _cells(shuffled, 'mass')['exact G', 'trained, mu on H* - trained, elsewhere'] == expected


def test_a_difference_is_significant_over_all_of_its_kind():
  """A * stands where p is below 0.05 after Holm's correction for the differences of both theorems, by definition."""
  cells = {theorem: _cells(SMALL, f'differences_{theorem}') for theorem in ('3_3', '3_6')}
  count = sum(heading != 'KL' for of_theorem in cells.values() for _, heading in of_theorem)
  title = tables.tables(SMALL, None)['differences_3_3'].title
  assert count == 130 and title.endswith(f'*: p < 0.05, Holm over {count}')
  p_values = {}
  for condition, rows in statistics.select(SMALL, kind='task').groupby(tables.CONDITION):
    accuracy = pd.DataFrame(list(rows['accuracy']))
    for one, other in tables._METHOD_PAIRS:
      if {one, other} <= set(accuracy):
        title = ' - '.join(tables.METHODS[name].replace('\n', ' ') for name in (one, other))
        values = 100 * (accuracy[one] - accuracy[other])
        p_value = scipy.stats.ttest_1samp(values, 0).pvalue if np.ptp(values) else 1.0
        p_values[condition[0].replace('.', '_'), tables.name_of(Condition(*condition)), title] = p_value
  assert len(p_values) == count
  ordered = sorted(p_values, key=p_values.get)
  # The first that fails ends it.
  found = [p_values[key] < 0.05 / (count - rank) for rank, key in enumerate(ordered)]
  significant = set(ordered[: found.index(False)])
  assert len(significant) == 47
  for theorem, row, title in p_values:
    assert cells[theorem][row, title].endswith('*') == ((theorem, row, title) in significant)


def test_a_prompt_closes_a_share_of_the_gap_from_the_majority_class():
  assert _cells(BERT, 'prompts')['0', 'of the gap, mu on H*'] == f'{(88.4 - 58.4) / (100 - 58.4):.2f}'


@pytest.mark.parametrize('records', [SMALL, BERT], ids=FOLDERS)
def test_figures_draw_the_records(records):
  """Lines are the recorded means, axes are labelled, and nothing is clipped."""
  figure = draw(records, _settings().figure)
  figure.draw_without_rendering()
  for axes in figure.axes:
    assert axes.get_title() and axes.lines
    for line in axes.lines:
      assert all(axes.bbox.contains(*point) for point in line.get_transform().transform(line.get_xydata()))
  (line,) = [line for line in figure.axes[0].lines if line.get_label() == "theorem's construction"]
  first = statistics.select(records, **{name: records.iloc[0][name] for name in Condition._fields})
  np.testing.assert_allclose(line.get_ydata()[0], np.mean([100 * of['construction'] for of in first['accuracy']]))


def test_the_records_are_of_enough_hmms_with_balanced_tasks():
  """At least 20 HMMs a theorem, 8 BERTs, each with a control; heads converged; records are small."""
  for records, least in ((SMALL, 20), (BERT, 8)):
    groups = records.groupby(list(Condition._fields))
    assert (groups['hmm'].nunique() >= least).all() and (groups.size() >= least).all()
    assert len(statistics.select(records, kind='control')) >= least
    assert (records['majority_accuracy'] < 0.75).all() and (records['gradient_norm'].dropna() < 3e-8).all()
  for folder in FOLDERS.values():
    assert (folder / 'results.jsonl').stat().st_size < 500_000
    assert json.loads((folder / 'config.json').read_text())['largest_majority'] <= 0.7


NOISES = ('exact G', 'noise 0.001', 'noise 0.01', 'noise 0.1')
# Each difference of the table of a theorem with its sign at each of NOISES, 0 where it is not significant.
ORDERS = [
  ('3_3', f'{HEAD} - {BUILT}', (-1, 0, 0, 1)),
  ('3_6', f'{HEAD} - {BUILT}', (-1, 0, 0, 0)),
  ('3_6', f"theorem's prompt, converged head - {BUILT}", (-1, 0, 1, 1)),
  ('3_3', f'{PROMPT} - {HEAD}', (0, 0, 0, 0)),
  ('3_6', f'{PROMPT} - {HEAD}', (0, 0, 0, 1)),
  ('3_3', f'{PROMPT} - {BUILT}', (0, 0, 0, 1)),
  ('3_6', f'{PROMPT} - {BUILT}', (-1, 0, 0, 1)),
  ('3_3', f'{HEAD} - trained head', (1, 1, 1, 1)),
  ('3_6', f'{HEAD} - trained head', (1, 1, 1, 1)),
]


def _sign(cell):
  """Of a significant difference; 0 of another."""
  return (-1 if cell.startswith('-') else 1) if cell.endswith('*') else 0


def test_the_claims_in_words_are_carried_by_the_records():
  """What docs/degradation.md and the config say: orders of methods, and damages that are significant or not."""
  found = {theorem: _cells(SMALL, f'differences_{theorem}') for theorem in ('3_3', '3_6')}
  for theorem, heading, signs in ORDERS:
    assert tuple(_sign(found[theorem][noise, heading]) for noise in NOISES) == signs, (theorem, heading)
  for of_theorem in found.values():
    assert not any(_sign(cell) for (_, heading), cell in of_theorem.items() if heading.startswith('weighted inverse'))
  across = _cells(SMALL, 'conditions_3_3')
  for (row, heading), cell in across.items():
    if heading != 'KL':
      singular = 'singular' in row and 'noise' in row
      assert _sign(cell) == (-1 if singular and heading in (BUILT, 'weighted inverse') else 0), (row, heading)
  for row in ('singular value 0.01, noise 0.01', 'singular value 0.001, noise 0.01'):
    assert _sign(found['3_3'][row, f'{HEAD} - {BUILT}']) == _sign(found['3_3'][row, f'{PROMPT} - {BUILT}']) == 1
  leaks = _cells(SMALL, 'conditions_3_6')
  assert not any(map(_sign, leaks.values()))
  for row in ('leak 0.01', 'leak 0.03'):
    mean, half_width = map(float, leaks[row, BUILT].split(' ± '))
    assert mean + half_width < 0
  accuracy = _cells(SMALL, 'accuracy_3_3')
  worst = [float(accuracy['singular value 0.001, noise 0.01', name].split()[0]) for name in (BUILT, 'majority')]
  assert worst[0] < worst[1]
  assert [_sign(cell) for (_, heading), cell in _cells(SMALL, 'mass').items() if ' - ' in heading] == [1, 1, 1, 0]
  short = statistics.select(SMALL, error='short_context')
  assert (len(short), (short['kl'] < 0.99 * short['level']).sum()) == (80, 8)


def test_the_claims_in_words_about_berts_are_carried():
  """A trained prompt before a converged head; whose prompts solve their tasks; the mass."""
  found = _cells(BERT, 'differences_3_3')
  steps = [f'BERT, {step} steps' for step in (50, 150, 300, 600)]
  assert [_sign(found[step, f'{PROMPT} - {HEAD}']) for step in steps] == [0, 1, 0, 1]
  assert not any(_sign(cell) for (_, heading), cell in found.items() if heading.endswith(BUILT))
  assert _sign(_cells(BERT, 'differences_3_6')[steps[-1], f'{PROMPT} - {HEAD}']) == 1
  prompts = _cells(BERT, 'prompts')
  for task, solved in (('mu on H*', 7), ('mu elsewhere', 8)):
    assert sum(float(prompts[str(hmm), f'of the gap, {task}']) >= 0.5 for hmm in range(8)) == solved
  assert not any(map(_sign, _cells(BERT, 'mass').values()))
