"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

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


def of_records(records: pd.DataFrame, workdir: pathlib.Path) -> dict[str, Any]:
  """The strips of each text by its title, of the first trial of each distribution.

  Trials without texts, damaged files, and the last of very many distributions are left out.
  """
  if 'trial_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  paths = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}
  shown: dict[str, Any] = {}
  for place, rows in itertools.islice(by_place(records), _MOST_PLACES):
    # numpy raises unrelated exceptions for a damaged archive.
    with contextlib.suppress(Exception):
      arrays = files.read_arrays(paths[rows['trial_id'].iloc[0]])
      texts = [{name: values[number] for name, values in arrays.items()} for number in range(len(arrays['tokens']))]
      shown[place] = {f'Text {number}; {_labels(text)}': _strips(text) for number, text in enumerate(texts)}
  return shown


def _labels(text: dict[str, np.ndarray]) -> str:
  """The labels of a text in words, near ties with a ?."""
  labels = [f'{label}?' if is_near else str(label) for label, is_near in zip(text['labels'], text['near_ties'])]
  return f'label by task: {" ".join(labels)}'


def _strips(text: dict[str, np.ndarray]) -> list[dict[str, Any]]:
  """The strips of one text from a file of `pipeline.texts.shown`: of its tokens, and of those likeliest at the [MASK].

  A strip has rows by name, of words or of shares; a share is NaN at the [MASK].
  """
  exact, bert = text['at_mask']
  tokens = ['MASK' if token == len(exact) else str(token) for token in text['tokens']]
  strip = {'token': tokens, 'state': text['states'].astype(str), 'posterior': text['state_probs']}
  strip['exact G'], strip['BERT'] = text['of_token']
  for layer, weights in enumerate(text['attention'], start=1):
    strip[f'attention {layer}'] = weights
  likeliest = np.sort(np.argsort(-exact)[:_MOST_TOKENS])
  at_mask = {'at the [MASK]': likeliest.astype(str), 'exact G': exact[likeliest], 'BERT': bert[likeliest]}
  return [strip, at_mask]
