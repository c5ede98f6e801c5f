"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.records import files
from experiments.records.trials import TEXTS
from experiments.settings import lists

# At most so many tasks of a text, tokens at its [MASK], and distributions are shown.
_MOST_TASKS, _MOST_TOKENS, _MOST_PLACES = 20, 10, 20
_MODELS = ('exact G', 'BERT')


class Text(NamedTuple):
  """A text: its labels, near ties with a ?, and strips of rows by name, of words or of shares, NaN at the [MASK]."""

  title: str
  strips: list[dict[str, Any]]


def of_records(records: pd.DataFrame, workdir: pathlib.Path) -> dict[str, list[Text]]:
  """The texts of the first trial of each distribution, the first of very many distributions.

  Trials without texts, and damaged files, are left out.
  """
  if 'trial_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  paths = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}
  shown = dict[str, list[Text]]()
  for place, rows in [*statistics.by_place(records).items()][:_MOST_PLACES]:
    # numpy raises unrelated exceptions for a damaged archive.
    with contextlib.suppress(Exception):
      arrays = files.read_arrays(paths[rows['trial_id'].iloc[0]])
      shown[f'{place.point} {lists.text(dict(place.values))}'] = list(_texts(arrays))
  return shown


def _texts(arrays: dict[str, np.ndarray]) -> Iterator[Text]:
  """The texts in a file of `pipeline.texts.shown`."""
  num_tokens = arrays['at_mask'].shape[-1]
  for number, tokens in enumerate(arrays['tokens']):
    text = {name: values[number] for name, values in arrays.items()}
    likeliest = np.sort(np.argsort(-text['at_mask'][0])[:_MOST_TOKENS])
    under = {
      'token': ['MASK' if token == num_tokens else str(token) for token in tokens],
      'state': text['states'].astype(str),
      'posterior': text['state_probs'],
      **dict(zip(_MODELS, text['of_token'])),
      **{f'attention {layer}': weights for layer, weights in enumerate(text['attention'], start=1)},
    }
    at_mask = {'at the [MASK]': likeliest.astype(str), **dict(zip(_MODELS, text['at_mask'][:, likeliest]))}
    marks = np.where(text['near_ties'], '?', '')
    labels = [f'{label}{mark}' for label, mark in zip(text['labels'], marks)]
    yield Text(f'Text {number}; label by task: {" ".join(labels[:_MOST_TASKS])}', [under, at_mask])
