"""The study of degradation at smoke scale: what is recorded, printed and drawn, and what the page says of records."""

import dataclasses
import io
import json

import jax
import numpy as np
from oracles import log_space_conditional
import pytest
import rich.console
import scipy.stats

from configs import degradation
from experiments.analysis import pages, statistics
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.groups import FigureSettings
from experiments.studies import registry
from experiments.studies.degradation import contrasts, models, page, problems, report, sentences, study
from experiments.studies.degradation.contrasts import Condition

pytestmark = pytest.mark.usefixtures('without_optimisation')

FIGURE = FigureSettings(width=5.6, height=4.4, dpi=60, paper_overlay=False)
FOLDERS = {scale: page.PAGE.parent / 'results' / 'degradation' / scale for scale in ('small', 'bert')}


def _settings(**changes):
  return dataclasses.replace(registry.from_config(degradation.get_config('smoke')), **changes)


def _run(settings, workdir):
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
  study.check(settings)
  study.run(settings, workdir, reporter)
  study.show(settings, workdir, reporter)
  return reporter.console.file.getvalue()


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run, its settings and what it printed."""
  workdir, settings = tmp_path_factory.mktemp('finished'), _settings()
  return workdir, settings, _run(settings, workdir)


def test_every_condition_has_a_row_for_each_hmm(finished):
  """Errors of the KL that was asked for, or less for a short context; all ways of the theorem, and the controls."""
  workdir, settings, _ = finished
  records = results.load(workdir)
  for theorem, kind in (('3.3', 'singular_value'), ('3.6', 'leak')):
    of_theorem = statistics.select(records, theorem=theorem, part=f'exact-{theorem}', kind='task')
    found = {(r['damage'], r['error'], r['level']) for r in of_theorem}
    assert found == {('', 'noise', 0.0), ('', 'noise', 0.01), ('', 'short_context', 0.001), (kind, 'noise', 0.01)}
    ways = {'construction', 'weighted', 'converged_head', 'trained_head', 'converged_prompt', 'trained_prompt'}
    assert {*of_theorem[0]['accuracy']} == ways | ({'converged_built'} if theorem == '3.6' else set())
    for record in of_theorem:
      assert record['kl'] == pytest.approx(record['level'], rel=0.01, abs=1e-6) or record['error'] == 'short_context'
      assert record['kl'] <= 1.01 * record['level'] + 1e-6
      assert record['gradient_norm'] < 1e-6 and all(0 <= value <= 1 for value in record['accuracy'].values())
      if record['damage'] == '' and record['level'] == 0:
        assert record['accuracy']['construction'] == record['accuracy']['weighted'] == 1
  assert len(statistics.select(records, part='bert-3.3')) == 2 * len(settings.bert.checkpoints)
  for model in ('exact', 'bert'):
    assert [r['hmm'] for r in statistics.select(records, part=f'{model}-3.6', kind='control')] == [0, 1]
  for record in statistics.select(records, part='exact-3.6'):
    assert all(0 <= mass <= 1 + 1e-6 for mass in record['mass'].values())


def test_a_second_run_reads_back_what_is_finished(finished, monkeypatch):
  """No part runs again, and records and table are the same bytes."""
  workdir, settings, _ = finished
  before = [(workdir / name).read_bytes() for name in ('results.jsonl', 'table.txt')]
  monkeypatch.setattr(study.methods, 'measure', None)
  _run(settings, workdir)
  assert [(workdir / name).read_bytes() for name in ('results.jsonl', 'table.txt')] == before


def test_problems_are_balanced_in_every_version_and_their_g_is_exact():
  """Labels, G and G after the theorem's prompt agree with an oracle in log space; the control weighs no state of H*."""
  settings = _settings()
  key = jax.random.key(5)
  for theorem in problems.THEOREMS:
    for damage, problem in problems.draw(settings, theorem, key).items():
      assert np.bincount(problem.labels).max() <= settings.largest_majority * len(problem.labels)
      hmm = problem.hmm
      rows = np.vstack([hmm.emission_matrix.T, np.ones(hmm.num_states)])[problem.inputs]
      np.testing.assert_allclose(problem.ideal, log_space_conditional(hmm, rows)[:, 0], rtol=1e-6, atol=1e-9)
      if theorem == '3.6':
        prompt = problem.construction['prompt']
        before = np.broadcast_to(prompt, (len(rows), *prompt.shape))
        expected = log_space_conditional(hmm, np.concatenate([before, rows], axis=1))[:, 1]
        np.testing.assert_allclose(problem.ideal_after(prompt), expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(problem.ideal @ problem.reader, problem.states[:, problem.inverted_states].sum(-1))
        np.testing.assert_allclose(problem.reader[-1], -3)
        control = problems.about_other_states(settings, problem, key)
        assert not control.task_weights[:, problem.inverted_states].any() and damage.kind in ('', 'leak')
        assert (np.abs(control.task_weights).sum(0) > 0).sum() == len(problem.inverted_states)


def test_a_task_that_cannot_be_balanced_is_refused():
  """In one sentence that names the field; so is a control."""
  settings = _settings(max_draws=1, largest_majority=0.501)
  with pytest.raises(SettingsError, match='max_draws is 1; valid is more, for Theorem 3.3'):
    problems.draw(settings, '3.3', jax.random.key(0))
  problem = problems.draw(_settings(), '3.6', jax.random.key(5))[problems.UNDAMAGED]
  with pytest.raises(SettingsError, match='max_draws is 1; valid is more: for states outside'):
    problems.about_other_states(settings, problem, jax.random.key(0))


def test_a_mean_kl_is_that_of_its_definition():
  """Nats, averaged over inputs; a token that the ideal model excludes counts nothing."""
  ideal, probs = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[0.25, 0.5, 0.25], [0.5, 0.5, 0]])
  assert models.kl(ideal, probs) == pytest.approx((0.5 * np.log(2) + np.log(2)) / 2)


def _record(hmm, accuracy, level=0.0, **fields):
  of = dict(experiment='degradation', scale='small', seed=0, theorem='3.3', kind='task', damage='', degree=0.0)
  ways = {'construction': accuracy, 'weighted': accuracy, 'converged_head': 0.7 + hmm / 100, 'converged_prompt': 0.8}
  ways |= {'trained_head': 0.6, 'trained_prompt': 0.6}
  of |= dict(error='noise', level=level, hmm=hmm, kl=level, majority_accuracy=0.5, accuracy=ways, mass={})
  return of | fields


def test_differences_are_paired_by_hmm_whatever_the_order_of_records():
  """Their interval is that of the differences; an order needs a p-value below 0.05 over their number."""
  records = [_record(hmm, 0.5 + hmm / 100) for hmm in range(5)]
  exact = Condition('3.3', '', 0.0, 'noise', 0.0)
  found = contrasts.between_ways(records[::-1])[exact, 'converged_head', 'construction']
  np.testing.assert_allclose(found.interval.values, 20)
  first, second = np.array([3.0, 1, 2, 4]), np.array([1.0, 1, 1, 1])
  one = contrasts.difference(first, second)
  np.testing.assert_allclose(one.interval.mean, 1.5)
  np.testing.assert_allclose(one.p_value, 2 * scipy.stats.t.sf(1.5 / (np.std([2, 0, 1, 3], ddof=1) / 2), 3))
  assert not contrasts.is_order(one, 1) and contrasts.is_order(contrasts.difference(first + 9, second), 6)
  assert not contrasts.is_order(contrasts.difference(first, first), 1)


def test_conditions_are_compared_with_what_they_make_worse():
  """Damage with no damage at the same noise, a short context with noise of its KL."""
  leak = Condition('3.6', 'leak', 0.03, 'noise', 0.01)
  assert contrasts.reference(leak) == Condition('3.6', '', 0.0, 'noise', 0.01)
  short = Condition('3.3', '', 0.0, 'short_context', 0.01)
  assert contrasts.reference(short) == Condition('3.3', '', 0.0, 'noise', 0.01)
  assert contrasts.reference(Condition('3.3', '', 0.0, 'noise', 0.01)) is None
  records = [_record(hmm, 0.9, 0.01) for hmm in range(3)] + [_record(hmm, 0.7, 0.01, damage='leak') for hmm in range(3)]
  (found,) = contrasts.between_conditions(records, ('construction',)).values()
  np.testing.assert_allclose(found.interval.values, -20)


def test_a_sentence_claims_no_order_that_its_interval_does_not_carry():
  """The same sentence says above, below and not told apart, as the records have it."""
  said = {}
  for name, accuracy in (('above', 0.4), ('below', 0.95), ('not told apart', 0.72)):
    spread = np.array([0.0, 0.02, -0.01, 0.03, 0.01, -0.02])
    records = [_record(hmm, accuracy + spread[hmm]) for hmm in range(6)]
    said[name] = sentences.noise(records, {}).splitlines()[0]
  for name, sentence in said.items():
    assert sentence.startswith(f'- Theorem 3.3, a converged head beside the construction: exact G: {name}'), sentence


def test_a_prompt_solves_its_task_by_the_gap_that_it_closes():
  record = _record(0, 0.9, majority_accuracy=0.6)
  record['accuracy']['trained_prompt'] = 0.8
  assert report.gap_closed(record) == pytest.approx(0.5)


@pytest.mark.parametrize('scale', FOLDERS)
def test_figures_draw_the_records(scale):
  """Lines are the recorded means, axes are labelled, and nothing is clipped."""
  records = results.load(FOLDERS[scale])
  figure = report.draw(records, FIGURE)
  figure.draw_without_rendering()
  for axes in figure.axes:
    assert axes.get_title() and axes.lines
    for line in axes.lines:
      assert all(axes.bbox.contains(*point) for point in line.get_transform().transform(line.get_xydata()))
  first = figure.axes[0]
  (line,) = [line for line in first.lines if line.get_label() == "theorem's construction"]
  condition = contrasts.conditions(records)[0]
  expected = contrasts.accuracies(contrasts.condition_records(records, condition), 'construction').mean()
  np.testing.assert_allclose(line.get_ydata()[0], expected)


def test_the_page_is_what_the_records_give():
  """Filling the page again would change nothing; every block is known, and records are small."""
  text = page.PAGE.read_text()
  assert pages.filled(text, page.section) == text
  assert text.count('<!-- end of') == len(pages.BLOCK.findall(text)) == text.count('<!--') // 2 > 8
  changed = page.PAGE.read_text().replace('±', '+-', 3)
  assert pages.filled(changed, page.section) == text
  for folder in FOLDERS.values():
    assert (folder / 'results.jsonl').stat().st_size < 500_000
    assert json.loads((folder / 'config.json').read_text())['largest_majority'] <= 0.7


def test_the_records_are_of_enough_hmms_with_balanced_tasks():
  """At least 20 HMMs a theorem, 10 with a control, 5 BERTs; heads converged; every row of what its condition asks."""
  small, bert = (results.load(folder) for folder in FOLDERS.values())
  for theorem in ('3.3', '3.6'):
    for condition in contrasts.conditions(statistics.select(small, theorem=theorem)):
      assert len(contrasts.condition_records(small, condition)) >= 20
  assert len(statistics.select(small, kind='control')) >= 10 and len(statistics.select(bert, kind='control')) >= 5
  for record in small + bert:
    assert record['majority_accuracy'] < 0.75 and record.get('gradient_norm', 0) < 1e-6


ORDERS = [
  ('3.3', 0.0, 'converged_head', 'construction', 'below'),
  *(('3.3', level, 'converged_head', 'construction', '') for level in (1e-3, 1e-2)),
  ('3.3', 1e-1, 'converged_head', 'construction', 'above'),
  ('3.6', 0.0, 'converged_head', 'construction', 'below'),
  ('3.6', 0.0, 'converged_built', 'construction', 'below'),
  *(('3.6', level, 'converged_built', 'construction', 'above') for level in (1e-2, 1e-1)),
  *(('3.6', level, 'converged_head', 'construction', '') for level in (1e-3, 1e-2, 1e-1)),
  *(('3.3', level, 'converged_prompt', 'converged_head', '') for level in (0.0, 1e-3, 1e-2, 1e-1)),
  *(('3.6', level, 'converged_prompt', 'converged_head', '') for level in (0.0, 1e-3, 1e-2)),
  ('3.6', 1e-1, 'converged_prompt', 'converged_head', 'above'),
  *((theorem, level, 'converged_prompt', 'construction', '') for theorem in ('3.3', '3.6') for level in (0.0, 1e-2)),
  *((theorem, 1e-1, 'converged_prompt', 'construction', 'above') for theorem in ('3.3', '3.6')),
  *((theorem, 0.0, 'converged_head', 'trained_head', 'above') for theorem in ('3.3', '3.6')),
  *((theorem, 0.0, 'converged_prompt', 'trained_prompt', 'above') for theorem in ('3.3', '3.6')),
]


def _direction(found, count):
  """'above', 'below', or nothing where it is not told apart."""
  return ('above' if found.interval.mean > 0 else 'below') if contrasts.is_order(found, count) else ''


def test_the_claims_in_words_are_carried_by_the_records():
  """What docs/degradation.md and the config say without numbers: orders of ways, damages that are told apart or not."""
  records = results.load(FOLDERS['small'])
  found = contrasts.between_ways(records)
  for theorem, level, first, second, direction in ORDERS:
    one = found[Condition(theorem, '', 0.0, 'noise', level), first, second]
    assert _direction(one, len(found)) == direction, (theorem, level, first, second, one)
  for theorem in ('3.3', '3.6'):
    assert (
      _direction(found[Condition(theorem, '', 0.0, 'noise', 0.0), 'converged_prompt', 'construction'], 1) == 'below'
    )
  for (condition, first, second), one in found.items():
    if (first, second) == ('weighted', 'construction'):
      assert _direction(one, len(found)) == '', (condition, one)
    if condition.damage == 'singular_value' and condition.level and second == 'construction' and first != 'weighted':
      assert _direction(one, len(found)) == 'above', (condition, first, one)
  across = contrasts.between_conditions(records, report.ACROSS)
  for (condition, way), one in across.items():
    if condition.damage == 'leak' or (condition.damage == 'singular_value' and way.startswith('converged')):
      assert _direction(one, len(across)) == '', (condition, way, one)
    if condition.damage == 'singular_value' and way == 'construction':
      assert _direction(one, len(across)) == ('below' if condition.level else ''), (condition, one)
    if condition.damage == 'leak' and way == 'construction' and not condition.level:
      assert _direction(one, 1) == 'below', (condition, one)
  worst = contrasts.condition_records(records, Condition('3.3', 'singular_value', 1e-3, 'noise', 1e-2))
  assert contrasts.accuracies(worst, 'construction').mean() < 100 * np.mean([r['majority_accuracy'] for r in worst])
  masses = contrasts.between_masses(records, 'noise', 0.0)
  assert [_direction(one, len(masses)) for one in masses.values()] == ['above', 'above', 'above', '']


def test_the_claims_in_words_about_berts_are_carried():
  """A trained prompt before a converged head, at the last checkpoint; whose prompts solve their tasks; the mass."""
  records = results.load(FOLDERS['bert'])
  found, last = contrasts.between_ways(records), max(record['level'] for record in records)
  direction = lambda theorem: _direction(
    found[Condition(theorem, '', 0.0, 'bert', last), 'converged_prompt', 'converged_head'], len(found)
  )
  assert last == 600 and direction('3.6') == direction('3.3') == 'above'
  assert sum(report.gap_closed(own) >= report.SOLVES for own, _ in report.pairs_of_prompts(records)) == 7
  assert not any(
    _direction(one, len(found)) for (_, *pair), one in found.items() if pair == ['weighted', 'construction']
  )
  assert not any(_direction(one, 1) for one in contrasts.between_masses(records, 'bert', last).values())
