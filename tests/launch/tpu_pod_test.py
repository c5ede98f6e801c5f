"""launch/tpu_pod.sh from end to end, against a gcloud whose pod is two folders and two processes on this machine."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# A pod of two hosts, each a folder. Files hold the state of the pod and of the request for it, while there are these;
# those in the folder `later` are in place once the script has waited. A command for all runs on both hosts at once, as
# Open MPI would start it: what JAX finds there is what the processes join by. Where there is a file `broken`, the
# connection that would run the experiment fails.
GCLOUD = r"""#!/usr/bin/env bash
set -euo pipefail
printf '%q ' "$@" >> "$FAKE/calls"; echo >> "$FAKE/calls"
for word in "$@"; do case $word in --worker=*) worker=${word#*=} ;; --command=*) command=${word#*=} ;; esac; done
host() {
  cd "$FAKE/host-$1"
  export HOME=$PWD OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_LOCAL_RANK=0
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
SLEEP = r"""#!/usr/bin/env bash
if [[ $1 == 30 ]]; then mv "$FAKE"/later/* "$FAKE"; else exec /bin/sleep 0.3; fi
"""
# Instead of installing, the tests' own Python.
PYTHON3 = r"""#!/usr/bin/env bash
[[ $* == *venv* ]] || exit 0
mkdir -p .venv/bin
printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$PYTHON" > .venv/bin/python
chmod +x .venv/bin/python
"""


# An experiment that is refused.
REFUSING = r"""#!/usr/bin/env bash
echo "error: ${*: -1} is refused" >&2; exit 2
"""


def _run(folder, *words, python=sys.executable):
  """Runs the script from a clone of the repository, so that what it fetches lands there; its output, both streams."""
  for name, text in (('gcloud', GCLOUD), ('python3', PYTHON3), ('sleep', SLEEP), ('refusing', REFUSING)):
    path = folder / 'bin' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
  for host in range(2):
    (folder / f'host-{host}').mkdir(exist_ok=True)
  port = str(20000 + os.getpid() % 20000)
  env = {**os.environ, 'PATH': f'{folder / "bin"}:{os.environ["PATH"]}', 'FAKE': str(folder), 'PYTHON': str(python)}
  env |= {'OMPI_MCA_orte_hnp_uri': '1.0;tcp://127.0.0.1:1', 'OMPI_COMM_WORLD_SIZE': '2', 'JAX_COORDINATOR_PORT': port}
  env |= {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1', 'PYTHONPATH': '.'}
  command = ['bash', str(folder / 'code' / 'launch' / 'tpu_pod.sh'), *words]
  return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
  """A clone of the repository, with this tree's script."""
  if not (ROOT / '.git').exists():
    pytest.skip('what the script sends is a commit, and here is no git repository')
  subprocess.run(['git', 'clone', '-q', '--shared', str(ROOT), str(tmp_path / 'code')], check=True)
  (tmp_path / 'code' / 'launch' / 'tpu_pod.sh').write_bytes((ROOT / 'launch' / 'tpu_pod.sh').read_bytes())
  return tmp_path


SMALLEST = ['--config.num_states=3', '--config.models=exact', '--config.methods=head', '--config.tasks_per_trial=1']
SMALLEST += ['--config.figures=()', '--config.downstream.num_train=64']
# What the tests of a session have compiled need not be compiled again.
SMALLEST += [f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}']


def test_a_pod_is_made_used_and_deleted(folder):
  """Both hosts run as one: one set of records, of two processes, ends here with its tables; the pod is gone."""
  bucket = str(folder / 'bucket')
  done = _run(folder, '--spot', 'pod', 'zone', 'v5litepod-8', bucket, 'prompt_vs_head:smoke', *SMALLEST)
  assert done.returncode == 0, done.stdout
  (record,) = _lines(folder / 'code' / 'runs' / 'pod' / 'results.jsonl')
  assert (record['num_states'], record['model'], record['method']) == (3, 'exact', 'head')
  ran = json.loads((folder / 'code' / 'runs' / 'pod' / 'environments' / f'{record["environment"]}.json').read_text())
  assert ran['processes'] == len(ran['devices']) == 2
  assert ran['commit'] == _git(folder, 'rev-parse', 'HEAD')
  assert 'records: ' in done.stdout and not (folder / 'state').exists()
  for host in (0, 1):
    log = (folder / f'host-{host}' / 'hmm_jax' / 'run.log').read_text()
    assert f'joining as process {host} of 2' in log and ('records: ' in log) == (host == 0)
    assert not (folder / f'host-{host}' / 'hmm_jax' / 'runs').exists()
  calls = (folder / 'calls').read_text()
  (made,) = [call for call in calls.splitlines() if 'tpu-vm create pod' in call]
  assert '--accelerator-type=v5litepod-8' in made and '--spot' in made


def test_what_fails_on_the_pod_fails_here(folder):
  """A pod that is ready is taken up again, and with --keep stays; a refusal is shown, with its exit code."""
  (folder / 'state').write_text('READY\n')
  words = ('--keep', 'pod', 'zone', 'v5e', str(folder / 'bucket'), 'prompt_vs_head:smoke', '--config.seed=no')
  done = _run(folder, *words, python=folder / 'bin' / 'refusing')
  assert done.returncode == 2 and 'error: --config.seed=no is refused' in done.stdout
  assert (folder / 'state').exists() and 'create' not in (folder / 'calls').read_text()


WAITED_FOR = {
  'a pod that is being made': ({'state': 'CREATING'}, {'state': 'READY'}, 'tpu-vm delete'),
  'a request in the queue': (
    {'request': 'WAITING_FOR_RESOURCES'},
    {'request': 'ACTIVE', 'state': 'READY'},
    'queued-resources delete',
  ),
}


@pytest.mark.parametrize(('now', 'later', 'deletion'), WAITED_FOR.values(), ids=WAITED_FOR)
def test_what_is_not_ready_yet_is_waited_for(folder, now, later, deletion):
  """It is not made again. A connection that fails before there is a log ends the script, with its exit code: whatever
  there is, is deleted."""
  _put(folder, now)
  _put(folder / 'later', later)
  _put(folder, {'broken': ''})
  done = _run(folder, 'pod', 'zone', 'v5e', str(folder / 'bucket'), 'prompt_vs_head:smoke')
  assert done.returncode == 255, done.stdout
  calls = (folder / 'calls').read_text().splitlines()
  assert not any('create' in call for call in calls) and deletion in calls[-1]
  assert not (folder / 'state').exists() and not (folder / 'request').exists()


@pytest.mark.parametrize('flags', [(), ('--queued',)], ids=['no flags', '--queued'])
@pytest.mark.parametrize('end', [{'request': 'FAILED'}, {'request': 'SUSPENDED'}, {'state': 'TERMINATED'}], ids=str)
def test_waiting_ends_with_what_failed(folder, end, flags):
  """Nothing runs, and nothing is left, whether it was asked for by the queue or not."""
  _put(folder, {name: 'PROVISIONING' for name in end})
  _put(folder / 'later', end)
  done = _run(folder, *flags, 'pod', 'zone', 'v5e', str(folder / 'bucket'), 'prompt_vs_head:smoke')
  assert done.returncode == 1 and 'pod will not be ready' in done.stdout
  assert not (folder / 'state').exists() and not (folder / 'request').exists()
  assert 'scp' not in (folder / 'calls').read_text()


def test_what_failed_before_is_made_anew(folder):
  """A request that failed is deleted and made again, and that one is waited for."""
  _put(folder, {'request': 'FAILED', 'broken': ''})
  _put(folder / 'later', {'request': 'ACTIVE', 'state': 'READY'})
  done = _run(folder, '--queued', '--keep', 'pod', 'zone', 'v5e', str(folder / 'bucket'), 'prompt_vs_head:smoke')
  assert done.returncode == 255, done.stdout
  calls = (folder / 'calls').read_text()
  assert calls.index('queued-resources delete') < calls.index('queued-resources create')
  assert (folder / 'state').exists() and (folder / 'request').exists()


def _put(folder, files):
  folder.mkdir(exist_ok=True)
  for name, text in files.items():
    (folder / name).write_text(f'{text}\n')


def test_a_dry_run_prints_the_commands_and_calls_nothing(folder):
  """From the queue to the deletion; what is misspelt gets the usage."""
  done = _run(
    folder, '--dry_run', '--queued', 'pod', 'zone', 'v5e', 'gs://b', 'prompt_vs_head:paper', '--config.seed=1'
  )
  assert done.returncode == 0 and not (folder / 'calls').exists()
  lines = done.stdout.splitlines()
  assert 'queued-resources create' in lines[0] and 'queued-resources delete' in lines[-1] and 'rsync' in lines[-2]
  for command in ('git bundle', 'scp', 'pip install', '--config.seed=1', 'tail'):
    assert sum(command in line for line in lines) == 1, command
  assert _run(folder, '--wrong').returncode == 2


def _lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def _git(folder, *words):
  return subprocess.run(['git', '-C', folder / 'code', *words], capture_output=True, text=True).stdout.strip()
