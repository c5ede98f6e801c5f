"""Trials in processes of their own: who runs where, what fails, and that no process is left."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import engines, sweep
from experiments.records import files
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry

ROOT = pathlib.Path(__file__).parents[2]
# Stands for `experiments.main`: notes where it runs, and then leaves a record, fails, or waits to be stopped.
WORKER = """
import json, os, pathlib, sys, time
workdir, what = pathlib.Path(sys.argv[1]), sys.argv[2]
(number,) = (int(word.partition('=')[2]) for word in sys.argv if word.startswith('--trials='))
note = {'pid': os.getpid(), 'gpu': os.environ.get('CUDA_VISIBLE_DEVICES'), 'begun': time.time(), 'said': sys.argv[1:]}
time.sleep(0.3)
if what == 'wait' or (what == 'fail' and number == 1):
  print('begins', flush=True)
  (workdir / f'note-{number}.json').write_text(json.dumps(note))
  time.sleep(600) if what == 'wait' else sys.exit('no luck\\n')
row = json.loads((workdir / f'row-{number}.json').read_text())
path = pathlib.Path(row.pop('path'))
made = {'model': row['model'], 'method': row['method'], 'tasks': [row['task']]}
path.with_name('environment.jsonl').write_text(json.dumps(made) + '\\n')
path.write_text(json.dumps(row) + '\\n')
(workdir / f'note-{number}.json').write_text(json.dumps(note | {'ended': time.time()}))
"""


@pytest.fixture
def grid(tmp_path, monkeypatch):
  """Four trials whose records a stub writes in place of `experiments.main`."""
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(4, 6), num_trials=2, tasks_per_trial=1, models=('exact',), methods=('head',))
  settings = registry.from_config(config)
  stub = tmp_path / 'stub' / 'experiments'
  stub.mkdir(parents=True)
  (stub / '__init__.py').touch()
  (stub / 'main.py').write_text(WORKER)
  found = sweep.trials(settings, tmp_path)
  for number, trial in enumerate(found.values()):
    row = {**trial.point._asdict(), 'trial': trial.trial, 'task': 0, 'model': 'exact', 'method': 'head'}
    files.write_json_lines(tmp_path / f'row-{number}.json', [row | {'path': str(trial.records_path)}])
  monkeypatch.chdir(tmp_path / 'stub')
  return found


def _processes(tmp_path, what, places):
  return engines.Processes('processes', [str(tmp_path), what], places, dict(os.environ))


def _fill(processes, grid, numbers=range(4), time_budget=0.0):
  return processes.fill(grid, numbers, time_budget, Reporter(rich.console.Console(quiet=True)))


def _notes(tmp_path):
  return {int(path.stem[5:]): files.read_json_lines(path)[0] for path in tmp_path.glob('note-*.json')}


def test_each_place_has_one_trial_at_a_time(grid, tmp_path):
  """All are run, by as many processes at once as there are places, each with the environment of its own."""
  places = [{'CUDA_VISIBLE_DEVICES': '3'}, {'CUDA_VISIBLE_DEVICES': '5'}]
  assert _fill(_processes(tmp_path, 'record', places), grid) == []
  notes = _notes(tmp_path)
  assert set(notes) == {0, 1, 2, 3} and not any(trial.missing() for trial in grid.values())
  assert {note['gpu'] for note in notes.values()} == {'3', '5'}
  # A worker joins nobody, whatever cluster it finds itself in.
  assert all('--config.distributed.mode=off' in note['said'] for note in notes.values())
  for gpu in '35':
    times = sorted((note['begun'], note['ended']) for note in notes.values() if note['gpu'] == gpu)
    assert times and all(ended <= begun for (_, ended), (begun, _) in zip(times, times[1:]))
  assert notes[0]['begun'] < notes[1]['ended'] and notes[1]['begun'] < notes[0]['ended']


def test_what_is_done_is_not_begun(grid, tmp_path):
  """Only the missing ones of those that are asked for."""
  _fill(_processes(tmp_path, 'record', [{}]), grid, [1, 3])
  (tmp_path / 'note-1.json').unlink()
  _fill(_processes(tmp_path, 'record', [{}]), grid, [0, 1])
  assert set(_notes(tmp_path)) == {0, 3}


def test_a_trial_that_fails_stops_no_other(grid, tmp_path):
  """Its number, its exit code, its last word and its log are told; the others have their records."""
  (failure,) = _fill(_processes(tmp_path, 'fail', [{}, {}]), grid)
  trial = grid['|H|=6 trial 0']
  assert failure.sentence == f'trial 1 (|H|=6 trial 0) ended with exit code 1: no luck ({trial.directory / "log.txt"})'
  assert [bool(one.missing()) for one in grid.values()] == [False, True, False, False]
  share = sweep.Share([1], _processes(tmp_path, 'fail', [{}]).fill)
  with pytest.raises(sweep.TrialsFailed, match='trial 1 .* no luck .*; 3 of 4'):
    sweep.complete(trial.settings, grid, share, lambda: '3 of 4', Reporter(rich.console.Console(quiet=True)))


def test_a_trial_that_cannot_be_begun_stops_no_other(grid, tmp_path):
  """Its log has no directory: the place goes to the next."""
  trial = grid['|H|=6 trial 0']
  trial.directory.parent.mkdir(parents=True, exist_ok=True)
  trial.directory.rmdir() if trial.directory.exists() else None
  trial.directory.symlink_to('nowhere')
  (failure,) = _fill(_processes(tmp_path, 'record', [{}]), grid, [1, 2])
  assert failure.sentence.startswith('trial 1 (|H|=6 trial 0) was not begun: FileExistsError: ')
  assert set(_notes(tmp_path)) == {2} and failure.status == 1


def test_no_trial_begins_past_the_time_budget(grid, tmp_path):
  """A first one begins however short it is, with what is left of it; the rest wait for another run."""
  _fill(_processes(tmp_path, 'record', [{}]), grid, time_budget=1e-6)
  (note,) = _notes(tmp_path).values()
  assert float(note['said'][-1].removeprefix('--config.time_budget=')) <= 1e-6


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_worker(grid, tmp_path, number):
  """An interrupt, or SIGTERM, of the process that gives out the trials: none of its workers is left."""
  recorded = json.dumps(dataclasses.asdict(next(iter(grid.values())).settings))
  program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.pop(1)
import json, os, pathlib, rich.console
from experiments.pipeline import engines, sweep
from experiments.runtime import signals
from experiments.runtime.progress import Reporter
from experiments.studies import registry
settings = registry.from_record(json.loads({recorded!r}))
grid = sweep.trials(settings, pathlib.Path({str(tmp_path)!r}))
with signals.answered():
  engines.Processes('processes', [{str(tmp_path)!r}, 'wait'], [{{}}, {{}}], dict(os.environ, PYTHONPATH='')).fill(
    grid, range(4), 0.0, Reporter(rich.console.Console()))
"""
  process = subprocess.Popen([sys.executable, '-c', program], stderr=subprocess.DEVNULL)
  deadline = time.monotonic() + 60
  while len(_notes(tmp_path)) < 2:
    assert process.poll() is None and time.monotonic() < deadline
    time.sleep(0.05)
  process.send_signal(number)
  assert process.wait(30) != 0
  for note in _notes(tmp_path).values():
    with pytest.raises(ProcessLookupError):
      os.kill(note['pid'], 0)


def _nvidia_smi(tmp_path, monkeypatch, lines):
  (tmp_path / 'nvidia-smi').write_text(f'#!/bin/sh\nprintf "{lines}"\n')
  (tmp_path / 'nvidia-smi').chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  for name in ('CUDA_VISIBLE_DEVICES', 'XLA_PYTHON_CLIENT_PREALLOCATE'):
    monkeypatch.setenv(name, '')
    monkeypatch.delenv(name)


@pytest.mark.parametrize(('asked', 'gpus'), [(0, '01234567'), (2, '01')])
def test_a_gpu_is_a_place(tmp_path, monkeypatch, asked, gpus):
  """A worker sees its GPU alone; this process sees the first, and leaves its memory to the worker."""
  _nvidia_smi(tmp_path, monkeypatch, '\\n'.join('01234567'))
  found = engines.processes('gpus', asked, ['--seed'])
  assert [place['CUDA_VISIBLE_DEVICES'] for place in found.places] == list(gpus)
  assert os.environ['CUDA_VISIBLE_DEVICES'] == '0' and os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] == 'false'
  assert 'XLA_PYTHON_CLIENT_PREALLOCATE' not in found.environment


def test_the_gpus_are_those_that_are_allowed(tmp_path, monkeypatch):
  """Of a machine that is shared; and more workers than GPUs, or none at all, are refused."""
  _nvidia_smi(tmp_path, monkeypatch, '')
  with pytest.raises(SettingsError, match="--engine is 'gpus'; valid is here or processes"):
    engines.processes('gpus', 0, [])
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '6,7')
  with pytest.raises(SettingsError, match='--num_workers is 3; valid is at most 2'):
    engines.processes('gpus', 3, [])
  assert engines.processes('gpus', 0, []).places == [{'CUDA_VISIBLE_DEVICES': '6'}, {'CUDA_VISIBLE_DEVICES': '7'}]
