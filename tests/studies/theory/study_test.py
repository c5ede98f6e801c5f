"""The theory experiment at smoke scale: what is recorded and printed, and what a second run does."""

import io

import pytest
import rich.console

from configs import theory
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.studies import registry
from experiments.studies.theory import study, verification

pytestmark = pytest.mark.usefixtures('without_optimisation')

THEOREMS = ('3.3', '3.6', '4.3', '4.6', 'C.6')


SETTINGS = registry.from_config(theory.get_config('smoke'))


def _run(workdir):
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
  study.STUDY.run(SETTINGS, workdir, reporter)
  study.STUDY.show(SETTINGS, workdir, reporter)
  return reporter.console.file.getvalue()


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run, and what it printed."""
  workdir = tmp_path_factory.mktemp('finished')
  return workdir, _run(workdir)


def test_no_construction_is_wrong(finished):
  """Every theorem has its HMMs and balanced sequences, none of them wrong."""
  records = [record for record in results.load(finished[0]) if record['part'].startswith('verification')]
  checked = [record for record in records if 'assumptions' in record]
  assert [record['theorem'] for record in checked] == [
    name for name in THEOREMS for _ in range(SETTINGS.verification.num_hmms)
  ]
  assert all(record['wrong'] == 0 for record in checked)
  assert all(record['majority'] <= SETTINGS.verification.largest_majority for record in checked)


def test_problems_violate_the_assumption_that_is_relaxed(finished):
  """Some of 3.6 have dependent W, some of 4.6 and C.6 fail 4.2; 3.3 and 4.3 relax nothing."""
  records = [record for record in results.load(finished[0]) if 'violates' in record]
  violated = {name: {row['violates'] for row in records if row['theorem'] == name} - {''} for name in THEOREMS}
  assert violated == {'3.3': set(), '3.6': {'3.1'}, '4.3': set(), '4.6': {'4.2'}, 'C.6': {'4.2'}}


def test_every_draw_has_its_outcome_and_certified_heads_err(finished):
  """A fixed number of each kind. No head is better than a proof allows, and Theorem 3.6 is wrong nowhere."""
  records = [record for record in results.load(finished[0]) if record['part'] == 'impossibility']
  assert [record['kind'] for record in records] == [
    kind for kind in ('sparse', 'paper') for _ in range(SETTINGS.impossibility.num_hmms)
  ]
  assert {record['outcome'] for record in records} >= {'certified', 'constant'}
  for row in records:
    assert (row['least_error'] is not None) == (row['outcome'] == 'certified')
    assert (row['fresh_head'] is None) == (row['outcome'] == 'constant')
    assert row['fresh_construction_wrong'] in (None, 0) and row['near_ties'] < 1
    for method in ('program', 'converged', 'head') if row['outcome'] == 'certified' else ():
      assert row[f'fresh_{method}'] <= 1 - row['least_error'] + 1e-9
    assert row['outcome'] != 'separable' or row['fresh_program'] == pytest.approx(1)


def test_a_second_run_reads_what_is_there(finished, monkeypatch):
  """It makes no part again and writes the same bytes."""
  workdir, printed = finished
  names = ('results.jsonl', 'table.txt')
  before = [(workdir / name).read_bytes() for name in names]
  monkeypatch.setattr(verification, 'verify', lambda *_: pytest.fail('a finished part is made again'))
  monkeypatch.setattr(study.impossibility, 'run', lambda *_: pytest.fail('a finished part is made again'))
  _run(workdir)
  assert [(workdir / name).read_bytes() for name in names] == before
  assert (workdir / 'table.txt').read_text().strip() in printed and (workdir / 'temperature.png').stat().st_size
