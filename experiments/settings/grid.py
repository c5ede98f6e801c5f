"""The settings of a grid of trials, and its distributions."""

import itertools
from typing import NamedTuple

from experiments.settings import devices, groups
from experiments.settings.fields import setting
from experiments.settings.methods import METHODS, MODELS
from experiments.settings.plan import EndPoint
from hmm_jax.models.bert import Bert
from hmm_jax.tuning.tuner import Schedule


class Point(NamedTuple):
  """A distribution of the grid: an HMM of |H| states, or with a memory of N cells and |M| values (else 0 and 0)."""

  num_states: int
  memory_size: int = 0
  num_cells: int = 0

  @property
  def joint_states(self) -> int:
    """|M|^N |H|, the states of the flattened chain."""
    return self.num_states * self.memory_size**self.num_cells

  @property
  def order(self) -> tuple[int, int, int, int]:
    """The place among the points of a grid: first HMMs without a memory, then by cells."""
    return self.num_cells, *self

  def __str__(self) -> str:
    memory = f' |M|={self.memory_size} N={self.num_cells}' if self.memory_size else ''
    return f'|H|={self.num_states}{memory}'


# The figures of a grid, as `studies.grids` draws them.
FIGURES = (
  'overview',
  'figure_3_left',
  'figure_3_right',
  'memory_cells',
  'controls',
  'attention',
  'nearest_tokens',
  'forgetting',
  'budget',
  'conditioning',
)


class Settings(groups.Experiment):
  """A grid of trials: a distribution with its corpus and pretrained model, and tasks, draws of mu, in each."""

  num_states: tuple[int, ...] = setting('numbers of hidden states |H|')
  num_trials: int = setting('number of distributions of each size, each with its own pretraining')
  num_trials_by_size: tuple[int, ...] = setting(
    'number of distributions for each entry of num_states; (): num_trials for each',
    may_be_empty=True,
  )
  tasks_per_trial: int = setting('number of tasks (draws of mu) in each trial', most=10_000)
  tasks_at_a_time: int = setting('tasks that are tuned side by side; may change the last bits of records')
  models: tuple[str, ...] = setting('models to tune the methods on; methods that need none run anyway', choices=MODELS)
  model: str = setting("model 'own': MODULE:FUNCTION, (distribution, key) -> (model, params); '': none")
  own_head: str = setting("method 'own_head': MODULE:FUNCTION, number of classes -> head; '': none")
  label: str = setting(
    "labels in place of mu: MODULE:FUNCTION, (texts [n, T], exact posteriors [n, S]) -> classes [n]; '': mu", earlier=''
  )
  methods: tuple[str, ...] = setting('methods to tune', choices=tuple(METHODS))
  distribution: str = setting("named process, or .json or .npz file, which sets the sizes; '': drawn at random")
  corpus_file: str = setting("token ids for pretraining, .npy or .txt, one document a row or line; '': sampled")
  pretrained_from: str = setting(
    "folder of a pretrained BERT, of hmm_jax.save or transformers; '': pretrained", earlier=''
  )
  hmm: groups.HmmSettings
  memory: groups.MemorySettings
  corpus: groups.CorpusSettings
  bert: groups.BertSettings
  pretrain: groups.PretrainSettings
  measure: groups.MeasureSettings
  downstream: groups.DownstreamSettings
  head: groups.TuneSettings
  finetune: groups.TuneSettings
  prompt: groups.PromptSettings
  attention: groups.AttentionSettings
  on_test: groups.OnTestSettings
  converged: groups.ConvergedSettings
  restarts: groups.RestartSettings
  masks: groups.MaskSettings
  mlp: groups.MlpHeadSettings
  neighbours: groups.NeighbourSettings
  mesh: devices.MeshSettings
  distributed: devices.DistributedSettings
  pretrained: str = setting("folder of pretrained models that experiments share; '': in the workdir")
  checkpoints: tuple[int, ...] = setting(
    'pretraining steps after which the methods are tuned on BERT; (): the last', may_be_empty=True, earlier=()
  )
  time_budget: float = setting(
    'minutes until no trial starts and pretraining stops at a checkpoint; 0: no limit',
    least=0,
  )
  shown_texts: int = setting('test texts of each trial that report.html shows; 0: none', least=0, earlier=0)
  figures: tuple[str, ...] = setting('figures to draw', choices=FIGURES, may_be_empty=True)
  figure: groups.FigureSettings
  plan: tuple[EndPoint, ...] = setting('end points with their expected ranges; (): none', earlier=(), may_be_empty=True)

  @property
  def given(self) -> dict[str, str]:
    """The distribution and corpus that a user gives in place of a draw, by field, each NAME-DIGEST."""
    return {name: getattr(self, name) for name in ('distribution', 'corpus_file') if getattr(self, name)}

  @property
  def used_methods(self) -> tuple[str, ...]:
    """The methods at any point of the grid."""
    return self.methods + self.memory.vanilla_methods

  def tuning(self, method: str) -> groups.TuneSettings:
    """The tuning settings of one of METHODS that has a schedule."""
    return getattr(self, METHODS[method].settings[0])

  def schedule(self, method: str) -> Schedule:
    """The optimisation of one of METHODS that has one."""
    schedule = self.tuning(method).schedule(self.downstream.num_labelled)
    if 'restarts' in METHODS[method].settings:
      return schedule._replace(num_epochs=schedule.num_epochs * self.restarts.steps_factor)
    return schedule

  def num_rows_added(self, method: str) -> int:
    """The length of a prompt, or the number of [MASK]s beyond the first, that one of METHODS adds to a text."""
    chosen = METHODS[method]
    if 'masks' in chosen.settings:
      return self.masks.number - 1
    return self.prompt.length if 'prompt' in chosen.settings and not chosen.shifts else 0

  def seen_length(self, method: str) -> int:
    """Tokens of a text that one of METHODS sees, [MASK] included."""
    return self.downstream.seen_length(self.num_rows_added(method))

  def bert_module(self) -> Bert:
    return self.bert.module(self.hmm.num_tokens)

  def grid(self) -> dict[Point, tuple[str, ...]]:
    """The points of the experiment, each with its methods."""
    memory = self.memory
    product = itertools.product(memory.cells, memory.sizes, self.num_states)
    points = {Point(states, size, cells if size else 0): self.methods for cells, size, states in product}
    # A vanilla HMM may be a point by itself too, and has the methods of both.
    if memory.vanilla_methods:
      for point in [Point(point.joint_states) for point in points if point.memory_size]:
        points[point] = tuple(dict.fromkeys(points.get(point, ()) + memory.vanilla_methods))
    return points

  def num_draws(self, point: Point) -> int:
    """The number of distributions that are drawn at a point; raises SettingsError unless each size has one."""
    by_size, count = self.num_trials_by_size, len(self.num_states)
    self.require('num_trials_by_size', len(by_size) in (0, count), f'() or {count} numbers, one for each of num_states')
    return dict(zip(self.num_states, by_size)).get(point.num_states, self.num_trials)
