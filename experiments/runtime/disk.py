"""Whether file systems have the room that a run will take."""

from collections.abc import Mapping
import pathlib

from experiments.runtime import storage
from experiments.settings.fields import SettingsError


def check(needed: Mapping[pathlib.Path, int]) -> None:
  """Raises SettingsError where a file system has less room than the bytes that are `needed` in directories of it."""
  by_device: dict[int, list[tuple[pathlib.Path, int]]] = {}
  for path, size in needed.items():
    if not storage.is_object(path):
      by_device.setdefault(storage.standing(path).stat().st_dev, []).append((path, size))
  for wanted in by_device.values():
    path, total = wanted[0][0], sum(size for _, size in wanted)
    free = storage.free_bytes(path)
    if free is not None and free < total:
      names = ' and '.join(repr(str(each)) for each, _ in wanted)
      raise SettingsError(
        f'{names}: {free:,} bytes are free there; valid are at least {total:,}, which the run may take'
      )
