#!/usr/bin/env bash
# What one GPU gives in minutes, in parts that go on where they were cut off:
#
#   launch/one_gpu.sh WORKDIR [SECONDS]
#
#   profile    the kernels of the paper's pretraining step
#   trial_30   a trial of prompt_vs_head:tuned at |H| = 30: pretraining, head, prompt, quadratic head, probe
#   benchmark  the paper's step beside Hugging Face's (extra `bench`)
#   trial_10   the same trial at |H| = 10
#
# After SECONDS (600) the part that runs ends with a checkpoint, and no other begins; the same command goes on. A part
# writes to WORKDIR/PART and WORKDIR/PART.log; memory.csv has the GPU memory in use, in MiB, every five seconds. The
# exit status is 0 once all parts are done, and else that of the first part that is not. With SCALE=smoke in the
# environment all is a toy, for a CPU.
set -euo pipefail
[[ $# -ge 1 && ${2:-600} =~ ^[1-9][0-9]*$ ]] || { echo 'error: valid is launch/one_gpu.sh WORKDIR [SECONDS]' >&2; exit 2; }
mkdir -p "$1"
workdir=$(realpath "$1") end=$((SECONDS + ${2:-600}))
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=timestamp,memory.used --format=csv,noheader,nounits -l 5 >> "$workdir/memory.csv" &
  monitor=$!
  trap 'kill "$monitor"' EXIT
fi

# NAME COMMAND...: what is left of the time for one part.
part() {
  local name=$1 status=0
  shift
  if [[ -e $workdir/$name.done ]]; then return; fi
  if ((SECONDS >= end)); then echo "$name: no time is left"; return 124; fi
  echo "$name: begins, log in $workdir/$name.log"
  timeout --signal=TERM --kill-after=60 $((end - SECONDS)) "$@" >> "$workdir/$name.log" 2>&1 || status=$?
  tail -n 3 "$workdir/$name.log"
  if ((status == 0)); then touch "$workdir/$name.done"; fi
  echo "$name: ended with status $status"
  return $status
}
run() { part "$1" python -m experiments.main --config="$2" --workdir="$workdir/$1" "${@:3}"; }
trial() {
  run "trial_$1" "prompt_vs_head:${SCALE:-tuned}" --config.num_states="$1" --config.num_trials=1 --config.models=bert \
    --config.methods=head,prompt,quadratic,probe --config.pretrained="$workdir/pretrained"
}

first=0
note() { local status=$?; if ((first == 0)); then first=$status; fi; }
part profile python launch/profile_step.py "${SCALE:-gpu}" "$workdir/profile" || note
trial 30 || note
run benchmark "benchmark:${SCALE:-gpu}" || note
trial 10 || note
exit $first
