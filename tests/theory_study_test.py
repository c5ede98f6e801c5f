"""The theory experiment at smoke scale: what is recorded, printed and drawn, and what a second run does."""

import dataclasses
import io
import json

import numpy as np
import pytest
import rich.console

from configs import theory
from experiments import config as config_lib, environment, results
from experiments.progress import Reporter
from experiments.settings import FigureSettings
from experiments.theory import report as theory_report, study, verification

FIGURE = FigureSettings(width=6.4, height=4.2, dpi=60, paper_overlay=False)
NOISES = (0.1, 0.0, 0.01)
THEOREMS = ('3.3', '3.6', '4.3', '4.6', 'C.6')


def _settings(**changes):
  return dataclasses.replace(config_lib.from_config(theory.get_config('smoke')), **changes)


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


def test_no_construction_is_wrong_outside_the_margin(finished):
  """Every theorem has its HMMs, sequences in its region, and no clear disagreement."""
  workdir, settings, printed = finished
  records = [record for record in results.load(workdir) if record['part'].startswith('verification')]
  assert [record['theorem'] for record in records] == [
    name for name in THEOREMS for _ in range(settings.verification.num_hmms)
  ]
  for record in records:
    for kind in ('enumerated', 'sampled'):
      assert record[f'{kind}_outside_margin'] == 0
      assert 0 <= record[f'{kind}_disagreements'] <= record[f'{kind}_ties'] <= record[f'{kind}_in_region']
      assert record[f'{kind}_in_region'] <= record[f'{kind}_sequences']
  for name in THEOREMS:
    assert sum(record['enumerated_in_region'] for record in records if record['theorem'] == name) > 30
    assert f' {name} ' in printed


def test_problems_violate_the_assumption_that_is_relaxed(finished):
  """Those of 3.6 have dependent W, those of 4.6 and C.6 fail 4.2."""
  records = results.load(finished[0])
  violated = {
    name: {r['violates'] for r in records if r.get('violates') is not None and r['theorem'] == name}
    for name in THEOREMS
  }
  assert violated == {'3.3': {''}, '3.6': {'3.1'}, '4.3': {''}, '4.6': {'4.2'}, 'C.6': {'4.2'}}


def test_every_draw_has_its_outcome_and_certified_heads_err(finished):
  """A fixed number of each kind. No head is better than a proof allows, and Theorem 3.6 is wrong nowhere."""
  workdir, settings, printed = finished
  records = [record for record in results.load(workdir) if record['part'] == 'impossibility']
  assert [record['kind'] for record in records] == [
    kind for kind in ('sparse', 'paper') for _ in range(settings.impossibility.num_hmms)
  ]
  assert {record['outcome'] for record in records} >= {'certified', 'constant'}
  for row in records:
    assert (row['least_error'] is not None) == (row['outcome'] == 'certified')
    assert (row['fresh_head'] is None) == (row['outcome'] == 'constant')
    assert row['fresh_construction_wrong'] in (None, 0) and row['near_ties'] < 1
    for method in ('program', 'converged', 'head') if row['outcome'] == 'certified' else ():
      assert row[f'fresh_{method}'] <= 1 - row['least_error'] + 1e-9
    assert row['outcome'] != 'separable' or row['fresh_program'] == pytest.approx(1)
  assert 'none (certified)' in printed and '3.5, epsilon 0' in printed


def test_each_study_has_its_levels_and_methods(finished):
  """Noise, singular values, leaks and checkpoints; noise is of the KL that was asked for."""
  workdir, settings, _ = finished
  s, records = settings.degradation, [r for r in results.load(workdir) if 'method' in r]
  methods = lambda **fields: {(r['level'], r['method']) for r in results.select(records, **fields)}
  three = ('construction', 'head', 'prompt')
  every = lambda levels: {(level, method) for level in levels for method in three}
  assert methods(study='noise', theorem='3.3') == methods(study='noise', theorem='3.6') == every(s.noise_levels)
  assert methods(study='singular_value') == every(s.singular_values)
  assert methods(study='leak') == every(s.leaks)
  assert methods(study='bert', theorem='3.3') == every(settings.bert.checkpoints)
  assert methods(study='bert', theorem='3.6') == {(settings.bert.checkpoints[-1], m) for m in ('head', 'prompt')}
  for record in results.select(records, study='noise'):
    np.testing.assert_allclose(record['kl'], record['level'], rtol=0.1, atol=1e-6)
    assert 0 <= record['majority_accuracy'] <= 1
  exact = results.select(records, study='noise', level=0.0, method='construction')
  assert all(record['accuracy'] == 1 for record in exact)


def test_the_mass_is_followed_on_both_models(finished):
  """An epoch before training and one after each; masses are probabilities on the exact model."""
  workdir, settings, _ = finished
  records = [record for record in results.load(workdir) if 'epoch' in record]
  for model in ('exact', 'bert'):
    rows = results.select(records, model=model)
    assert [row['epoch'] for row in rows] == list(range(settings.degradation.tuning.num_epochs + 1))
    assert len({row['mass_without'] for row in rows}) == 1
  for row in results.select(records, model='exact'):
    assert 0 <= row['mass_with'] <= 1 + 1e-6 and 0 <= row['mass_without'] <= 1 + 1e-6


def test_files_of_a_run(finished):
  """Table, records, settings, environment, and a figure of each kind in three formats."""
  workdir, settings, printed = finished
  assert json.loads((workdir / 'config.json').read_text())['verification'] == dataclasses.asdict(settings.verification)
  assert (workdir / 'table.txt').read_text().strip() in printed
  for name in theory_report.FIGURES:
    assert all((workdir / f'{name}.{extension}').stat().st_size for extension in ('png', 'pdf', 'svg'))
    assert f'{name}.png' in printed


def test_a_second_run_reads_back_what_is_finished(finished, monkeypatch):
  """No part runs again, and records, table and provenance are the same bytes; a lost part alone is run again.

  The lost part is then of the commit that ran it, and the others stay of theirs.
  """
  workdir, settings, _ = finished
  names = ('results.jsonl', 'table.txt', 'environment.jsonl')
  before = [(workdir / name).read_bytes() for name in names]
  calls = []

  def counted(settings, theorem, key, reporter):
    calls.append(theorem.name)
    return verify(settings, theorem, key, reporter)

  verify = verification.verify
  monkeypatch.setattr(verification, 'verify', counted)
  monkeypatch.setattr(study.impossibility, 'run', None)
  _run(settings, workdir)
  assert [(workdir / name).read_bytes() for name in names] == before and not calls
  (lost,) = workdir.glob('parts/*/verification-4.3/records.jsonl')
  lost.unlink()
  monkeypatch.setattr(environment, '_process', lambda: {'commit': 'another'})
  study.run(settings, workdir, Reporter(rich.console.Console(quiet=True)))
  assert calls == ['4.3']
  assert (workdir / 'results.jsonl').read_bytes() == before[0]
  lines = [json.loads(line) for line in (workdir / 'environment.jsonl').read_text().splitlines()]
  assert [line['part'] for line in lines] == list(study.parts(settings))
  assert [line['part'] for line in lines if line['commit'] == 'another'] == ['verification-4.3']


def _line(axes, name):
  (line,) = [line for line in axes.lines if line.get_label() == name]
  return line


def _check_nothing_is_clipped(figure):
  figure.draw_without_rendering()
  for axes in figure.axes:
    for line in axes.lines:
      assert all(axes.bbox.contains(*point) for point in line.get_transform().transform(line.get_xydata()))


def test_figures_draw_the_records(finished):
  """Lines are the recorded means, every axis is labelled and says how many HMMs, and no panel is empty."""
  records = results.load(finished[0])
  for name, draw in theory_report.FIGURES.items():
    figure = draw(records, FIGURE)
    _check_nothing_is_clipped(figure)
    assert figure.legends[0].get_texts() and figure.get_suptitle() == 'theory, scale smoke, seed 0'
    for axes in figure.axes:
      assert axes.get_xlabel() and 'HMMs: n = 1' in axes.get_title(), name
      assert axes.lines, name
  heads = results.select([row for row in records if 'method' in row], study='noise', theorem='3.6', method='head')
  line = _line(theory_report.noise(records, FIGURE).axes[1], 'trained head')
  np.testing.assert_allclose(line.get_ydata(), [100 * row['accuracy'] for row in heads])


@pytest.mark.parametrize(('num_hmms', 'counted'), [(4, 'HMMs: n = 4, each a dot'), (5, 'HMMs: n = 5, 95% t intervals')])
def test_steps_stand_in_order_above_the_majority(num_hmms, counted):
  """Levels and checkpoints in order, whatever the order of records and of KL; HMMs as dots, or their interval."""
  of = dict(experiment='theory', scale='small', seed=0, method='prompt')
  records = [
    dict(of, study=study, theorem=theorem, hmm=hmm, level=level, kl=kl, accuracy=0.6 + hmm / 20)
    for study, theorem, levels in (('noise', '3.3', NOISES), ('noise', '3.6', NOISES), ('bert', '3.3', (100, 0, 50)))
    for level, kl in zip(levels, (0.1, 0.7, 0.3))
    for hmm in range(num_hmms)
  ]
  _check_nothing_is_clipped(theory_report.noise(records, FIGURE))
  noise, _, bert = theory_report.noise([row | {'majority_accuracy': 0.5} for row in records], FIGURE).axes
  for axes, levels in ((noise, sorted(NOISES)), (bert, [0, 50, 100])):
    prompt, majority = _line(axes, 'trained prompt and head'), _line(axes, 'majority class')
    assert list(prompt.get_xdata()) == list(majority.get_xdata()) == levels
    np.testing.assert_allclose(prompt.get_ydata(), 60 + 2.5 * (num_hmms - 1))
    np.testing.assert_allclose(majority.get_ydata(), 50)
    assert bool(axes.containers) == (num_hmms >= 5)
    assert any(line.get_marker() == '.' for line in axes.lines) == (num_hmms < 5)
    assert counted in axes.get_title()
  assert [label.get_text() for label in bert.get_xticklabels()] == ['0\n0.7', '50\n0.3', '100\n0.1']
