"""The environment of a run: what its numbers depend on besides its config."""

from collections.abc import Iterable
import contextlib
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
from typing import Any

import jax

from experiments.records import files
from experiments.runtime import distributed, machine
from experiments.settings.fields import digest

_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'numpy',
  'scipy',
  'ml_collections',
  'absl-py',
  'matplotlib',
)

Environment = dict[str, Any]

# Folder of a workdir with a file for each environment, named by its id.
FOLDER = 'environments'


def environment(*devices: jax.Device) -> Environment:
  """Commit, versions and platform of this process, how many there are, and the kinds of the devices."""
  return {
    'commit': _git('rev-parse', 'HEAD') or 'unknown',
    'uncommitted_changes': bool(_git('status', '--porcelain')),
    'python': platform.python_version(),
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    'packages': {name: importlib.metadata.version(name) for name in _PACKAGES},
    'platform': f'{platform.system()} {platform.machine()}',
    'cpu': machine.cpu(),
    'processes': distributed.num_processes(),
    'devices': [device.device_kind for device in devices],
  }


@functools.cache
def _git(*words: str) -> str:
  """The output of git on this clone; '' if this is none, or git is not installed.

  It is cached: a commit made during a run is not the one that runs.
  """
  # Without --git-dir git would take a repository that an installed copy lies in.
  command = ['git', '-C', str(pathlib.Path(__file__).parents[2]), '--git-dir=.git', *words]
  try:
    return subprocess.run(command, capture_output=True, encoding='utf-8', errors='replace').stdout.strip()
  except FileNotFoundError:
    return ''


def keep(workdir: pathlib.Path, current: Environment) -> str:
  """Write an environment into a workdir; return its id, by which records name it."""
  # The id is a digest of the values in the file, so that `load` detects a changed file.
  environment_id = digest([current])
  files.write_whole(workdir / FOLDER / f'{environment_id}.json', json.dumps(current, indent=1) + '\n')
  return environment_id


def load(workdir: pathlib.Path, records: Iterable[dict[str, Any]]) -> dict[str, Environment]:
  """The environments of the records of a workdir by id, without those whose file was changed."""
  environments = {}
  # Read all files: an id in a record, which may come from anybody, must not choose a path.
  for path in files.entries(workdir / FOLDER):
    with contextlib.suppress(OSError, ValueError):
      content = files.read_json(path)
      environments[digest([content])] = content
  named = dict.fromkeys(str(record.get('environment')) for record in records)
  return {one: environments[one] for one in named if one in environments}
