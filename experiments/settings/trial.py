"""A trial of a grid: who it is, the keys of what it draws, and the ids of its model, its records and its fits."""

from collections.abc import Mapping
import dataclasses
import functools
import re
import types
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings.fields import digest, require
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
  """A draw at a point of the grid, by its number; `code` has the digests of the user's own functions, by field."""

  settings: Settings
  point: Point
  number: int
  code: Mapping[str, str] = types.MappingProxyType({})

  def __str__(self) -> str:
    process = self.settings.distribution.rpartition('-')[0]
    return f'{process} {self.point} trial {self.number}'.lstrip()

  @property
  def methods(self) -> tuple[str, ...]:
    return self.settings.grid()[self.point]

  def keys(self) -> Keys:
    memory = self.point[1:] if self.point.memory_size else ()
    # JAX's seeds have 32 bits.
    return _keys(np.uint32(self.settings.seed % 2**32), self.point.num_states, self.number, *memory)

  @property
  def pretraining_id(self) -> str:
    """The id of a pretrained model: a digest of all settings that decide its bits, independent of the experiment.

    Platform, devices and versions may decide them too; they are recorded beside the model and are not part of its id.
    """
    settings, point = self.settings, self.point
    pretrain = dataclasses.asdict(settings.pretrain)
    del pretrain['checkpoint_every'], pretrain['measure_every']
    # For given data only the digest counts, not the name.
    digests = [reference.rpartition('-')[2] for reference in settings.given.values()]
    drawn_from: Any = digests or settings.hmm
    parts = [_PRETRAINING_VERSION, settings.seed, point.num_states, self.number, drawn_from]
    parts += [settings.corpus, settings.bert, pretrain]
    if settings.fast_compilation:
      parts.append('fast compilation')
    if point.memory_size:
      parts += [point, settings.memory.joint_prior, settings.memory.joint_permutations]
    return digest(parts)

  @property
  def id(self) -> str:
    """A digest of the settings that all records of the trial share, independent of models, methods and tasks.

    The tuning of a method is no part of it: see `fit_id`.
    """
    parts = [self.pretraining_id, self.settings.measure, self.settings.downstream]
    if self.point.memory_size:
      parts.append(self.settings.memory.label_cell)
    return digest(parts)

  def fit_id(self, model: str, method: str) -> str:
    """The id of a fit of one of METHODS: a digest of its settings, which with the id of the trial decide its records.

    The user's own model and head are named by their functions and the digests of their code.
    """
    parts = [getattr(self.settings, name) for name in METHODS[method].settings]
    if model == 'own':
      parts += [self.settings.model, self.code['model']]
    if method == 'own_head':
      parts += [self.settings.own_head, self.code['own_head']]
    return digest(parts)


def trials(settings: Settings, code: Mapping[str, str] = Trial._field_defaults['code']) -> list[Trial]:
  """Every trial of a grid, ordered by its number, so that all points advance together."""
  return [
    Trial(settings, point, number, code)
    for number in range(settings.num_trials)
    for point in settings.grid()
    if number < settings.num_draws(point)
  ]


def trial_numbers(text: str, count: int) -> list[int]:
  """Parse numbers of trials below `count`, such as '0,3-5'; '' means all. Raises SettingsError."""
  numbers = set[int]()
  for part in text.split(',') if text else ():
    ends = re.fullmatch(r' *([0-9]{1,9})(?:-([0-9]{1,9}))? *', part)
    first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
    require(first <= last < count, '--trials', text, f'numbers from 0 to {count - 1}, and ranges, such as 0,3-5')
    numbers |= set(range(first, last + 1))
  return sorted(numbers) or list(range(count))
