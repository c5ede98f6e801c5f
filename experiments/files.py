"""Files that are written whole or not at all, JSON lines among them."""

import json
import os
import pathlib
from typing import Any

from experiments.fields import SettingsError


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
