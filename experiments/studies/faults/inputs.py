"""Bad inputs: the ways in which a field can be wrong, and what a refusal has to be.

What is bad is read off the type and the range that a field says it takes, and never off the code that checks it.
"""

import ast
from collections.abc import Iterator
import contextlib
import io
import math
import pathlib
import runpy
import sys
import tempfile
import typing
from typing import Any, NamedTuple

_HUGE = '1' + '0' * 400
# Characters of a value that have to be shown, and that one sentence has at most.
_SHOWN = 25
_MOST_SAID = 1000
_LONGEST_SHOWN = 5000


class Bad(NamedTuple):
  """A command line that has to be refused.

  Attributes:
    what: is wrong.
    arguments: of experiments.main, run in a folder of its own.
    names: all of which the sentence has.
    values: one of which the sentence has.
    files: what lies in the folder before, by path.
  """

  what: str
  arguments: tuple[str, ...]
  names: tuple[str, ...]
  values: tuple[str, ...] = ('',)
  files: dict[str, bytes] = {}


def bad_texts(field: Any) -> Iterator[tuple[str, str]]:
  """(what is wrong, the text after --config.FIELD=) for one field; nothing of a text that may be any."""
  entries = typing.get_args(field.type)
  kind = entries[0] if entries else field.type
  if not entries:
    yield from _of_kind[kind](field.metadata)
    return
  for what, text in _of_kind[kind](field.metadata):
    if kind is str or what.startswith(('below', 'above')):
      yield f'{what}, in a tuple', f'({text!r},)' if kind is str else f'({text},)'
  one = repr((field.metadata['choices'] or ('a',))[0]) if kind is str else '1'
  yield 'a tuple in a tuple', f'(({one},),)'
  yield 'a group', '{1: 2}'
  yield 'a tuple left open', f'({one}'
  if not field.metadata['may_be_empty']:
    yield 'nothing', '()'
  yield ('numbers for texts', '(1, 2)') if kind is str else ('texts for numbers', "('1',)")
  if kind is int:
    yield 'a fraction, in a tuple', '(1.5,)'
    yield 'a truth value, in a tuple', '(True,)'


def _bad_ints(metadata: Any) -> Iterator[tuple[str, str]]:
  bounds = metadata['bounds']
  yield 'below the range', str(math.ceil(bounds['least']) - 1 if 'least' in bounds else math.floor(bounds['above']))
  yield 'above the range', str(math.floor(bounds['most']) + 1 if 'most' in bounds else math.ceil(bounds['below']))
  yield 'above the range, 401 digits', _HUGE
  yield 'above the range, 6000 hexadecimal digits', '0x' + 'f' * 6000
  for text in ('nan', 'abc', '1.5', '', 'True', '½', '1,2'):
    yield f'{text!r} for an integer', text


def _bad_floats(metadata: Any) -> Iterator[tuple[str, str]]:
  bounds = metadata['bounds']
  below = math.nextafter(bounds['least'], -math.inf) if 'least' in bounds else float(bounds['above'])
  above = math.nextafter(bounds['most'], math.inf) if 'most' in bounds else float(bounds['below'])
  yield 'below the range', repr(below)
  yield 'above the range', repr(above)
  yield 'above the range, 1e400', '1e400'
  for text in ('nan', 'inf', '-inf', 'abc', '', 'None', '1;2'):
    yield f'{text!r} for a number', text


def _bad_bools(metadata: Any) -> Iterator[tuple[str, str]]:
  for text in ('maybe', '2', '', 'None', 'nan', '(True,)'):
    yield f'{text!r} for a truth value', text


def _bad_texts(metadata: Any) -> Iterator[tuple[str, str]]:
  for choice in metadata['choices'][:1]:
    for text in ('nonsense', '', f'{choice} ', choice.upper(), f'{choice}\n', 'é\u202e☃'):
      yield f'{text!r} for a choice', text


_of_kind: dict[Any, Any] = {int: _bad_ints, float: _bad_floats, bool: _bad_bools, str: _bad_texts}


def shown(text: str) -> tuple[str, ...]:
  """How a sentence may begin to show a value: as it was given, or as it was read, if Python can write that."""
  if len(text) > _LONGEST_SHOWN:
    return ('too long to show',)
  shown = [text, repr(text)]
  for read in (int, float, ast.literal_eval):
    with contextlib.suppress(ValueError, SyntaxError):
      shown.append(repr(read(text)))
  return tuple(one[:_SHOWN] for one in shown if one)


def said_of(bad: Bad) -> str:
  """What is wrong with how a bad input was refused, in words; '' where it was as it has to be.

  That is: exit status 2, one line on standard error with all that `bad` says of it and no other output there, and the
  folder as it was before.
  """
  with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
    for name, content in bad.files.items():
      path = pathlib.Path(name)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)
    status, said = _run(bad.arguments)
    after = {str(path): path.read_bytes() for path in pathlib.Path().rglob('*') if path.is_file()}
    made = [str(path) for path in pathlib.Path().rglob('*') if path.is_dir() and not any(path.rglob('*'))]
  lines = said.splitlines()
  if status != 2 or len(lines) != 1:
    return f'status {status}, {len(lines)} lines: {said[-_MOST_SAID:]}'
  missing = [name for name in bad.names if name not in said]
  if missing or not any(value in said for value in bad.values):
    return f'{missing or bad.values} not in: {said[:_MOST_SAID]}'
  if len(said) > _MOST_SAID:
    return f'a sentence of {len(said)} characters'
  written = sorted({name for name in {*after, *bad.files} if after.get(name) != bad.files.get(name)} | set(made))
  return f'wrote {", ".join(written)}' if written else ''


def _run(arguments: tuple[str, ...]) -> tuple[Any, str]:
  """Exit status and standard error of `python -m experiments.main`, here."""
  # Where a config was read before: absl knows its file by one name.
  sys.modules.pop('config_config', None)
  said, before = io.StringIO(), sys.argv
  sys.argv = ['main', *arguments]
  with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
    try:
      runpy.run_module('experiments.main', run_name='__main__')
      status: Any = 'none'
    except SystemExit as exit:
      status = exit.code
    except BaseException as error:
      return 1, f'{said.getvalue()}{type(error).__name__}: {error}\n of a traceback'
    finally:
      sys.argv = before
  return status, said.getvalue()
