"""The grid of each experiment, and which settings do not fit each other."""

import pytest
from settings_cases import settings_of

from configs import base
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point, Settings
from experiments.studies import grids

CELLS, RIGHT = 'memory_cells', 'memory_vs_vanilla'


@pytest.mark.parametrize(
  ('field', 'changes'),
  [
    ('corpus.chunk_length', dict(corpus__chunk_length=20000)),
    ('bert.width', dict(bert__width=130)),
    ('bert.max_positions is 64; valid is at least 73', dict(prompt__length=40)),
    ('pretrain.random_share', dict(pretrain__random_share=0.3)),
    ('pretrain.num_steps', dict(pretrain__num_steps=1251)),
    ('attention.warmup_steps is 935; valid is below the 935', dict(experiment=CELLS, attention__warmup_steps=935)),
    ('num_trials_by_size', dict(num_trials_by_size=(1, 2))),
    ('memory.cells', dict(experiment=CELLS, memory__cells=(8,), num_states=(8,))),
    ('memory.label_cell', dict(experiment=CELLS, memory__cells=(1, 2), memory__label_cell=1)),
    ('downstream.num_positions', dict(downstream__num_positions=11, prompt__length=10)),
    ('attention.form', dict(attention__form='official', methods=('attention_blind',))),
  ],
)
def test_settings_that_do_not_fit_each_other_are_refused(field, changes):
  """One sentence names the field of which another value would be valid."""
  with pytest.raises(SettingsError, match=f'^{field}'):
    settings_of(**changes)


def test_methods_that_need_a_model_are_refused_without_one():
  """Methods that need no model are accepted."""
  settings_of(models=('exact',), methods=('tokens',))
  with pytest.raises(SettingsError, match='^models'):
    settings_of(models=('none',), methods=('head',))


def test_settings_at_the_edge_are_accepted():
  """A cut text may be longer than BERT, and cells that no memory has do not matter.

  A memory of size 0 is one HMM without a memory, whatever the number of cells.
  """
  cut = settings_of(downstream__length=500, downstream__num_positions=64, prompt__length=62)
  assert (cut.seen_length('head'), cut.seen_length('prompt')) == (64, 2)
  assert list(settings_of(num_states=(7,), memory__cells=(2, 40), memory__label_cell=1).grid()) == [Point(7)]
  both = settings_of(num_states=(4,), memory__sizes=(0, 2), memory__cells=(1, 2), figures=()).grid()
  assert list(both) == [Point(4), Point(4, 2, 1), Point(4, 2, 2)]


def test_figures_are_named_as_their_functions():
  """Whatever may be asked for can be drawn."""
  assert set(dict(config_lib.fields(Settings))['figures'].metadata['choices']) == set(grids.FIGURES)


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


def test_the_grid_of_each_experiment():
  """Figure 3 (left) has HMMs; the right one memories and the HMMs of as many joint states; the last one N cells."""
  assert settings_of().grid() == dict.fromkeys((Point(4), Point(10), Point(30)), ('head', 'prompt', 'table', 'tokens'))
  right = settings_of('paper', RIGHT)
  vanilla = dict.fromkeys((Point(4 * size) for size in (2, 3, 5, 7)), right.memory.vanilla_methods)
  assert right.grid() == vanilla | dict.fromkeys((Point(4, size, 1) for size in (2, 3, 5, 7)), ('attention',))
  cells = settings_of(experiment=CELLS).grid()
  assert cells == dict.fromkeys((Point(6, 3, cells) for cells in (1, 2, 3)), ('attention', 'prompt_attention', 'head'))
