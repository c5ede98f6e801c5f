"""Finished pretrained models: each a folder that `hmm_jax.load` opens, with the SHA-256 of its files."""

import pathlib
import tempfile
from typing import Any

import jax

from experiments.records import files
from experiments.runtime import distributed, locks, storage
from experiments.runtime.progress import Reporter
from hmm_jax.files import models
from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import MaskedLM

# The folder of the model, within that of its pretraining.
NAME = 'model'


def place(directory: pathlib.Path, step: int | None = None) -> pathlib.Path:
  """The folder of the finished model of a pretraining, or of the model after `step` steps."""
  return directory / (NAME if step is None else f'{NAME}_{step}')


@distributed.in_process_0
def write(
  directory: pathlib.Path,
  model: BertModel,
  params: Any,
  distribution: Any,
  card: str,
  step: int | None = None,
) -> None:
  """Write the model of a pretraining as `hmm_jax.save` does, and last its checksums: without them it does not count.

  Raises Lost unless process 0 has the lock on the directory.
  """
  locks.check_held(directory)
  folder = place(directory, step)
  with tempfile.TemporaryDirectory() as local:
    models.save(local, model, params, distribution, card)
    # An object store has no folders, so that nothing there appears whole but a file.
    for name, path in files.tree(pathlib.Path(local)).items():
      files.write_whole(folder / name, path.read_bytes())
  files.write_checksums(folder, directory.name)


def read(folder: pathlib.Path) -> tuple[MaskedLM, Any, Any]:
  """Read a folder by `hmm_jax.load`, in an object store too."""
  if not storage.is_object(folder):
    return models.load(folder)
  with tempfile.TemporaryDirectory() as local:
    for path in files.entries(folder):
      if path.is_file():
        (pathlib.Path(local) / path.name).write_bytes(path.read_bytes())
    return models.load(local)


def load(directory: pathlib.Path, reporter: Reporter, step: int | None = None) -> Any | None:
  """The parameters of a model that `write` wrote, on the first device of this host; None if there is none.

  A corrupt one is reported and renamed. All processes call it together, and see the same folder.
  """
  folder = place(directory, step)
  if not distributed.in_process_0(files.is_intact)(folder, directory.name, reporter):
    return None
  _, params, _ = read(folder)
  return jax.device_put(params, jax.local_devices()[0])
