"""A workdir whose report has every part, without a run."""

from figures_cases import prompt_records
import numpy as np
from settings_cases import settings_of

from experiments.records import failures, files, results, trials

# The text of a field of every record, and of an error.
NASTY = '<script>alert(1)</script>'


def written(workdir, rows=None, **changes):
  """A workdir with these records, by default of one trial of each size."""
  rows = rows or [
    row | dict(trial_id=f'trial{row["num_states"]}', pretraining_id=f'model{row["num_states"]}', environment='e')
    for row in prompt_records()
  ]
  for row in rows:
    row |= dict(experiment='prompt_vs_head', note=f'{NASTY} {row["task"]}')
  results.write(workdir, [(settings(**changes), rows)])
  metrics = [dict(step=step, mlm_loss=2.0 - step / 40, kl_at_mask=1.5 - step / 40) for step in (0, 20, 40)]
  files.write_json_lines(workdir / 'pretrained' / 'model4' / 'metrics.jsonl', metrics)
  files.write_arrays(workdir / 'trials' / 'trial4' / trials.TEXTS, arrays())
  failures.write(workdir / 'trials' / 'trial30', ValueError(NASTY))
  return workdir


def settings(**changes):
  return settings_of('smoke', **dict(pretrained='', num_states=(4, 10, 30)) | changes)


def arrays():
  """Two texts of three tokens over a vocabulary of two, of which the second is a near tie in task 1."""
  return dict(
    tokens=np.array([[2, 0, 1], [2, 1, 1]]),
    states=np.array([[3, 0, 1], [1, 1, 0]]),
    state_probs=np.full((2, 3), 0.5),
    of_token=np.full((2, 2, 3), [np.nan, 0.25, 0.75]),
    at_mask=np.full((2, 2, 2), 0.5),
    attention=np.full((2, 1, 3), 1 / 3),
    labels=np.array([[0, 1], [1, 1]]),
    near_ties=np.array([[False, False], [False, True]]),
  )
