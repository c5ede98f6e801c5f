"""The records of a workdir as a DataFrame, which tables, figures and users start from."""

import pathlib
from typing import Any, TYPE_CHECKING

from experiments.records import environment, results
from experiments.runtime import storage

if TYPE_CHECKING:
  import pandas as pd


def load(workdir: str | pathlib.Path) -> 'pd.DataFrame':
  """The records of a workdir, a row for each, in the order of the run; empty where there are none.

  Columns are the fields of the records, most of which docs/use/records.md lists, and the fields of the environment
  that each was made in, such as `devices`, `cpu`, `commit` and `packages`. What a record lacks is missing (NaN).

  Raises:
    SettingsError: the records are damaged, or of another schema.

  Example:
    >>> records = load('docs/results/small/figure_3_left')
    >>> records.groupby(['num_states', 'model', 'method'])['accuracy'].mean().unstack()  # doctest: +SKIP
  """
  # Imported here, since it takes longer than `--list` and `--help`.
  import pandas as pd

  workdir = storage.located(str(workdir))
  rows: list[dict[str, Any]] = results.load(workdir)
  frame = pd.DataFrame(rows)
  made = environment.load(workdir, rows)
  if not made:
    return frame
  # A record's own field counts before that of its environment.
  fields = pd.DataFrame(made).T.drop(columns=frame.columns, errors='ignore')
  return frame.join(fields, on='environment')
