"""How many labels pretraining saves: ratios by hand, and readers chosen by their validation accuracy."""

import numpy as np
import pandas as pd
import pytest

from experiments.studies import labels


@pytest.mark.parametrize(
  ('without', 'expected'),
  [
    # At 50 labels BERT has 90%: halfway from 100 to 300 in logarithms.
    ([0.7, 0.75, 0.8, 0.85, 0.95, 1.0], np.sqrt(100 * 300) / 50),
    # From the last of those that have as much as fewer labels.
    ([0.7, 0.8, 0.8, 0.8, 1.0, 1.0], np.sqrt(100 * 300) / 50),
    # Fewer labels had more: what was reached once counts.
    ([0.7, 0.9, 0.8, 0.85, 0.95, 1.0], 20 / 50),
    # At once, and nowhere.
    ([0.95] * 6, 10 / 50),
    ([0.6] * 6, 1500 / 50),
  ],
)
def test_the_ratio_is_of_the_labels_at_which_an_accuracy_is_reached(without, expected):
  accuracies = pd.DataFrame({'bert': 0.9, 'none': without}, index=[10, 20, 50, 100, 300, 1500])
  assert labels.ratio(accuracies) == pytest.approx(expected)


def test_a_reader_is_chosen_by_its_validation_accuracy():
  """For each task; of equal ones the first counts, or all of them, and those of the exact model not at all."""
  rows = [
    ('bert', 'head', 0, 0.8, 0.1),
    ('bert', 'probe', 0, 0.9, 0.2),
    ('bert', 'head', 1, 0.9, 0.4),
    ('bert', 'probe', 1, 0.9, 0.8),
    ('none', 'table', 0, 0.5, 0.5),
    ('none', 'table', 1, 0.5, 0.7),
    ('exact', 'head', 0, 1.0, 1.0),
  ]
  records = pd.DataFrame(rows, columns=['model', 'method', 'task', 'validation_accuracy', 'accuracy'])
  records = records.assign(num_states=10, trial=0, **{labels.LABELS: 50})
  assert labels.chosen(records).loc[10, 0, 50].to_dict() == pytest.approx({'bert': 0.3, 'none': 0.6})
  averaged = labels.chosen(records, ties_averaged=True)
  assert averaged.loc[10, 0, 50].to_dict() == pytest.approx({'bert': 0.4, 'none': 0.6})
