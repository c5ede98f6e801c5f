"""The ways in which the value of a field can be wrong, as text on a command line.

What is bad is read off the type and the range that a field says it takes, and never off the code that checks it.
"""

import ast
import contextlib
import math
import typing

_HUGE = '1' + '0' * 400
# Characters of a value that have to be shown.
_SHOWN = 25


def bad_texts(field):
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
  yield 'a tuple left open', f'({one}'
  if not field.metadata['may_be_empty']:
    yield 'nothing', '()'
  yield ('numbers for texts', '(1, 2)') if kind is str else ('texts for numbers', "('1',)")
  if kind is int:
    yield 'a fraction, in a tuple', '(1.5,)'
    yield 'a truth value, in a tuple', '(True,)'


def _bad_ints(metadata):
  bounds = metadata['bounds']
  yield 'below the range', str(math.ceil(bounds['least']) - 1 if 'least' in bounds else math.floor(bounds['above']))
  yield 'above the range', str(math.floor(bounds['most']) + 1 if 'most' in bounds else math.ceil(bounds['below']))
  yield 'above the range, 401 digits', _HUGE
  for text in ('nan', 'abc', '1.5', '', 'True', '½', '1,2'):
    yield f'{text!r} for an integer', text


def _bad_floats(metadata):
  bounds = metadata['bounds']
  below = math.nextafter(bounds['least'], -math.inf) if 'least' in bounds else float(bounds['above'])
  above = math.nextafter(bounds['most'], math.inf) if 'most' in bounds else float(bounds['below'])
  yield 'below the range', repr(below)
  yield 'above the range', repr(above)
  yield 'above the range, 1e400', '1e400'
  for text in ('nan', 'inf', '-inf', 'abc', '', 'None', '1;2'):
    yield f'{text!r} for a number', text


def _bad_bools(metadata):
  for text in ('maybe', '2', '', 'None', 'nan', '(True,)'):
    yield f'{text!r} for a truth value', text


def _bad_texts(metadata):
  for choice in metadata['choices'][:1]:
    for text in ('nonsense', '', f'{choice} ', choice.upper(), f'{choice}\n', 'é\u202e☃'):
      yield f'{text!r} for a choice', text


_of_kind = {int: _bad_ints, float: _bad_floats, bool: _bad_bools, str: _bad_texts}


def shown(text):
  """How a sentence may begin to show a value: as it was given, or as it was read, if Python can write that."""
  shown = [text, repr(text)]
  for read in (int, float, ast.literal_eval):
    with contextlib.suppress(ValueError, SyntaxError):
      shown.append(repr(read(text)))
  return tuple(one[:_SHOWN] for one in shown if one)
