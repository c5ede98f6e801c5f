#!/usr/bin/env bash
# One machine, all of its devices: launch/one_machine.sh configs/prompt_vs_head.py:paper [--config.field=value ...]
set -euo pipefail
cd "$(dirname "$0")/.."
config=$1
shift
exec python -m experiments.main --config="$config" "$@"
