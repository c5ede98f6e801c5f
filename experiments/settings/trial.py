"""A trial of a grid: who it is, the keys of what it draws, and the ids of its model, its records and its fits."""

from collections.abc import Callable, Mapping
import functools
import types
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings import lists
from experiments.settings.fields import deciding, digest, require
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS
from hmm_jax._support import compilation

# Increased when code changes the bits of a pretrained model, so that no earlier model is reused.
_PRETRAINING_VERSION = 2


class Keys(NamedTuple):
  """One PRNG key for each thing a trial draws, all from (seed, point, number)."""

  distribution: Array
  pretraining: Array
  measure: Array
  downstream: Array
  tasks: Array
  tuning: Array


@functools.partial(jax.jit, compiler_options=compilation.ONCE)
def _keys(seed: int, *numbers: int) -> Keys:
  key = functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))
  return Keys(*jax.random.split(key, len(Keys._fields)))


class Trial(NamedTuple):
  """A draw at a point of the grid, by its number.

  Attributes:
    settings: of the trial.
    point: its distribution.
    number: of the draw.
    own: what the user gives in place of ours, by the field that names it; a function has a `digest`.
    label: what tells its settings from those of other trials of a run, in words.
  """

  settings: Settings
  point: Point
  number: int
  own: Mapping[str, Any] = types.MappingProxyType({})
  label: str = ''

  def __str__(self) -> str:
    process = self.settings.distribution.rpartition('-')[0]
    return ' '.join(filter(None, [self.label or process, str(self.point), f'trial {self.number}']))

  @property
  def methods(self) -> tuple[str, ...]:
    return self.settings.grid()[self.point]

  @property
  def other(self) -> 'Trial':
    """The trial whose BERT is `other_bert`: the previous one, or trial 1 for trial 0, so none is pretrained for it."""
    return self._replace(number=abs(self.number - 1))

  def keys(self) -> Keys:
    memory = self.point[1:] if self.point.memory_size else ()
    # JAX's seeds have 32 bits.
    return _keys(np.uint32(self.settings.seed % 2**32), self.point.num_states, self.number, *memory)

  @property
  def pretraining_id(self) -> str:
    """The id of a pretrained model: a digest of all settings that decide its bits, independent of the experiment.

    Platform, devices and versions may decide them too; they are recorded beside the model and are not part of its id.
    """
    settings = self.settings
    pretrain = deciding(settings.pretrain)
    del pretrain['checkpoint_every'], pretrain['measure_every']
    # For given data only the digest counts, not the name.
    digests = [reference.rpartition('-')[2] for reference in settings.given.values()]
    parts: list[Any] = [
      _PRETRAINING_VERSION,
      settings.seed,
      self.point.num_states,
      self.number,
      digests or settings.hmm,
      settings.corpus,
      settings.bert,
      pretrain,
    ]
    if self.point.memory_size:
      parts += [self.point, settings.memory.joint_prior, settings.memory.joint_permutations]
    # Likewise of a model that was pretrained elsewhere.
    parts += [settings.pretrained_from.rpartition('-')[2]] if settings.pretrained_from else []
    return digest(parts)

  @property
  def id(self) -> str:
    """A digest of the settings that all records of the trial share, independent of models, methods and tasks.

    The tuning of a method is no part of it: see `fit_id`.
    """
    parts: list[Any] = [self.pretraining_id, self.settings.measure, self.settings.downstream]
    if self.point.memory_size:
      parts.append(self.settings.memory.label_cell)
    if self.settings.label:
      # Settings on record may name a function that this process has not imported.
      parts += [self.settings.label, getattr(self.own.get('label'), 'digest', None)]
    return digest(parts)

  def fit_id(self, model: str, method: str) -> str:
    """The id of a fit of one of METHODS: a digest of its settings, which with the id of the trial decide its records.

    The user's own model and head are named by their functions and the digests of their code.
    """
    parts = [getattr(self.settings, name) for name in METHODS[method].settings]
    if model == 'own':
      parts += [self.settings.model, self.own['model'].digest]
    if method == 'own_head':
      parts += [self.settings.own_head, self.own['own_head'].digest]
    return digest(parts)


def trials(*grid: Settings, own: Callable[[Settings], Mapping[str, Any]] = lambda _: {}) -> list[Trial]:
  """Every trial of one or several settings, ordered by its number, so that all points advance together.

  Trials of one number and distribution stand side by side. `own` returns what the user gives for settings.
  """
  made = [
    Trial(settings, point, number, own(settings), lists.text(differing))
    for settings, differing in zip(grid, lists.points(grid))
    for point in settings.grid()
    for number in range(settings.num_draws(point))
  ]
  return sorted(made, key=lambda trial: (trial.number, trial.point.order))


def trial_numbers(text: str, count: int) -> list[int]:
  """Parse numbers of trials below `count`, such as '0,3-5'; '' means all. Raises SettingsError."""
  numbers = set[int]()
  try:
    for part in text.split(',') if text else [f'0-{count - 1}']:
      first, _, last = part.partition('-')
      # No more than one too many.
      numbers |= {*range(int(first), min(int(last or first), count) + 1)}
  except ValueError:
    numbers.clear()
  are_trials = numbers and max(numbers) < count
  require(are_trials, '--trials', text, f'numbers from 0 to {count - 1}, and ranges, such as 0,3-5')
  return sorted(numbers)
