"""launch/tpu_pod.sh from end to end, against a gcloud whose pod is two folders on this machine."""

import os
import pathlib
import shutil
import subprocess

import pytest

from experiments import main as main_lib

from . import stand_ins

ROOT = pathlib.Path(__file__).parents[2]

# A pod of two hosts, each a folder. Files hold the state of the pod and of the request for it, while there are these;
# those in the folder `later` are in place once the script has waited. A command for all runs on both hosts at once.
# Where there is a file `broken`, the connection that would run the experiment fails.
GCLOUD = r"""#!/usr/bin/env bash
set -euo pipefail
printf '%q ' "$@" >> "$FAKE/calls"; echo >> "$FAKE/calls"
for word in "$@"; do case $word in --worker=*) worker=${word#*=} ;; --command=*) command=${word#*=} ;; esac; done
host() {
  cd "$FAKE/host-$1"
  export HOME=$PWD HOST=$1
  exec bash -euo pipefail -c "$command"
}
shown() { if [[ -e $FAKE/$1 ]]; then cat "$FAKE/$1"; else echo "ERROR: NOT_FOUND: $1" >&2; exit 1; fi; }
made() { if [[ -e $FAKE/$1 ]]; then echo "ERROR: ALREADY_EXISTS: $1" >&2; exit 1; else echo "$2" > "$FAKE/$1"; fi; }
case "$1 $2 $3 ${4-}" in
  'compute tpus tpu-vm describe') shown state ;;
  'compute tpus queued-resources describe') shown request ;;
  'compute tpus tpu-vm create') made state READY ;;
  'compute tpus queued-resources create') made request WAITING_FOR_RESOURCES ;;
  'compute tpus tpu-vm delete') shown state; rm "$FAKE/state" ;;
  'compute tpus queued-resources delete') shown request; rm -f "$FAKE/request" "$FAKE/state" ;;
  'compute tpus tpu-vm scp') cp "$5" "$FAKE/host-0"; cp "$5" "$FAKE/host-1" ;;
  'compute tpus tpu-vm ssh')
    if [[ $worker != all ]]; then host "$worker"; fi
    if [[ -e $FAKE/broken && $command == *run.pid* ]]; then exit 255; fi
    (host 0) & first=$!
    (host 1) & second=$!
    wait "$first" && wait "$second" ;;
  'storage rsync --recursive '*) mkdir -p "$5"; cp -r "$4/." "$5" ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
# Where the connection fails no log comes, and nothing is worth waiting for.
SLEEP = r"""#!/usr/bin/env bash
if [[ $1 == 30 ]]; then mv "$FAKE"/later/* "$FAKE"; elif [[ ! -e $FAKE/broken ]]; then exec /bin/sleep 0.3; fi
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
  """Runs the script from a repository of its own, so that what it fetches lands there; its output, both streams."""
  programs = {'gcloud': GCLOUD, 'python3': PYTHON3, 'sleep': SLEEP, 'experiment': EXPERIMENT}
  stand_ins.put(folder / 'bin', programs)
  for host in range(2):
    (folder / f'host-{host}').mkdir()
  env = {**os.environ, 'PATH': f'{folder / "bin"}:{os.environ["PATH"]}', 'FAKE': str(folder), 'STATUS': str(status)}
  env |= {'TMPDIR': str(folder)}
  command = ['bash', folder / 'code' / 'launch' / 'tpu_pod.sh', *words]
  return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


def _git(folder, *words):
  command = ['git', '-C', folder / 'code', '-c', 'user.name=tests', '-c', 'user.email=', *words]
  return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def folder(tmp_path):
  """A repository whose one commit is the script."""
  shutil.copytree(ROOT / 'launch', tmp_path / 'code' / 'launch')
  for words in (('init', '-q'), ('add', 'launch'), ('commit', '-q', '--message=script')):
    _git(tmp_path, *words)
  return tmp_path


def _changes(folder):
  """What was made, sent and deleted, in order."""
  calls = [line.split()[2:4] for line in (folder / 'calls').read_text().splitlines()]
  return [' '.join(call) for call in calls if call[1] in ('create', 'scp', 'delete')]


def test_a_pod_is_made_used_and_deleted(folder):
  """Both hosts run the commit that is checked out by words that are taken; what it leaves is fetched."""
  bucket = folder / 'bucket'
  done = _run(folder, '--spot', *POD, str(bucket), 'prompt_vs_head:smoke', '--config.seed=1')
  assert done.returncode == 0, done.stdout
  assert _changes(folder) == ['tpu-vm create', 'tpu-vm scp', 'tpu-vm delete'] and not (folder / 'state').exists()
  for flag in ('--accelerator-type=v5litepod-8', '--spot'):
    assert flag in (folder / 'calls').read_text()
  first, second = ((folder / f'host-{host}' / 'words').read_text().splitlines() for host in range(2))
  assert first == second and first[:2] == ['-m', 'experiments.main']
  values, config = main_lib.parse(first[1:])
  assert (values.workdir, config.pretrained, config.seed) == (f'{bucket}/run', f'{bucket}/pretrained', 1)
  assert (folder / 'code' / 'runs' / 'pod' / 'commit').read_text() == _git(folder, 'rev-parse', 'HEAD')
  assert 'host 0 ends' in done.stdout


def test_what_fails_on_the_pod_fails_here(folder):
  """A pod that is ready is taken up again, and with --keep stays; what is said is shown, with its exit code."""
  (folder / 'state').write_text('READY\n')
  done = _run(folder, '--keep', *POD, str(folder / 'bucket'), 'prompt_vs_head:smoke', status=2)
  assert done.returncode == 2 and 'host 0 ends' in done.stdout
  assert _changes(folder) == ['tpu-vm scp']


UP = {'state': 'READY'}
ACTIVE = {'request': 'ACTIVE', 'state': 'READY'}


@pytest.mark.parametrize(
  ('flags', 'now', 'later', 'status', 'changes'),
  [
    ((), {'state': 'CREATING'}, UP, 255, ['tpu-vm scp', 'tpu-vm delete']),
    ((), {'request': 'WAITING_FOR_RESOURCES'}, ACTIVE, 255, ['tpu-vm scp', 'queued-resources delete']),
    ((), {'request': 'ACCEPTED'}, {'request': 'FAILED'}, 1, ['queued-resources delete']),
    (('--queued',), {'state': 'CREATING'}, {'state': 'TERMINATED'}, 1, ['queued-resources delete', 'tpu-vm delete']),
    (
      ('--queued', '--keep'),
      {'request': 'FAILED'},
      ACTIVE,
      255,
      ['queued-resources delete', 'queued-resources create', 'tpu-vm scp'],
    ),
  ],
)
def test_what_is_not_ready_yet_is_waited_for(folder, flags, now, later, status, changes):
  """It is not made again unless it has failed before. Waiting ends with what fails, and a connection that fails ends
  the script with its exit code; whatever there is, is deleted."""
  stand_ins.put(folder, {**now, 'broken': ''})
  stand_ins.put(folder / 'later', later)
  done = _run(folder, *flags, *POD, str(folder / 'bucket'), 'prompt_vs_head:smoke')
  assert (done.returncode, _changes(folder)) == (status, changes), done.stdout
  assert (folder / 'state').exists() == ('--keep' in flags)


def test_a_dry_run_prints_the_commands_and_calls_nothing(folder):
  """From the queue to the deletion."""
  done = _run(folder, '--dry_run', '--queued', *POD, 'gs://b', 'prompt_vs_head:paper')
  assert done.returncode == 0 and not (folder / 'calls').exists()
  first, *_, last = done.stdout.splitlines()
  assert 'queued-resources create' in first and 'queued-resources delete' in last


def test_what_is_misspelt_gets_the_usage(folder):
  assert _run(folder, '--wrong').returncode == 2
