"""The lead of readers of BERT over readers without a model."""

import pandas as pd
import pytest
from settings_cases import settings_of

from experiments.studies import hard_tasks


def test_a_lead_is_over_the_better_reader_on_the_same_task():
  same = dict(num_states=4, trial=0, kl_at_mask=0.5, unigram_gap=1.0, majority_accuracy=0.5)
  readers = dict(table=(0.8, 0.6), tokens=(0.7, 0.9), head=(0.95, 0.7))
  rows = [
    same | dict(step=40 if method == 'head' else None, method=method, task=task, accuracy=accuracy)
    for method, accuracies in readers.items()
    for task, accuracy in enumerate(accuracies)
  ]
  records = pd.DataFrame(rows)
  assert hard_tasks.with_lead(records)['lead'].tolist() == pytest.approx([0.15, -0.2])
  table = hard_tasks.STUDY.tables(records, settings_of('smoke', 'hard_tasks'))['lead']
  assert table.frame[['KL, % of gap', 'head']].values.tolist() == [['50.0', '-2.5']]
