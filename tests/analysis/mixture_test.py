"""The mixture that might explain the paper's figure, from records made by hand."""

from figures_cases import record
from pandas import DataFrame as frame
import pytest

from experiments.analysis import mixture
from experiments.settings.grid import Point

# Prompts that are always right, heads at 80%, and a majority of 60%.
RECORDS = [
  record(Point(size), 'bert', method, accuracy, trial=trial)
  for size in (10, 12)
  for method, accuracy in (('prompt', 1.0), ('head', 0.8))
  for trial in range(3)
]


def test_the_share_is_fitted_to_the_prompt_and_predicts_head_and_spread():
  """At |H| = 10 the later text has a prompt of 93.0 +- 4.6 over 20 tasks, and a head of 79.7; it has no |H| = 12."""
  table = mixture.tables(frame(RECORDS))['mixture'].frame
  later, first, at_12 = table.to_dict('records')
  share = (93.0 - 60) / 40
  assert [later['text'], later['|H|'], later['head\npaper']] == ['later text', '10', '79.7']
  assert float(later['f']) == pytest.approx(share, abs=0.0051)
  assert float(later['head\npredicted']) == pytest.approx(share * 80 + (1 - share) * 60, abs=0.05)
  # The spread of a variable that is 100 or 60.
  assert float(later['SD of prompt\npredicted']) == pytest.approx(40 * (share * (1 - share)) ** 0.5, abs=0.05)
  assert float(later['SD of prompt\npaper']) == pytest.approx(4.6 / 2.093 * 20**0.5, abs=0.05)
  assert [first['text'], at_12['|H|'], at_12['SD of prompt\npaper']] == ['first text', '12', '']


def test_a_mixture_needs_both_readers_on_bert():
  """Not for a head without a prompt, nor for text with a memory, nor for one HMM per size."""
  assert not mixture.tables(frame([row for row in RECORDS if row['trial'] == 0]))
  assert not mixture.tables(frame(RECORDS[3:6]))
  assert not mixture.tables(
    frame([record(Point(4, 2, 1), 'bert', 'head', 0.8), record(Point(4, 2, 1), 'bert', 'prompt', 1.0)])
  )


def test_the_spread_of_a_mixture_is_within_and_between():
  """Variance 10^2 within, and 0.75 * 10^2 + 0.25 * 30^2 = 300 between."""
  assert mixture.mixed(0.75, (100.0, 10.0), (60.0, 10.0)) == pytest.approx((90.0, 20.0))
