"""launch/one_gpu.sh: its parts in their order, the end of its time, and what the next call does."""

import os
import subprocess
import sys

from conftest import ROOT
import pytest

# It stands for `python`. A file `slow` or `broken` has the part that does not end in time, or that fails.
PYTHON = """#!/bin/sh
case "$*" in
  *"$(cat "$TMPDIR/slow")"*) trap 'exit 143' TERM; sleep 60 & wait ;;
  *"$(cat "$TMPDIR/broken")"*) exit 3 ;;
esac
echo "$@" >> "$TMPDIR/ended"
"""
PARTS = ['profile', 'trial_30', 'benchmark', 'trial_10']


def call(tmp_path, seconds, slow='none', broken='none', **variables):
  """The exit status, and the parts that have ended so far, in their order."""
  programs = tmp_path / 'programs'
  programs.mkdir(exist_ok=True)
  for name, text in ('python', PYTHON), ('nvidia-smi', '#!/bin/sh\necho 12:00, 100\nexec sleep 60\n'):
    (programs / name).write_text(text)
    (programs / name).chmod(0o755)
  (tmp_path / 'slow').write_text(slow)
  (tmp_path / 'broken').write_text(broken)
  env = os.environ | {'PATH': f'{programs}:{os.environ["PATH"]}', 'TMPDIR': str(tmp_path)} | variables
  command = [ROOT / 'launch' / 'one_gpu.sh', tmp_path / 'work', str(seconds)]
  status = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=60).returncode
  lines = (tmp_path / 'ended').read_text().splitlines() if (tmp_path / 'ended').exists() else []
  return status, [part for line in lines for part in PARTS if f'work/{part}' in line]


def test_a_part_that_is_cut_off_goes_on_at_the_next_call(tmp_path):
  assert call(tmp_path, 1, slow='trial_30') == (124, PARTS[:1])
  assert call(tmp_path, 60) == (0, PARTS)
  assert call(tmp_path, 60) == (0, PARTS)
  assert (tmp_path / 'work' / 'memory.csv').read_text().startswith('12:00, 100\n')


def test_a_part_that_fails_keeps_no_other_from_running(tmp_path):
  assert call(tmp_path, 60, broken='benchmark') == (3, [PARTS[0], PARTS[1], PARTS[3]])
  assert call(tmp_path, 60) == (0, [PARTS[0], PARTS[1], PARTS[3], PARTS[2]])


@pytest.mark.parametrize('words', [(), ('work', '0'), ('work', 'soon')])
def test_a_call_without_folder_or_time_is_refused(tmp_path, words):
  ended = subprocess.run([ROOT / 'launch' / 'one_gpu.sh', *words], cwd=tmp_path, capture_output=True)
  assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.slow
def test_the_longest_kernels_of_a_step_come_first(tmp_path):
  command = [sys.executable, 'launch/profile_step.py', 'smoke', tmp_path]
  subprocess.run(command, cwd=ROOT, env=os.environ | {'PYTHONPATH': str(ROOT)}, check=True, capture_output=True)
  times = [float(line.split()[0]) for line in (tmp_path / 'kernels.txt').read_text().splitlines()[1:]]
  assert len(times) == 20
  assert times == sorted(times, reverse=True)
  assert times[-1] >= 0
