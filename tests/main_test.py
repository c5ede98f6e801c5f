"""The command line: the whole path at smoke scale, what is refused, and what a second or a killed run does."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from typing import NamedTuple

from conftest import compiling_fast
from hypothesis import given, strategies as st
import jax
import ml_collections
import numpy as np
import pytest

from experiments import main as main_lib
from experiments.pipeline import verify
from experiments.records import environment
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS

ROOT = pathlib.Path(__file__).parent.parent
SMOKE = '--config=configs/prompt_vs_head.py:smoke'
SHARED = (
  '--config.downstream.num_train=64',
  '--config.prompt.num_epochs=1',
  '--config.head.num_epochs=1',
  '--config.attention.num_epochs=1',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)
# Memories of 2 values over 3 states, and beside them HMMs of 6 states, which are all that the other experiment has.
MEMORY = (
  '--config=configs/memory_vs_vanilla.py:smoke',
  '--config.num_states=3',
  '--config.memory.sizes=2',
  "--config.memory.vanilla_methods=('head','prompt')",
  *SHARED,
)
PROMPT = (SMOKE, '--config.num_states=6', *SHARED)


class Finished(NamedTuple):
  """A workdir in which MEMORY and then PROMPT ran; of each what it printed, and the files that it left."""

  workdir: pathlib.Path
  memory_printed: str
  memory_files: dict[str, bytes]
  prompt_printed: str
  prompt_files: dict[str, bytes]


@pytest.fixture(scope='module', autouse=True)
def cheap():
  """Programs compile fast, here and in the processes that are started, and configs are found from the root."""
  with compiling_fast(), contextlib.chdir(ROOT):
    yield


def _run(*arguments):
  """The exit code, and what went to standard output and error."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    code = main_lib.main(['main', *arguments])
  return code, out.getvalue(), err.getvalue()


def _finish(*arguments):
  """What a run printed that must succeed."""
  code, out, err = _run(*arguments)
  assert code == 0, err
  return out


def _start(*arguments, cwd=None):
  env = {**os.environ, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1', 'PYTHONPATH': str(ROOT)}
  command = [sys.executable, '-m', 'experiments.main', *arguments]
  return subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('finished')
  memory_printed = _finish(*MEMORY, f'--workdir={workdir}')
  memory_files = _files(workdir)
  # Where no merged records are, trials of several experiments lie in one workdir.
  for name in ('results.jsonl', 'config.json'):
    (workdir / name).unlink()
  prompt_printed = _finish(*PROMPT, f'--workdir={workdir}')
  return Finished(workdir, memory_printed, memory_files, prompt_printed, _files(workdir))


def _files(workdir):
  """Everything that must not depend on the machine or on interruptions."""
  kept = [*workdir.glob('pretrained/*/metrics.jsonl'), workdir / 'results.jsonl', workdir / 'table.txt']
  arrays = {
    f'{path.relative_to(workdir)} {name}': array.tobytes()
    for path in workdir.glob('trials/*/*.npz')
    for name, array in np.load(path, allow_pickle=False).items()
  }
  return {str(path.relative_to(workdir)): path.read_bytes() for path in kept} | arrays


def _records(files):
  return [json.loads(line) for line in files['results.jsonl'].splitlines()]


def _documented():
  """The fields of records in the table of them."""
  _, _, table = (ROOT / 'docs/records.md').read_text().partition('| field | meaning |')
  rows = table.partition('\n\n')[0].splitlines()[2:]
  return {name for row in rows for name in re.findall(r'`(\w+)`', row.split('|')[1])}


def _drawn(*names):
  return {f'{name}.{extension}' for name in names for extension in ('png', 'pdf', 'svg')}


def _kill_when(process, path):
  """Kill -9 as soon as `path` exists."""
  deadline = time.monotonic() + 300
  while not path.exists():
    assert process.poll() is None, process.stderr.read()
    assert time.monotonic() < deadline
    time.sleep(0.005)
  os.kill(process.pid, signal.SIGKILL)
  process.communicate()


def test_a_run_leaves_records_table_and_figures(finished):
  """One record per (task, model, method) with the documented fields, no other, and three figure files."""
  records = _records(finished.prompt_files)
  triples = {(record['task'], record['model'], record['method']) for record in records}
  assert len(triples) == len(records) == 2 * 2 * 2
  for record in records:
    assert set(record) == _documented()
    assert (record['experiment'], record['scale'], record['seed']) == ('prompt_vs_head', 'smoke', 0)
    assert 0 <= record['accuracy'] <= 1
    assert record['kl_at_mask'] >= 0 or record['model'] == 'exact'
  assert _drawn('figure_3_left') <= {path.name for path in finished.workdir.iterdir()}
  assert str(finished.workdir / 'figure_3_left.png') in finished.prompt_printed
  assert json.loads((finished.workdir / 'config.json').read_text())['num_states'] == [6]


def test_every_record_has_its_provenance_beside_it(finished):
  """Each names the file that says which code, versions and devices it came from."""
  records = _records(finished.prompt_files)
  made = environment.load(finished.workdir, records)
  assert {record['environment'] for record in records} == set(made)
  for there in made.values():
    assert {'commit', 'uncommitted_changes', 'python', 'packages', 'platform', 'devices'} <= set(there)


def test_a_run_says_where_its_time_went(finished):
  """In one line at its end, and phase by phase beside each trial, once for each run that worked on it."""
  name, took, phases = (
    r'[\w ]+',
    r'\d+:\d\d:\d\d',
    {'compile', 'corpus', 'pretraining', 'measuring', 'tuning', 'the rest'},
  )
  *_, line = finished.memory_printed.splitlines()
  assert re.fullmatch(rf'CPU time {took}: ({name} {took}, )+the rest {took}; wall time {took}', line)
  assert set(re.findall(r'[:,] ([a-z ]+) ', line)) == phases
  trials = [json.loads(path.read_text()) for path in finished.workdir.glob('trials/*/timing.jsonl')]
  assert len(trials) == 2
  for row in trials:
    assert set(row['cpu_seconds']) == set(row['wall_seconds']) == phases
    assert all(seconds >= 0 for seconds in (*row['cpu_seconds'].values(), *row['wall_seconds'].values()))
  assert 'tuning' not in finished.prompt_printed.splitlines()[-1]


def test_methods_are_compared_on_the_same_tasks(finished):
  """Within a task the majority baseline, so the labels, and the trial are one, whatever model and method."""
  for task in (0, 1):
    of_task = [record for record in _records(finished.prompt_files) if record['task'] == task]
    same = {(record['majority_accuracy'], record['smallest_margin'], record['trial_id']) for record in of_task}
    assert len(same) == 1


def test_only_the_tuned_arrays_are_saved(finished):
  """The saved head has the head's arrays and the saved prompt those of prompt and head: nothing of the model."""
  head = np.load(next(finished.workdir.glob('trials/*/bert-head-*-task0.npz')), allow_pickle=False)
  prompt = np.load(next(finished.workdir.glob('trials/*/bert-prompt-*-task0.npz')), allow_pickle=False)
  assert set(head.files) == {'head/weights', 'head/bias'}
  assert set(prompt.files) == {'head/weights', 'head/bias', 'prompt'}
  assert prompt['prompt'].shape == (4, 16)


def test_a_memory_beside_a_vanilla_hmm(finished):
  """Records of both kinds of text with the documented fields, the figure, a pretrained model per distribution."""
  records = _records(finished.memory_files)
  kinds = {(r['num_states'], r['memory_size'], r['num_cells'], r['model'], r['method'], r['task']) for r in records}
  assert len(kinds) == len(records)
  assert kinds == {
    (*point, model, method, task)
    for *point, method in ((6, 0, 0, 'head'), (6, 0, 0, 'prompt'), (3, 2, 1, 'attention'))
    for model in ('bert', 'exact')
    for task in (0, 1)
  }
  for record in records:
    assert set(record) == _documented()
    assert record['experiment'] == 'memory_vs_vanilla'
    assert (record['attention_profile'] is not None) == (record['memory_size'] > 0)
  drawn = {path.name for path in finished.workdir.iterdir()}
  assert _drawn('figure_3_right') <= drawn and not _drawn('attention') & drawn
  assert len(list(finished.workdir.glob('pretrained/*'))) == 2


def test_experiments_share_the_trials_of_a_workdir(finished):
  """What one experiment has of another's grid is read back, and reported under the name that asks for it."""
  assert 'pretraining' in finished.memory_printed and 'pretraining' not in finished.prompt_printed
  of_hmm = [record for record in _records(finished.memory_files) if not record['memory_size']]
  assert [{**record, 'experiment': 'prompt_vs_head'} for record in of_hmm] == _records(finished.prompt_files)


def test_a_second_run_only_reports(finished):
  """The same command again changes no file but the report, which is the same."""
  times = lambda: {path: path.stat().st_mtime_ns for path in finished.workdir.glob('trials/*/*')}
  before = times()
  printed = _finish(*PROMPT, f'--workdir={finished.workdir}')
  assert 'pretraining' not in printed
  report = lambda printed: printed.split('Test accuracy')[1].split('CPU time')[0]
  assert report(printed) == report(finished.prompt_printed)
  assert _files(finished.workdir) == finished.prompt_files
  assert times() == before


def test_results_are_of_what_is_asked_for_alone(finished, tmp_path):
  """A run that asks for fewer methods, models and tasks reports those, and leaves the other records in the trial."""
  workdir = tmp_path / 'fewer'
  shutil.copytree(finished.workdir, workdir)
  fewer = ("--config.methods=('head',)", "--config.models=('exact',)", '--config.tasks_per_trial=1')
  printed = _finish(*PROMPT, *fewer, f'--workdir={workdir}')
  (record,) = _records(_files(workdir))
  assert (record['model'], record['method'], record['task']) == ('exact', 'head', 0)
  assert 'BERT' not in printed and 'prompt' not in printed.split('Test accuracy')[1].split('records:')[0]
  kept = _files(workdir)
  for name, content in finished.prompt_files.items():
    assert '/' not in name or kept[name] == content


def test_every_field_with_a_tolerance_is_documented():
  """Of all others verifying asks that another environment makes them again as they are."""
  assert set(verify.FIELDS) < _documented()


def _copy_records(workdir, copy):
  for name in ('config.json', 'results.jsonl'):
    shutil.copy(workdir / name, copy)
  shutil.copytree(workdir / environment.FOLDER, copy / environment.FOLDER)


def test_a_folder_of_records_is_verified(finished, tmp_path):
  """Its trials are run again, pretraining included, to the same bits; the folder is as it was."""
  _copy_records(finished.workdir, tmp_path)
  contents = lambda: {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
  before = contents()
  printed = _finish('--mode=verify', f'--workdir={tmp_path}')
  assert 'pretraining 40/40' in printed and '8 records of 1 trials' in printed
  assert contents() == before


@pytest.mark.parametrize('field', ['accuracy', 'train_loss', None])
def test_a_tampered_record_is_not_verified(finished, tmp_path, field):
  """One number changed, or the numbers of another trial: the table says where, one sentence too, at exit code 1."""
  _copy_records(finished.workdir, tmp_path)
  records = _records(finished.prompt_files)
  records[3].update({field: records[3][field] - 1 / 64} if field else {'environment': 'another'})
  (tmp_path / 'results.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
  reused = f'--pretrained={finished.workdir / "pretrained"}'
  code, out, err = _run('--mode=verify', f'--workdir={tmp_path}', '--trials=0', reused)
  (line,) = err.splitlines()
  assert code == 1 and 'pretraining 40/40' not in out
  assert f'is not what its settings make: {field} (1 of 8 differ)' in line if field else 'does not say where' in line


def test_report_redraws_from_records_alone(finished, tmp_path):
  """`--mode=report` needs results.jsonl and nothing else, not what the run needed, and draws the same bytes."""
  (tmp_path / 'results.jsonl').write_bytes(finished.prompt_files['results.jsonl'])
  _finish(*PROMPT, '--config.mesh.data=64', '--mode=report', f'--workdir={tmp_path}')
  for name in _drawn('figure_3_left') | {'table.txt'}:
    assert (tmp_path / name).read_bytes() == (finished.workdir / name).read_bytes()


CHANGES = {
  'a field less': lambda rows: [row for row in rows if row.pop('trial') is not None],
  'another method': lambda rows: [rows[0] | {'method': 'unknown'}, *rows[1:]],
  'a text for a number': lambda rows: [rows[0] | {'accuracy': 'high'}, *rows[1:]],
}


@pytest.mark.parametrize('change', CHANGES)
def test_a_report_of_records_that_do_not_fit_is_refused(finished, tmp_path, change):
  """In one sentence, whatever was done to them, and nothing is written."""
  rows = CHANGES[change](_records(finished.prompt_files))
  (tmp_path / 'results.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
  code, _, err = _run(*PROMPT, '--mode=report', f'--workdir={tmp_path}')
  (line,) = err.splitlines()
  assert code == 2 and 'results.jsonl cannot be tabulated' in line
  assert [path.name for path in tmp_path.iterdir()] == ['results.jsonl']


def test_settings_on_record_that_name_no_experiment_are_refused(tmp_path):
  (tmp_path / 'config.json').write_text('{"schema_version": 2, "experiment": ["x"]}')
  for mode in ('run', 'report', 'status', 'merge'):
    code, _, err = _run(SMOKE, f'--mode={mode}', f'--workdir={tmp_path}')
    assert code == 2 and len(err.splitlines()) == 1


def test_a_benchmark_is_reported_without_its_peers(tmp_path, monkeypatch):
  """The tables of a record need none of what they were measured beside."""
  recorded = pathlib.Path(__file__).parents[1] / 'docs' / 'results' / 'benchmark' / 'cpu'
  _copy_records(recorded, tmp_path)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  printed = _finish('--config=benchmark', '--mode=report', f'--workdir={tmp_path}')
  assert (recorded / 'table.txt').read_text() == (tmp_path / 'table.txt').read_text()
  assert all(word in printed for word in ('training step', 'dynamax', 'quartiles'))


def test_a_killed_run_continues_to_the_same_bits(finished, tmp_path):
  """Kill -9 in the middle of the second pretraining, run again: what is finished stays, and the rest is byte-equal."""
  workdir = tmp_path / 'killed'
  second = next(record for record in _records(finished.memory_files) if record['memory_size'])
  shutil.copytree(finished.workdir, workdir)
  shutil.rmtree(workdir / 'pretrained' / second['pretraining_id'])
  shutil.rmtree(workdir / 'trials' / second['trial_id'])
  for name in ('results.jsonl', 'config.json'):
    (workdir / name).unlink()
  process = _start(*MEMORY, f'--workdir={workdir}')
  _kill_when(process, workdir / 'pretrained' / second['pretraining_id'] / 'checkpoints' / '20')
  assert not (workdir / 'results.jsonl').exists()
  _finish(*MEMORY, f'--workdir={workdir}')
  # Beside them lie arrays that only the other experiment asked for.
  made = _files(workdir)
  assert {name: made[name] for name in finished.memory_files} == finished.memory_files
  assert len((workdir / 'trials' / second['trial_id'] / 'timing.jsonl').read_text().splitlines()) == 1
  starts = (workdir / 'pretrained' / second['pretraining_id'] / 'environment.jsonl').read_text().splitlines()
  first, again = (json.loads(line)['from_step'] for line in starts)
  assert first == 0 and again >= 20


def test_a_time_budget_is_gone_on_with_to_the_same_bits(finished, tmp_path):
  """Pretraining stops at its next checkpoint, with exit code 0 and what is left in the last line; then it goes on."""
  budget = (*PROMPT, f'--workdir={tmp_path}', '--config.time_budget=1e-9')
  printed = _finish(*budget)
  *_, steps, time_line, last = printed.splitlines()
  assert 'step 20 of 40 of pretraining' in steps and 'CPU time' in time_line
  assert last == '0 of 1 trials are finished; the same command goes on'
  (checkpoint,) = tmp_path.glob('pretrained/*/checkpoints/*')
  assert checkpoint.name == '20' and not (tmp_path / 'table.txt').exists()
  assert 'pretraining 40/40' in _finish(*budget)
  ids = {name for record in _records(finished.prompt_files) for name in (record['pretraining_id'], record['trial_id'])}
  of_prompt = lambda name: '/' not in name or name.split('/')[1] in ids
  assert _files(tmp_path) == {name: data for name, data in finished.prompt_files.items() if of_prompt(name)}
  (timing,) = tmp_path.glob('trials/*/timing.jsonl')
  assert len(timing.read_text().splitlines()) == 2


def _two_at(address):
  fields = {'mode': 'on', 'num_processes': 2, 'coordinator_address': address}
  return [f'--config.distributed.{name}={value}' for name, value in fields.items()]


# Besides those of faults/bad_inputs.py, and what each field refuses by itself (settings/fields_test.py).
REFUSED = [
  (['--config.nothing.here=3'], ['nothing.here', 'nearest']),
  (['--config.bert.widht=3'], ['bert.widht', 'bert.width']),
  (['--config.num_states[0]=3'], ['num_states[0]', 'no field']),
  (['--config.memory.sizes=1'], ['memory.sizes', '1', 'at least 2']),
  (['--config.memory.sizes=2', '--config.memory.cells=3'], ['num_states', '(4, 6)', 'multiples', 'memory.cells']),
  (['--config.memory.sizes=2', '--config.memory.label_cell=1'], ['memory.label_cell', '1', 'below']),
  (['--config.num_states=1'], ['num_states', '(1,)', 'at least 2']),
  (['--config.models=exact', '--config.num_states=4096'], ['num_states', '(4096,)', 'of memory']),
  (['--config.mesh.fsdp=2'], ['mesh', '(-1, 2, 1)', 'product is 1']),
  (['--workdir=/proc/nothing'], ['workdir', '/proc/nothing', 'writable']),
  (['--trials=0,x'], ['--trials', "'0,x'", 'numbers of 0 to 1']),
  (['--trials=1-0'], ['--trials', "'1-0'", 'ranges']),
  (['--trials=-1'], ['--trials', "'-1'", 'numbers']),
  (['--mode=status', '--trials=0'], ['--trials', '0', 'nothing but for a run of a grid']),
  (['--config.pretrained=foo://x/y'], ['foo://x/y', 'no object store that is known', 'gs://BUCKET']),
  (
    [
      '--config.distributed.mode=on',
      '--config.distributed.num_processes=2',
      '--config.distributed.coordinator_address=foo:xyz',
    ],
    ['coordinator_address', 'foo:xyz', 'HOST:PORT'],
  ),
  (['--config=examine:smoke', '--mode=status'], ['--mode', 'status', 'examine is no grid']),
  (['--mode=verify'], ['--workdir', 'with records where --mode is verify']),
  (['--mode=report'], ['workdir', 'with records of prompt_vs_head']),
  (['--config=/etc'], ['/etc', 'the path of a config file']),
  (['--config.pretrained=/proc/nothing'], ['pretrained', '/proc/nothing', 'writable']),
  (
    ['--config=degradation:smoke', '--config.bert.width=16'],
    ['config.bert.width', 'no field', 'config.bert.model.width'],
  ),
  (['--config.experiment=theory'], ['config.experiment', 'NAME:SCALE']),
  (['--config.pretrained=README.md'], ['pretrained', 'README.md', 'writable']),
]


@pytest.mark.parametrize(('arguments', 'words'), REFUSED)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, tmp_path):
  """One line on standard error names what is wrong; nothing is written."""
  workdir = tmp_path / 'work'
  config = [] if any(argument.startswith('--config=') for argument in arguments) else [SMOKE]
  code, _, err = _run(f'--workdir={workdir}', *config, *arguments)
  assert code == 2
  (line,) = err.splitlines()
  for word in words:
    assert word in line
  assert not list(workdir.glob('*'))


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--workdir='], ['--workdir', "''", 'a folder of records']),
    ([], ['--workdir', 'one with records']),
    (['--trials=9'], ['--workdir', 'one with records']),
  ],
)
def test_what_cannot_be_verified_is_refused(arguments, words, tmp_path):
  """In one sentence, at exit code 2."""
  code, _, err = _run('--mode=verify', f'--workdir={tmp_path}', *arguments)
  (line,) = err.splitlines()
  assert code == 2 and all(word in line for word in words)


@pytest.mark.parametrize(
  ('source', 'words'),
  [
    ('x = 1', ['KeyError', 'get_config']),
    ('def get_config():\n  raise KeyError("colour")', ['KeyError', 'colour']),
    ('def get_config():\n  raise ValueError("no such colour")', ['no such colour']),
    ('def get_config():\n  raise SystemExit(7)', ['SystemExit', '7']),
    ('import sys\nsys.exit()', ['SystemExit']),
    ('import no_such_module', ['no_such_module']),
    ('def get_config():\n  return {"seed": 1}', ['returned a dict']),
    ('def get_config():\n  return open("/no/such/file")', ['/no/such/file']),
  ],
)
def test_a_config_file_that_fails_is_named(source, words, tmp_path):
  """Whatever it raises, or if it exits or has no `get_config`: one sentence with its path, and our exit code."""
  path = tmp_path / 'mine.py'
  path.write_text(source)
  for arguments in ([f'--config={path}'], ['--config', str(path)]):
    code, _, err = _run(f'--workdir={tmp_path / "work"}', *arguments)
    assert code == 2
    (line,) = err.splitlines()
    for word in (str(path), *words):
      assert word in line


def test_the_experiments_are_listed():
  """Each with its claim and its scales, at exit code 0."""
  code, out, _ = _run('--list')
  assert code == 0
  for name in EXPERIMENTS:
    shipped = config_lib.shipped(name)
    assert f'{name}  [{", ".join(shipped["SCALES"])}]\n  {shipped["__doc__"].splitlines()[0]}\n' in out


def test_help_fits_a_screen_and_names_what_people_change():
  """Sixty lines with every experiment; a field that it shows can be pasted."""
  for flag in ('--help', '-h'):
    code, out, _ = _run(flag)
    assert code == 0 and len(out.splitlines()) <= 60 and all(f'\n{name}  [' in out for name in EXPERIMENTS)
  shown = re.findall(r'  (--config\.\S+)', out)
  assert len(shown) == 10 and _run('--help', '--config=prompt_vs_head', *shown)[0] == 0


def test_names_may_stand_between_commas():
  """As numbers do, for fields that hold names; each of them is checked."""
  code, out, _ = _run('--help', SMOKE, '--config.methods=head,prompt,probe')
  assert code == 0
  config = config_lib.shipped('prompt_vs_head')['get_config']('smoke')
  config.methods = ('head,prompt', 'probe')
  assert registry.from_config(config).methods == ('head', 'prompt', 'probe')
  code, _, err = _run(SMOKE, '--config.methods=head,promt')
  assert code == 2 and "methods is ('head', 'promt')" in err


def test_help_names_every_field():
  """Of every experiment, or of the one that is asked for with the values that it has there; no line is wide."""
  code, out, _ = _run('--help=all')
  assert code == 0 and max(map(len, out.splitlines())) <= 120
  *_, usage = out.partition('prompt_vs_head:small\n')
  for name, text in zip(EXPERIMENTS, re.split(r'\n\w+:small\n', usage), strict=True):
    for field, _ in config_lib.fields(registry.SETTINGS[name]):
      assert text.count(f'  {field} = ') == 1, (name, field)
  code, out, _ = _run('--help', SMOKE, '--config.seed=5')
  assert code == 0 and '  seed = 5\n' in out and '  num_states = (4, 6)\n' in out
  assert 'prompt_vs_head:smoke\n' in out and 'conditioning' not in out


def test_neither_list_nor_help_imports_what_plots_fits_or_saves():
  """In a process of its own; each of these modules takes a good part of a second."""
  heavy = ('scipy.stats', 'pandas', 'matplotlib', 'orbax.checkpoint', 'tensorstore')
  look = f"""
import sys
from experiments import main
print([main.main(['main', flag]) for flag in ('--list', '--help')])
print([name for name in {heavy} if name in sys.modules])
"""
  printed = subprocess.run([sys.executable, '-c', look], cwd=ROOT, capture_output=True, text=True, check=True).stdout
  assert printed.endswith('[0, 0]\n[]\n')


def test_a_process_finds_a_config_by_name_and_exits_with_the_code_and_the_sentence(tmp_path):
  """In any folder; what `main` returns is the exit code of `python -m experiments.main`."""
  process = _start('--config=memory_cells:smoke', '--config.num_statez=3', f'--workdir={tmp_path}', cwd=tmp_path)
  _, err = process.communicate()
  assert process.returncode == 2
  assert err.splitlines() == [
    'error: --config.num_statez is no field of this config; the nearest is --config.num_states'
  ]


def test_a_file_of_the_name_of_a_config_wins(tmp_path):
  """Over the shipped file."""
  assert config_lib.load('theory:smoke', EXPERIMENTS).experiment == 'theory'
  with contextlib.chdir(tmp_path):
    pathlib.Path('theory').write_text('import ml_collections\nget_config = ml_collections.ConfigDict')
    assert config_lib.load('theory', EXPERIMENTS) == ml_collections.ConfigDict()


def test_a_refusal_leaves_nothing(tmp_path):
  """Not the directory of the pretrained models, and not the workdir."""
  models, workdir = tmp_path / 'models', tmp_path / 'work'
  huge = ('--config.corpus.num_documents=2000000000', f'--config.pretrained={models}', f'--workdir={workdir}')
  code, _, err = _run(SMOKE, *huge)
  assert code == 2 and err.startswith('error: corpus.num_documents is 2000000000; valid is what fits ')
  assert not list(tmp_path.iterdir())


def test_records_of_another_experiment_are_not_overwritten(tmp_path):
  """A run replaces the records of its workdir, so it needs one of its own."""
  records = tmp_path / 'results.jsonl'
  text = '{"schema_version": 2, "experiment": "benchmark"}'
  records.write_text(text)
  code, _, err = _run(SMOKE, f'--workdir={tmp_path}')
  assert code == 2 and 'no other experiment' in err and len(err.splitlines()) == 1
  assert records.read_text() == text


@pytest.mark.parametrize('mode', ['run', 'report'])
def test_records_of_another_schema_are_refused(mode, tmp_path):
  """Records that this version cannot read are neither mixed with its own nor drawn."""
  (tmp_path / 'results.jsonl').write_text('{"experiment": "prompt_vs_head"}')
  code, _, err = _run(SMOKE, f'--workdir={tmp_path}', f'--mode={mode}')
  assert code == 2
  (line,) = err.splitlines()
  assert 'results.jsonl is 0; valid is 2' in line


def _set_up(deterministic):
  settings = types.SimpleNamespace(compilation_cache='', fast_compilation=True, debug_nans=False)
  settings.deterministic = deterministic
  main_lib.set_up(settings)


def test_the_generator_is_pinned_where_experiments_start(monkeypatch):
  """Neither JAX's defaults nor the user's environment decide what a seed draws, once an experiment starts."""
  with jax.default_prng_impl('rbg'), jax.threefry_partitionable(False):
    bits = lambda: jax.random.key_data(jax.random.split(jax.random.key(0))).tolist()
    other = bits()
    _set_up(deterministic=False)
  assert bits() != other
  assert jax.config.jax_default_prng_impl == 'threefry2x32' and jax.config.jax_threefry_partitionable


def test_determinism_is_asked_of_xla_beside_other_flags(monkeypatch):
  """XLA is told to leave out what differs from run to run, and the user's flags stay."""
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_enable_fast_math=false')
  _set_up(deterministic=True)
  assert os.environ['XLA_FLAGS'].split() == [
    '--xla_cpu_enable_fast_math=false',
    '--xla_gpu_exclude_nondeterministic_ops=true',
  ]


@given(
  st.sampled_from([name for name, _ in config_lib.fields(registry.SETTINGS['prompt_vs_head'])]), st.text(max_size=20)
)
def test_any_override_gives_settings_or_one_sentence(field, value):
  """No text after --config.FIELD= ends in a traceback."""
  _check_refusal([SMOKE, f'--config.{field}={value}'])


@given(st.lists(st.text(max_size=20), max_size=3))
def test_any_arguments_give_settings_or_one_sentence(arguments):
  """No command line ends in a traceback."""
  _check_refusal([SMOKE, *arguments])


def _check_refusal(arguments):
  try:
    _, config = main_lib.parse(['main', *arguments])
    registry.from_config(config)
  except SettingsError as error:
    assert str(error) and '\n' not in str(error)
