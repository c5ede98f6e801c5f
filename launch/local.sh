#!/usr/bin/env bash
# This machine, one trial after the other:   launch/local.sh CONFIG [--config.field=value ...]
# Several trials at a time on its CPUs:      launch/local.sh CONFIG --engine=processes --num_workers=4
# A trial on each of its GPUs at a time:     launch/local.sh CONFIG --engine=gpus
#
# CONFIG is a name with a scale, such as prompt_vs_head:paper, or the path of a config file. The same command goes on
# where it was interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."
config=${1:?is missing: launch/local.sh CONFIG [flags]}
shift
exec python -m experiments.main --config="$config" "$@"
