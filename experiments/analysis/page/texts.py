"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

import contextlib
import itertools
import pathlib
from typing import Any

import numpy as np
import pandas as pd

from experiments.analysis.tables import places
from experiments.records import files
from experiments.records.trials import TEXTS

# At most so many tokens at a [MASK], and distributions, are shown.
_MOST_TOKENS, _MOST_PLACES = 10, 20


def of_records(records: pd.DataFrame, workdir: pathlib.Path) -> dict[str, Any]:
  """The strips of each text by its title, of the first trial of each distribution.

  Trials without texts, damaged files, and the last of very many distributions are left out.
  """
  if 'trial_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  paths = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}
  shown: dict[str, Any] = {}
  by_place = records.groupby(places(records), sort=False)
  for place, rows in itertools.islice(by_place, _MOST_PLACES):
    # numpy raises unrelated exceptions for a damaged archive.
    with contextlib.suppress(Exception):
      shown[place] = _by_title(files.read_arrays(paths[rows['trial_id'].iloc[0]]))
  return shown


def _by_title(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
  """The strips of each text in a file of `pipeline.texts.shown`; titles have its labels, near ties with a ?."""
  texts = {}
  for number in range(len(arrays['tokens'])):
    text = {name: values[number] for name, values in arrays.items()}
    labels = [f'{label}?' if is_near else str(label) for label, is_near in zip(text['labels'], text['near_ties'])]
    texts[f'Text {number}; label by task: {" ".join(labels)}'] = _strips(text)
  return texts


def _strips(text: dict[str, np.ndarray]) -> list[dict[str, Any]]:
  """The strips of one text: of its tokens, and of those likeliest at the [MASK].

  A strip has rows by name, of words or of shares; a share is NaN at the [MASK].
  """
  exact, bert = text['at_mask']
  tokens = ['MASK' if token == len(exact) else str(token) for token in text['tokens']]
  strip: dict[str, Any] = {'token': tokens}
  strip['state'] = text['states'].astype(str)
  strip['posterior'] = text['state_probs']
  strip['exact G'], strip['BERT'] = text['of_token']
  for layer, weights in enumerate(text['attention'], start=1):
    strip[f'attention {layer}'] = weights
  likeliest = np.sort(np.argsort(-exact)[:_MOST_TOKENS])
  at_mask: dict[str, Any] = {'at the [MASK]': likeliest.astype(str)}
  at_mask['exact G'] = exact[likeliest]
  at_mask['BERT'] = bert[likeliest]
  return [strip, at_mask]
