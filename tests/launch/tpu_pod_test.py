"""launch/tpu_pod.sh: the commands that it prints, and what becomes of a pod on which the run fails."""

import os
import shlex
import subprocess

from conftest import ROOT
import pytest

from experiments.settings.config import parse
from experiments.studies import registry

from . import stand_ins

# Notes its words. There is a pod, whose state is a file, and on it every run fails.
GCLOUD = """#!/bin/sh
echo "$*" >> "$FAKE/calls"
case "$*" in
  *'queued-resources describe'*) echo NOT_FOUND >&2; exit 1 ;;
  *describe*) cat "$FAKE/state" ;;
  *create*) echo READY > "$FAKE/state" ;;
  *experiments.main*) exit 2 ;;
esac
"""


def _run(folder, *words):
  """Run the script, with programs that stand for others; return both output streams."""
  stand_ins.put(folder, {'gcloud': GCLOUD} | dict.fromkeys(('git', 'mkdir'), '#!/bin/sh\n'))
  env = {**os.environ, 'PATH': f'{folder}:{os.environ["PATH"]}', 'FAKE': str(folder)}
  command = [
    ROOT / 'launch' / 'tpu_pod.sh',
    *words,
    'pod',
    'zone',
    'v5litepod-8',
    'gs://bucket',
    'prompt_vs_head:smoke',
  ]
  return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def test_a_dry_run_prints_commands_whose_words_are_taken(tmp_path):
  """From the queue to the deletion, and calls nothing."""
  lines = _run(tmp_path, '--dry_run', '--queued', '--spot').stdout.splitlines()
  assert not (tmp_path / 'calls').exists()
  assert 'queued-resources create' in lines[0] and '--spot' in lines[0] and 'queued-resources delete' in lines[-1]
  (run,) = [line for line in lines if 'experiments.main' in line]
  words = shlex.split(' '.join(shlex.split(run)))
  argv = words[words.index('experiments.main') : words.index('>', -4)]
  values, config, _ = parse(argv, registry.SETTINGS, ['run'])
  assert (values.workdir, config.pretrained) == ('gs://bucket/run', 'gs://bucket/pretrained')


@pytest.mark.parametrize(
  ('flags', 'state', 'changes'),
  [(['--keep'], 'READY', ['scp']), ([], 'PREEMPTED', ['delete', 'create', 'scp', 'delete'])],
)
def test_a_failure_on_the_pod_fails_the_command(tmp_path, flags, state, changes):
  """With its exit code, and the pod is deleted unless it is kept; one that was taken away is made anew first."""
  (tmp_path / 'state').write_text(state)
  assert _run(tmp_path, *flags).returncode == 2
  calls = [line.split()[3] for line in (tmp_path / 'calls').read_text().splitlines()]
  assert [call for call in calls if call in ('create', 'scp', 'delete')] == changes
