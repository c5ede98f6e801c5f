"""Pretraining checkpoints, with Orbax."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp


class Checkpoints(NamedTuple):
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead."""

  manager: ocp.CheckpointManager

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Saves in the background, and needs neither argument any longer on returning.

    An interrupted save leaves the one before it in force.
    """
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    self.manager.save(step, args=args)

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest state and metrics, or None; `like` is a tree of ShapeDtypeStructs with shardings."""
    step = self.manager.latest_step()
    if step is None:
      return None
    args = ocp.args.Composite(state=ocp.args.StandardRestore(like), metrics=ocp.args.JsonRestore())
    restored = self.manager.restore(step, args=args)
    return restored.state, restored.metrics


@contextlib.contextmanager
def open_checkpoints(directory: pathlib.Path) -> Iterator[Checkpoints]:
  """Keeps the newest checkpoint; waits for the last save on leaving."""
  options = ocp.CheckpointManagerOptions(max_to_keep=1, cleanup_tmp_directories=True)
  with ocp.CheckpointManager(directory.absolute(), options=options) as manager:
    yield Checkpoints(manager)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree`, to be restored onto `sharding`."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
