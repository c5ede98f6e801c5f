"""launch/one_gpu.sh: its parts in their order, the end of its time, and what the next call does."""

import os
import subprocess

from conftest import ROOT

# It stands for `python`. A file `slow` or `broken` has the part that does not end in time, or that fails.
PYTHON = """#!/bin/sh
case "$*" in
  *"$(cat "$TMPDIR/slow")"*) trap 'exit 143' TERM; sleep 60 & wait ;;
  *"$(cat "$TMPDIR/broken")"*) exit 3 ;;
esac
echo "$@" >> "$TMPDIR/ended"
"""
PARTS = ['profile', 'trial_30', 'benchmark', 'trial_10']


def call(tmp_path, seconds, slow='none', broken='none'):
  """The exit status, and the parts that have ended so far, in their order."""
  (tmp_path / 'slow').write_text(slow)
  (tmp_path / 'broken').write_text(broken)
  (tmp_path / 'ended').touch()
  (tmp_path / 'python').write_text(PYTHON)
  (tmp_path / 'python').chmod(0o755)
  env = os.environ | {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'TMPDIR': str(tmp_path)}
  command = [ROOT / 'launch' / 'one_gpu.sh', tmp_path / 'work', str(seconds)]
  status = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=60).returncode
  lines = (tmp_path / 'ended').read_text().splitlines()
  return status, [part for line in lines for part in PARTS if f'work/{part}' in line]


def test_a_part_that_is_cut_off_or_fails_goes_on_at_the_next_call(tmp_path):
  """A part that fails keeps no other from running; one that has ended is not run again."""
  profile, trial_30, benchmark, trial_10 = PARTS
  assert call(tmp_path, 5, slow='trial_30') == (124, [profile])
  assert call(tmp_path, 60, broken='benchmark') == (3, [profile, trial_30, trial_10])
  for _ in range(2):
    assert call(tmp_path, 60) == (0, [profile, trial_30, trial_10, benchmark])
  assert call(tmp_path, 0)[0] == 2
