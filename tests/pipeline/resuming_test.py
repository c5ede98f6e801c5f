"""Going on with something else than before: what is another trial, what is said, and what decides nothing."""

import io
import json

import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import main as main_lib
from experiments.pipeline import pretraining, sweep
from experiments.records import environment, files, results, trial_records
from experiments.records.trial_records import Tuned
from experiments.runtime import storage
from experiments.runtime.progress import Reporter
from experiments.studies import grids, registry


def _settings(**changes):
  config = prompt_vs_head.get_config('smoke')
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return registry.from_config(config)


def _trial(workdir, **changes):
  return next(iter(sweep.trials(_settings(**changes), workdir).values()))


MODEL, TRIAL, NEITHER = 'another model and trial', 'another trial', 'the same'


@pytest.mark.parametrize(
  ('changes', 'what'),
  [
    (dict(seed=1), MODEL),
    (dict(num_states=(5,)), MODEL),
    (dict(hmm__num_tokens=11), MODEL),
    (dict(corpus__chunk_length=8), MODEL),
    (dict(bert__width=32), MODEL),
    (dict(bert__dtype='bfloat16'), MODEL),
    (dict(pretrain__learning_rate=1.0), MODEL),
    (dict(pretrain__num_steps=80), MODEL),
    (dict(pretrain__steps_per_call=20), MODEL),
    (dict(fast_compilation=False), MODEL),
    (dict(head__num_epochs=3), NEITHER),
    (dict(downstream__num_train=128), TRIAL),
    (dict(measure__num_inputs=16), TRIAL),
    (dict(prompt__length=3), NEITHER),
    (dict(pretrain__checkpoint_every=10), NEITHER),
    (dict(mesh__data=1), NEITHER),
    (dict(deterministic=True), NEITHER),
    (dict(methods=('head',)), NEITHER),
    (dict(tasks_per_trial=1), NEITHER),
    (dict(time_budget=1.0), NEITHER),
    (dict(compilation_cache=''), NEITHER),
  ],
  ids=str,
)
def test_settings_that_decide_bits_name_what_they_make(tmp_path, changes, what):
  """Other ones make another model or trial beside the first, which stays as it is; the rest finds both again."""
  before, after = _trial(tmp_path), _trial(tmp_path, **changes)
  same = before.pretraining_id == after.pretraining_id, before.id == after.id
  assert same == {MODEL: (False, False), TRIAL: (True, False), NEITHER: (True, True)}[what]


OF_ENVIRONMENT = [
  ({'platform': 'Plan 9'}, 'platform Plan 9 (here {platform})'),
  ({'cpu': '3 x abacus'}, 'cpu 3 x abacus (here {cpu})'),
  ({'devices': ['abacus'] * 2}, 'devices 2 x abacus (here 1 x cpu)'),
  ({'processes': 2}, 'processes 2 (here 1)'),
  ({'xla_flags': '--xla_abacus'}, 'XLA_FLAGS --xla_abacus (here {xla_flags})'),
  ({'packages': 'jaxlib'}, 'jaxlib 0.0.1 (here {jaxlib})'),
]


@pytest.mark.parametrize(('changes', 'sentence'), OF_ENVIRONMENT, ids=lambda value: str(value)[:16])
def test_another_environment_is_allowed_and_said(tmp_path, monkeypatch, changes, sentence):
  """Of a model, and of the records of a trial, in one line with what was and what is; the commit alone is recorded."""
  here = environment.environment(jax.devices())
  versions = here['packages'] | {'jaxlib': '0.0.1'}
  there = here | ({'packages': versions} if 'packages' in changes else changes)
  expected = sentence.format(**here, jaxlib=here['packages']['jaxlib'])
  trial = _trial(tmp_path)
  tasks = zip((0, 0, 1, 1), ('head', 'prompt') * 2, (here, there, there, here | {'commit': 'another'}))
  for task, method, made in tasks:
    with monkeypatch.context() as elsewhere:
      elsewhere.setattr(environment, 'environment', lambda devices, made=made: made)
      trial_records.add(trial, 'exact', method, [Tuned(task, {'head': np.zeros(2)}, {})], {})
  console = rich.console.Console(file=io.StringIO(), width=10_000)
  trial_records.plan(trial, Reporter(console))
  directory = trial.pretrained_directory
  files.write_json_lines(directory / 'environment.jsonl', [there])
  pretraining._note_environment(trial.settings, directory, 20, Reporter(console))
  of_trial, of_model = console.file.getvalue().splitlines()
  assert of_trial == f'records of trial {trial.id} were made with {expected}'
  assert of_model == f'{directory.name} was pretrained with {expected}'


def _changed(workdir, settings):
  return results.changed(results.config(workdir), settings)


def test_a_workdir_of_other_settings_says_which(tmp_path):
  """Field by field, but for those that decide no record; lists are the tuples that they were."""
  assert _changed(tmp_path, _settings()) == []
  results.write(tmp_path, _settings(), [])
  assert _changed(tmp_path, _settings()) == []
  running = dict(time_budget=3.0, compilation_cache='', distributed__heartbeat_timeout=9, figure__dpi=99)
  assert _changed(tmp_path, _settings(**running)) == []
  other = _settings(seed=5, num_states=(3,), bert__width=32)
  assert _changed(tmp_path, other) == ['seed 0 (here 5)', 'num_states [4, 6] (here [3])', 'bert.width 16 (here 32)']
  fields = json.loads((tmp_path / 'config.json').read_text())
  del fields['seed']
  (tmp_path / 'config.json').write_text(json.dumps(fields))
  assert _changed(tmp_path, _settings(seed=5)) == []


@pytest.fixture
def without_jax(monkeypatch):
  """Nothing is set up and no machine is looked at."""
  monkeypatch.setattr(main_lib, '_set_up', lambda *_, **__: None)
  monkeypatch.setattr(grids, 'STUDY', grids.STUDY._replace(check=lambda settings: None))


def test_the_line_stands_before_the_run(tmp_path, monkeypatch, capsys, without_jax):
  """And after it; of a run and a merge, not of a report, which changes no record."""
  results.write(tmp_path, _settings(), [])
  monkeypatch.setattr(grids, 'STUDY', grids.STUDY._replace(run=lambda *_: None))
  assert main_lib.main(['main', '--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', '--config.seed=5']) == 0
  first, *_, last = capsys.readouterr().out.splitlines()
  assert first == last == f'{tmp_path} has other settings on record, beside which these come: seed 0 (here 5)'


def test_corrupt_settings_are_refused(tmp_path, monkeypatch, capsys, without_jax):
  """By a run too, which says how it goes on: without the file."""
  results.write(tmp_path, _settings(), [])
  (tmp_path / 'config.json').write_text('{')
  run = lambda settings, workdir, *_: results.begin(workdir, settings)
  monkeypatch.setattr(grids, 'STUDY', grids.STUDY._replace(run=run))
  command = ['main', '--config=prompt_vs_head:smoke', f'--workdir={tmp_path}']
  for flags in (['--mode=report'], []):
    assert main_lib.main([*command, *flags]) == 2
    said = capsys.readouterr().err
    assert 'config.json cannot be parsed' in said and 'or no such file' in said and len(list(tmp_path.iterdir())) == 2
  (tmp_path / 'config.json').unlink()
  assert main_lib.main(command) == 0
  assert _changed(tmp_path, _settings()) == []


def test_a_run_that_was_killed_in_its_first_trial_has_left_its_settings(tmp_path):
  """So that a run of others says which, and once there are records those beside them hold."""
  results.begin(tmp_path, _settings())
  assert _changed(tmp_path, _settings(seed=1)) == ['seed 0 (here 1)'] and not results.load(tmp_path)
  before = (tmp_path / 'config.json').read_bytes()
  results.begin(tmp_path, _settings(seed=1))
  assert (tmp_path / 'config.json').read_bytes() == before
  results.write(tmp_path, _settings(seed=1), [])
  assert _changed(tmp_path, _settings(seed=1)) == []


def test_a_run_leaves_its_settings_before_a_trial_and_after_all_refusals(tmp_path, monkeypatch, capsys, without_jax):
  """And the next one says what is other; of the room on a disk nothing is begun before it is known to be enough."""
  monkeypatch.setattr(sweep, 'fill', _killed)
  command = ['main', '--config=prompt_vs_head:smoke', f'--workdir={tmp_path}']
  with monkeypatch.context() as full:
    full.setattr(storage, 'free_bytes', lambda path: 0)
    assert main_lib.main(command) == 2 and not list(tmp_path.iterdir())
  for flags in ([], ['--config.seed=1']):
    with pytest.raises(KeyboardInterrupt):
      main_lib.main([*command, *flags])
  said = [line for line in capsys.readouterr().out.splitlines() if 'other settings' in line]
  assert said == [f'{tmp_path} has other settings on record, beside which these come: seed 0 (here 1)']


def _killed(*_):
  raise KeyboardInterrupt


def test_64_bits_are_not_taken_from_the_user_environment(monkeypatch):
  """They would make other numbers under the same ids."""
  pinned = []
  monkeypatch.setattr(main_lib.jax.config, 'update', lambda *words: pinned.append(words))
  monkeypatch.setattr(main_lib.cache, 'keep_programs', lambda setting: None)
  main_lib.set_up(_settings())
  assert ('jax_enable_x64', False) in pinned
