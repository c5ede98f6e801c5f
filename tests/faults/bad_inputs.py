"""Command lines that no field can refuse by itself: each is refused in one sentence, with status 2, and writes nothing.

tests/settings/fields_test.py has the values that a field refuses.
"""

import contextlib
import io
import json
import pathlib
import runpy
import sys
import tempfile
from typing import NamedTuple
import warnings

import numpy as np

_MOST_SAID = 1000
_GRID = '--config=prompt_vs_head:smoke'
# Two states over two tokens.
_HMM = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[0.9, 0.1], [0.2, 0.8]],
  'task_weights': [1.0, -1.0],
}


class Bad(NamedTuple):
  """A command line, all and one of what its sentence has to have, and the files that lie in the folder before."""

  arguments: tuple[str, ...]
  says: tuple[str, ...]
  files: dict[str, bytes] = {}
  any_of: tuple[str, ...] = ('',)


def verdict(bad):
  """What is wrong with how a bad input is refused, in words; '' where nothing is."""
  with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
    for name, content in bad.files.items():
      path = pathlib.Path(name)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)
    before = set(pathlib.Path().rglob('*'))
    status, said = _run(bad.arguments)
    written = sorted(str(path) for path in {*pathlib.Path().rglob('*')} - before)
    changed = [name for name, content in bad.files.items() if pathlib.Path(name).read_bytes() != content]
  if status != 2 or said.count('\n') != 1 or len(said) > _MOST_SAID:
    return f'status {status}: {said[-_MOST_SAID:]}'
  missing = [text for text in bad.says if text not in said]
  if missing or not any(text in said for text in bad.any_of):
    return f'{missing or bad.any_of} not in: {said}'
  return f'wrote {", ".join(written + changed)}' if written + changed else ''


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


def _flags():
  for flags, *says in (
    (['--mode=replay'], '--mode', 'replay', '<run|report|merge|status|verify>'),
    (['--help=perhaps'], '--help', 'perhaps', '<short|all>'),
    (['--wordkir=x'], 'wordkir', 'workdir'),
    (['--config.num_statez=3'], 'num_statez', 'num_states'),
    (['--config.scale=paper'], '--config.scale', 'NAME:SCALE'),
    (['stray'], "'stray'", 'valid'),
    (['--flagfile=/nonexistent'], '/nonexistent'),
    (['--pretrained=/tmp'], '--pretrained', '/tmp', 'valid is nothing'),
    (['--mode=merge', '--trials=0'], '--trials', '0', 'valid is nothing'),
    (['--mode=merge'], '--workdir', 'valid is one with a finished trial'),
    (['--config.num_states=4', '--config.num_states=4'], 'num_states', '(4, 4)', 'distinct'),
    (['--trials=2'], '--trials', "'2'", 'valid is numbers of 0 to 1'),
    (['--trials=0,,1'], '--trials', "'0,,1'", 'valid is numbers of 0 to 1'),
    (['--trials=٣'], '--trials', 'valid is numbers of 0 to 1'),
  ):
    yield Bad((_GRID, *flags), says)
  yield Bad((), ('--config', 'valid is'))
  yield Bad(('--config=theory:smoke', '--trials=0'), ('--trials', '0', 'valid is nothing but for a run of a grid'))
  yield Bad(('--config=benchmark:smoke', '--mode=merge'), ('--mode', 'merge', 'benchmark is no grid', 'valid is'))


def _combinations():
  """Fields of which each is well and all are not."""
  for experiment, fields, *says in (
    ('prompt_vs_head', ['prompt.length=500'], 'bert.max_positions', '24', 'at least 509'),
    ('prompt_vs_head', ['bert.num_heads=3'], 'bert.width', '16', 'multiple of num_heads, 3'),
    ('prompt_vs_head', ['bert.attention=cudnn', 'bert.dtype=bfloat16'], 'bert.attention', 'cudnn', 'no GPU'),
    ('prompt_vs_head', ['corpus.chunk_length=513'], 'corpus.chunk_length', '513', 'at most document_length, 512'),
    ('prompt_vs_head', ['corpus.num_documents=2000000000'], 'corpus.num_documents', '2000000000', 'what fits'),
    ('prompt_vs_head', ['pretrain.num_steps=45'], 'num_steps', '45', 'multiple of steps_per_call, 10'),
    ('prompt_vs_head', ['head.batch_size=257'], 'head.batch_size', '257', 'at most num_train, 256'),
    ('prompt_vs_head', ['models=exact', 'methods=finetune'], 'models', "('exact',)", 'finetune'),
    ('prompt_vs_head', ['attention.form=official', 'methods=attention_blind'], 'attention.form', 'official', 'paper'),
    ('prompt_vs_head', ['memory.sizes=9', 'memory.cells=4'], 'memory.cells', '(4,)', '4096'),
    ('prompt_vs_head', ['mesh.data=64'], 'mesh', '(64, 1, 1)', 'product is 1'),
    ('prompt_vs_head', ['distributed.num_processes=2'], 'distributed.coordinator_address', "''", 'HOST:PORT'),
    ('memory_vs_vanilla', ['num_states=(4, 8)', 'memory.sizes=(2, 4)'], 'figures', 'figure_3_right', 'without'),
    ('degradation', ['bert.checkpoints=(20, 0)'], 'bert.checkpoints', '(20, 0)', 'ascending'),
  ):
    arguments = (f'--config={experiment}:smoke', *(f'--config.{field}' for field in fields))
    yield Bad(arguments, (*says, 'valid is'))


def _configs():
  for config, *says in (
    ('promt_vs_head:smoke', 'one of prompt_vs_head, '),
    ('prompt_vs_head:huge', 'huge', 'small, paper'),
    ('configs/nothing.py', 'the path of a config file'),
    ('x' * 5000, 'the path of a config file'),
  ):
    yield Bad((f'--config={config}',), ('--config', *says, 'valid'))
  for source, says in (
    (b'def get_config(:', 'SyntaxError'),
    (b'\xff\xfe', 'mine.py'),
    (b'raise SystemExit(0)', 'SystemExit'),
    (b'def get_config():\n  return get_config()', 'RecursionError'),
    (b'def get_config():\n  return {"seed": 1}', 'dict'),
  ):
    yield Bad(('--config=mine.py', '--workdir=work'), (says,), {'mine.py': source})


def _folders():
  for path, says in (
    ('/proc/nothing', 'writable'),
    ('a-file/below', 'valid is'),
    ('foo://x/y', 'gs://BUCKET'),
    ('nul\x00l', 'valid is'),
    ('\udcff\udcfe', 'UTF-8'),
  ):
    yield Bad((_GRID, f'--workdir={path}'), ('--workdir', says), {'a-file': b'mine'})
  yield Bad((_GRID, '--config.pretrained=a-file/below'), ('pretrained', 'a-file'), {'a-file': b'mine'})
  config = json.dumps({'schema_version': 2, 'experiment': 'prompt_vs_head'}).encode()
  for records, settings, mode in (
    (b'{"a": 1}\n{"a', config, 'report'),
    (b'[' * 100_000, config, 'report'),
    (b'', b'{"schema_version": 2, "experiment": "benchmark"}', 'run'),
    (b'', b'{"schema_version": 99, "experiment": "prompt_vs_head"}', 'run'),
    (b'', b'{"a": ', 'report'),
  ):
    files = {'work/results.jsonl': records, 'work/config.json': settings}
    yield Bad((_GRID, f'--mode={mode}', '--workdir=work'), ('work', 'valid'), files)
  yield Bad(('--mode=verify', '--workdir=none'), ('--workdir', 'none', 'valid'))
  yield Bad(('--conf=prompt_vs_head:smoke',), ("'--conf=prompt_vs_head:smoke' is no flag", 'valid'))
  yield Bad(('--mode=verify', '--workdir=a-file'), ('--workdir', 'a-file', 'valid'), {'a-file': b'mine'})


def _hmm_files():
  archive = io.BytesIO()
  np.savez(archive, **{**_HMM, 'task_weights': np.array([{}, {}], object)})
  for name, content, says in (
    ('hmm.txt', b'{}', 'valid'),
    ('hmm.json', b'[' * 100_000, 'valid'),
    ('hmm.npz', b'PK\x03\x04 not really', 'valid'),
    ('hmm.npz', archive.getvalue(), 'hmm_file'),
    ('hmm.json', json.dumps({**_HMM, 'colour': 1}).encode(), 'colour'),
    ('hmm.json', json.dumps({**_HMM, 'initial_probs': [1.5, -0.5]}).encode(), 'initial_probs'),
    ('hmm.json', json.dumps({**_HMM, 'emission_matrix': [[0.5, 0.5], [1.0]]}).encode(), 'emission_matrix'),
    ('hmm.json', json.dumps({**_HMM, 'task_weights': [float('nan'), 1.0]}).encode(), 'task_weights'),
  ):
    yield Bad(('--config=examine:smoke', f'--config.hmm_file={name}', '--workdir=work'), (says,), {name: content})
  yield Bad(('--config=examine:smoke', '--workdir=work'), ('hmm_file', 'valid is'))


BAD = [*_flags(), *_combinations(), *_configs(), *_folders(), *_hmm_files()]
