"""Pretraining checkpoints, with Orbax, and files that are written whole or not at all."""

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from experiments.settings import SettingsError


class Checkpoints(NamedTuple):
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead."""

  manager: ocp.CheckpointManager

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Saves in the background; an interrupted save leaves the one before it in force."""
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(metrics))
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


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
  """Replaces the file in one step: a reader, or a kill, sees the old content or the new."""
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f'.{path.name}.{os.getpid()}')
  data = content.encode() if isinstance(content, str) else content
  with open(partial, 'wb') as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  os.replace(partial, path)


def write_json_lines(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  """One JSON object a line; NaN is refused, since JSON has none."""
  write_whole(path, ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows))


def append_json_line(path: pathlib.Path, row: dict[str, Any]) -> None:
  """Adds a row to those of `path`, whole or not at all."""
  write_json_lines(path, [*read_json_lines(path), row])


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of `path`, none where it does not exist. Raises SettingsError where it is damaged."""
  if not path.exists():
    return []
  try:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
  except (OSError, ValueError):
    rows = [None]
  if not all(isinstance(row, dict) for row in rows):
    raise SettingsError(
      f'{str(path)!r} is damaged; valid is a JSON object on each line, or no such file: run again then'
    )
  return rows
