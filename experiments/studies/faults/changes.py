"""What is changed in a run on purpose, by name, in the process that was forked for it alone.

All but those that return NaN take one protection away: what the campaign does not count as lost with it,
it does not see.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import itertools
import os
import threading
from typing import Any

import jax
import jax.numpy as jnp

from experiments.pipeline import disk_needs, pretraining, trial
from experiments.records import checkpoints, environment, files, manifests
from experiments.runtime import locks, nan_guard, signals
from experiments.settings import fields
from hmm_jax import tuning

_LEAKED: list[Any] = []


def _nan_steps(number: str) -> None:
  """That call of the compiled steps of a run returns losses and parameters that are NaN."""
  compiled, is_it = pretraining.compiled, _counter(number)

  def with_poison(*arguments: Any) -> Any:
    init, train_steps = compiled(*arguments)

    def poisoned(*arguments: Any) -> Any:
      state, losses = train_steps(*arguments)
      return (state._replace(params=_nan(state.params)), losses * jnp.nan) if is_it() else (state, losses)

    return init, poisoned

  pretraining.compiled = with_poison  # type: ignore[assignment]


def _nan_epoch(number: str) -> None:
  """That epoch of tuning of a run returns losses and arrays that are NaN."""
  tune_epoch, is_it = tuning.tune_epoch, _counter(number)

  def poisoned(*arguments: Any) -> Any:
    state, losses = tune_epoch(*arguments)
    return (state._replace(trainable=_nan(state.trainable)), losses * jnp.nan) if is_it() else (state, losses)

  tuning.tune_epoch = poisoned  # type: ignore[assignment]


def _counter(number: str) -> Callable[[], bool]:
  """Whether it is called for the time of that number."""
  calls = itertools.count(1)
  return lambda: next(calls) == int(number)


def _nan(tree: Any) -> Any:
  return jax.tree.map(lambda x: x * jnp.nan, tree)


def _without_moments() -> None:
  """A checkpoint is restored without the optimiser's moments."""
  restore = checkpoints.Checkpoints.restore

  def forgetful(self: checkpoints.Checkpoints, like: Any) -> Any:
    found = restore(self, like)
    if not found:
      return None
    state, metrics = found
    return state._replace(opt_state=jax.tree.map(jnp.zeros_like, state.opt_state)), metrics

  checkpoints.Checkpoints.restore = forgetful  # type: ignore[method-assign]


def _without_digests() -> None:
  """No file is compared with its manifest."""
  manifests.fault = lambda recorded, found: None


def _without_claims() -> None:
  """Every claim is granted."""

  @contextlib.contextmanager
  def granted(*_: Any, **__: Any) -> Iterator[bool]:
    yield True

  locks.held = granted
  locks.check = lambda directory: None


def _deaf() -> None:
  """Signals are not answered."""
  signals._answer = lambda number, *_: None


def _without_finiteness() -> None:
  """Whatever is computed is kept."""
  for name in ('check_losses', 'check_state', 'check_members', 'check_values'):
    setattr(nan_guard, name, lambda *_, **__: None)


def _silent() -> None:
  """Nothing is said of another environment."""
  environment.differences = lambda there, here: []


def _without_ranges() -> None:
  """Fields take what they are given."""
  fields._takes = lambda field, value: True


def _swallowing() -> None:
  """A file that cannot be written is passed over; a claim, which would tell, is not made."""
  write_whole = files.write_whole
  _without_claims()

  def swallowed(path: Any, content: str | bytes) -> None:
    with contextlib.suppress(OSError):
      write_whole(path, content)

  files.write_whole = swallowed


def _without_estimate() -> None:
  """A run begins whatever room there is."""
  disk_needs.check = lambda *_: None


def _leaking() -> None:
  """Every trial leaves 1 MB, an open file and a thread."""
  run = trial.run

  def leaky(*arguments: Any) -> None:
    run(*arguments)
    ended = threading.Event()
    threading.Thread(target=ended.wait, daemon=True).start()
    _LEAKED.extend((bytes(os.urandom(10**6)), os.open(os.devnull, os.O_RDONLY), ended))

  trial.run = leaky  # type: ignore[assignment]


PROTECTIONS: dict[str, Callable[[], None]] = {
  'moments': _without_moments,
  'digests': _without_digests,
  'claims': _without_claims,
  'answers to signals': _deaf,
  'checks of finiteness': _without_finiteness,
  'environment warnings': _silent,
  'ranges of fields': _without_ranges,
  'estimate of room': _without_estimate,
  'errors of writing': _swallowing,
  'release of what a trial takes': _leaking,
}
# Behind the name and an @ stands the number of the call that returns NaN.
_POISONS: dict[str, Callable[[str], None]] = {'steps': _nan_steps, 'epoch': _nan_epoch}


def make(names: Sequence[str]) -> None:
  """Makes the changes of these names, of which some may be empty, in this process."""
  for name in filter(None, names):
    if name in PROTECTIONS:
      PROTECTIONS[name]()
    else:
      poison, _, number = name.partition('@')
      _POISONS[poison](number)
