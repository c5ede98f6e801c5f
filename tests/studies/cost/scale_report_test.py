"""The plan of the paper's scale: what it adds up, and its page."""

import math

import pytest

from experiments.pipeline import cost
from experiments.studies.cost import cost_report, scale_report


def test_every_trial_of_both_experiments_is_planned():
  """As many as the grids have; each pretraining is in one of them, and what is measured along it too."""
  left, right = scale_report.sweep()
  planned = scale_report.trials()
  assert len(planned) == len(left.grid()) * left.num_trials + len(right.grid()) * right.num_trials
  ids = {s.pretraining_id(point, number) for s in (left, right) for point in s.grid() for number in range(s.num_trials)}
  assert len(ids) < len(planned) and cost.pretraining(left) == cost.pretraining(right)
  assert sum(one.half for one in planned) == len(ids) * cost.pretraining(left)
  assert max(one.single for one in planned if not one.half) < min(one.single for one in planned if one.half)


def test_a_ring_of_chips_sends_by_two_links_of_four():
  """400 GB/s of a chip count both ways of four links."""
  assert scale_report.PLACES[0].link == 400e9 / 2 / 4 * 2


@pytest.mark.parametrize('devices', [1, 3, 8])
def test_trials_are_dealt_once_and_evenly(devices):
  """No device ends later than the mean and one trial more."""
  seconds = [one.seconds(scale_report.PLACES[0]) for one in scale_report.trials()]
  dealt = scale_report._dealt(seconds, devices)
  assert sorted(sum(dealt, [])) == sorted(seconds)
  assert max(map(math.fsum, dealt)) <= math.fsum(seconds) / devices + max(seconds)


def test_the_page_has_the_tables_of_today():
  """Where this fails, `python -m experiments.studies.cost.scale_report` writes them."""
  page = scale_report.PAGE.read_text()
  assert scale_report.filled(page) == page and page.count('\n| --- |') == 3
  assert cost_report.in_seconds(119) == '119 s' and cost_report.in_seconds(7000) == '117 min'
