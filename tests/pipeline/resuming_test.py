"""Going on with something else than before: what is said, and what stays."""

import io
import json

import jax
import numpy as np
import pytest
import rich.console
from settings_cases import settings_of

from experiments import main as main_lib
from experiments.pipeline import pretraining, sweep
from experiments.records import environment, results, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import storage
from experiments.runtime.progress import Reporter
from experiments.studies import grids


def _settings(**changes):
  return settings_of('smoke', **changes)


def test_another_environment_is_allowed_and_said(tmp_path, monkeypatch):
  """Of records and of a model, in one line with what was and what is; another commit is recorded alone.

  What trains a model stands beside it, once per start; a finished one gets no line more.
  """
  here = environment.environment(jax.devices())
  there = here | {'packages': here['packages'] | {'jaxlib': '0.0.1'}, 'commit': 'another'}
  (trial, *_) = sweep.trials(_settings(tasks_per_trial=3), tmp_path).values()
  directory, num_steps = trial.pretrained_directory, trial.settings.pretrain.num_steps
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=10_000))
  for task, made in enumerate((here, here | {'commit': 'another'}, there)):
    monkeypatch.setattr(environment, 'environment', lambda devices, made=made: made)
    trial_records.add(trial, 'exact', 'head', [Tuned(task, {'head': np.zeros(2)}, {})], {})
  for step in (0, 20, num_steps):
    pretraining.note_environment(trial.settings, directory, step, reporter)
  lines = (directory / 'environment.jsonl').read_text().splitlines()
  assert [json.loads(line)['from_step'] for line in lines] == [0, 20]
  assert not reporter.console.file.getvalue()
  monkeypatch.setattr(environment, 'environment', lambda devices: here)
  trial_records.plan(trial, reporter)
  pretraining.note_environment(trial.settings, directory, num_steps, reporter)
  of_trial, of_model = reporter.console.file.getvalue().splitlines()
  difference = f'jaxlib 0.0.1 (here {here["packages"]["jaxlib"]})'
  assert trial.id in of_trial and of_trial.endswith(difference)
  assert directory.name in of_model and of_model.endswith(difference)


def test_a_workdir_of_other_settings_says_which(tmp_path):
  """Field by field, but for those that decide no record; what is written with records holds, not what began."""
  changed = lambda **changes: results.changed(results.config(tmp_path), _settings(**changes))
  assert changed() == []
  results.begin(tmp_path, _settings(seed=1))
  results.begin(tmp_path, _settings(seed=2))
  assert changed() == ['seed 1 (here 0)'] and not results.load(tmp_path)
  results.write(tmp_path, _settings(), [])
  assert changed() == []
  assert changed(time_budget=3.0, compilation_cache='', distributed__heartbeat_timeout=9, figure__dpi=99) == []
  assert changed(seed=5, num_states=(3,), bert__width=32) == [
    'seed 0 (here 5)',
    'num_states [4, 6] (here [3])',
    'bert.width 16 (here 32)',
  ]


def test_a_run_leaves_its_settings_before_a_trial_and_after_all_refusals(tmp_path, monkeypatch, capsys):
  """The next one says what is other, before its first trial; without room on the disk none begins."""
  monkeypatch.setattr(main_lib, 'set_up', lambda *_, **__: None)
  monkeypatch.setattr(grids, 'STUDY', grids.STUDY._replace(check=lambda settings: None))
  command = ['main', '--config=prompt_vs_head:smoke', f'--workdir={tmp_path}']

  def killed(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(sweep, 'fill', killed)
  with monkeypatch.context() as full:
    full.setattr(storage, 'free_bytes', lambda path: 0)
    assert main_lib.main(command) == 2 and not list(tmp_path.iterdir())
  with pytest.raises(KeyboardInterrupt):
    main_lib.main(command)
  monkeypatch.setattr(sweep, 'fill', lambda *_: [])
  assert 'seed' not in capsys.readouterr().out
  assert main_lib.main([*command, '--config.seed=1']) == 0
  first, *_ = capsys.readouterr().out.splitlines()
  assert first.startswith(str(tmp_path)) and first.endswith('seed 0 (here 1)')
