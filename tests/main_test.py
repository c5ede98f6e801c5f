"""The command line: the whole path at smoke scale, what is refused, and what a second or a killed run does."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
TINY = (
  '--config=configs/prompt_vs_head.py:smoke',
  '--config.num_states=3',
  '--config.downstream.num_train=64',
  '--config.prompt.num_epochs=1',
  '--config.head.num_epochs=1',
)
MEMORY = (
  '--config=configs/memory_vs_vanilla.py:smoke',
  '--config.memory.sizes=2',
  '--config.downstream.num_train=64',
  '--config.attention.num_epochs=1',
  '--config.head.num_epochs=1',
)
FIGURES = {f'figure_3_left.{extension}' for extension in ('png', 'pdf', 'svg')}


def _command(*arguments):
  return [sys.executable, '-m', 'experiments.main', *arguments]


def _run(*arguments):
  return subprocess.run(_command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
  """The arguments of a tiny run; the runs share compiled programs, which spares the tests minutes."""
  return (*TINY, f'--config.compilation_cache={tmp_path_factory.mktemp("cache")}')


@pytest.fixture(scope='module')
def finished(tmp_path_factory, tiny):
  """A finished tiny run: its workdir and what it printed."""
  workdir = tmp_path_factory.mktemp('finished')
  done = _run(*tiny, f'--workdir={workdir}')
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


def _records(workdir):
  return [json.loads(line) for line in (workdir / 'results.jsonl').read_text().splitlines()]


def _bytes(workdir):
  """Everything that must not depend on the machine or on interruptions."""
  kept = [*workdir.glob('pretrained/*/metrics.jsonl'), *workdir.glob('trials/*/records.jsonl')]
  kept += [*workdir.glob('trials/*/tuned/*.npz'), workdir / 'results.jsonl', workdir / 'table.txt']
  return {str(path.relative_to(workdir)): path.read_bytes() for path in kept}


def _kill_when(process, path):
  """Kill -9 as soon as `path` exists."""
  deadline = time.monotonic() + 300
  while not path.exists():
    assert process.poll() is None, 'the run ended before it could be killed'
    assert time.monotonic() < deadline
    time.sleep(0.005)
  os.kill(process.pid, signal.SIGKILL)
  process.wait()


def test_a_run_leaves_records_table_and_figures(finished):
  """One record a (task, model, method) with the promised fields, and three figure files."""
  workdir, printed = finished
  records = _records(workdir)
  triples = {(record['task'], record['model'], record['method']) for record in records}
  assert len(triples) == len(records) == 2 * 2 * 2
  promised = 'experiment scale num_states memory_size trial task seed model method accuracy majority_accuracy'
  promised += ' kl_at_mask excess_mlm_loss trial_id'
  for record in records:
    assert set(promised.split()) <= set(record)
    assert 0 <= record['accuracy'] <= 1
    assert record['kl_at_mask'] >= 0 or record['model'] == 'exact'
  assert FIGURES <= {path.name for path in workdir.iterdir()}
  assert str(workdir / 'figure_3_left.png') in printed
  environment = json.loads((workdir / 'environment.json').read_text())
  assert {'packages', 'devices', 'commit'} <= set(environment)
  assert json.loads((workdir / 'config.json').read_text())['num_states'] == [3]


def test_methods_are_compared_on_the_same_tasks(finished):
  """Within a task the majority baseline, so the labels, and the trial are one, whatever model and method."""
  for task in (0, 1):
    of_task = [record for record in _records(finished[0]) if record['task'] == task]
    assert (
      len({(record['majority_accuracy'], record['smallest_margin'], record['trial_id']) for record in of_task}) == 1
    )


def test_only_the_tuned_arrays_are_saved(finished):
  """The saved head has the head's arrays and the saved prompt those of prompt and head: nothing of the model."""
  head = np.load(next(finished[0].glob('trials/*/tuned/bert-head-task0.npz')))
  prompt = np.load(next(finished[0].glob('trials/*/tuned/bert-prompt-task0.npz')))
  assert set(head.files) == {'head/weights', 'head/bias'}
  assert set(prompt.files) == {'head/weights', 'head/bias', 'prompt'}
  assert prompt['prompt'].shape == (4, 16)


def test_a_second_run_only_reports(finished, tiny):
  """The same command again changes no file but the report, which is the same."""
  workdir, printed = finished
  before = _bytes(workdir)
  times = {path: path.stat().st_mtime_ns for path in workdir.glob('trials/*/*')}
  again = _run(*tiny, f'--workdir={workdir}')
  assert again.returncode == 0, again.stderr
  assert 'pretraining' not in again.stdout
  assert again.stdout.split('Test accuracy')[1] == printed.split('Test accuracy')[1]
  assert _bytes(workdir) == before
  assert {path: path.stat().st_mtime_ns for path in workdir.glob('trials/*/*')} == times


def test_report_redraws_from_records_alone(finished, tmp_path):
  """`--mode=report` needs results.jsonl and nothing else, and draws the same bytes."""
  workdir, _ = finished
  (tmp_path / 'results.jsonl').write_bytes((workdir / 'results.jsonl').read_bytes())
  done = _run(*TINY, '--mode=report', f'--workdir={tmp_path}')
  assert done.returncode == 0, done.stderr
  for name in FIGURES | {'table.txt'}:
    assert (tmp_path / name).read_bytes() == (workdir / name).read_bytes()


def test_a_killed_run_continues_to_the_same_bits(finished, tiny, tmp_path):
  """Kill -9 in the middle of pretraining, run again: parameters, metrics and records are byte-equal."""
  process = subprocess.Popen(_command(*tiny, f'--workdir={tmp_path}'), cwd=ROOT, stdout=subprocess.DEVNULL)
  _kill_when(process, tmp_path / 'pretrained' / _records(finished[0])[0]['pretraining_id'] / 'checkpoints' / '20')
  assert not (tmp_path / 'results.jsonl').exists()
  done = _run(*tiny, f'--workdir={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert _bytes(tmp_path) == _bytes(finished[0])


def test_a_memory_beside_a_vanilla_hmm(tiny, tmp_path):
  """Records of both kinds of text, two figures; killed in the second pretraining, a run continues to the same bits."""
  cache = tiny[-1]
  straight, killed = tmp_path / 'straight', tmp_path / 'killed'
  done = _run(*MEMORY, cache, f'--workdir={straight}')
  assert done.returncode == 0, done.stderr
  records = _records(straight)
  kinds = {(r['num_states'], r['memory_size'], r['num_cells'], r['model'], r['method'], r['task']) for r in records}
  assert len(kinds) == len(records)
  assert kinds == {
    (*point, model, method, task)
    for *point, method in ((8, 0, 0, 'head'), (4, 2, 1, 'attention'))
    for model in ('bert', 'exact')
    for task in (0, 1)
  }
  promised = 'experiment scale trial seed accuracy validation_accuracy train_accuracy train_loss majority_accuracy'
  promised += (
    ' redraws smallest_margin near_tie_share kl_at_mask excess_mlm_loss attention_by attention_profile trial_id'
  )
  for record in records:
    assert set(promised.split()) <= set(record)
    assert record['experiment'] == 'memory_vs_vanilla'
    assert (record['attention_profile'] is not None) == (record['memory_size'] > 0)
  drawn = {f'{name}.{extension}' for name in ('figure_3_right', 'attention') for extension in ('png', 'pdf', 'svg')}
  assert drawn <= {path.name for path in straight.iterdir()}
  assert len({path.name for path in straight.glob('pretrained/*')}) == 2

  # As if the first distribution had just been finished.
  second = next(record for record in records if record['memory_size'])
  shutil.copytree(straight, killed)
  shutil.rmtree(killed / 'pretrained' / second['pretraining_id'])
  shutil.rmtree(killed / 'trials' / second['trial_id'])
  (killed / 'results.jsonl').unlink()
  process = subprocess.Popen(_command(*MEMORY, cache, f'--workdir={killed}'), cwd=ROOT, stdout=subprocess.DEVNULL)
  _kill_when(process, killed / 'pretrained' / second['pretraining_id'] / 'checkpoints' / '20')
  assert not (killed / 'results.jsonl').exists()
  again = _run(*MEMORY, cache, f'--workdir={killed}')
  assert again.returncode == 0, again.stderr
  assert _bytes(killed) == _bytes(straight)


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--config.num_statez=3'], ['num_statez', 'num_states']),
    (['--config.nothing.here=3'], ['nothing.here', 'nearest']),
    (['--config.bert.widht=3'], ['bert.widht', 'bert.width']),
    (['--config.seed=abc'], ['seed', 'abc']),
    (['--config.num_trials=0'], ['num_trials', '0', 'positive']),
    (['--config.prompt.length=500'], ['prompt.length', '500', 'at most']),
    (['--config.pretrain.mask_rate=1.5'], ['mask_rate', '1.5', '(0, 1)']),
    (['--config.memory.sizes=1'], ['memory.sizes', '1', 'at least 2']),
    (['--config.memory.sizes=9', '--config.memory.cells=4'], ['memory.cells', '9^4', '4096']),
    (['--config.memory.sizes=2', '--config.memory.cells=3'], ['num_states', '(4, 6)', 'multiples', 'memory.cells']),
    (['--config.memory.sizes=2', '--config.memory.label_cell=1'], ['memory.label_cell', '1', 'below']),
    (['--config.attention.form=other'], ['attention.form', 'other', 'paper, official']),
    (['--config.num_devices=64'], ['num_devices', '64', 'at most']),
    (['--config.tensorboard', 'no'], ["'no'", 'stray']),
    (['--workdir=/proc/nothing'], ['workdir', '/proc/nothing', 'writable']),
    (['--mode=replay'], ['mode', 'replay', 'report']),
    (['--mode=report'], ['workdir', 'records']),
    (['--config=configs/nothing.py'], ['configs/nothing.py', 'not exist']),
    (['--config=configs/prompt_vs_head.py:huge'], ['huge', 'small, paper']),
    (['--no_such_flag=1'], ['no_such_flag']),
  ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, tmp_path):
  """One line on standard error names what is wrong; nothing is written."""
  workdir = tmp_path / 'work'
  done = _run(f'--workdir={workdir}', '--config=configs/prompt_vs_head.py:smoke', *arguments)
  assert done.returncode == 2, done.stderr
  lines = done.stderr.strip().splitlines()
  assert len(lines) == 1, done.stderr
  for word in words:
    assert word in lines[0]
  assert not list(workdir.glob('*'))
