"""A user's own distribution in place of a draw, a corpus beside it, and a pretrained model. A workdir has the arrays.

Settings, records and file names say NAME-DIGEST, with a digest of the arrays. All processes of a run have to see the
workdir.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import types
from typing import Any, NamedTuple
import warnings

import jax
import numpy as np

from experiments.own import code
from experiments.records import files, models as pretrained_models
from experiments.runtime import storage
from experiments.settings.fields import digest, require, users_program, Values
from experiments.settings.grid import Settings
from experiments.settings.groups import BertSettings
from hmm_jax._support.arguments import check_ids
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax._support.float64 import narrowest
from hmm_jax.distributions import processes
from hmm_jax.distributions.files import fields_of, from_fields, load_distribution
from hmm_jax.distributions.hmm import Distribution, token_likelihoods
from hmm_jax.distributions.labelled import Process
from hmm_jax.distributions.sampling import token_dtype
from hmm_jax.files import hugging_face
from hmm_jax.inference.posterior import last_filtered
from hmm_jax.models.bert import Bert, BertModel

# Folder of a workdir with a file for each reference.
FOLDER = 'user_data'
# Most characters of NAME, so that NAME-DIGEST.npz has at most 255 bytes.
_LONGEST_NAME = 50
_VALID = {
  'distribution': f'one of {", ".join(processes.NAMED)}, as mess3:alpha=0.6, or a .json or .npz file',
  'corpus_file': 'an .npy or .txt file of documents of one length',
  'pretrained_from': 'a folder of hmm_jax.save with a BERT, or of a BertForMaskedLM',
}

# Arrays by name.
Arrays = dict[str, np.ndarray]
# A BERT, its parameters and its process, if any.
Model = tuple[Bert, Any, Any]


class Own(NamedTuple):
  """What the user of this process gives in place of ours; settings name it, and only a command line brings it.

  Attributes:
    functions: by their names.
    arrays: of processes and corpora, by reference.
    models: by reference.
  """

  functions: Mapping[str, code.Function] = types.MappingProxyType({})
  arrays: Mapping[str, Arrays] = types.MappingProxyType({})
  models: Mapping[str, Model] = types.MappingProxyType({})

  def of(self, settings: Settings) -> dict[str, Any]:
    """The functions and the model of settings, by field; raises SettingsError at a function that is not here."""
    found = dict[str, Any]()
    for field in code.FIELDS:
      if name := getattr(settings, field):
        valid = 'one named by a flag or a config file; records import no code'
        require(name in self.functions, field, name, valid)
        found[field] = self.functions[name]
    if settings.pretrained_from in self.models:
      found['pretrained_from'] = self.models[settings.pretrained_from]
    return found


NOTHING = Own()


def resolve(values: Values, workdir: pathlib.Path, named: Collection[str], own: Own = NOTHING) -> Own:
  """Read the model, the process and the corpus of a grid's settings, and set the fields that follow from them.

  They are added to those of `own`. A reference is looked for in the workdir. Without another process, that of the model
  is taken. Raises SettingsError if something is nowhere or malformed, and if a field that the command line has `named`,
  or that follows, contradicts it.
  """
  fixed = set(named)
  # Other experiments read theirs themselves.
  if 'hmm.num_tokens' not in values:
    return own
  for field, given in _GIVEN.items():
    # The settings reject a value that is not a string.
    word = values.get(field)
    if word and isinstance(word, str):
      reference, found, follows = given(values, word, workdir)
      for name in fixed & follows.keys():
        require(values[name] == follows[name], name, values[name], f'{follows[name]}, set by {word}')
      fixed |= follows.keys()
      values |= follows | {field: reference}
      own = own._replace(arrays={**own.arrays, **found.arrays}, models={**own.models, **found.models})
  return own


# The reference of what a field names, what it brings, and the values of fields that follow.
Given = tuple[str, Own, Values]


def _labels(values: Values, word: str, workdir: pathlib.Path) -> Given:
  # A function labels each text once.
  return word, NOTHING, {'tasks_per_trial': 1, 'tasks_at_a_time': 1, 'figure.paper_overlay': False}


def _model(values: Values, word: str, workdir: pathlib.Path) -> Given:
  """A model, whose weights become float32, as it is tuned."""
  folder = storage.located(os.path.abspath(os.path.expanduser(word)), 'pretrained_from')
  model: Any
  with reading('pretrained_from', word):
    model, params, distribution = pretrained_models.read(folder)
  require(isinstance(model, BertModel), 'pretrained_from', word, _VALID['pretrained_from'])
  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
  reference = f'{folder.name}-{_digest(hugging_face.state_of(params))}'
  follows = {f'bert.{field.name}': getattr(model.bert, field.name) for field in dataclasses.fields(BertSettings)}
  follows |= {'bert.dtype': 'float32', 'hmm.num_tokens': model.num_tokens}
  of_model = folder / 'distribution.json'
  if not values.get('distribution') and of_model.exists():
    follows['distribution'] = str(of_model)
  return reference, Own(models={reference: (model.bert, params, distribution)}), follows


def _process(values: Values, word: str, workdir: pathlib.Path) -> Given:
  """A process, and the sizes that follow from it."""
  # Only a function of labels asks for the matrices; without one, ids are those of the HMM.
  kept = (lambda process: process) if values.get('label') else plain
  read_process = lambda word: _arrays(kept(processes.named(word) or load_distribution(word)))
  reference, arrays = _reference('distribution', word, workdir, read_process)
  distribution = from_fields(arrays)
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
  return reference, Own(arrays={reference: arrays}), follows


def _corpus(values: Values, word: str, workdir: pathlib.Path) -> Given:
  """A corpus, and its sizes."""
  require(values.get('distribution'), 'corpus_file', word, "'' unless distribution gives the law of the corpus")
  read_tokens = lambda word: {'tokens': tokens(word, values['hmm.num_tokens'])}
  reference, arrays = _reference('corpus_file', word, workdir, read_tokens)
  follows = dict(zip(('corpus.num_documents', 'corpus.document_length'), arrays['tokens'].shape))
  return reference, Own(arrays={reference: arrays}), follows


# In this order: a model may bring a process.
_GIVEN = {'label': _labels, 'pretrained_from': _model, 'distribution': _process, 'corpus_file': _corpus}


def _reference(field: str, word: str, workdir: pathlib.Path, reader: Callable[[str], Arrays]) -> tuple[str, Arrays]:
  """The reference and the arrays of what a field names: a process, a file, or a reference itself, in the workdir."""
  word = os.path.expanduser(word)
  path, name = pathlib.Path(word), word.split(':')[0]
  if not os.path.exists(word) and path.name in [file.stem for file in files.entries(workdir / FOLDER)]:
    arrays = load(workdir, path.name)
    if ('tokens' in arrays) == (field == 'corpus_file'):
      return path.name, arrays
  with reading(field, word):
    arrays = reader(word)
  # The parameters of a named process decide its digest.
  stem = name if name in processes.NAMED else path.stem
  return f'{stem[:_LONGEST_NAME]}-{_digest(arrays)}', arrays


def reading(field: str, word: str) -> contextlib.AbstractContextManager[None]:
  """A context in which what a field names is read; raises SettingsError if it is nowhere, or if that fails."""
  name, _, _ = word.partition(':')
  is_there = os.path.exists(os.path.expanduser(word)) or name in processes.NAMED
  require(is_there, field, word, _VALID[field])
  return users_program(field, word, _VALID[field])


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


def check_process(settings: Settings, own: Own) -> Distribution:
  """The process that settings name; raise SettingsError if a document of the corpus beside it never occurs."""
  distribution = from_fields(own.arrays[settings.distribution])
  if settings.corpus_file:
    are_possible = possible(distribution, own.arrays[settings.corpus_file]['tokens'])
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


def keep(arrays: Mapping[str, Arrays], workdir: pathlib.Path) -> None:
  """Write what this process has read into a workdir, where trials find it."""
  for reference, named in arrays.items():
    files.write_arrays(workdir / FOLDER / f'{reference}.npz', named)


def kept(grid: Iterable[Settings], workdir: pathlib.Path) -> dict[str, Arrays]:
  """The arrays that a workdir has for settings, by reference."""
  return {reference: load(workdir, reference) for settings in grid for reference in settings.given.values()}


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
