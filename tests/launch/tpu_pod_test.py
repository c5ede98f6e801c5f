"""launch/tpu_pod.sh from end to end, against a gcloud whose pod is two folders on this machine."""

import os
import shutil
import subprocess

from conftest import ROOT
import pytest

from experiments import main as main_lib

from . import stand_ins

pytestmark = pytest.mark.slow

# A pod of two hosts, each a folder, and a file that holds its state while there is one.
GCLOUD = r"""#!/usr/bin/env bash
set -euo pipefail
printf '%s\n' "$(printf '%q ' "$@")" >> "$FAKE/calls"  # By one write: the script calls this twice at once.
for word in "$@"; do case $word in --worker=*) worker=${word#*=} ;; --command=*) command=${word#*=} ;; esac; done
host() {
  cd "$FAKE/host-$1"
  export HOME=$PWD HOST=$1
  exec bash -euo pipefail -c "$command"
}
case "$3 ${4-}" in
  'tpu-vm describe') cat "$FAKE/state" || { echo NOT_FOUND >&2; exit 1; } ;;
  'queued-resources describe') echo NOT_FOUND >&2; exit 1 ;;
  'tpu-vm create') echo READY > "$FAKE/state" ;;
  'tpu-vm delete') rm "$FAKE/state" ;;
  'tpu-vm scp') cp "$5" "$FAKE/host-0"; cp "$5" "$FAKE/host-1" ;;
  'tpu-vm ssh')
    if [[ $worker != all ]]; then host "$worker"; fi
    (host 0) & first=$!
    (host 1) & second=$!
    wait "$first" && wait "$second" ;;
  '--recursive '*) mkdir -p "$5"; cp -r "$4/." "$5" ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
# Instead of installing, the experiment below.
PYTHON3 = r"""#!/usr/bin/env bash
[[ $* == *venv* ]] || exit 0
mkdir -p .venv/bin
cp "$FAKE/bin/experiment" .venv/bin/python
"""
# Keeps its words, leaves the commit that runs in its workdir on the first host, and ends with `STATUS`.
EXPERIMENT = r"""#!/usr/bin/env bash
printf '%s\n' "$@" > ../words
for word in "$@"; do case $word in --workdir=*) workdir=${word#*=} ;; esac; done
if [[ $HOST == 0 ]]; then mkdir -p "$workdir"; git rev-parse HEAD > "$workdir/commit"; fi
echo "host $HOST ends"
exit "$STATUS"
"""
POD = ('pod', 'zone', 'v5litepod-8')


def _run(folder, *words, status=0):
  """Run the script from a repository of its own, so that what it fetches lands there; return both output streams."""
  env = {**os.environ, 'PATH': f'{folder / "bin"}:{os.environ["PATH"]}', 'FAKE': str(folder), 'STATUS': str(status)}
  command = ['bash', folder / 'code' / 'launch' / 'tpu_pod.sh', *words, *POD, str(folder / 'bucket')]
  command += ['prompt_vs_head:smoke', '--config.seed=1']
  return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


def _git(folder, *words):
  command = ['git', '-C', folder / 'code', '-c', 'user.name=tests', '-c', 'user.email=', *words]
  return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def folder(tmp_path):
  """A repository whose one commit is the script, two hosts, and programs that stand for others."""
  shutil.copytree(ROOT / 'launch', tmp_path / 'code' / 'launch')
  for words in (('init', '-q'), ('add', 'launch'), ('commit', '-q', '--message=script')):
    _git(tmp_path, *words)
  for host in range(2):
    (tmp_path / f'host-{host}').mkdir()
  stand_ins.put(tmp_path / 'bin', {'gcloud': GCLOUD, 'python3': PYTHON3, 'experiment': EXPERIMENT})
  return tmp_path


def _changes(folder):
  """What was made, sent and deleted, in order."""
  calls = [line.split()[3] for line in (folder / 'calls').read_text().splitlines()]
  return [call for call in calls if call in ('create', 'scp', 'delete')]


def test_a_pod_is_made_used_and_deleted(folder):
  """Both hosts run the commit that is checked out by words that are taken; what it leaves is fetched."""
  done = _run(folder, '--spot')
  assert done.returncode == 0, done.stdout
  assert _changes(folder) == ['create', 'scp', 'delete'] and '--spot' in (folder / 'calls').read_text()
  first, second = ((folder / f'host-{host}' / 'words').read_text().splitlines() for host in range(2))
  assert first == second and first[:2] == ['-m', 'experiments.main']
  values, config = main_lib.parse(first[1:])
  bucket = folder / 'bucket'
  assert (values.workdir, config.pretrained, config.seed) == (f'{bucket}/run', f'{bucket}/pretrained', 1)
  assert (folder / 'code' / 'runs' / 'pod' / 'commit').read_text() == _git(folder, 'rev-parse', 'HEAD')


@pytest.mark.parametrize(
  ('flags', 'state', 'changes'),
  [(['--keep'], 'READY', ['scp']), ([], 'PREEMPTED', ['delete', 'create', 'scp', 'delete'])],
)
def test_what_fails_on_the_pod_fails_here(folder, flags, state, changes):
  """What it said is shown, with its exit code, and the pod is deleted unless it is kept.

  A pod that is ready is taken up again, and one that was taken away is made anew.
  """
  (folder / 'state').write_text(state)
  done = _run(folder, *flags, status=2)
  assert done.returncode == 2 and 'host 0 ends' in done.stdout
  assert _changes(folder) == changes


def test_a_dry_run_prints_the_commands_and_calls_nothing(folder):
  """From the queue to the deletion."""
  done = _run(folder, '--dry_run', '--queued')
  assert done.returncode == 0 and not (folder / 'calls').exists()
  first, *_, last = done.stdout.splitlines()
  assert 'queued-resources create' in first and 'queued-resources delete' in last
