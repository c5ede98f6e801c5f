"""Bad inputs that no field can say of itself: flags, fields that do not fit each other, files, and paths."""

from collections.abc import Callable, Iterator
import io
import json
import pathlib
from typing import Any

import numpy as np

from experiments.studies.faults.inputs import Bad

_GRID = '--config=prompt_vs_head:smoke'
_EXAMINE = '--config=examine:smoke'
# Two states over two tokens, which a file of may hold.
_HMM = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[0.9, 0.1], [0.2, 0.8]],
  'task_weights': [1.0, -1.0],
}
_MEMORY = {
  'initial_probs': [0.5, 0.5],
  'transition_matrix': [[0.75, 0.25], [0.5, 0.5]],
  'emission_matrix': [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.3, 0.7]]],
  'memory_probs': [0.5, 0.5],
  'cell_index': [0, 0],
  'cell': 0,
  'task_weights': [1.0, -1.0],
}


def _flags() -> Iterator[Bad]:
  for flags, *names in (
    (['--mode=replay'], '--mode', "'replay'", 'valid is one of'),
    (['--mode='], '--mode', "''", 'valid is one of'),
    (['--mode=RUN'], '--mode', "'RUN'", 'valid is one of'),
    (['--help=perhaps'], '--help', "'perhaps'", 'valid is True or False'),
    (['--no_such_flag=1'], 'no_such_flag', 'valid'),
    (['--wordkir=x'], 'wordkir', 'workdir'),
    (['--config.num_statez=3'], 'num_statez', 'num_states'),
    (['--config.=3'], '--config.', 'no field'),
    (['--config.bert=3'], '--config.bert', 'no field'),
    (['--config.bert.width.more=3'], '--config.bert.width.more', 'no field'),
    (['--config.num_states[0]=3'], 'num_states[0]', 'no field'),
    (['--config.__class__=3'], '__class__', 'no field'),
    (['--config.scale=paper'], '--config.scale', 'NAME:SCALE'),
    (['--config.experiment=theory'], '--config.experiment', 'NAME:SCALE'),
    (['stray'], "'stray'", 'valid'),
    (['--config.tensorboard', 'no'], "'no'", 'valid'),
    (['--flagfile=/nonexistent'], '/nonexistent'),
    (['--pretrained=/tmp'], '--pretrained', '/tmp', 'valid is nothing'),
    (['--mode=verify'], '--config', 'valid is none'),
    (['--mode=report', '--trials=0'], '--trials', '0', 'valid is nothing'),
    (['--mode=merge', '--trials=0'], '--trials', '0', 'valid is nothing'),
    (['--mode=merge'], '--workdir', 'valid is one with a finished trial'),
    (['--config.seed=1', '--config.seed=-1'], 'seed', '-1', 'valid is'),
    (['--config.num_states=4', '--config.num_states=4'], 'num_states', '(4, 4)', 'distinct'),
  ):
    yield Bad(f'flags: {" ".join(flags)}', (_GRID, *flags), tuple(names))
  yield Bad('flags: none', (), ('--config', 'valid is'))
  for config in ('theory', 'benchmark', 'degradation', 'examine', 'example_4_1', 'which_theorem'):
    for flag, value in (('--trials', '0'), ('--mode', 'merge')):
      arguments = (f'--config={config}:smoke', f'{flag}={value}')
      yield Bad(f'flags: {flag} of no grid', arguments, (flag, value, f'{config} is no grid', 'valid is'))


def _trials() -> Iterator[Bad]:
  """Of a grid of two."""
  beyond, torn = ('2', '0,2', '0-2', '1-0', '-1', '٣'), ('0,', ',', '0,,1', '0-', '-', 'x', '0 1', '0.5', '1e0', '0x1')
  for text in beyond + torn:
    yield Bad(f'--trials={text}', (_GRID, f'--trials={text}'), ('--trials', repr(text), 'valid is numbers of 0 to 1'))
  yield Bad('--trials of 5000 digits', (_GRID, '--trials=' + '9' * 5000), ('--trials', '999', 'valid is numbers'))


def _combinations() -> Iterator[Bad]:
  """Fields of which each is well and all are not; the sentence names one of them."""
  for experiment, changes, *names in (
    ('prompt_vs_head', ['num_trials_by_size=(1,)'], 'num_trials_by_size', '(1,)', '2 numbers'),
    ('prompt_vs_head', ['num_trials_by_size=(1, 3)'], 'num_trials_by_size', '(1, 3)', 'num_trials, 1,'),
    ('prompt_vs_head', ['prompt.length=500'], 'prompt.length', '500', 'at most'),
    ('prompt_vs_head', ['bert.width=15'], 'bert.width', '15', 'multiple of num_heads'),
    ('prompt_vs_head', ['bert.num_heads=3'], 'bert.width', '16', 'multiple of num_heads, 3'),
    ('prompt_vs_head', ['bert.scan_layers=True'], 'bert.scan_layers', 'True', 'one layer'),
    ('prompt_vs_head', ['bert.attention=cudnn'], 'bert.dtype', 'float32', 'bfloat16'),
    ('prompt_vs_head', ['bert.attention=cudnn', 'bert.dtype=bfloat16'], 'bert.attention', 'cudnn', 'no GPU'),
    ('prompt_vs_head', ['bert.max_positions=12'], 'bert.max_positions', '12', 'at least 16'),
    ('prompt_vs_head', ['corpus.chunk_length=513'], 'corpus.chunk_length', '513', 'at most document_length, 512'),
    ('prompt_vs_head', ['corpus.num_documents=2000000000'], 'corpus.num_documents', '2000000000', 'what fits'),
    ('prompt_vs_head', ['pretrain.num_steps=45'], 'num_steps', '45', 'multiple of steps_per_call, 10'),
    ('prompt_vs_head', ['pretrain.checkpoint_every=15'], 'checkpoint_every', '15', 'multiple of steps_per_call'),
    ('prompt_vs_head', ['pretrain.measure_every=5'], 'measure_every', '5', 'multiple of steps_per_call'),
    ('prompt_vs_head', ['pretrain.warmup_steps=40'], 'warmup_steps', '40', 'below num_steps, 40'),
    ('prompt_vs_head', ['pretrain.mask_share=0.95'], 'random_share', '0.1', 'at most 0.05'),
    ('prompt_vs_head', ['pretrain.batch_size=1000'], 'pretrain.batch_size', '1000', 'at most 256'),
    ('prompt_vs_head', ['head.batch_size=257'], 'head.batch_size', '257', 'downstream.num_train, 256'),
    ('prompt_vs_head', ['head.warmup_steps=64'], 'head.warmup_steps', '64', 'below the 64 steps'),
    ('prompt_vs_head', ['downstream.num_positions=1'], 'downstream.num_positions', '1', 'at least 2'),
    ('prompt_vs_head', ['downstream.num_positions=5'], 'downstream.num_positions', '5', 'at least 6'),
    ('prompt_vs_head', ['downstream.num_positions=25'], 'downstream.num_positions', '25', 'bert.max_positions, 24'),
    ('prompt_vs_head', ['models=exact', 'methods=finetune'], 'methods', 'finetune', 'without'),
    ('prompt_vs_head', ['attention.temperature=1e-9'], 'temperature', '1e-09', 'at least 1e-06'),
    ('prompt_vs_head', ['attention.form=official', 'methods=attention_blind'], 'attention.form', 'official', 'paper'),
    ('prompt_vs_head', ['memory.sizes=1'], 'memory.sizes', '(1,)', 'at least 2'),
    ('prompt_vs_head', ['memory.sizes=9', 'memory.cells=4'], 'memory.cells', '(4,)', '4096'),
    ('prompt_vs_head', ['memory.sizes=2', 'memory.cells=3'], 'num_states', '(4, 6)', 'multiples'),
    ('prompt_vs_head', ['memory.sizes=2', 'memory.label_cell=1'], 'memory.label_cell', '1', 'below'),
    ('prompt_vs_head', ['mesh.data=64'], 'mesh', 'data=64', 'product is 1'),
    ('prompt_vs_head', ['mesh.fsdp=-1'], 'mesh.data', '-1', 'positive'),
    ('prompt_vs_head', ['mesh.tensor=0'], 'mesh.tensor', '0', 'positive, or -1'),
    ('prompt_vs_head', ['distributed.num_processes=2'], 'distributed.mode', 'auto', "'on'"),
    ('prompt_vs_head', ['distributed.coordinator_address=a:1'], 'distributed.coordinator_address', 'a:1', "''"),
    ('prompt_vs_head', ['distributed.process_id=1'], 'distributed.process_id', '1', 'at most 0'),
    (
      'prompt_vs_head',
      ['distributed.mode=on', 'distributed.num_processes=2', 'distributed.coordinator_address=foo:xyz'],
      'distributed.coordinator_address',
      'foo:xyz',
      'HOST:PORT',
    ),
    ('memory_vs_vanilla', ['num_states=(4, 8)', 'memory.sizes=(2, 4)'], 'figures', 'figure_3_right', 'without'),
    ('degradation', ['num_states_3_3=9'], 'num_states_3_3', '9', 'num_tokens'),
    ('degradation', ['bert.checkpoints=(20, 0)'], 'bert.checkpoints', '(20, 0)', 'ascending'),
    ('degradation', ['conditioning=0.001'], 'singular_values', 'conditioning, 0.001'),
    ('which_theorem', ['memory.sizes=2'], 'memory.sizes', '(2,)', '(0,)'),
    ('which_theorem', ['certificate.num_states=5'], 'certificate.num_states', '(5,)', 'of num_states'),
    ('which_theorem', ['certificate.num_trials=3'], 'certificate.num_trials', '3', 'at most 2'),
    ('which_theorem', ['downstream.label_state=silent'], 'downstream.label_state', 'silent', "'first'"),
  ):
    arguments = (f'--config={experiment}:smoke', *(f'--config.{change}' for change in changes))
    yield Bad(f'fields: {", ".join(changes)}', arguments, (*names, 'valid is'))


def _configs() -> Iterator[Bad]:
  """Names and files of configs."""
  for config, *names in (
    ('promt_vs_head:smoke', 'promt_vs_head:smoke', 'nearest is prompt_vs_head'),
    ('prompt_vs_head:huge', 'huge', 'small, paper'),
    ('prompt_vs_head:', "''", 'small, paper'),
    ('', "''", 'valid is'),
    (':smoke', "':smoke'", 'valid is'),
    ('configs/nothing.py', 'configs/nothing.py', 'does not exist'),
    ('/etc', '/etc', 'is a directory'),
    ('x' * 5000, 'xxx', 'no path'),
    ('é☃:smoke', 'é☃', 'valid is'),
  ):
    yield Bad(f'--config={config[:40]}', (f'--config={config}',), ('--config', *names, 'valid'))
  for what, source, word in (
    ('empty', '', 'get_config'),
    ('no function', 'get_config = 3', 'get_config'),
    ('a syntax error', 'def get_config(:', 'SyntaxError'),
    ('that is not UTF-8', b'\xff\xfe', 'mine.py'),
    ('with a null byte', b'x = 1\x00', 'mine.py'),
    ('that exits', 'raise SystemExit(0)', 'SystemExit'),
    ('that runs too deep', 'def get_config():\n  return get_config()', 'RecursionError'),
    ('of a dict', 'def get_config():\n  return {"seed": 1}', 'dict'),
    ('of None', 'def get_config():\n  return None', 'NoneType'),
    ('of nothing', 'import ml_collections\ndef get_config():\n  return ml_collections.ConfigDict()', 'experiment'),
    ('of no experiment', _with('experiment', 'nothing'), 'experiment'),
    ('of an experiment that is a number', _with('experiment', 3), 'experiment'),
    ('of an experiment that is a list', _with('experiment', []), 'experiment'),
    ('of one field', _with('experiment', 'prompt_vs_head'), 'missing'),
  ):
    content = source.encode() if isinstance(source, str) else source
    yield Bad(f'a config file {what}', ('--config=mine.py', '--workdir=work'), (word,), files={'mine.py': content})


def _with(name: str, value: Any) -> str:
  return f'import ml_collections\ndef get_config():\n  return ml_collections.ConfigDict({{{name!r}: {value!r}}})'


def _paths() -> Iterator[Bad]:
  for path, *names in (
    ('/proc/nothing', 'writable'),
    ('/dev/null/x', 'valid is'),
    ('a-file', 'valid is'),
    ('a-file/below', 'valid is'),
    ('x' * 300, 'valid is'),
    ('foo://x/y', 'gs://BUCKET'),
    ('nul\x00l', 'valid is'),
    ('\udcff\udcfe', 'UTF-8'),
    ('/sys/kernel/x', 'writable'),
  ):
    given = f'--workdir={path}'
    yield Bad(f'{given[:40]!r}', (_GRID, given), ('--workdir', *names), (repr(path)[:30],), {'a-file': b'mine'})
    given = f'--config.pretrained={path}'
    yield Bad(f'{given[:40]!r}', (_GRID, given), ('pretrained',), (repr(path)[:30],), {'a-file': b'mine'})
  yield Bad('status of no path', (_GRID, f'--workdir={"x" * 300}', '--mode=status'), ('--workdir', 'valid is'))


def _records() -> Iterator[Bad]:
  """Workdirs whose records are torn, of another experiment, or none."""
  line = json.dumps({'schema_version': 1, 'experiment': 'prompt_vs_head'})
  for what, content in (
    ('torn', f'{line}\n{line[:20]}'.encode()),
    ('of lists', b'[1, 2]\n'),
    ('of numbers', b'3\n'),
    ('binary', b'\x00\xff\xfe'),
    ('deep', b'[' * 100_000),
    ('of another experiment', b'{"schema_version": 1, "experiment": "benchmark"}\n'),
    ('of another schema', b'{"schema_version": 99, "experiment": "prompt_vs_head"}\n'),
    ('of an unreadable schema', b'{"schema_version": [], "experiment": "prompt_vs_head"}\n'),
    ('of an unreadable experiment', b'{"schema_version": 1, "experiment": {}}\n'),
    ('empty', b''),
  ):
    for mode, flags in dict(report=(_GRID, '--mode=report'), verify=('--mode=verify',)).items():
      arguments = (*flags, '--workdir=work')
      yield Bad(f'records {what}, to {mode}', arguments, ('work', 'valid'), files={'work/results.jsonl': content})
  for what, config in (('torn', b'{"a": '), ('a list', b'[]'), ('empty', b''), ('deep', b'[' * 100_000)):
    files = {'work/results.jsonl': f'{line}\n'.encode(), 'work/config.json': config}
    yield Bad(f'a config.json {what}, to verify', ('--mode=verify', '--workdir=work'), ('valid',), files=files)


def _hmm_files() -> Iterator[Bad]:
  """Files of an HMM: kinds of files, then keys, shapes and values."""
  for name, content in (
    ('hmm.txt', b'{}'),
    ('hmm', b'{}'),
    ('hmm.json', b''),
    ('hmm.json', b'{'),
    ('hmm.json', b'[1]'),
    ('hmm.json', b'3'),
    ('hmm.json', b'\xff\xfe'),
    ('hmm.json', b'[' * 100_000),
    ('hmm.json', b'{"cell": ' + b'9' * 5000 + b'}'),
    ('hmm.json', b'{"cell": 1, "cell": 2}'),
    ('hmm.npz', b''),
    ('hmm.npz', b'PK\x03\x04 not really'),
    ('hmm.npz', _npz(_HMM)[:-40]),
    ('hmm.npz', _npz(_HMM)[:100]),
    ('hmm.npz', _one_array()),
    ('hmm.npz', _npz({**_HMM, 'task_weights': np.array([{}, {}], object)})),
  ):
    yield Bad(f'{name} of {content[:20]!r}', _examined(name), ('hmm_file', name, 'valid'), files={name: content})
  yield Bad('no hmm_file', (_EXAMINE, '--workdir=work'), ('hmm_file', 'valid is'))
  yield Bad('an hmm_file that is none', _examined('none.json'), ('hmm_file', 'none.json', 'valid is'))
  yield Bad('an hmm_file that is a folder', _examined('f.json'), ('hmm_file', 'f.json'), files={'f.json/x': b''})
  for base in (_HMM, _MEMORY):
    for key in base:
      yield _wrong_hmm(f'without {key}', {name: value for name, value in base.items() if name != key}, key)
      for what, value in _wrong_values(base[key]):
        yield _wrong_hmm(f'{key} {what}', {**base, key: value}, key)
  yield _wrong_hmm('with a key too many', {**_HMM, 'colour': 1}, 'colour')
  yield _wrong_hmm('with a task of equal rows', {**_HMM, 'task_weights': [[1.0, 2.0], [1.0, 2.0]]}, 'task_weights')
  yield _wrong_hmm('with huge weights', {**_HMM, 'task_weights': [1e300, 0.0]}, 'task_weights')
  yield _wrong_hmm('with a silent state too many', {**_HMM, 'silent_probs': [0.5, 0.25, 0.25]}, 'silent_probs')
  yield _wrong_hmm('with half a cell', {**_MEMORY, 'cell': 0.5}, 'cell')
  yield _wrong_hmm('with a cell too many', {**_MEMORY, 'cell': 1}, 'cell')
  yield _wrong_hmm('with a cell that is not there', {**_MEMORY, 'cell_index': [0, 1]}, 'cell_index')
  yield _wrong_hmm('with part of a cell', {**_MEMORY, 'cell_index': [0.0, 0.5]}, 'cell_index')


def _wrong_values(value: Any) -> Iterator[tuple[str, Any]]:
  """What stands in place of an array: of another kind, another shape, and what no probability or weight is."""
  yield 'a text', 'abc'
  yield 'null', None
  yield 'a group', {'a': 1}
  yield 'ragged', [[0.5, 0.5], [1.0]]
  yield 'of truth values', [True, False]
  yield 'empty', []
  yield 'too deep', [[[[value]]]]
  yield 'of texts', ['0.5', '0.5']
  if not np.issubdtype(np.asarray(value).dtype, np.integer):
    flat = np.asarray(value, float)
    for what, entry in dict(NaN=np.nan, inf=np.inf, minus_inf=-np.inf).items():
      wrong = flat.copy()
      wrong.flat[0] = entry
      yield f'with {what}', wrong.tolist()
    if abs(flat.sum(-1) - 1).max() < 1e-9:
      for what, entry in dict(negative=-0.1, large=1.5).items():
        wrong = flat.copy()
        wrong.flat[0] = entry
        yield f'with a {what} entry', wrong.tolist()
      yield 'of zeros', np.zeros_like(flat).tolist()


def _wrong_hmm(what: str, entries: dict[str, Any], key: str) -> Bad:
  return Bad(f'an HMM {what}', _examined('hmm.json'), (key,), files={'hmm.json': json.dumps(entries).encode()})


def _examined(name: str) -> tuple[str, ...]:
  return _EXAMINE, f'--config.hmm_file={pathlib.PurePath(name)}', '--workdir=work'


def _npz(entries: dict[str, Any]) -> bytes:
  buffer = io.BytesIO()
  arrays: dict[str, Any] = {key: np.asarray(value) for key, value in entries.items()}
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def _one_array() -> bytes:
  buffer = io.BytesIO()
  np.save(buffer, np.ones(3))
  return buffer.getvalue()


KINDS: dict[str, Callable[[], Iterator[Bad]]] = {
  'flags': _flags,
  'numbers of trials': _trials,
  'fields that do not fit each other': _combinations,
  'config files': _configs,
  'paths': _paths,
  'records that are read back': _records,
  'files of an HMM': _hmm_files,
}
