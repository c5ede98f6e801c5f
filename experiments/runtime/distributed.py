"""Several processes that run one program: joining them, and decisions of process 0 for all.

All processes must take the same branches, or a collective computation hangs. So only process 0 reads the work
directory and the clock where these decide what comes next, and sends the answer to the others. It goes through JAX's
coordination service and no device, since that service detects a dead process by its heartbeat.
"""

from collections.abc import Callable
import functools
import json
import sys
from typing import Any, ParamSpec, TypeVar

import jax
from jax._src import clusters, distributed as jax_distributed

from experiments.runtime.exit_status import Lost
from experiments.settings.devices import DistributedSettings
from experiments.settings.fields import require, SettingsError

T = TypeVar('T')
P = ParamSpec('P')
# Seconds to wait for the other processes to start.
_MOST_WAIT = 120
# Milliseconds, 30 days: an awaited process either arrives or fails its heartbeat.
_ALWAYS = 30 * 24 * 3600 * 1000


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


def in_process_0(function: Callable[P, T]) -> Callable[P, T]:
  """Make `function`, which looks at files or writes them, run in process 0 for all, which get its result as JSON.

  Its SettingsError or Lost is raised in every process. Every process must make each call, in the same order; what
  `function` calls makes none.
  """

  @functools.wraps(function)
  def run(*arguments: P.args, **named: P.kwargs) -> T:
    if num_processes() == 1:
      return function(*arguments, **named)
    outcome: tuple[str, Any] | None = None
    if is_writer():
      try:
        outcome = '', function(*arguments, **named)
      except (SettingsError, Lost) as raised:
        outcome = str(raised), isinstance(raised, Lost)
    (error, result), *_ = gathered(outcome)
    if error:
      raise Lost(error) if result else SettingsError(error)
    return result

  return run


def gathered(value: Any) -> list[Any]:
  """The values of all processes, by their numbers, as JSON has them; every process must make each call, in order."""
  state, count = jax_distributed.global_state, num_processes()
  client: Any = state.client
  if count == 1:
    return [value]
  # Each process counts its calls; they take the same branches, so that the numbers agree.
  call = client.key_value_increment(f'calls/{state.process_id}', 1)
  client.key_value_set(f'{call}/{state.process_id}', json.dumps(value))
  return [json.loads(client.blocking_key_value_get(f'{call}/{each}', _ALWAYS)) for each in range(count)]
