"""Command lines that no field can refuse by itself: each is refused in one sentence, with status 2, and writes nothing.

tests/settings/fields_test.py has the values that a field refuses.
"""

import contextlib
import io
import pathlib
import runpy
import sys
import tempfile
from typing import NamedTuple
import warnings

_MOST_SAID = 1000
_GRID = '--config=prompt_vs_head:smoke'


class Bad(NamedTuple):
  """A command line, all that its sentence has to have, and the files that lie in the folder before."""

  arguments: tuple[str, ...]
  says: tuple[str, ...]
  files: dict[str, bytes] = {}


def verdict(bad):
  """The fault in how a bad input is refused; '' if there is none."""
  with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
    for name, content in bad.files.items():
      path = pathlib.Path(name)
      path.parent.mkdir(exist_ok=True)
      path.write_bytes(content)
    before = _there()
    status, said = _run(bad.arguments)
    is_as_before = _there() == before
  if status != 2 or said.count('\n') != 1 or len(said) > _MOST_SAID or said.count('; valid ') > 1:
    return f'status {status}: {said[-_MOST_SAID:]}'
  missing = [text for text in bad.says if text not in said]
  if missing:
    return f'{missing} not in: {said}'
  return '' if is_as_before else 'something was written'


def _there():
  """Every folder here, and every file with its content."""
  return {path: path.is_file() and path.read_bytes() for path in pathlib.Path().rglob('*')}


def _run(arguments):
  """Exit status and standard error of `python -m experiments.main`, in this process."""
  said, before = io.StringIO(), sys.argv
  sys.argv = ['main', *arguments]
  quiet = warnings.catch_warnings(action='ignore', category=RuntimeWarning)
  with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), quiet:
    try:
      runpy.run_module('experiments.main', run_name='__main__')
    except SystemExit as exit:
      return exit.code, said.getvalue()
    except BaseException as error:
      return 1, f'{said.getvalue()}{type(error).__name__}: {error}\n of a traceback'
    finally:
      sys.argv = before
  return None, said.getvalue()


# Words after a valid config, then what is named: the flag or field and its value.
_AFTER_A_CONFIG = (
  ('--mode=replay', '--mode', 'replay'),
  ('--wordkir=x', 'wordkir', 'workdir'),
  ('stray', "'stray'"),
  ('--pretrained=/tmp', '--pretrained', '/tmp'),
  ('--trials=2', '--trials', "'2'"),
  ('--config.num_statez=3', 'num_statez', 'num_states'),
  ('--config.scale=paper', '--config.scale', 'NAME:SCALE'),
  # Not of the type of the field.
  ('--mode=report --config.seed=1.5', 'seed', 'valid is'),
  ('--config.methods=head,promt', 'methods', "('head', 'promt')"),
  ('--config.hmm.emission_temperature=1e6 --config.models=exact', 'hmm', "'emission_temperature': 1000000.0"),
  ('--noconfig.num_states --config.num_states=4', '--noconfig.num_states'),
  ('--config.downstream.num_train=1 --config.head.batch_size=1', 'downstream.num_train', '1'),
  ('--config.models=exact --config.methods=finetune', 'models', "('exact',)"),
  ('--config.models=own', 'model', "''"),
  ('--config.models=own --config.model=nowhere:build', 'nowhere:build', 'ModuleNotFoundError'),
  ('--config.models=own --config.model=operator:is_', 'operator:is_', 'TypeError'),
  ('--config.mesh.data=64', 'mesh', '(64, 1, 1)'),
  ('--config.distributed.num_processes=2', 'distributed.coordinator_address', "''"),
  ('--config.distribution=mess4', 'distribution', 'mess4', 'mess3'),
  ('--config.corpus_file=tokens.txt', 'corpus_file', 'tokens.txt'),
  ('--workdir=/proc/nothing', '--workdir', '/proc/nothing'),
  ('--workdir=\udcff\udcfe', '--workdir'),
)
_WHOLE = (
  ('', '--config'),
  ('--config=promt_vs_head:smoke', '--config', 'promt_vs_head'),
  ('--config=prompt_vs_head:huge', '--config', 'huge'),
  ('--conf=prompt_vs_head:smoke', '--conf=prompt_vs_head:smoke'),
  ('--config=benchmark:smoke --mode=status', '--mode', 'status'),
  ('--config=degradation:smoke --config.bert.width=16', 'bert.width', 'bert.model.width'),
  ('--config=degradation:smoke --config.bert.checkpoints=(20,0)', 'bert.checkpoints', '(20, 0)'),
  ('--mode=verify', '--workdir'),
  ('--mode=verify --workdir=none', '--workdir', 'none'),
)
# The content of a config file, and a part of the message about it.
_CONFIG_FILES = (
  (b'def get_config(:', 'SyntaxError'),
  (b'x = 1', 'get_config'),
  (b'raise KeyboardInterrupt', 'KeyboardInterrupt'),
  (b'def get_config():\n  return get_config()', 'RecursionError'),
  (b'def get_config():\n  return {"seed": 1}', 'dict'),
)
# A mode, and a folder of records in which it does nothing.
_FOLDERS = (
  ('report', {'work/results.jsonl': b'{"a": 1}\n{"a'}),
  ('report', {'work/results.jsonl': b'{"schema_version": 2, "experiment": "prompt_vs_head"}'}),
  ('run', {'work/results.jsonl': b'{"experiment": "prompt_vs_head"}'}),
  ('run', {'work/results.jsonl': b'{"schema_version": 2, "experiment": "benchmark"}'}),
  ('run', {'work/config.json': b'{"schema_version": 99, "experiment": "prompt_vs_head"}'}),
  ('status', {'work/config.json': b'{"schema_version": 2, "experiment": ["x"]}'}),
  ('run', {'work': b'a file'}),
)
_HMM_FILES = (
  ('hmm.txt', b'{}', 'distribution'),
  ('hmm.json', b'[' * 100_000, 'distribution'),
  ('hmm.json', b'{"colour": 1}', 'colour'),
)


def _bad():
  for words, *says in _AFTER_A_CONFIG:
    yield Bad((_GRID, *words.split(' ')), says)
  for words, *says in _WHOLE:
    yield Bad(tuple(words.split()), says)
  for source, says in _CONFIG_FILES:
    yield Bad(('--config=mine.py',), ('mine.py', says), {'mine.py': source})
  for mode, files in _FOLDERS:
    yield Bad((_GRID, f'--mode={mode}', '--workdir=work'), ('work', 'valid'), files)
  # In the even process a run of ones between zeros is even.
  fields = 'distribution=even', 'models=exact', 'corpus.chunk_length=4', 'pretrain.batch_size=1', 'corpus_file=c.txt'
  words = (f'--config.{field}' for field in fields)
  yield Bad((_GRID, *words), ('corpus_file', 'document 2'), {'c.txt': b'0 1 1 0\n1 0 0 1\n0 1 0 0'})
  for name, content, says in _HMM_FILES:
    for config in ('--config=examine:smoke', _GRID):
      yield Bad((config, f'--config.distribution={name}', '--workdir=work'), (says,), {name: content})


BAD = [*_bad()]
