#!/usr/bin/env bash
# N runs of one command on this machine, which share the trials of its grid:
#
#   launch/local.sh N CONFIG [--config.field=value ...]
#
# CONFIG is a name with a scale, such as prompt_vs_head:paper, or the path of a config file. Where CUDA_VISIBLE_DEVICES
# or else nvidia-smi lists GPUs each run has one of its own; with CUDA_VISIBLE_DEVICES= all run on the CPU. Run I writes
# to run-I.log in a new folder of TMPDIR (/tmp), which is printed. The first SIGTERM or SIGINT is passed on to all runs,
# which end with a checkpoint, and this script after them; a signal to a run itself then ends it at once. The exit status
# is 0 if every run's is, else the first other one. The same command resumes an interrupted grid.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() { echo "error: N is '$1'; valid is $2: launch/local.sh N CONFIG [--config.field=value ...]" >&2; exit 2; }
[[ ${1-} =~ ^[1-9][0-9]{0,3}$ ]] || refuse "${1-}" 'a number of runs, 1 to 9999'
[[ $# -ge 2 ]] || refuse "$1" 'a number followed by CONFIG'
num_runs=$1 config=$2
shift 2

gpus=()
if [[ ${CUDA_VISIBLE_DEVICES+set} ]]; then
  IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
elif found=$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null); then
  IFS=' ' read -ra gpus <<< "${found//$'\n'/ }"
fi
[[ ${#gpus[@]} == 0 || $num_runs -le ${#gpus[@]} ]] || refuse "$num_runs" "at most ${#gpus[@]}, the number of GPUs"

logs=$(mktemp -d "${TMPDIR:-/tmp}/hmm_jax.XXXXXX")
early='' pids=()
# shellcheck disable=SC2329  # A trap invokes it.
forward() { trap '' TERM INT; kill -s "$1" "${pids[@]}" 2> /dev/null || true; }
trap 'early=TERM' TERM
trap 'early=INT' INT
# Each run is a group of processes of its own: what a terminal sends to this script's group it sends to no run.
set -m
for ((i = 0; i < num_runs; i++)); do
  if [[ ${#gpus[@]} -gt 0 ]]; then export CUDA_VISIBLE_DEVICES=${gpus[i]}; fi
  python -m experiments.main --config="$config" "$@" > "$logs/run-$((i + 1)).log" 2>&1 < /dev/null &
  pids+=("$!")
  echo "run $((i + 1)) of $num_runs${gpus[i]:+ on GPU ${gpus[i]}}: process $!, $logs/run-$((i + 1)).log"
done
set +m
trap 'forward TERM' TERM
trap 'forward INT' INT
if [[ $early ]]; then forward "$early"; fi

# A signal that is passed on ends one of these waits early; the second time each run's status is there.
for pid in "${pids[@]}"; do wait "$pid" || true; done
status=0
for ((i = 0; i < num_runs; i++)); do
  code=0
  wait "${pids[i]}" || code=$?
  echo "run $((i + 1)) of $num_runs ended with status $code: $(tail -n 1 "$logs/run-$((i + 1)).log")"
  [[ $status != 0 ]] || status=$code
done
exit "$status"
