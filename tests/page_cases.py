"""A workdir whose report has records and a failure with markup in them, without a run."""

from figures_cases import prompt_records
from run_cases import add_failure, QUIET
from settings_cases import settings_of

from experiments.records import results

# The text of a field of every record, and of an error.
NASTY = '<script>alert(1)</script>'


def written(workdir):
  """A workdir with records of one trial of each size."""
  rows = [row | dict(experiment='prompt_vs_head', note=f'{NASTY} {row["task"]}') for row in prompt_records()]
  rows = [row | dict(trial_id=f'trial{row["num_states"]}', pretraining_id='m', environment='e') for row in rows]
  results.write(workdir, [(settings(), rows)], QUIET)
  add_failure(workdir / 'trials' / 'trial30', NASTY)
  return workdir


def settings(**changes):
  return settings_of('smoke', **dict(pretrained='', num_states=(4, 10, 30)) | changes)
