"""The campaign of faults: runs are killed where they should be, lost is what is lost, and the page is its records."""

import json
import os
import pathlib
import signal

import jax
import numpy as np
import pytest
import scipy.stats

from configs import faults as config
from experiments.analysis import pages
from experiments.records import results
from experiments.settings import config as config_lib
from experiments.studies import registry
from experiments.studies.faults import bench, changes, damage, kills, page, processes, races, report, soak, study, watch
from experiments.studies.faults.processes import Run
from experiments.studies.faults.soak import Sample
from experiments.studies.faults.watch import Moment

MOST = 300.0


def _settings(**values):
  asked = config.get_config('smoke')
  asked.update(values)
  return registry.from_config(asked)


@pytest.fixture(scope='module', autouse=True)
def programs():
  """Processes are forked from one that has this environment, and leave compiled programs where tests keep them."""
  before = dict(os.environ)
  os.environ |= {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(pathlib.Path(__file__).parents[3])}
  yield os.environ['JAX_COMPILATION_CACHE_DIR']
  os.environ.clear()
  os.environ.update(before)


def _lists(tmp_path, **how):
  return Run(['--list'], tmp_path, **how).end(MOST)


def test_a_run_is_the_program(tmp_path):
  """What it prints, and the status that it exits with, are those of `python -m experiments.main`."""
  ended = _lists(tmp_path)
  assert ended.status == 0 and 'prompt_vs_head  [' in ended.said and ended.phases == ['start']
  refused = Run(['--config=nothing'], tmp_path).end(MOST)
  assert refused.status == 2 and refused.last_words.startswith("error: --config is 'nothing'; valid is")


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_sent_when_it_is_time(number, tmp_path):
  """A run sends it to itself at the moment that it was given, and ends with the status that a shell would see."""
  ended = _lists(tmp_path, moment=Moment('start', 1, 0.0, number))
  assert ended.status == 128 + number and ended.signalled is not None and ended.said.count('\n') < 30
  assert 'prompt_vs_head' not in ended.said and ended.phases == ['start']


def test_a_run_that_takes_too_long_is_killed(tmp_path):
  """It counts as killed, whatever it was at."""
  assert Run(['--help'], tmp_path).end(0.0).status == 128 + signal.SIGKILL


def test_a_killed_run_goes_on_to_the_same_bits(programs):
  """One kill where a phase begins, of a run without a BERT, and the same command again."""
  # Of the sizes at which main_test.py compiles the same programs.
  fields = ('num_states=6', "models=('exact',)", "methods=('head',)", 'figures=()')
  fields += ('downstream.num_train=64', 'head.num_epochs=1', 'prompt.num_epochs=1', 'attention.num_epochs=1')
  settings = _settings(disturbed=fields, compilation_cache=programs)
  with bench.opened(settings, names=('reference',)) as of:
    assert {'start', 'compile', 'measuring', 'tuning', 'writing'} == {phase for phase, n in of.phases.items() if n}
    workdir = next(of.workdirs())
    row = kills.at_phase(of, workdir, Moment('writing', 4, 0.0))
    assert row == bench.row('kill -9 where a phase begins', '', phase='writing', undisturbed=of.seconds)
    assert len(bench.results(workdir)) == 3


def _bench(tmp_path, phases=None, seconds=1.0):
  left = {'results.jsonl': b'{"trial_id": "a"}\n', 'trials/a/tuned/x.npz': b'12'}
  for name, content in left.items():
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
  return bench.Bench(_settings(), tmp_path, tmp_path, left, phases or {}, seconds)


def _ended(status=0, said=''):
  return processes.Ended(status, 0.0, said, [], None)


@pytest.mark.parametrize('name', ['results.jsonl', 'trials/a/tuned/x.npz'])
def test_what_is_not_equal_is_lost(name, tmp_path):
  """A file that is another, missing or too much, or a run that fails; equal bytes are not lost."""
  of = _bench(tmp_path)
  assert of.lost(_ended(), tmp_path) == ''
  assert of.lost(_ended(1, 'a\nerror: b\n'), tmp_path) == 'status 1: error: b'
  (tmp_path / name).write_bytes(b'13')
  assert of.lost(_ended(), tmp_path) == f'{name} is another'
  (tmp_path / name).unlink()
  assert of.lost(_ended(), tmp_path) == f'{name} is missing'
  new = tmp_path / 'trials/b/tuned/y.npz'
  new.parent.mkdir(parents=True)
  new.touch()
  (tmp_path / name).write_bytes(of.left[name])
  assert of.lost(_ended(), tmp_path) == 'trials/b/tuned/y.npz is new'


def test_moments_meet_every_phase(tmp_path):
  """Phase after phase, at any of its beginnings, and half of them a little later."""
  of = _bench(tmp_path, {phase: 3 for phase in watch.PHASES})
  found = bench.moments(of, bench.uniform(jax.random.key(0), 80, 3), watch.PHASES)
  assert {(one.phase, one.number) for one in found} == {(phase, n) for phase in watch.PHASES for n in (1, 2, 3)}
  late = [one.delay for one in found if one.delay]
  assert 20 < len(late) < 60 and 0 < min(late) and max(late) <= 0.02


@pytest.mark.parametrize('how', damage.HOW)
def test_damage_is_done(how, tmp_path):
  """No file is what it was; a flipped bit leaves JSON readable, and as long."""
  for name, content in (('a.jsonl', b'{"a": 12}\n'), ('b.npz', b'1a34')):
    path = tmp_path / name
    path.write_bytes(content)
    damage.HOW[how](path)
    assert path.exists() == (how != 'missing')
    if path.exists():
      assert path.read_bytes() != content
  flipped = {'flipped': {'a': 13}, 'flipped at first': {'a': 13}, 'flipped in a name': {'`': 12}}
  if how in flipped:
    assert json.loads((tmp_path / 'a.jsonl').read_text()) == flipped[how] and (tmp_path / 'b.npz').stat().st_size == 4


def test_every_file_of_a_checkpoint_is_damaged(tmp_path):
  """In every way, the newest step alone and, the largest file, all of them; empty files can only be missing."""
  for step in ('20', '40'):
    for name, size in (('state/d/x', 9), ('metrics', 3), ('empty', 0)):
      path = tmp_path / 'pretrained/m/checkpoints' / step / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(bytes(size))
  found = damage.checkpoint_damages(tmp_path)
  names = {(one.how, *(path.partition('checkpoints/')[2] for path in one.paths)) for one in found}
  newest = {(how, f'40/{name}') for how in ('flipped', 'half', 'missing') for name in ('state/d/x', 'metrics')}
  both = {(how, '20/state/d/x', '40/state/d/x') for how in ('flipped', 'half', 'missing')}
  assert names == newest | both | {('missing', '40/empty'), ('new', '40/extra')} and len(found) == len(names)


def test_what_was_bad_has_to_be_kept(tmp_path):
  """Under any name."""
  (tmp_path / 'aside').write_bytes(b'bad')
  assert damage._not_kept(tmp_path, {'a': b'bad'}) == ''
  assert damage._not_kept(tmp_path, {'a': b'worse'}) == 'a was not kept'


def test_work_that_was_done_twice_is_seen(tmp_path):
  """A trial with two lines of timing, or of one method's environment; a model with two of its own."""
  trial, model = tmp_path / 'trials/a', tmp_path / 'pretrained/m'
  line = json.dumps({'model': 'bert', 'method': 'head'}) + '\n'

  def write(environments=1, timings=1, models=1):
    for path, count in ((trial / 'environment.jsonl', environments), (trial / 'timing.jsonl', timings)):
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(line * count)
    model.mkdir(parents=True, exist_ok=True)
    (model / 'environment.jsonl').write_text(line * models)
    return races._twice(tmp_path)

  assert write() == ''
  assert write(environments=2) == write(environments=2, models=2) == 'a has 1 lines of timing, 2 of its environment'
  assert write(timings=2).startswith('a has 2') and write(timings=0).startswith('a has 0')
  assert write(models=2) == 'm was pretrained in 2 runs'


def _samples(per_trial, noise, count=300):
  rng = np.random.default_rng(0)
  trials = np.sort(rng.integers(0, 200, count))
  warm = 80 * (1 - np.exp(-np.arange(count) / 20))
  memory = 400 + warm + per_trial * trials + noise * rng.normal(size=count)
  return [Sample(i / 60, int(trials[i]), float(memory[i]), 10, 5) for i in range(count)]


def test_a_leak_is_told_from_flat():
  """A MB a trial is far above the limit; noise after a warm-up is below it."""
  flat, leaking = soak.slope(_samples(0.0, 1.0), 'memory'), soak.slope(_samples(1.0, 1.0), 'memory')
  limit = _settings().soak.most_growth / 1000
  assert flat.low < flat.slope < flat.high < limit < leaking.low and leaking.slope == pytest.approx(1, abs=0.05)
  assert soak.slope(_samples(0.0, 1.0), 'files') == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
  samples = _samples(1.0, 1.0)
  rows = np.array([block.mean(0) for block in np.array_split(np.array(samples[100:]), 10)])
  expected = scipy.stats.linregress(rows[:, 1], rows[:, 2])
  found = soak.slope(samples, 'memory')
  assert found.slope == pytest.approx(expected.slope)
  assert found.high - found.slope == pytest.approx(scipy.stats.t.ppf(0.975, 8) * expected.stderr)
  few = soak.slope(_samples(0.0, 1.0)[:1], 'memory')
  assert soak.slope([], 'memory') == few and soak._not_flat(few, limit) == 'there were too few trials to tell'
  assert soak._not_flat(flat, limit) == '' and soak._not_flat(leaking, limit).startswith('a trial adds 1')


def test_merged_records_have_every_finished_trial_once(tmp_path):
  """One twice, or one of a finished trial that is not there, is told."""
  row = lambda trial, task: json.dumps(dict(trial_id=trial, task=task, model='bert', method='head', seed=task)) + '\n'
  for trial, tasks in (('a', 2), ('b', 2), ('half', 1)):
    path = tmp_path / 'trials' / trial / 'records.jsonl'
    path.parent.mkdir(parents=True)
    path.write_text(''.join(row(trial, task) for task in range(tasks)))

  def merged(*pairs):
    (tmp_path / 'results.jsonl').write_text(''.join(row(*pair) for pair in pairs))
    return soak._twice_or_lost(tmp_path)

  whole = [('a', 0), ('a', 1), ('b', 0), ('b', 1)]
  assert merged(*whole) == ''
  assert merged(*whole, ('b', 1)) == '1 records are there twice'
  assert merged(*whole[:3]) == '1 records of finished trials are lost'
  with (tmp_path / 'trials/b/records.jsonl').open('a') as file:
    file.write(row('b', 1))
  assert merged(*whole) == '1 records are there twice'


RECORDS = [
  bench.row('kill -9 at a random time', '', phase='compile', undisturbed=7.5),
  bench.row('kill -9 at a random time', 'status 1: x', phase='save'),
  bench.row('SIGTERM', '', phase='tuning', seconds=1.25),
  bench.row('SIGTERM', 'too long', phase='tuning', seconds=None),
  bench.row('SIGINT', '', phase='save', seconds=0.5),
  bench.row('SIGINT', 'status 143', without='answers to signals', phase='save', seconds=9.0),
  bench.row('soak: memory', '', slope=dict(slope=0.001, low=-0.001, high=0.003), limit=0.1),
  bench.row('soak', '', kills=3, trials=7, minutes=0.5, samples=[s._asdict() for s in _samples(0.0, 1.0, 20)]),
]


def test_tables_count_what_was_tried_and_lost():
  """With every protection in place, and apart from that without one; phases, seconds, slopes and reasons."""
  rows = {row[0]: row[1:] for row in report.faults(RECORDS).rows}
  assert rows['kill -9 at a random time'] == ['2', '1', '1'] and rows['SIGINT'] == ['1', '1', '0']
  assert rows['all'] == ['7', '5', '2']
  assert report.protections(RECORDS).rows == [['answers to signals', 'SIGINT', '1', '0', '1']]
  phases = {row[0]: row[1:] for row in report.phases(RECORDS).rows}
  assert phases['compile'] == ['1', '0', '', '0', ''] and phases['tuning'] == ['0', '1', '1.2', '0', '']
  assert phases['save'] == ['1', '0', '', '1', '0.5']
  assert report.flatness(RECORDS).rows == [['memory (MB)', '', '0.001', '-0.001 to 0.003', '0.1']]
  assert report.losses(RECORDS).rows == [['kill -9 at a random time', 'status 1: x'], ['SIGTERM', 'too long']]
  assert all(title in report.render(RECORDS) for title in ('Faults', 'taken away', 'Phases', 'Soak', 'Lost'))
  figure = report.draw(
    [{**row, **dict(experiment='faults', scale='smoke', seed=0)} for row in RECORDS], _settings().figure
  )
  assert len(figure.axes) == 3 and report.draw(RECORDS[:2], _settings().figure) is None


def test_sentences_follow_the_records(tmp_path):
  """Counts, phases and times are those of the records, and of a longer campaign other ones."""
  made = dict(commit='abc', seconds=90.0, cpu='2 x CPU', platform='Linux', python='3.12', packages=dict(jax='0.11'))
  asked = {'disturbed': ['num_states=4', 'num_trials=2'], 'most_seconds_to_stop': 30.0}
  (tmp_path / 'config.json').write_text(json.dumps(asked))
  line = json.dumps({**made, 'uncommitted_changes': False})
  (tmp_path / 'environment.jsonl').write_text(f'{line}\n{line}\n')
  said = {name: sentence(RECORDS, tmp_path) for name, sentence in page.SENTENCES.items()}
  alone = 'Undisturbed, with compiled programs at hand, it takes 7.5 s'
  assert f'num_states=4, num_trials=2. {alone}. The campaign took 3 minutes on 2 x CPU' in said['setup']
  assert said['verdict'].startswith('7 faults were tried, 5 survived, 2 lost. With one of 1 protections taken away')
  assert (
    'Of 2 runs that were told to stop, the longest took 1.2 s, in the phase tuning, of the 30 s that'
    in said['stopping']
  )
  missed = 'start, measuring, corpus, pretraining, tuning, writing'
  chain = bench.row('kill -9, run after run of one workdir', '', phase='start, tuning')
  for records in (RECORDS, [*RECORDS, chain]):
    count, text = len(records) - 6, page.SENTENCES['killed'](records, tmp_path)
    assert text == f'{count} runs were killed at least once. None hit {missed}.'
  more = [*RECORDS, *(bench.row('kill -9 where a phase begins', '', phase=phase) for phase in watch.PHASES)]
  more += [bench.row('SIGTERM', '', without='claims', phase='save', seconds=1.0)]
  said = {name: sentence(more, tmp_path) for name, sentence in page.SENTENCES.items()}
  assert said['killed'] == '10 runs were killed at least once. Every phase was hit.'
  assert 'not so without claims' in said['verdict']


def test_every_family_is_a_part_and_every_protection_is_taken_away():
  """What may be asked for can be run, and what is protected is tried without it somewhere."""
  (field,) = [field for name, field in config_lib.fields(study.SETTINGS) if name == 'families']
  assert tuple(study.PARTS) == field.metadata['choices'] == config.get_config().families
  folder = pathlib.Path(study.__file__).parent
  text = ''.join(path.read_text() for path in folder.glob('*.py') if path.name != 'changes.py')
  assert all(f"'{name}'" in text for name in changes.PROTECTIONS)


def test_the_page_is_what_the_records_say():
  """Every part of docs/faults.md, and each of its names; where there are records, every protection is seen."""
  text = page.PAGE.read_text()
  assert pages.filled(text, page.section) == text
  assert {name for _, name, _, _ in pages.BLOCK.findall(text)} == {*report.TABLES, *page.SENTENCES}
  records = results.load(pages.DOCS / 'results' / 'faults')
  seen = {record['without'] for record in records if record['without'] and record['survived'] < record['tried']}
  assert seen == ({*changes.PROTECTIONS} if records else set())
  assert text.count('No records yet.') == (0 if records else len(pages.BLOCK.findall(text)))
