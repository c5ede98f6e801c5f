"""Finished pretrained models: each a folder that `hmm_jax.load` opens, with the SHA-256 of its files."""

import pathlib
import tempfile
from typing import Any

import jax

from experiments.records import files
from experiments.runtime import distributed, locks
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require
from hmm_jax.files import models
from hmm_jax.models.bert import BertModel

# The folder of the model, within that of its pretraining.
NAME = 'model'


def write(directory: pathlib.Path, model: BertModel, params: Any, distribution: Any, card: str) -> None:
  """Write the model of a pretraining as `hmm_jax.save` does, and last its checksums: without them it does not count."""
  if locks.may_write(directory / NAME):
    with tempfile.TemporaryDirectory() as local:
      models.save(local, model, params, distribution, card)
      # An object store has no folders, so that nothing there appears whole but a file.
      for name, path in files.tree(pathlib.Path(local)).items():
        files.write_whole(directory / NAME / name, path.read_bytes())
    files.write_checksums(directory / NAME, directory.name)


def is_finished(directory: pathlib.Path) -> bool:
  """True if a pretraining has left its model; no other file is opened."""
  return (directory / NAME / files.CHECKSUMS).exists()


def copy_of(word: str, pretrained: pathlib.Path) -> tuple[pathlib.Path, str] | None:
  """The one model in a folder of pretrained models whose card names `word` or `word`-DIGEST, and that name."""
  cards = {path / NAME: path / NAME / 'README.md' for path in files.entries(pretrained) if is_finished(path)}
  heading = lambda card: next((line[2:] for line in card.read_text().splitlines() if line.startswith('# ')), '')
  names = {folder: heading(card) for folder, card in cards.items()}
  copies = [(folder, name) for folder, name in names.items() if word in (name, name.rpartition('-')[0])]
  return copies[0] if len({name for _, name in copies}) == 1 else None


def load(directory: pathlib.Path, reporter: Reporter) -> tuple[BertModel, Any] | None:
  """The model of a pretraining, its parameters on the first device of this host; None if there is none.

  A corrupt one is reported and renamed. All processes call it together. Raises SettingsError, in all, if one of them
  does not see what process 0 sees.
  """
  folder = directory / NAME

  def is_intact() -> bool:
    fault = files.fault(folder, directory.name) if is_finished(directory) else None
    if fault:
      reporter.say(f'model {folder}: {fault}; renamed to {files.rename_corrupt(folder)}')
    return is_finished(directory)

  if not distributed.broadcast_from_process_0(is_intact):
    return None
  valid = 'in a directory that all processes share, such as gs://BUCKET/DIRECTORY'
  distributed.raise_everywhere(lambda: require(is_finished(directory), 'the model', str(folder), valid))
  with tempfile.TemporaryDirectory() as local:
    for path in files.entries(folder):
      if path.is_file():
        (pathlib.Path(local) / path.name).write_bytes(path.read_bytes())
    model, params = models.load_bert(pathlib.Path(local))
  return model, jax.device_put(params, jax.local_devices()[0])
