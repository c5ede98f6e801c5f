"""A user's own distribution in place of a draw, a corpus beside it, and a pretrained model. A workdir has the arrays.

Settings, records and file names say NAME-DIGEST, with a digest of the arrays. All processes of a run have to see the
workdir.
"""

from collections.abc import Callable, Collection
import dataclasses
import hashlib
import operator
import os
import pathlib
import textwrap
from typing import Any
import warnings

import jax
import numpy as np

from experiments.records import files, models as pretrained_models
from experiments.runtime import storage
from experiments.settings.fields import digest, require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.groups import BertSettings
from hmm_jax._support.arguments import check_ids
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax._support.float64 import float64, narrowest
from hmm_jax.distributions import processes
from hmm_jax.distributions.files import fields_of, from_fields, load_distribution
from hmm_jax.distributions.hmm import Distribution, token_likelihoods
from hmm_jax.distributions.labelled import Process, reachable
from hmm_jax.distributions.sampling import token_dtype
from hmm_jax.files import hugging_face
from hmm_jax.inference.posterior import last_filtered
from hmm_jax.models.bert import Bert, BertModel, unrolled

# Folder of a workdir with a file for each reference.
FOLDER = 'user_data'
# Most bytes of NAME, so that NAME-DIGEST.npz has at most 255.
_LONGEST_NAME = 238
_VALID = {
  'distribution': f'one of {", ".join(processes.NAMED)}, as mess3:alpha=0.6, or a .json or .npz file',
  'corpus_file': 'an .npy or .txt file of documents of one length',
  'pretrained_from': 'a folder of hmm_jax.save with a BERT, or of a BertForMaskedLM',
}

# Arrays by name.
Arrays = dict[str, np.ndarray]
# Data that this process has read, by reference, which names the content.
_arrays_read: dict[str, Arrays] = {}
# Likewise models, with their parameters and their process, if any.
_models_read: dict[str, tuple[Bert, Any, Any]] = {}


def resolve(config: Any, workdir: pathlib.Path, named: Collection[str]) -> None:
  """Read the model, the process and the corpus of a grid's config, and set the fields that follow from them.

  A file that is gone is looked for in the workdir, by its name. Without another process, that of the model is taken.
  Raises SettingsError if it is nowhere or malformed, and if a field that the command line has `named` contradicts it.
  """
  # Other experiments read theirs themselves. The settings reject a value that is not a string.
  if 'hmm' not in config:
    return
  if label := config.get('label'):
    # A function labels each text once.
    _set(config, {}, {'tasks_per_trial': 1, 'tasks_at_a_time': 1, 'figure.paper_overlay': False}, named, label)
  folder = config.get('pretrained_from')
  if folder and isinstance(folder, str):
    pretrained = _pretrained_folder(config.get('pretrained'), workdir)
    reference, follows, found = _read_model(folder, pretrained)
    _set(config, {'pretrained_from': reference}, follows, named, folder)
    of_model = found / 'distribution.json'
    config.distribution = config.distribution or (str(of_model) if of_model.exists() else '')
  word, corpus = config.get('distribution'), config.get('corpus_file')
  require(word or not corpus, 'corpus_file', corpus, "'' unless distribution gives the law of the corpus")
  if not word or not isinstance(word, str):
    return
  # Only a function of labels asks for the matrices; without one, ids are those of the HMM.
  kept = (lambda process: process) if label else plain
  read_process = lambda word: _arrays(kept(processes.named(word) or load_distribution(word)))
  reference, arrays = _reference('distribution', word, workdir, read_process)
  _arrays_read[reference], distribution = arrays, from_fields(arrays)
  valid = f'a model of {distribution.num_tokens} tokens, as {word} has, and not of {config.hmm.num_tokens}'
  require(not folder or config.hmm.num_tokens == distribution.num_tokens, 'pretrained_from', folder, valid)
  # A plain HMM counts as one memory cell with no values.
  memory = np.shape(arrays.get('memory_probs', []))
  follows = {
    'num_states': (distribution.num_states,),
    'num_trials_by_size': (),
    'hmm.num_tokens': distribution.num_tokens,
    'memory.sizes': memory[:1],
    'memory.cells': (len(memory),),
    'memory.vanilla_methods': (),
    'figure.paper_overlay': False,
  }
  changes = {'distribution': reference}
  if corpus and isinstance(corpus, str):
    read_tokens = lambda word: {'tokens': tokens(word, distribution.num_tokens)}
    reference, arrays = _reference('corpus_file', corpus, workdir, read_tokens)
    changes['corpus_file'], _arrays_read[reference] = reference, arrays
    follows |= zip(('corpus.num_documents', 'corpus.document_length'), arrays['tokens'].shape)
  _set(config, changes, follows, named, word)


def _set(config: Any, changes: dict[str, Any], follows: dict[str, Any], named: Collection[str], word: str) -> None:
  """Change fields of a config, and those that follow; raise SettingsError if one that is `named` is another."""
  for name in follows.keys() & set(named):
    value = operator.attrgetter(name)(config)
    require(value == follows[name], name, value, f'{follows[name]}, set by {word}')
  config.update_from_flattened_dict(follows | changes)


def _read_model(word: str, pretrained: pathlib.Path) -> tuple[str, dict[str, Any], pathlib.Path]:
  """The reference of a model, the fields that follow from it, and its folder.

  If the folder is gone, its copy among the pretrained models is read. Weights become float32, as a model is tuned.
  """
  folder = storage.located(os.path.abspath(os.path.expanduser(word)), 'pretrained_from')
  name = folder.name
  if not folder.exists() and (kept := pretrained_models.copy_of(name, pretrained)):
    name, folder = kept[0].rpartition('-')[0], kept[1]
  model, params, distribution = read('pretrained_from', word, lambda _: pretrained_models.read(folder))
  require(isinstance(model, BertModel), 'pretrained_from', word, _VALID['pretrained_from'])
  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), unrolled(params))
  state = hugging_face.state_of(params)
  reference = f'{name}-{_digest(state)}'
  bert = model.bert.clone(scan_layers=False, attention='xla')
  _models_read[reference] = bert, params, distribution
  fields = [field.name for field in dataclasses.fields(BertSettings)]
  follows = {f'bert.{name}': getattr(model.bert, name) for name in fields}
  return reference, follows | {'bert.dtype': 'float32', 'hmm.num_tokens': model.num_tokens}, folder


def model(reference: str) -> tuple[Bert, Any, Any]:
  """The BERT of a reference, its parameters and its process, if any; raise SettingsError if none was read."""
  valid = 'one whose copy is in the folder of pretrained models, which --pretrained names with --mode=verify'
  require(reference in _models_read, 'pretrained_from', reference, valid)
  return _models_read[reference]


def _reference(field: str, word: str, workdir: pathlib.Path, reader: Callable[[str], Arrays]) -> tuple[str, Arrays]:
  """The reference and the arrays of what a field names: a process, a file, or what the workdir has of that name."""
  word = os.path.expanduser(word)
  path, name = pathlib.Path(word), word.split(':')[0]
  if name in processes.NAMED:
    # Its parameters decide the digest.
    path = pathlib.Path(name)
  elif not os.path.exists(word):
    kept = _copies(field, path, workdir)
    require(len(kept) < 2, field, word, f'one of {", ".join(kept)}, the copies in {workdir}')
    if kept:
      return kept.popitem()
  arrays = read(field, word, reader)
  return f'{_name(path)}-{_digest(arrays)}', arrays


def _name(path: pathlib.Path) -> str:
  """The NAME of a file's reference; a digest if it is too long for a file of the workdir."""
  return path.stem if len(path.stem.encode(errors='replace')) <= _LONGEST_NAME else digest([path.stem])


def _copies(field: str, path: pathlib.Path, workdir: pathlib.Path) -> dict[str, Arrays]:
  """The arrays that a workdir has under the name of a path, which may be a reference itself, by reference."""
  stems = [file.stem for file in files.entries(workdir / FOLDER)]
  named = {stem: load(workdir, stem) for stem in stems if stem == path.name or stem.rpartition('-')[0] == _name(path)}
  return {stem: arrays for stem, arrays in named.items() if ('tokens' in arrays) == (field == 'corpus_file')}


def _pretrained_folder(pretrained: str, workdir: pathlib.Path) -> pathlib.Path:
  return storage.located(pretrained or str(workdir / 'pretrained'), 'pretrained')


def read(field: str, word: str, reader: Callable[[str], Any]) -> Any:
  """Read what a field names; raises SettingsError if that fails."""
  try:
    return reader(word)
  # A process raises TypeError for a parameter that it lacks.
  except (OSError, EOFError, MemoryError, TypeError, ValueError) as error:
    reason, *of_file = str(error).split('; valid ', 1)
    # For an existing file, its own error may be more precise.
    valid = of_file[0] if of_file and os.path.exists(os.path.expanduser(word)) else f'is {_VALID[field]}'
    raise SettingsError(f'{field} is {word!r}, and cannot be read ({textwrap.shorten(reason, 300)}); valid {valid}')


def tokens(path: str, num_tokens: int) -> np.ndarray:
  """The documents [S, T] of a corpus of token ids, a row of an .npy or a line of a .txt each.

  A file of one line, or of one id a line, is one document. Raises ValueError at what is no id.
  """
  with files.opened(pathlib.Path(path), files.MOST_ARRAYS) as file, warnings.catch_warnings():
    # numpy warns of an empty file, which is refused below; a byte order mark is no token.
    warnings.simplefilter('ignore', UserWarning)
    is_text = path.endswith('.txt')
    # Raises MemoryError, and touches no memory, for an .npy that declares more than it has.
    ids = np.loadtxt(file, np.int64, encoding='utf-8-sig') if is_text else np.load(file, allow_pickle=False)
  ids = np.atleast_2d(ids)
  if ids.dtype.kind not in 'iu' or ids.ndim > 2 or not ids.size:
    raise ValueError(
      f'it has dtype {ids.dtype} and shape {ids.shape}, not integers [documents, length] or [length], at least one'
    )
  check_ids('tokens', ids, num_tokens)
  return ids.astype(token_dtype(num_tokens))


def plain(distribution: Any) -> Any:
  """The HMM of a process of matrices; another distribution unchanged."""
  return distribution.hmm if isinstance(distribution, Process) else distribution


def _arrays(distribution: Any) -> Arrays:
  """The fields of a distribution: int32; float32 if that holds each number, as those of a draw; else float64."""
  return {name: narrowest(np.asarray(array)) for name, array in fields_of(distribution).items()}


def _digest(arrays: Arrays) -> str:
  of_array = lambda array: (str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest())
  return digest([(name, *of_array(array)) for name, array in sorted(arrays.items())])


def check_process(settings: Settings) -> Distribution:
  """The process that this process has read; raise SettingsError if one of its states or a document never occurs."""
  distribution = from_fields(_arrays_read[settings.distribution])
  start = float64(distribution.joint_initial_probs).reshape(-1, distribution.num_states).max(0) > 0
  never = np.flatnonzero(~reachable(float64(distribution.transition_matrix), start)).tolist()
  valid = f'one whose hidden states all occur; states {never[:10]} never occur'
  require(not never, 'distribution', settings.distribution, valid)
  if settings.corpus_file:
    are_possible = possible(distribution, _arrays_read[settings.corpus_file]['tokens'])
    valid = f'documents of positive probability, unlike document {are_possible.argmin()}, counted from 0'
    require(are_possible.all(), 'corpus_file', settings.corpus_file, valid)
  return distribution


def possible(distribution: Distribution, documents: np.ndarray) -> np.ndarray:
  """True for each document [S, T] of positive probability."""
  # Imported here, since it takes longer than `--list` and `--help`.
  from hmm_jax.tuning import tasks

  rows = lambda block: token_likelihoods(distribution, block, block >= 0)
  size = even_size(len(documents), documents.shape[1] * distribution.joint_initial_probs.size, tasks.LABELLED_ENTRIES)
  return in_blocks(lambda block: last_filtered(distribution, rows(block))[1], documents, size) > -np.inf


def keep(settings: Settings, workdir: pathlib.Path) -> None:
  """Write what this process has read for the settings into a workdir, where trials find it."""
  for reference in settings.given.values():
    files.write_arrays(workdir / FOLDER / f'{reference}.npz', _arrays_read[reference])


def read_kept(settings: Settings, workdir: pathlib.Path) -> None:
  """Read what a workdir has for the settings."""
  _arrays_read.update({reference: load(workdir, reference) for reference in settings.given.values()})


def load(workdir: pathlib.Path, reference: str) -> Arrays:
  """The arrays of a reference from a workdir; raises Corrupt if they are missing or failed their checksum."""
  # A record, which may come from anybody, chooses no other folder.
  path = workdir / FOLDER / f'{pathlib.Path(reference).name}.npz'
  try:
    arrays = files.read_arrays(path)
  except Exception:
    # numpy raises unrelated exceptions for a damaged archive.
    arrays = {}
  if not reference.endswith(f'-{_digest(arrays)}'):
    raise files.Corrupt(f'{path} is missing or failed its checksum; restore it, or give the file again')
  return arrays
