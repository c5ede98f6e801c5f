"""The grid of each experiment."""

from settings_cases import settings_of

from configs import base
from experiments.settings.grid import Point


def test_a_memory_of_size_0_is_one_hmm_whatever_the_number_of_cells():
  assert list(settings_of(num_states=(7,), memory__cells=(2, 40)).grid()) == [Point(7)]
  both = settings_of(num_states=(4,), memory__sizes=(0, 2), memory__cells=(1, 2)).grid()
  assert list(both) == [Point(4), Point(4, 2, 1), Point(4, 2, 2)]


def test_a_vanilla_hmm_that_is_a_point_too_has_the_methods_of_both():
  """Six states alone, and as many as three states with two values of a memory make."""
  both = dict(num_states=(3, 6), memory__sizes=(0, 2), memory__vanilla_methods=('table', 'head'))
  grid = settings_of('smoke', **both, methods=('head', 'prompt')).grid()
  assert grid[Point(6)] == ('head', 'prompt', 'table') and grid[Point(3)] == ('head', 'prompt')


def test_the_two_texts_of_the_paper_and_the_released_code():
  """Pretrainings and tasks of Figure 3; labels of the released code come from 128 tokens.

  Its 80 positions show the [MASK] and 79 of them, or a prompt of 20, the [MASK] and 59.
  """
  of_scale = {scale: settings_of(scale) for scale in base.OF_PAPER}
  official, paper = of_scale['official'], of_scale['paper']
  assert [(one.num_trials, one.tasks_per_trial) for one in (paper, of_scale['paper_v1'])] == [(20, 1), (1, 5)]
  assert [official.seen_length('head'), official.seen_length('prompt'), official.prompt.length] == [80, 60, 20]
  assert paper.seen_length('prompt') == official.downstream.length == 129
  assert [one.downstream.label_state for one in (official, paper)] == ['silent', 'first']
