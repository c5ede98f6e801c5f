"""Settings: the grid, what is refused, and what names a trial."""

from hypothesis import given, strategies as st
import pytest
from settings_cases import CONFIGS, settings_of

from configs import base, prompt_vs_head
from experiments.pipeline import sweep
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError, valid_values
from experiments.settings.grid import Point, Settings
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS


@pytest.mark.parametrize('experiment', CONFIGS)
@pytest.mark.parametrize('scale', base.SCALES)
def test_every_scale_is_valid(scale, experiment):
  """Each scale of each config passes its own validation."""
  settings = settings_of(scale, experiment)
  assert (settings.scale, settings.experiment) == (scale, experiment)


@pytest.mark.parametrize('experiment', CONFIGS)
def test_an_unknown_scale_names_the_valid_ones(experiment):
  """The config's argument is checked too."""
  with pytest.raises(ValueError, match='small, paper, paper_v1, official, tuned, smoke'):
    CONFIGS[experiment].get_config('large')


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('corpus.chunk_length', 20000),
    ('bert.width', 130),
    ('bert.max_positions', 40),
    ('pretrain.mask_rate', float('nan')),
    ('pretrain.random_share', 0.3),
    ('pretrain.num_steps', 1251),
    ('pretrain.warmup_steps', 1250),
    ('pretrain.batch_size', 10**6),
    ('downstream.num_test', 0),
    ('head.batch_size', 10**6),
    ('head.warmup_steps', 10**6),
    ('memory.sizes', (1, 2)),
    ('num_trials_by_size', (1, 2)),
  ],
)
def test_bad_values_are_refused_by_name(field, value):
  """One sentence that names the field and says what would be valid."""
  config = prompt_vs_head.get_config()
  with config.ignore_type():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(SettingsError, match=field) as error:
    registry.from_config(config)
  assert 'valid is' in str(error.value)
  assert '\n' not in str(error.value)


def test_distributions_that_would_share_a_place_in_a_figure_are_refused():
  """Four memories over 4 states and two over 8 have as many joint states; without the figure they may run."""
  both = dict(num_states=(4, 8), memory__sizes=(2, 4), memory__vanilla_methods=())
  with pytest.raises(SettingsError, match=r'figures is .*without figure_3_right.*such as \(\)'):
    settings_of('smoke', 'memory_vs_vanilla', **both)
  assert settings_of('smoke', 'memory_vs_vanilla', **both, figures=()).figures == ()


def test_wrong_types_are_refused():
  """A string is no number, a float is no count, and an int is a fine float."""
  config = prompt_vs_head.get_config()
  with config.ignore_type():
    config.head.batch_size = 2.5
  with pytest.raises(SettingsError, match=r'head\.batch_size is 2\.5; valid is an int, positive'):
    registry.from_config(config)
  assert settings_of(hmm__initial_temperature=3.0).hmm.initial_temperature == 3.0


@pytest.mark.parametrize('experiment', EXPERIMENTS)
def test_every_field_says_what_it_means_and_takes(experiment):
  """Each has a meaning and a range in words, and the shipped defaults lie in it at every scale."""
  shipped = config_lib.shipped(experiment)
  for scale in shipped['SCALES']:
    settings = registry.from_config(shipped['get_config'](scale))
    assert (settings.experiment, settings.scale) == (experiment, scale)
  for name, field in config_lib.fields(registry.SETTINGS[experiment]):
    assert len(field.metadata['meaning']) > 3 and valid_values(field), name


def test_figures_are_named_as_their_functions():
  """Whatever may be asked for can be drawn."""
  ((_, field),) = [(name, field) for name, field in config_lib.fields(Settings) if name == 'figures']
  assert set(field.metadata['choices']) == set(sweep.FIGURES)


def test_the_two_texts_of_the_paper_and_the_released_code():
  """Sizes and repetitions: (trials, tasks in each), of Figure 3 left and right."""
  left = {scale: settings_of(scale) for scale in base.OF_PAPER}
  right = {scale: settings_of(scale, 'memory_vs_vanilla') for scale in base.OF_PAPER}
  later, first = (4, 8, 10, 15, 25, 30), (4, 8, 10, 12, 15, 25, 30)
  sizes = {scale: settings.num_states for scale, settings in left.items()}
  assert sizes == dict(paper=later, tuned=later, paper_v1=first, official=first)
  counts = lambda of: {scale: (settings.num_trials, settings.tasks_per_trial) for scale, settings in of.items()}
  assert counts(left) == dict(paper=(20, 1), tuned=(20, 1), official=(20, 1), paper_v1=(1, 5))
  assert counts(right) == dict(paper=(5, 1), tuned=(5, 1), official=(5, 1), paper_v1=(1, 5))


def test_the_released_code_shows_a_model_less_than_labels_come_from():
  """Labels come from 128 tokens; 80 positions are the [MASK] and 79 of them, or a prompt of 20, the [MASK] and 59."""
  official, paper = settings_of('official'), settings_of('paper')
  assert (official.downstream.length - 1, official.downstream.label_state) == (128, 'silent')
  assert {m: official.seen_length(m) - 1 for m in ('head', 'attention', 'prompt')} == dict(
    head=79, attention=79, prompt=59
  )
  assert official.prompt_length('prompt') + official.seen_length('prompt') == 80
  assert {paper.seen_length(m) for m in ('head', 'prompt')} == {129} and paper.downstream.label_state == 'first'


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(downstream__num_positions=21), r'num_positions is 21; valid is 0, or at least 22, for the prompt'),
    (dict(downstream__num_positions=1, methods=('head',)), r'num_positions is 1; valid is 0, or at least 2'),
    (dict(downstream__label_state='last'), r"label_state is 'last'; valid is one of first, silent"),
  ],
)
def test_a_cut_that_leaves_no_text_is_refused(changes, words):
  """The [MASK] and a token are left beside a prompt, and BERT has as many positions."""
  with pytest.raises(SettingsError, match=rf'^downstream\.{words}'):
    settings_of(**changes)


def test_a_cut_text_may_be_longer_than_bert():
  """What is not seen takes no position: texts of any length, and no longer prompt than the cut leaves room for."""
  settings = settings_of(downstream__length=500, downstream__num_positions=64, prompt__length=62)
  assert settings.seen_length('head') == 64 and settings.seen_length('prompt') == 2
  assert settings_of(downstream__num_positions=60).seen_length('head') == 33


def test_prompt_must_fit_the_positions():
  """Prompt and input together are at most max_positions, and the sentence does the sum; so is a cut text."""
  with pytest.raises(SettingsError, match=r'bert\.max_positions is 64; valid is at least 73, .* prompt'):
    settings_of(prompt__length=40)
  with pytest.raises(SettingsError, match=r'bert\.max_positions is 64; valid is at least 65, .* prompt'):
    settings_of(downstream__num_positions=65)


def test_a_field_too_many_or_too_few_is_named():
  """A config file with a field of its own, or one that lost a field, is refused."""
  config = prompt_vs_head.get_config()
  config.bert.depth = 3
  with pytest.raises(SettingsError, match=r'bert\.depth is no field'):
    registry.from_config(config)
  config = prompt_vs_head.get_config()
  del config.seed
  with pytest.raises(SettingsError, match='seed is missing'):
    registry.from_config(config)


@pytest.mark.parametrize(('method', 'models'), [('finetune', ('exact',)), ('oracle_prompt', ('bert',))])
def test_a_method_without_a_model_of_its_own_is_refused(method, models):
  with pytest.raises(SettingsError, match=rf"models is .*; valid is with .*, of which alone '{method}' is"):
    settings_of(methods=('head', method), models=models)
  assert settings_of(methods=('head', method)).methods == ('head', method)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    (dict(memory__cells=(8,), num_states=(8,)), r'memory\.cells is \(8,\); .* at most 4096 memory configurations'),
    (dict(memory__cells=(1, 2), memory__label_cell=1), r'memory\.label_cell is 1; .* below .* 1$'),
    (dict(memory__cells=(2,), num_states=(6, 7)), r'num_states is \(6, 7\); valid is multiples .*memory\.cells'),
    (dict(memory__sizes=(1,)), r'memory\.sizes is \(1,\); valid is at least 2 values, or 0'),
    (dict(attention__form='linear'), r"attention\.form is 'linear'; valid is one of paper, official"),
    (dict(attention__warmup_steps=10**6), r'attention\.warmup_steps is 1000000; valid is below the \d+ steps'),
    (dict(prompt__length=32), r'max_positions is 64; valid is at least 65'),
  ],
)
def test_memories_that_cannot_be_are_refused(changes, words):
  """The sentence names the field, its value, and the count or limit that it breaks."""
  with pytest.raises(SettingsError, match=words) as error:
    settings_of(experiment='memory_cells', **changes)
  assert '\n' not in str(error.value)


def test_without_a_memory_its_cells_do_not_matter():
  """Cells that no memory of the grid has are not held against the number of states."""
  assert settings_of(num_states=(7,), memory__cells=(2, 40), memory__label_cell=1).grid() == {
    Point(7): ('head', 'prompt')
  }


@given(st.data())
def test_any_count_that_is_taken_keeps_the_grid_whole(data):
  """Whatever sizes are asked for, every point of the grid has its methods, and ids that no other point has."""
  few = lambda numbers: st.lists(numbers, min_size=1, max_size=3, unique=True).map(tuple)
  sizes, cells = data.draw(few(st.sampled_from([0, 2, 3, 5]))), data.draw(few(st.sampled_from([1, 2])))
  num_states = data.draw(few(st.sampled_from([2, 4, 6, 8])))
  memory = dict(memory__sizes=sizes, memory__cells=cells)
  settings = settings_of(experiment='memory_vs_vanilla', num_states=num_states, figures=(), **memory)
  grid = settings.grid()
  assert {point.memory_size for point in grid} >= set(sizes) and all(grid.values())
  with_memory = [point for point in grid if point.memory_size]
  assert len(with_memory) == len(num_states) * len(cells) * len([size for size in sizes if size])
  assert all(Point(point.joint_states) in grid for point in with_memory)
  assert len({settings.trial_id(point, 0) for point in grid}) == len(grid)
