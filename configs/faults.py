"""Is anything lost, done twice or passed over in silence when runs are killed, disturbed, or told nonsense?

Claim: a run that was killed, stopped, starved of disk, run twice at once, or whose files were damaged, ends after the
same command again with results.jsonl and tuned arrays equal, byte for byte, to those of a run that nothing happened
to; what cannot be so is refused in a sentence. What the campaign sees is shown by rows of the same runs with one
protection taken away, which have to be lost.

Command: python -m experiments.main --config=faults[:small|smoke]

The run that is made to fail is prompt_vs_head:smoke with the fields `disturbed`; its compiled programs are kept, so
that it takes seconds. Each family of faults is a part, kept as it ends. Full disks need a mounted tmpfs, and so root.

Cost: `small` is 20 minutes of soak, 5 of one with a leak, and some 200 runs of seconds each; `smoke` has one or two of
each.
Expected: lost is 0 in every row but those of a protection taken away, where it is not. docs/faults.md has the table.
"""

import ml_collections

from configs import base

SCALES = base.SMALL_AND_SMOKE


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), the whole campaign, or `:smoke`; raises ValueError for another."""
  config = base.start('faults', scale, SCALES)
  config.families = (*('inputs', 'kills', 'damage', 'full_disk', 'races', 'signals', 'not_finite', 'resuming', 'soak'),)
  config.disturbed = (
    *('num_states=4', 'num_trials=2', 'tasks_per_trial=1', "models=('bert',)", 'downstream.num_train=64'),
    *('figures=()',),
  )
  config.update(num_kills=50, num_chains=2, kills_of_chain=3, num_damaged=200, num_full=12, num_races=3)
  config.update(num_signals=14, most_seconds_to_stop=30.0, num_divergences=2, every_input=1)
  config.soak = base.group(minutes=20.0, num_trials=1500, seconds_between_kills=30.0, num_compared=3)
  # kB: Orbax leaves some at every save, in what it asks tensorstore for its metrics; the leak on purpose is of 1000.
  config.soak.update(most_growth=300.0, most_more=0.02)
  config.most_seconds = 120.0
  config.mutants = True
  config.figure = base.figure(width=13.0, height=3.6)
  if scale == 'smoke':
    config.update(num_kills=2, num_chains=1, kills_of_chain=2, num_damaged=2, num_full=1, num_races=1)
    config.update(num_signals=1, num_divergences=1, every_input=40, mutants=False)
    config.soak.update(minutes=0.5, num_trials=20, seconds_between_kills=8.0, num_compared=1)
    config.figure.dpi = 60
  return config
