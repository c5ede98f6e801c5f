#!/usr/bin/env bash
# Run on a TPU pod: create or reuse it, install, run on all hosts, follow the log of the first, fetch, delete the pod.
#
#   launch/tpu_pod.sh [OPTION ...] NAME ZONE TYPE BUCKET CONFIG [--config.FIELD=VALUE ...]
#   launch/tpu_pod.sh --queued --spot sweep us-west4-a v5litepod-16 gs://mine/sweep prompt_vs_head:paper \
#     --config.mesh.tensor=2
#
#   --queued     request the pod as a queued resource, and wait for it
#   --spot       use a cheaper pod, which may be preempted; rerun the same command to resume from BUCKET
#   --keep       keep the pod at the end
#   --runtime=V  software version of the pod; default: v2-alpha-tpuv5-lite, for v5e
#   --dry_run    print every command, run none
#
# A pod or a request of that NAME is reused if it is ready or pending; one that failed or was preempted is deleted and
# created again. TYPE is the accelerator type. All chips form one mesh: mesh.data must divide the batch, 8 chunks at paper
# scale, so that more chips need a larger mesh.tensor or batch. The hosts share only BUCKET, gs://..., for records and
# models; records, tables and figures are copied to runs/NAME here. The checked-out commit runs.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,18s/^# \{0,1\}//p' launch/tpu_pod.sh >&2; exit 2; }
queued='' spot=() keep='' runtime=v2-alpha-tpuv5-lite dry_run=''
while [[ ${1-} == --* ]]; do
  case $1 in
    --queued) queued=yes ;;
    --spot) spot=(--spot) ;;
    --keep) keep=yes ;;
    --runtime=*) runtime=${1#*=} ;;
    --dry_run) dry_run=yes ;;
    *) usage ;;
  esac
  shift
done
[[ $# -ge 5 ]] || usage
name=$1 zone=$2 type=$3 bucket=$4 config=$5
shift 5

call() {
  local words
  printf -v words '%q ' "$@"
  if [[ $dry_run ]]; then echo "$words"; else "$@"; fi
}
tpus() { call gcloud compute tpus "$@" --zone="$zone"; }
on() { tpus tpu-vm ssh "$name" --worker="$1" --command="$2"; }

# A field of the pod or of the request for it; nothing where there is none, and a failure where that is not known.
described() {
  local said
  if [[ $dry_run ]]; then return; fi
  if said=$(gcloud compute tpus "$1" describe "$name" --zone="$zone" --format="value($2)" 2>&1); then
    echo "$said"
  elif [[ $said != *NOT_FOUND* ]]; then
    echo "$said" >&2
    return 1
  fi
}

state() {
  local node request
  node=$(described tpu-vm state) || return
  request=$(described queued-resources state.state) || return
  case $node,$request in
    *FAILED* | *SUSPEND* | *TERMINATED* | *PREEMPTED* | *STOP* | *DELETING*) echo over ;;
    *READY*) echo ready ;;
    *[A-Z]*) echo waiting ;;
    *) echo none ;;
  esac
}

delete() {
  if [[ $queued || $(described queued-resources name) ]]; then
    if tpus queued-resources delete "$name" --force --quiet; then return; fi
  fi
  tpus tpu-vm delete "$name" --quiet
}

# The following of the log, which is a group of processes of its own, ends with this script, and so does the pod.
followed=''
# shellcheck disable=SC2329  # The trap invokes it.
finish() {
  if [[ $followed ]]; then kill -- "-$followed" 2> /dev/null || true; fi
  [[ $keep ]] || delete
}

found=$(state)
if [[ $found == over ]]; then delete; fi
trap finish EXIT
if [[ $found == over || $found == none ]]; then
  make=(tpu-vm create "$name" --version="$runtime")
  if [[ $queued ]]; then make=(queued-resources create "$name" --node-id="$name" --runtime-version="$runtime"); fi
  tpus "${make[@]}" --accelerator-type="$type" ${spot[@]+"${spot[@]}"}
fi
while [[ ! $dry_run ]]; do
  found=$(state) || found=unknown
  case $found in
    ready) break ;;
    over | none) echo "error: $name did not become ready" >&2; exit 1 ;;
  esac
  sleep 30
done

folder=$(mktemp -d)
call git bundle create "$folder/hmm_jax.bundle" HEAD
tpus tpu-vm scp "$folder/hmm_jax.bundle" "$name:" --worker=all
rm -r "$folder"
on all 'git init -q hmm_jax && cd hmm_jax && git fetch -q ../hmm_jax.bundle HEAD && git checkout -q FETCH_HEAD &&
  rm -f run.log && python3 -m pip install -q uv && python3 -m uv venv -q --allow-existing --python 3.11 .venv &&
  python3 -m uv pip install -q --python .venv -c constraints.txt ".[suite,tpu,gcs]"'

command=(.venv/bin/python -m experiments.main "--config=$config" "--workdir=$bucket/run")
command+=("--config.pretrained=$bucket/pretrained" "$@")
on all "cd hmm_jax && echo \$\$ > run.pid && exec $(printf '%q ' "${command[@]}") > run.log 2>&1" &
run=$!
set -m
# shellcheck disable=SC2016  # The host expands it.
on 0 'cd hmm_jax && until [ -e run.log ]; do sleep 1; done && exec tail -n +1 -f --pid="$(cat run.pid)" run.log' \
  < /dev/null &
followed=$!
set +m
status=0
wait "$run" || status=$?
# The last lines may be under way; a run that failed before there was a log has none.
for _ in {1..10}; do if kill -0 "$followed" 2> /dev/null; then sleep 1; fi; done
call mkdir -p "runs/$name"
# What failed may have left nothing to fetch.
call gcloud storage rsync --recursive "$bucket/run" "runs/$name" || [[ $status != 0 ]]
exit "$status"
