"""The grid of each experiment."""

from settings_cases import settings_of

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


def test_the_positions_of_the_released_code_show_a_part_of_the_text():
  """The 80 show the [MASK] and 79 of 128 tokens, or a prompt of 20, the [MASK] and 59; the paper shows all."""
  official, paper = settings_of('official'), settings_of('paper')
  assert [official.seen_length('head'), official.seen_length('prompt'), official.prompt.length] == [80, 60, 20]
  assert paper.seen_length('prompt') == official.downstream.length == 129
