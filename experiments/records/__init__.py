"""The files of a run, written whole: records with their tuned arrays, checkpoints, models, environments, failures.

A record is done when its file is there and has its checksum; nothing is unpickled. `load` reads those of a workdir.
"""

import pathlib
from typing import Any, TYPE_CHECKING

from experiments.records import environment as environments, failures, results
from experiments.runtime import storage
from experiments.settings.fields import require

if TYPE_CHECKING:
  import pandas as pd


def load(workdir: str | pathlib.Path, having: str = '', environment: bool = False) -> 'pd.DataFrame':
  """The records of a workdir, a row for each, in the order of the run; empty if none is finished.

  Columns are the fields of the records. Each field of settings in which records differ has a column too, named as on
  the command line, such as `prompt.length`. docs/schemas/records/ has a JSON schema for each kind of record: what a
  field means and which values it takes. What a record lacks is missing (NaN).

  Args:
    workdir: a folder, or the address of one in an object store.
    having: a field; only records that have it are read, and they bring their columns. Studies write several kinds of
      records, each with a field of its own: with it a table holds one kind and no column of another.
    environment: add the columns of the environment that each record was made in, such as `devices`, `cpu`, `commit`
      and `packages`, and `trial_seconds`, the wall time of its trial, if the folder has its trials.

  Raises:
    SettingsError: there is no such folder, the records are damaged, or of another schema, or none has the field.

  Example:
    >>> records = load('docs/results/small/figure_3_left')
    >>> records.groupby(['num_states', 'model', 'method'])['accuracy'].mean().unstack()  # doctest: +SKIP
    >>> len(load('docs/results/theory', having='least_error'))
    80
  """
  workdir = storage.located(str(workdir), 'workdir')
  # An object store has no folders.
  require(storage.is_object(workdir) or workdir.is_dir(), 'workdir', str(workdir), 'a folder of records')
  rows = [row for row in results.load(workdir) if having in row or not having]
  require(rows or not having, 'having', having, f'a field of the records in {workdir}')
  return frame(workdir, rows, environment)


def frame(workdir: pathlib.Path, rows: list[dict[str, Any]], environment: bool) -> 'pd.DataFrame':
  """Records of a workdir as `load` has them."""
  # Imported here, since it takes longer than `--list` and `--help`.
  import pandas as pd

  records = pd.DataFrame(rows)
  made = environments.load(workdir, rows) if environment else {}
  spent = failures.seconds(workdir / 'trials') if environment and 'trial_id' in records else {}
  if spent:
    records['trial_seconds'] = records['trial_id'].map(spent)
  if not made:
    return records
  # A record's own field counts before that of its environment.
  fields = pd.DataFrame(made).T.drop(columns=records.columns, errors='ignore')
  return records.join(fields, on='environment')
