"""What a run prints: where it cannot be written, one sentence and the exit status say so."""

import subprocess
import sys

from conftest import ROOT
import pytest
import rich.console

from experiments.runtime.progress import Reporter
from experiments.settings.fields import Ended


@pytest.mark.parametrize(('words', 'full', 'status'), [(['--list'], 'stdout', 1), (['--config=none'], 'stderr', 2)])
def test_a_full_disk_is_no_traceback(words, full, status):
  """Nor a complaint of Python's as it ends."""
  with open('/dev/full', 'w') as disk:
    where = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE) | {full: disk}
    run = subprocess.run([sys.executable, '-m', 'experiments.main', *words], cwd=ROOT, text=True, **where)
  assert run.returncode == status and (run.stdout or run.stderr or '').count('\n') == (full == 'stdout')


def test_a_message_that_cannot_be_written_ends_the_run():
  """It is no failure of the trial that prints it."""
  with open('/dev/full', 'w') as disk, pytest.raises(Ended):
    Reporter(rich.console.Console(file=disk)).say('a line')
