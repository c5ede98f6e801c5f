"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

from collections.abc import Iterator
import contextlib
import itertools
import pathlib
from typing import Any

import numpy as np
import pandas as pd

from experiments.analysis.tables import by_place
from experiments.records import files
from experiments.records.trials import TEXTS

# At most so many tokens at a [MASK], and distributions, are shown.
_MOST_TOKENS, _MOST_PLACES = 10, 20
_MODELS = ('exact G', 'BERT')


def of_records(records: pd.DataFrame, workdir: pathlib.Path) -> dict[str, Any]:
  """The strips of each text by its title, of the first trial of each distribution.

  Trials without texts, damaged files, and the last of very many distributions are left out.
  """
  if 'trial_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  paths = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}
  shown = dict[str, Any]()
  for place, rows in itertools.islice(by_place(records), _MOST_PLACES):
    # numpy raises unrelated exceptions for a damaged archive.
    with contextlib.suppress(Exception):
      arrays = files.read_arrays(paths[rows['trial_id'].iloc[0]])
      shown[place] = dict(_texts(arrays))
  return shown


def _texts(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, Any]]:
  """The title of each text in a file of `pipeline.texts.shown`, with labels, near ties with a ?, and its strips.

  A strip has rows by name, of words or of shares; a share is NaN at the [MASK].
  """
  num_tokens = arrays['at_mask'].shape[-1]
  for number, tokens in enumerate(arrays['tokens']):
    text = {name: values[number] for name, values in arrays.items()}
    likeliest = np.sort(np.argsort(-text['at_mask'][0])[:_MOST_TOKENS])
    under = {'token': np.where(tokens == num_tokens, 'MASK', tokens.astype(str))}
    under |= {'state': text['states'].astype(str), 'posterior': text['state_probs']}
    under |= zip(_MODELS, text['of_token'])
    under |= {f'attention {layer}': weights for layer, weights in enumerate(text['attention'], start=1)}
    at_mask = {'at the [MASK]': likeliest.astype(str)}
    at_mask |= zip(_MODELS, text['at_mask'][:, likeliest])
    labels = np.strings.add(text['labels'].astype(str), np.where(text['near_ties'], '?', ''))
    yield f'Text {number}; label by task: {" ".join(labels)}', [under, at_mask]
