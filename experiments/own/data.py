"""A user's own process, corpus and pretrained model, each read once and named; a workdir keeps the first two.

Settings, records and file names say NAME-DIGEST, with a digest of the arrays.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import types
from typing import Any

import jax
import numpy as np

from experiments.own import code
from experiments.records import files
from experiments.settings.fields import digest, require, users_program, Values
from experiments.settings.grid import Settings
from experiments.settings.groups import BertSettings
from hmm_jax._support.arguments import check_ids, check_shape
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax._support.float64 import narrowest
from hmm_jax.distributions import processes
from hmm_jax.distributions.files import fields_of, from_fields, load_distribution
from hmm_jax.distributions.hmm import Distribution, token_likelihoods
from hmm_jax.distributions.labelled import Process
from hmm_jax.distributions.sampling import token_dtype
from hmm_jax.files import hugging_face, models
from hmm_jax.inference.posterior import last_filtered
from hmm_jax.models.bert import Bert

# What the user of this process gives, by its name in settings: a `code.Function`, the arrays of a process or a corpus,
# or a `Model`. Only a command line brings it.
Own = Mapping[str, Any]
NOTHING: Own = types.MappingProxyType({})

# Folder of a workdir with a file for each reference.
FOLDER = 'user_data'
# Most characters of NAME, so that NAME-DIGEST.npz has at most 255 bytes.
_LONGEST_NAME = 50
# Entries of the likelihood rows in a block of documents.
_ENTRIES = 2**24
_VALID = {
  'pretrained_from': 'a folder of hmm_jax.save with a BERT, or of a BertForMaskedLM',
  'distribution': f'one of {", ".join(processes.NAMED)}, as mess3:alpha=0.6, or a .json or .npz file',
  'corpus_file': 'an .npy or .txt file of documents of one length',
}
# Values of fields that follow from labels of the user's own: a function labels each text once.
_OF_LABELS: Values = {'tasks_per_trial': 1, 'tasks_at_a_time': 1, 'figure.paper_overlay': False}

# Arrays by name.
Arrays = dict[str, np.ndarray]
# A BERT, its parameters and its process, if any.
Model = tuple[Bert, Any, Any]


def given(own: Own) -> Callable[[Settings], dict[str, Any]]:
  """A function from settings to what they name, by field; it raises SettingsError at a function that is not here."""

  def of(settings: Settings) -> dict[str, Any]:
    names = {field: getattr(settings, field) for field in (*code.FIELDS, *_VALID)}
    for field in code.FIELDS:
      valid = 'one named by a flag or a config file; records import no code'
      require(not names[field] or names[field] in own, field, names[field], valid)
    return {field: _opened(own[name]) for field, name in names.items() if name in own}

  return of


def _opened(thing: Any) -> Any:
  """The process or the corpus [S, T] of arrays; anything else unchanged."""
  if not isinstance(thing, dict):
    return thing
  return thing['tokens'] if 'tokens' in thing else from_fields(thing)


def resolve(values: Values, named: Collection[str]) -> dict[str, Any]:
  """Read the model, the process and the corpus of a grid's settings, and set the fields that follow from them.

  Returns them by their references, which stand in the settings from now on. Without another process, that of the model
  is taken. Raises SettingsError if something is nowhere or malformed, and if a field that the command line has `named`,
  or that follows, contradicts it.
  """
  own, fixed = dict[str, Any](), set(named)

  def follow(word: str, follows: Values) -> None:
    for name in fixed & follows.keys():
      require(values[name] == follows[name], name, values[name], f'{follows[name]}, set by {word}')
    fixed.update(follows)
    values.update(follows)

  # Other experiments read theirs themselves.
  if 'hmm.num_tokens' not in values:
    return own
  if values.get('label'):
    follow(values['label'], _OF_LABELS)
  for field, door in _DOORS.items():
    word = values.get(field)
    # The settings reject a value that is not a string.
    if word and isinstance(word, str):
      with reading(field, word):
        reference, thing, follows = door(word, values)
      follow(word, follows)
      values[field], own[reference] = reference, thing
  return own


# The reference of what a word names, what it is, and the values of fields that follow.
Read = tuple[str, Any, Values]


def _model(word: str, values: Values) -> Read:
  """A model, whose weights become float32, as it is tuned."""
  folder = pathlib.Path(word).expanduser().absolute()
  model: Any
  model, params, process = models.load(folder)
  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
  follows = {f'bert.{field.name}': getattr(model.bert, field.name) for field in dataclasses.fields(BertSettings)}
  follows |= {'bert.dtype': 'float32', 'hmm.num_tokens': model.num_tokens}
  of_model = folder / 'distribution.json'
  if not values.get('distribution') and of_model.exists():
    follows['distribution'] = str(of_model)
  return _reference(folder.name, hugging_face.state_of(params)), (model.bert, params, process), follows


def _process(word: str, values: Values) -> Read:
  """A process, and the sizes that follow from it."""
  process = processes.named(word) or load_distribution(word)
  # Only a function of labels asks for the matrices; without one, ids are those of the HMM.
  fields = fields_of(process if values.get('label') else plain(process))
  # As those of a draw, if that holds each number.
  arrays = {name: narrowest(np.asarray(array)) for name, array in fields.items()}
  # A plain HMM counts as one memory cell with no values.
  memory = np.shape(arrays.get('memory_probs', []))
  follows = {
    'num_states': (from_fields(arrays).num_states,),
    'num_trials_by_size': (),
    'hmm.num_tokens': process.num_tokens,
    'memory.sizes': memory[:1],
    'memory.cells': (len(memory),),
    'memory.vanilla_methods': (),
    'figure.paper_overlay': False,
  }
  return _reference(pathlib.Path(word).stem, arrays), arrays, follows


def _corpus(word: str, values: Values) -> Read:
  """A corpus, and its sizes."""
  arrays = {'tokens': tokens(word, values['hmm.num_tokens'])}
  follows = dict(zip(('corpus.num_documents', 'corpus.document_length'), arrays['tokens'].shape))
  return _reference(pathlib.Path(word).stem, arrays), arrays, follows


# In this order: a model may bring a process.
_DOORS = {'pretrained_from': _model, 'distribution': _process, 'corpus_file': _corpus}


def _reference(name: str, arrays: Arrays) -> str:
  """NAME-DIGEST, without the parameters of a named process, which decide the digest; of a kept file its own name."""
  end = f'-{_digest(arrays)}'
  return name if name.endswith(end) else name.partition(':')[0][:_LONGEST_NAME] + end


def _digest(arrays: Arrays) -> str:
  of_array = lambda array: (str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest())
  return digest([(name, *of_array(array)) for name, array in sorted(arrays.items())])


def reading(field: str, word: str) -> contextlib.AbstractContextManager[None]:
  """A context in which what a field names is read; raises SettingsError if it is nowhere, or if that fails."""
  is_there = os.path.exists(os.path.expanduser(word)) or word.partition(':')[0] in processes.NAMED
  require(is_there, field, word, _VALID[field])
  return users_program(field, word, _VALID[field])


def tokens(path: str, num_tokens: int) -> np.ndarray:
  """The documents [S, T] of a corpus of token ids, a row of an .npy or a line of a .txt each.

  A file of one line, or of one id a line, is one document. Raises ValueError at what is no id.
  """
  with files.opened(pathlib.Path(path).expanduser(), files.MOST_ARRAYS) as file:
    is_text = path.endswith('.txt')
    # A byte order mark is no token. An .npy that declares more than it has raises MemoryError, and touches no memory.
    ids = np.loadtxt(file, np.int64, encoding='utf-8-sig') if is_text else np.load(file, allow_pickle=False)
  ids = np.atleast_2d(ids)
  check_shape('tokens', ids, 'documents', 'length')
  check_ids('tokens', ids, num_tokens)
  return ids.astype(token_dtype(num_tokens))


def plain(distribution: Any) -> Any:
  """The HMM of a process of matrices; another distribution unchanged."""
  return distribution.hmm if isinstance(distribution, Process) else distribution


def check_corpus(reference: str, distribution: Distribution, documents: np.ndarray) -> None:
  """Raise SettingsError at a document [S, T] that never occurs."""
  size = even_size(len(documents), documents.shape[1] * distribution.joint_initial_probs.size, _ENTRIES)
  loglik = lambda block: last_filtered(distribution, token_likelihoods(distribution, block))[1]
  are_possible = in_blocks(loglik, documents, size) > -np.inf
  valid = f'documents of positive probability, unlike document {are_possible.argmin()}, counted from 0'
  require(are_possible.all(), 'corpus_file', reference, valid)


def keep(grid: Iterable[Settings], own: Own, workdir: pathlib.Path) -> None:
  """Write the processes and the corpora of a grid into a workdir, for `kept`."""
  for settings in grid:
    for reference in settings.given.values():
      files.write_arrays(_path(workdir, reference), own[reference])


def kept(grid: Iterable[Settings], workdir: pathlib.Path) -> dict[str, Arrays]:
  """The arrays that a workdir has for settings, by reference; raises SettingsError if they are missing or damaged."""
  arrays = dict[str, Arrays]()
  for settings in grid:
    for field, reference in settings.given.items():
      path = _path(workdir, reference)
      with users_program(field, reference, f'one whose arrays are in {path}'):
        arrays[reference] = files.read_arrays(path)
  return arrays


def _path(workdir: pathlib.Path, reference: str) -> pathlib.Path:
  # A record, which may come from anybody, chooses no other folder.
  return workdir / FOLDER / f'{pathlib.Path(reference).name}.npz'
