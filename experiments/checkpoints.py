"""Pretraining checkpoints, with Orbax."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any, NamedTuple
import uuid

import jax
import orbax.checkpoint as ocp

from experiments import distributed, files
from experiments.fields import require


class Checkpoints(NamedTuple):
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead.

  All processes save and restore together.
  """

  manager: ocp.CheckpointManager

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Saves in the background, and needs neither argument any longer on returning.

    An interrupted save leaves the one before it in force.
    """
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    self.manager.save(step, args=args)

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest state and metrics, or None; `like` is a tree of ShapeDtypeStructs with shardings."""
    step = distributed.decide(self.manager.latest_step)
    if step is None:
      return None
    args = ocp.args.Composite(state=ocp.args.StandardRestore(like), metrics=ocp.args.JsonRestore())
    restored = self.manager.restore(step, args=args)
    return restored.state, restored.metrics


@contextlib.contextmanager
def open_checkpoints(directory: pathlib.Path) -> Iterator[Checkpoints]:
  """Keeps the newest checkpoint; waits for the last save on leaving.

  Raises SettingsError where there are processes that do not see what process 0 writes there.
  """
  _check_shared(directory)
  options = ocp.CheckpointManagerOptions(max_to_keep=1, cleanup_tmp_directories=True)
  absolute = directory if files.is_object(directory) else directory.absolute()
  with ocp.CheckpointManager(absolute, options=options) as manager:
    yield Checkpoints(manager)


def _check_shared(directory: pathlib.Path) -> None:
  if distributed.num_processes() == 1:
    return
  probe = directory / distributed.decide(lambda: f'.probe-{uuid.uuid4().hex}')
  distributed.decide(lambda: files.write_whole(probe, ''))
  valid = 'one that all processes share, such as gs://BUCKET/DIRECTORY'
  try:
    distributed.agree(lambda: require(probe.exists(), 'the directory of checkpoints', str(directory), valid))
  finally:
    files.remove(probe)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree`, to be restored onto `sharding`."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
