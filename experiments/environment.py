"""What the numbers of a run came from besides its config."""

import importlib.metadata
import pathlib
import platform
import subprocess
import sys

import jax

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


def environment() -> dict[str, object]:
  """What the numbers came from besides the config."""
  root = pathlib.Path(__file__).parent.parent
  git = lambda *words: subprocess.run(['git', '-C', root, *words], capture_output=True, text=True).stdout.strip()
  return {
    'python': platform.python_version(),
    'packages': {name: importlib.metadata.version(name) for name in _PACKAGES},
    'devices': [str(device.device_kind) for device in jax.devices()],
    'platform': platform.platform(),
    'commit': git('rev-parse', 'HEAD') or 'unknown',
    'uncommitted_changes': bool(git('status', '--porcelain')),
    'command': sys.argv,
  }
