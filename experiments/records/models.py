"""Finished pretrained models: each a folder that `hmm_jax.load` opens, with the SHA-256 of its files."""

from collections.abc import Iterator
import contextlib
import pathlib
import tempfile
from typing import Any

from etils import epath
import jax

from experiments.records import checkpoints, files
from experiments.runtime import distributed, locks, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.files import models
from hmm_jax.models.bert import BertModel

# The folder of the model, within that of its pretraining.
NAME = 'model'
# The field of its checksums that tells whether the training state stays beside it.
_KEEPS = 'keeps_checkpoints'


def write(
  directory: pathlib.Path,
  model: BertModel,
  params: Any,
  distribution: HMM | MemoryHMM | None,
  card: str,
  keeps: bool,
) -> None:
  """Write the model of a pretraining and then its checksums, without which it does not count.

  Remove the checkpoints unless it `keeps` them.
  """
  folder = directory / NAME
  if locks.may_write(folder):
    with tempfile.TemporaryDirectory() as local:
      models.save(local, model, params, distribution, card)
      # An object store has no folders, so that nothing there appears whole but a file.
      for name, path in files.tree(pathlib.Path(local)).items():
        files.write_whole(folder / name, path.read_bytes())
    files.write_checksums(folder, directory.name, **{_KEEPS: keeps})
    _remove_checkpoints(directory)


def _remove_checkpoints(directory: pathlib.Path) -> None:
  """Remove the checkpoints of a finished model, unless they were to stay."""
  if not files.read_sealed(directory / NAME / files.CHECKSUMS)[_KEEPS] and locks.may_write(directory / NAME):
    with contextlib.suppress(OSError):
      epath.Path(directory / checkpoints.NAME).rmtree()


def is_finished(directory: pathlib.Path) -> bool:
  """True if a pretraining has left its model; no other file is opened."""
  return (directory / NAME / files.CHECKSUMS).exists()


def load(directory: pathlib.Path, reporter: Reporter) -> tuple[BertModel, Any] | None:
  """The model of a pretraining, its parameters on the first device of this host; None if there is none.

  A corrupt one is reported and renamed. All processes call it together. Raises SettingsError, in all, if one of them
  cannot read it.
  """
  folder, loaded = directory / NAME, list[tuple[BertModel, Any]]()

  def find() -> bool:
    if not is_finished(directory):
      return False
    if fault := files.fault(folder, directory.name):
      reporter.say(f'model {folder}: {fault}; renamed to {files.rename_corrupt(folder)}')
      return False
    # The run that wrote it may have been killed before it did so.
    _remove_checkpoints(directory)
    return True

  def read() -> None:
    try:
      with _local(folder) as local:
        model, params = models.load_bert(local)
    except (OSError, ValueError) as error:
      reason = storage.reason(error)
      raise SettingsError(f'the model is {str(folder)!r}; valid is one that all processes can read ({reason})')
    loaded.append((model, jax.device_put(params, jax.local_devices()[0])))

  if distributed.broadcast_from_process_0(find):
    distributed.raise_everywhere(read)
  return loaded[0] if loaded else None


@contextlib.contextmanager
def _local(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """The folder, or a copy of one in an object store."""
  if not storage.is_object(folder):
    yield folder
    return
  with tempfile.TemporaryDirectory() as local:
    for name, path in files.tree(folder).items():
      (pathlib.Path(local) / name).write_bytes(path.read_bytes())
    yield pathlib.Path(local)
