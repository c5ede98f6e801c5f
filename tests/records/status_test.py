"""The output of --mode=status."""

import os
import re
import socket
import subprocess
import time

import jax
import pytest
from run_cases import add_failure, add_record, exact_settings, lock_elsewhere, OTHER

from experiments import main as main_lib
from experiments.pipeline import sweep
from experiments.records import files, status


def test_a_process_of_this_host_that_is_gone_does_not_run(tmp_path):
  """Though it renewed its lock a moment ago; one that lives does."""
  (folder,) = sweep.folders([exact_settings(num_states=(4,))], tmp_path)
  dead = subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout
  for process, state in ((os.getpid(), 'running'), (dead.strip(), 'stale')):
    lock_elsewhere(folder.directory, process, socket.gethostname())
    assert status.state(folder).startswith(state)


def test_the_status_of_every_trial_is_printed(tmp_path, monkeypatch, capsys):
  """Done, running or stale and by whom, failed, or missing; no device is looked at, and nothing is written.

  A failure that is damaged does not count.
  """
  flags = ['--config=prompt_vs_head:smoke', f'--workdir={tmp_path}', '--config.models=exact', '--config.methods=head']
  flags += ['--config.num_states=4,6,8,10,12,14', '--config.tasks_per_trial=1']
  done, runs, stale, failed, odd, _ = sweep.folders([exact_settings(num_states=(4, 6, 8, 10, 12, 14))], tmp_path)
  add_record(done)
  for folder in (runs, failed):
    add_failure(folder.directory, 'bad luck')
  lock_elsewhere(runs.directory)
  os.utime(lock_elsewhere(stale.directory), (0, time.time() - 3670))
  files.write_whole(odd.directory / 'failed.json', '{}')
  before = files.tree(tmp_path).keys()
  monkeypatch.setattr(jax, 'devices', lambda *_: pytest.fail('looks at devices'))
  assert main_lib.main(['main', '--mode=status', *flags]) == 0
  words = 'done', f'running .*{OTHER}', f'stale .*{OTHER}', 'failed .*bad', 'missing', 'missing 1 of 1', '1 done, 1 run'
  for word, line in zip(words, capsys.readouterr().out.splitlines(), strict=True):
    assert re.search(f' {word}', line)
  assert files.tree(tmp_path).keys() == before
