"""The runs that `launch/local.sh` starts together on this machine, which share its memory and its disks."""

import os
import re

from experiments.settings.fields import require

_VARIABLE = 'HMM_JAX_RUNS'


def num_runs() -> int:
  """The number of runs that were started together, from the environment; 1 where it says nothing."""
  text = os.environ.get(_VARIABLE, '1')
  is_count = re.fullmatch('[1-9][0-9]{0,3}', text) is not None
  require(is_count, _VARIABLE, text, 'a number of runs, 1 to 9999, as launch/local.sh sets it')
  return int(text)
