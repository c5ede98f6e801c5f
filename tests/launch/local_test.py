"""launch/local.sh: runs side by side, their GPUs, their signals and statuses, and what is refused."""

import os
import signal
import subprocess
import sys
import time

from conftest import ROOT
import pytest

# Each stands for `python` on the path of the script. It ends with the number of its GPU.
TELLS = """#!/bin/sh
pwd
printf '%s\\n' "$@" "${CUDA_VISIBLE_DEVICES-no}"
case $CUDA_VISIBLE_DEVICES in [0-9]) exit "$CUDA_VISIBLE_DEVICES" ;; esac
"""
# Until there is a file `end`; a second signal that comes before would be seen.
WAITS = """#!/bin/sh
trap 'echo TERM; status=143' TERM
trap 'echo INT; status=130' INT
echo begins
for _ in $(seq 1200); do [ -e "$TMPDIR/end" ] || sleep 0.05; done
sleep 0.2
echo ends
exit "$status"
"""


def _start(tmp_path, *words, python, nvidia_smi='exit 9', **variables):
  """The script from another folder, with programs that stand for others first on its path."""
  for name, text in ('nvidia-smi', f'#!/bin/sh\n{nvidia_smi}\n'), ('python', python):
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
  env = {name: value for name, value in os.environ.items() if name != 'CUDA_VISIBLE_DEVICES'}
  env |= {'PATH': f'{tmp_path}:{sys.prefix}/bin:{env["PATH"]}', 'TMPDIR': str(tmp_path), **variables}
  command = [ROOT / 'launch' / 'local.sh', *words]
  return subprocess.Popen(command, env=env, cwd=tmp_path)


def _logs(tmp_path):
  return [path.read_text() for path in sorted(tmp_path.glob('hmm_jax.*/run-*.log'))]


@pytest.mark.parametrize(('number', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_once(tmp_path, number, status):
  """All runs get it and are waited for; a second one, from a scheduler that signals every process, is not passed on."""
  process, seen = _start(tmp_path, '2', 'any', python=WAITS), 'begins\n'
  deadline = time.monotonic() + 60
  for more in (f'{number.name[3:]}\n', ''):
    while _logs(tmp_path) != [seen] * 2 and process.poll() is None and time.monotonic() < deadline:
      time.sleep(0.02)
    process.send_signal(number)
    seen += more
  (tmp_path / 'end').touch()
  assert process.wait(timeout=300) == status and _logs(tmp_path) == [f'{seen}ends\n'] * 2


@pytest.mark.parametrize(
  ('nvidia_smi', 'variables', 'told', 'ended'),
  [
    ('printf "0\\n1\\n"', {}, ['0', '1'], 1),
    ('printf "0\\n1\\n"', {'CUDA_VISIBLE_DEVICES': '6,7,8'}, ['6', '7'], 6),
    ('printf "0\\n1\\n"', {'CUDA_VISIBLE_DEVICES': ''}, ['', ''], 0),
    ('echo no driver; exit 9', {}, ['no', 'no'], 0),
  ],
)
def test_each_run_has_every_word_and_a_gpu_of_its_own(tmp_path, nvidia_smi, variables, told, ended):
  """One process per device that CUDA is allowed, or else per device; the status is the first that is not 0."""
  words = '--config=theory:smoke', "--config.methods=('head', 'prompt')"
  process = _start(tmp_path, '2', 'theory:smoke', words[1], python=TELLS, nvidia_smi=nvidia_smi, **variables)
  assert process.wait(timeout=300) == ended
  expected = [[str(ROOT), '-m', 'experiments.main', *words, gpu] for gpu in told]
  assert [log.splitlines() for log in _logs(tmp_path)] == expected
