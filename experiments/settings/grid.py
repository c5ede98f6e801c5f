"""The settings of a grid of trials, and its distributions."""

from collections.abc import Callable
import itertools
from typing import NamedTuple

from experiments.settings import devices, groups
from experiments.settings.fields import setting
from experiments.settings.methods import METHODS, MODELS, NONE, WITHOUT_BERT
from experiments.settings.plan import EndPoint
from hmm_jax.models.bert import Bert
from hmm_jax.models.masking import Corruption
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
  def text(self) -> str:
    """The kind of text: 'memory' or 'vanilla'."""
    return 'memory' if self.memory_size else 'vanilla'

  @property
  def order(self) -> tuple[int, int, int, int]:
    """The place among the points of a grid: first HMMs without a memory, then by cells."""
    return self.num_cells, *self

  def __str__(self) -> str:
    memory = f' |M|={self.memory_size} N={self.num_cells}' if self.memory_size else ''
    return f'|H|={self.num_states}{memory}'


# The x axis of each figure with one place per distribution.
AXES: dict[str, Callable[[Point], int]] = {
  'overview': lambda point: point.num_states,
  'figure_3_left': lambda point: point.num_states,
  'figure_3_right': lambda point: point.joint_states,
  'memory_cells': lambda point: point.num_cells,
  'controls': lambda point: point.joint_states,
}


class Settings(groups.Experiment):
  """A grid of trials: a distribution with its corpus and pretrained model, and tasks, draws of mu, in each."""

  num_states: tuple[int, ...] = setting('numbers of hidden states |H|', most=1024)
  num_trials: int = setting('number of distributions of each size, each with its own pretraining', most=100_000)
  num_trials_by_size: tuple[int, ...] = setting(
    'number of distributions for each entry of num_states, at most num_trials; (): num_trials for each',
    most=100_000,
    may_be_empty=True,
    may_repeat=True,
  )
  tasks_per_trial: int = setting('number of tasks (draws of mu) in each trial', most=10_000)
  tasks_at_a_time: int = setting(
    'tasks that are tuned side by side, however many there are; may change the last bits of records', most=10_000
  )
  models: tuple[str, ...] = setting('models to tune the methods on; methods that need none run anyway', choices=MODELS)
  model: str = setting("model 'own': MODULE:FUNCTION, (distribution, key) -> (model, params); '': none")
  own_head: str = setting("method 'own_head': MODULE:FUNCTION, number of classes -> head; '': none")
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
  mesh: devices.MeshSettings
  distributed: devices.DistributedSettings
  pretrained: str = setting("folder of pretrained models that experiments share; '': in the workdir")
  checkpoints: tuple[int, ...] = setting(
    'pretraining steps after which the methods are tuned on BERT; (): the last', may_be_empty=True, earlier=()
  )
  keep_checkpoints: bool = setting('keep the checkpoints of a pretraining whose model is finished', earlier=False)
  time_budget: float = setting(
    'minutes until no trial starts and pretraining stops at a checkpoint; 0: no limit',
    least=0,
  )
  shown_texts: int = setting(
    'test texts of each trial that report.html shows with posterior, prediction and attention', least=0, earlier=0
  )
  figures: tuple[str, ...] = setting(
    'figures to draw',
    choices=(*AXES, 'attention', 'nearest_tokens', 'forgetting', 'budget', 'conditioning'),
    may_be_empty=True,
  )
  figure: groups.FigureSettings
  plan: tuple[EndPoint, ...] = setting(
    'end points with their expected ranges; (): none', earlier=(), may_be_empty=True, may_repeat=True
  )

  def check_fields(self) -> None:
    d, m = self.downstream, self.memory
    # With a memory a label is about a cell, which has at least two values.
    has_label = all(m.sizes) or min(self.num_states) > 1
    self.require('num_states', has_label, 'at least 2: with one state all labels are equal')
    # A given process defines which cell a state reads.
    if any(m.sizes) and not self.distribution:
      are_multiples = not any(states % cells for states, cells in itertools.product(self.num_states, m.cells))
      self.require('num_states', are_multiples, f'multiples of every entry of memory.cells, {m.cells}')
    given = bool(self.distribution)
    valid = "without 'other_bert' if distribution is set: it has a single draw"
    self.require('models', not (given and 'other_bert' in self.models), valid)
    self.require('corpus_file', given or not self.corpus_file, "'' unless distribution gives the law of the corpus")
    is_one = 'bert' in self.models and 'other_bert' not in self.models and not self.checkpoints
    valid = "'' unless models has 'bert' and no 'other_bert', and checkpoints is ()"
    self.require('pretrained_from', is_one or not self.pretrained_from, valid)
    p = self.pretrain
    valid = (
      f'ascending multiples of pretrain.steps_per_call, {p.steps_per_call}, up to pretrain.num_steps, {p.num_steps}'
    )
    passed = range(0, p.num_steps + 1, p.steps_per_call)
    are_passed = all(step in passed for step in self.checkpoints)
    self.require('checkpoints', are_passed and [*self.checkpoints] == sorted(self.checkpoints), valid)
    by_size, count = self.num_trials_by_size, len(self.num_states)
    is_whole = len(by_size) == count and max(by_size) == self.num_trials
    valid = f'(), or {count} numbers with maximum num_trials, {self.num_trials}'
    self.require('num_trials_by_size', is_whole or not by_size, valid)
    chunks = self.corpus.num_chunks
    valid = f'at most {chunks}, the number of chunks in the corpus'
    self.require('pretrain.batch_size', self.pretrain.batch_size <= chunks, valid)
    used = self.methods + m.vanilla_methods
    self._check_hidden(used)
    self._check_positions(max(map(self.num_rows_added, used)))
    for name in set(AXES) & set(self.figures):
      # Figures show the two kinds of text apart, so that one of each may share a place.
      places = [(AXES[name](point), point.memory_size > 0) for point in self.grid()]
      valid = f'a tuple without {name}, which has several distributions at one x, such as ()'
      self.require('figures', len(set(places)) == len(places), valid)
    self.require('model', bool(self.model) == ('own' in self.models), "MODULE:FUNCTION if models has 'own', else ''")
    self.require(
      'own_head', bool(self.own_head) == ('own_head' in used), "MODULE:FUNCTION if methods has 'own_head', else ''"
    )
    for name in used:
      method = METHODS[name]
      valid = f'a tuple with {" or ".join(method.models)}, which method {name!r} needs'
      self.require('models', set(method.models) & {*self.models, NONE}, valid)
      reads_all = method.reads not in ('probs', 'tokens')
      valid = f"'paper' for method {name}: the head of the released code reads no tokens"
      self.require('attention.form', self.attention.form == 'paper' or reads_all, valid)
      if method.has_schedule:
        self.tuning(name).check_num_train(method.settings[0], d.num_train)
        steps, field = self.schedule(name).num_epochs * d.num_train, f'{method.settings[0]}.num_epochs'
        self.require(field, steps < 2**31, f'fewer, for below {2**31} texts, restarts included')

  def _check_hidden(self, used: tuple[str, ...]) -> None:
    """Check that models and methods can predict the hidden token."""
    d, is_first = self.downstream, self.downstream.hidden == 'first'
    valid = "'last' if bert.causal is True: before the first token there is nothing to see"
    self.require('downstream.hidden', not (self.bert.causal and is_first), valid)
    self.require(
      'downstream.label_state', is_first or d.label_state == 'first', "'first' if downstream.hidden is 'last'"
    )
    valid = "0 if downstream.hidden is 'last': the exact model knows the law of the first token"
    self.require('downstream.num_positions', is_first or not d.num_positions, valid)
    for name in used:
      valid = f"'first' for method {name}, which reads [MASK]s before a text or knows the law of its first state"
      fits = METHODS[name].reads != 'masks' and name != 'head_best'
      self.require('downstream.hidden', fits or is_first, valid)

  def _check_positions(self, added: int) -> None:
    """Check that a cut leaves the [MASK] and a token beside `added` rows, and that BERT has enough positions."""
    d = self.downstream
    valid = f'0, or at least {added + 2} for a prompt or further masks, the [MASK] and one token'
    self.require('downstream.num_positions', not 0 < d.num_positions < added + 2, valid)
    seen = d.num_positions or d.length + added * self.has_bert
    longest = max(self.corpus.chunk_length, seen)
    valid = f'at least {longest}, the larger of corpus.chunk_length and a text with its prompt or further masks'
    self.require('bert.max_positions', self.bert.max_positions >= longest, valid)

  @property
  def given(self) -> dict[str, str]:
    """The distribution and corpus that a user gives in place of a draw, by field, each NAME-DIGEST."""
    return {name: getattr(self, name) for name in ('distribution', 'corpus_file') if getattr(self, name)}

  @property
  def has_bert(self) -> bool:
    """True if a model is a BERT, trained or not."""
    return not set(self.models).issubset(WITHOUT_BERT)

  @property
  def tuned_models(self) -> tuple[str, ...]:
    """The models to tune on, and 'none', the model name of methods that need no model."""
    return tuple(dict.fromkeys((*self.models, NONE)))

  def steps(self, model: str) -> tuple[int | None, ...]:
    """The steps of pretraining at which methods are tuned on one of MODELS; None: its end, or it has none."""
    return self.checkpoints if model == 'bert' and self.checkpoints else (None,)

  def tuning(self, method: str) -> groups.TuneSettings:
    """The tuning settings of one of METHODS that has a schedule."""
    return getattr(self, METHODS[method].settings[0])

  def schedule(self, method: str) -> Schedule:
    """The optimisation of one of METHODS that has one."""
    schedule = self.tuning(method).schedule
    if METHODS[method].fit == 'restarts':
      return schedule._replace(num_epochs=schedule.num_epochs * self.restarts.steps_factor)
    return schedule

  def num_starts(self, method: str) -> int:
    """The number of starts from which one of METHODS is trained on a task."""
    return self.restarts.number if METHODS[method].fit == 'restarts' else 1

  def num_masks(self, method: str) -> int:
    """The number of [MASK]s before a text that one of METHODS reads."""
    return self.masks.number if METHODS[method].reads == 'masks' else 1

  def num_rows_added(self, method: str) -> int:
    """The length of a prompt, or the number of [MASK]s beyond the first, that one of METHODS adds to a text."""
    chosen = METHODS[method]
    return self.prompt.length if chosen.prompt and not chosen.shifts else self.num_masks(method) - 1

  def seen_length(self, method: str) -> int:
    """Tokens of a text that one of METHODS sees, [MASK] included."""
    return self.downstream.seen_length(self.num_rows_added(method))

  @property
  def corruption(self) -> Corruption:
    """The corruption of chunks in pretraining."""
    return self.pretrain.corruption(self.hmm.num_tokens, self.bert.causal)

  def bert_module(self) -> Bert:
    return self.bert.module(self.hmm.num_tokens)

  def grid(self) -> dict[Point, tuple[str, ...]]:
    """The points of the experiment, each with its methods: first HMMs without a memory, then by cells."""
    memory = self.memory
    product = itertools.product(memory.cells, memory.sizes, self.num_states)
    points = {Point(states, size, cells if size else 0): self.methods for cells, size, states in product}
    # A vanilla HMM may be a point by itself too, and has the methods of both.
    if memory.vanilla_methods:
      for point in [Point(point.joint_states) for point in points if point.memory_size]:
        points[point] = tuple(dict.fromkeys(points.get(point, ()) + memory.vanilla_methods))
    return dict(sorted(points.items(), key=lambda item: item[0].order))

  def num_draws(self, point: Point) -> int:
    """The number of distributions that are drawn at a point."""
    return dict(zip(self.num_states, self.num_trials_by_size)).get(point.num_states, self.num_trials)
