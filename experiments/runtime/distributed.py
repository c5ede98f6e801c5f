"""Several processes that run one program: joining them, and decisions of process 0 for all.

All processes must take the same branches, or a collective computation hangs. So only process 0 reads the work
directory and the clock where these decide what comes next, and sends the answer to the others. It goes through JAX's
coordination service and no device, since that service detects a dead process by its heartbeat.
"""

from collections.abc import Callable
import contextvars
import functools
import json
import sys
from typing import Any, ParamSpec, TypeVar

import jax
from jax._src import clusters, distributed as jax_distributed

from experiments.runtime.exit_status import Lost, Stopped
from experiments.settings.devices import DistributedSettings
from experiments.settings.fields import require, SettingsError

T = TypeVar('T')
P = ParamSpec('P')
# Errors that process 0 may raise for all.
_SHARED_ERRORS = {error.__name__: error for error in (SettingsError, Lost, Stopped)}
# Seconds to wait for the other processes to start.
_MOST_WAIT = 120
# Milliseconds, 30 days: an awaited process either arrives or fails its heartbeat.
_ALWAYS = 30 * 24 * 3600 * 1000

# True while one process runs a `look` for all, whose own calls stay there.
_is_alone = contextvars.ContextVar('is_alone', default=False)


def initialize(settings: DistributedSettings) -> None:
  """Join the other processes, if there are any; call it before JAX looks for devices.

  Address, number of processes, this one's number and its devices (None: all) come from the settings, or else from the
  cluster. JAX ends this process where the others do not all join in time. Raises SettingsError if `mode` is 'on' and
  something is neither set nor found, or JAX has looked for devices already.
  """
  s = settings
  if s.mode == 'off' or jax.distributed.is_initialized():
    return
  if s.num_processes:
    require(':' in s.coordinator_address, 'distributed.coordinator_address', s.coordinator_address, 'HOST:PORT')
    require(s.process_id < s.num_processes, 'distributed.process_id', s.process_id, f'below {s.num_processes}')
  try:
    # JAX's own detection raises if there is no cluster, and joins one of a single process.
    find = clusters.ClusterEnv.auto_detect_unset_distributed_params
    asked = s.coordinator_address, s.num_processes, s.process_id, None
    joined = asked if s.num_processes else find(None, None, None, None, None, _MOST_WAIT)
    address, count, index, local_devices = joined
    if s.mode == 'auto' and count in (None, 1):
      return
    if address is None:
      raise ValueError('JAX found no cluster')
    # Printed before: a failure to join raises nothing.
    alone = f'waiting {_MOST_WAIT} s for the others; --config.distributed.mode=off runs without them'
    print(f'joining {count} processes at {address}, {alone}', file=sys.stderr, flush=True)
    # It would handle SIGTERM in our place.
    jax.config.update('jax_enable_preemption_service', False)
    jax.distributed.initialize(
      address,
      count,
      index,
      local_devices,
      cluster_detection_method='deactivate',  # Done above.
      initialization_timeout=_MOST_WAIT,
      heartbeat_timeout_seconds=s.heartbeat_timeout,
      shutdown_timeout_seconds=s.heartbeat_timeout,
    )
  except (ValueError, RuntimeError) as error:
    valid = "'off', or 'on' with coordinator_address, num_processes and process_id"
    raise SettingsError(f'distributed.mode is {s.mode!r} and failed ({error}); valid is {valid}')


def num_processes() -> int:
  return jax_distributed.global_state.num_processes


def is_writer() -> bool:
  """True in process 0, the only one that writes and reports."""
  return jax_distributed.global_state.process_id == 0


def broadcast_from_process_0(look: Callable[[], T]) -> T:
  """The result of `look`, run only in process 0, sent as JSON; an error of _SHARED_ERRORS is raised in every process.

  Every process must make this call, in the same order. Calls inside `look` stay in process 0.
  """
  return _shared(0, look)


def in_process_0(function: Callable[P, T]) -> Callable[P, T]:
  """Decorate a function that writes: process 0 runs it for all, as `broadcast_from_process_0` does."""

  @functools.wraps(function)
  def run(*arguments: P.args, **named: P.kwargs) -> T:
    return broadcast_from_process_0(lambda: function(*arguments, **named))

  return run


def raise_everywhere(check: Callable[[], Any]) -> None:
  """Run `check`, which returns nothing, in every process; a SettingsError of one is raised in all."""
  failed: SettingsError | None = None
  try:
    check()
  except SettingsError as error:
    failed = error

  def raise_it() -> None:
    if failed:
      raise failed

  for index in range(num_processes()):
    _shared(index, raise_it)


def post(number: int) -> None:
  """Leave the number of a signal for process 0, which finds it by `posted`; does not wait. Process 0 leaves none."""
  if not is_writer():
    _client().key_value_set(f'posted/{jax_distributed.global_state.process_id}', str(number), allow_overwrite=True)


def posted() -> list[int]:
  """The numbers that other processes have posted so far."""
  return [int(text) for _, text in _client().key_value_dir_get('posted/')] if num_processes() > 1 else []


def _client() -> Any:
  return jax_distributed.global_state.client


def _shared(index: int, look: Callable[[], T]) -> T:
  """The result of `look` in one of the processes, for all."""
  if num_processes() == 1 or _is_alone.get():
    return look()
  me = jax_distributed.global_state.process_id
  # Each process counts its calls; they take the same branches, so that the numbers agree.
  key = f'shared/{_client().key_value_increment(f"calls/{me}", 1)}'
  if me == index:
    _client().key_value_set(key, json.dumps(_outcome(look)))
  name, *words = json.loads(_client().blocking_key_value_get(key, _ALWAYS))
  if name:
    raise _SHARED_ERRORS[name](*words)
  return words[0]


def _outcome(look: Callable[[], Any]) -> list[Any]:
  """['', result of `look`], or [name, *arguments] of an error of _SHARED_ERRORS."""
  token = _is_alone.set(True)
  try:
    return ['', look()]
  except tuple(_SHARED_ERRORS.values()) as error:
    # A subclass is raised as the class that the others know.
    name = next(name for name, known in _SHARED_ERRORS.items() if isinstance(error, known))
    return [name, *error.args]
  finally:
    _is_alone.reset(token)
