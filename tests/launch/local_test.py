"""launch/local.sh: runs that share a grid, their GPUs, their signals and statuses, and what is refused."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GRID = (
  'prompt_vs_head:smoke',
  '--config.num_trials=2',
  '--config.tasks_per_trial=1',
  '--config.models=exact',
  '--config.methods=head',
  '--config.downstream.num_train=64',
  '--config.head.num_epochs=1',
  '--config.figures=()',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)
# Each stands for `python` on the path of the script.
TELLS = '#!/bin/sh\necho "${CUDA_VISIBLE_DEVICES-no} of $HMM_JAX_RUNS"\n'
TELLS_WORDS = '#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n'
EXITS = '#!/bin/sh\nexit "$CUDA_VISIBLE_DEVICES"\n'
WAITS = """#!/bin/sh
trap 'echo TERM; status=143' TERM
trap 'echo INT; status=130' INT
echo begins
for _ in $(seq 1200); do [ "$status" ] || sleep 0.05; done
sleep 1  # In which a second signal would be seen.
echo ends
exit "$status"
"""


def _start(tmp_path, *words, python=None, nvidia_smi='exit 9', **variables):
  """The script from another folder, with programs that stand for others first on its path."""
  programs = {'python': python, 'nvidia-smi': f'#!/bin/sh\n{nvidia_smi}\n'}
  for name, text in programs.items():
    if text:
      (tmp_path / name).write_text(text)
      (tmp_path / name).chmod(0o755)
  env = {name: value for name, value in os.environ.items() if name != 'CUDA_VISIBLE_DEVICES'}
  env |= {'PATH': f'{tmp_path}:{sys.prefix}/bin:{env["PATH"]}', 'TMPDIR': str(tmp_path), **variables}
  command = [ROOT / 'launch' / 'local.sh', *words]
  return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _end(process):
  """The exit status, and what it said."""
  out, err = process.communicate(timeout=300)
  return process.returncode, out.splitlines(), err


def _logs(tmp_path):
  return [path.read_text() for path in sorted(tmp_path.glob('hmm_jax.*/run-*.log'))]


def test_two_runs_share_a_grid(tmp_path):
  """Each of the four trials is run once, by one of them, and both leave and show the records of all."""
  workdir = tmp_path / 'work'
  variables = {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1', 'PYTHONPATH': str(ROOT)}
  status, said, err = _end(_start(tmp_path, '2', *GRID, f'--workdir={workdir}', **variables))
  logs = _logs(tmp_path)
  assert status == 0, (said, err, logs)
  assert len(said) == 4 and [line.split(':')[0] for line in said[2:]] == [
    f'run {number} of 2 ended with status 0' for number in (1, 2)
  ]
  assert len(logs) == 2 and all('Test accuracy' in log for log in logs)
  timings = [path.read_text().splitlines() for path in workdir.glob('trials/*/timing.jsonl')]
  assert [len(lines) for lines in timings] == [1, 1, 1, 1]
  records = [json.loads(line) for line in (workdir / 'results.jsonl').read_text().splitlines()]
  assert [(record['num_states'], record['trial']) for record in records] == [(4, 0), (4, 1), (6, 0), (6, 1)]


@pytest.mark.parametrize(('number', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_once(tmp_path, number, status):
  """To all runs, which are waited for; a second one, as of a scheduler that tells every process, is not."""
  process = _start(tmp_path, '2', 'any', python=WAITS)
  deadline = time.monotonic() + 60
  while _logs(tmp_path) != ['begins\n'] * 2:
    assert process.poll() is None and time.monotonic() < deadline
    time.sleep(0.02)
  process.send_signal(number)
  time.sleep(0.3)
  process.send_signal(number)
  code, said, _ = _end(process)
  assert code == status and _logs(tmp_path) == [f'begins\n{number.name[3:]}\nends\n'] * 2
  assert [line.split(': ')[1] for line in said[2:]] == ['ends', 'ends']
  runs = [int(line.split('process ')[1].split(',')[0]) for line in said[:2]]
  for run in runs:
    with pytest.raises(ProcessLookupError):
      os.kill(run, 0)


def test_the_status_is_the_first_that_is_not_0(tmp_path):
  status, said, _ = _end(_start(tmp_path, '3', 'any', python=EXITS, CUDA_VISIBLE_DEVICES='0,3,1'))
  assert status == 3 and [line.split('status ')[1][0] for line in said[3:]] == ['0', '3', '1']


@pytest.mark.parametrize(
  ('nvidia_smi', 'variables', 'told'),
  [
    ('printf "0\\n1\\n"', {}, ['0 of 2', '1 of 2']),
    ('printf "0\\n1\\n"', {'CUDA_VISIBLE_DEVICES': '6,7,8'}, ['6 of 2', '7 of 2']),
    ('printf "0\\n1\\n"', {'CUDA_VISIBLE_DEVICES': ''}, [' of 2', ' of 2']),
    ('echo no driver; exit 9', {}, ['no of 2', 'no of 2']),
  ],
  ids=['all', 'allowed', 'none allowed', 'no driver'],
)
def test_each_run_has_a_gpu_of_its_own(tmp_path, nvidia_smi, variables, told):
  """Of those that CUDA is allowed, or else of all that there are; and is told how many runs there are."""
  status, _, err = _end(_start(tmp_path, '2', 'any', python=TELLS, nvidia_smi=nvidia_smi, **variables))
  assert status == 0, err
  assert [log.strip('\n') for log in _logs(tmp_path)] == told


def test_a_run_is_given_every_word(tmp_path):
  """From any folder."""
  _end(_start(tmp_path, '1', 'theory:smoke', "--config.methods=('head', 'prompt')", python=TELLS_WORDS))
  (log,) = _logs(tmp_path)
  expected = ['-m', 'experiments.main', '--config=theory:smoke', "--config.methods=('head', 'prompt')"]
  assert log.splitlines() == [str(ROOT), *expected]


@pytest.mark.parametrize(
  ('words', 'named'),
  [
    ([], "N is ''; valid is a number of runs"),
    (['prompt_vs_head'], "N is 'prompt_vs_head'; valid is a number of runs"),
    (['0', 'any'], "N is '0'; valid is a number of runs"),
    (['-1', 'any'], "N is '-1'; valid is a number of runs"),
    (['1.5', 'any'], "N is '1.5'; valid is a number of runs"),
    (['10000', 'any'], "N is '10000'; valid is a number of runs"),
    (['2'], "N is '2'; valid is one before a CONFIG"),
    (['3', 'any'], "N is '3'; valid is at most 2, the GPUs there are"),
  ],
  ids=lambda value: ' '.join(value) if isinstance(value, list) else '',
)
def test_a_bad_number_is_one_sentence(tmp_path, words, named):
  """At exit code 2, with the usage; nothing is started."""
  status, said, err = _end(_start(tmp_path, *words, python=TELLS, CUDA_VISIBLE_DEVICES='0,1'))
  assert status == 2 and not said and not _logs(tmp_path)
  (line,) = err.splitlines()
  assert line.startswith(f'error: {named}') and line.endswith('launch/local.sh N CONFIG [--config.field=value ...]')
