"""launch/tpu_pod.sh: the commands that it prints."""

import shlex
import subprocess

from conftest import ROOT

from experiments.settings.config import parse
from experiments.studies import registry


def test_a_dry_run_prints_commands_whose_words_are_taken():
  """From the queue to the deletion."""
  words = 'pod', 'zone', 'v5litepod-8', 'gs://bucket', 'prompt_vs_head:smoke'
  command = [ROOT / 'launch' / 'tpu_pod.sh', '--dry_run', '--queued', '--spot', *words]
  lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
  assert 'queued-resources create' in lines[0] and '--spot' in lines[0] and 'queued-resources delete' in lines[-1]
  (run,) = [line for line in lines if 'experiments.main' in line]
  words = shlex.split(' '.join(shlex.split(run)))
  argv = words[words.index('experiments.main') : words.index('>', -4)]
  values, config, _ = parse(argv, registry.SETTINGS, ['run'])
  assert (values.workdir, config.pretrained) == ('gs://bucket/run', 'gs://bucket/pretrained')
