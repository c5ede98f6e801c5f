"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis.tables import by_place
from experiments.records import files
from experiments.records.trials import TEXTS

# At most so many tasks of a text, tokens at its [MASK], and distributions are shown.
_MOST_TASKS, _MOST_TOKENS, _MOST_PLACES = 20, 10, 20


class Text(NamedTuple):
  """A text with the labels that are near ties; rows of `strips` hold words, or shares, which are NaN where hidden."""

  title: str
  near_ties: str
  strips: list[pd.DataFrame]


def of_records(records: pd.DataFrame, workdir: pathlib.Path) -> dict[str, list[Text]]:
  """The texts of the first trial of each distribution that has some on file, the first of very many distributions.

  Damaged files are left out.
  """
  if 'trial_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  paths, shown = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}, dict[str, list[Text]]()
  for place, rows in by_place(records):
    if len(shown) == _MOST_PLACES:
      break
    for name in rows['trial_id'].unique():
      # numpy raises unrelated exceptions for a damaged archive.
      with contextlib.suppress(Exception):
        shown[place] = [*_texts(files.read_arrays(paths[name]))]
        break
  return shown


def _texts(arrays: dict[str, np.ndarray]) -> Iterator[Text]:
  """The texts in a file of `pipeline.texts.shown`."""
  for number, values in enumerate(zip(*arrays.values())):
    text, num_tokens = dict(zip(arrays, values)), arrays['at_mask'].shape[-1]
    words = ['MASK' if token == num_tokens else str(token) for token in text['tokens']]
    under = {'token': words, 'state': map(str, text['states']), 'posterior': text['state_probs']}
    under |= dict(zip(('exact G', 'BERT'), text['of_token']))
    under |= {f'attention {layer}': weights for layer, weights in enumerate(text['attention'], start=1)}
    likeliest = np.sort(np.argsort(-text['at_mask'][0])[:_MOST_TOKENS])
    at_mask = dict(zip(('exact G', 'BERT'), text['at_mask'][:, likeliest]))
    near_ties = ', '.join(f'near tie in task {task}' for task in np.flatnonzero(text['near_ties'][:_MOST_TASKS]))
    labels = ' '.join(map(str, text['labels'][:_MOST_TASKS]))
    strips = [_strip(under), _strip({'at the [MASK]': map(str, likeliest), **at_mask})]
    yield Text(f'Text {number}; label by task: {labels}', near_ties, strips)


def _strip(rows: dict) -> pd.DataFrame:
  return pd.DataFrame({name: [*cells] for name, cells in rows.items()}, dtype=object).T
