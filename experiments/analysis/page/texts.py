"""Texts of a trial as strips: tokens, the exact posterior, both predictions, attention."""

from collections.abc import Iterator
import pathlib

import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.page.html import Strip
from experiments.records import files
from experiments.records.trials import TEXTS

# Texts are shown of one trial of each distribution, at most so many; tokens and tasks at most so many.
_MOST_TRIALS, _MOST_TOKENS, _MOST_TASKS = 10, 10, 20

HOW_TO_READ = (
  'Test texts of the first trial of each distribution, all numbers in percent. The state is the likeliest given the '
  'whole text, with its exact posterior. Exact G and BERT give the probability of each token given all others, and '
  'below that of each token at the [MASK]. Attention is from the [MASK], by layer, the mean over heads.'
)

Cells = list[tuple[str, float | None]]


def strips(records: pd.DataFrame, workdir: pathlib.Path) -> list[Strip]:
  """The strips of the first trial with texts on file of each distribution; damaged files are left out."""
  if 'trial_id' not in records:
    return []
  # An id in a record, which may come from anybody, must not choose a path.
  by_id, shown = {path.name: path / TEXTS for path in files.entries(workdir / 'trials')}, list[Strip]()
  for place, rows in list(statistics.by_place(records).items())[:_MOST_TRIALS]:
    for path in (by_id[name] for name in rows['trial_id'].unique() if name in by_id and by_id[name].is_file()):
      try:
        shown += _of_trial(str(place.point), files.read_arrays(path))
        break
      except Exception:
        # numpy raises unrelated exceptions for a damaged archive.
        continue
  return shown


def _of_trial(name: str, arrays: dict[str, np.ndarray]) -> Iterator[Strip]:
  """Two strips of each text: under its tokens, and at its [MASK]."""
  names = 'tokens', 'states', 'state_probs', 'of_token', 'at_mask', 'attention', 'labels', 'near_ties'
  tokens, states, state_probs, of_token, at_mask, attention, labels, near_ties = (arrays[name] for name in names)
  for text, masked in enumerate(tokens == at_mask.shape[-1]):
    near = ', '.join(f'near tie in task {task}' for task in np.flatnonzero(near_ties[:_MOST_TASKS, text]))
    title = f'{name}, text {text}; label by task: {" ".join(map(str, labels[:_MOST_TASKS, text]))}'
    rows: list[tuple[str, Cells]] = [
      ('token', [('MASK' if hidden else str(token), None) for token, hidden in zip(tokens[text], masked)]),
      ('state', [(str(state), None) for state in states[text]]),
      ('posterior', _shares(state_probs[text])),
      ('exact G', _shares(of_token[0, text], masked)),
      ('BERT', _shares(of_token[1, text], masked)),
    ]
    weights = enumerate(attention[text], start=1)
    rows += [(f'attention {layer}', _shares(row)) for layer, row in weights]
    yield Strip(title, near, rows)
    likeliest = np.sort(np.argsort(-at_mask[0, text])[:_MOST_TOKENS])
    of_models = zip(('exact G', 'BERT'), at_mask[:, text, likeliest])
    rows = [('at the [MASK]', [(str(token), None) for token in likeliest])]
    rows += [(model, _shares(probs)) for model, probs in of_models]
    yield Strip('', '', rows)


def _shares(probs: np.ndarray, hidden: np.ndarray | None = None) -> Cells:
  """Probabilities in percent, shaded; empty where hidden."""
  cells: Cells = [(f'{100 * prob:.0f}', round(float(prob), 2)) for prob in probs]
  return cells if hidden is None else [('', None) if mask else cell for cell, mask in zip(cells, hidden)]
