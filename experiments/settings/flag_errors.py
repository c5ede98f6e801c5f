"""Messages for words on a command line that are no flag, no field, or no valid value of one."""

import difflib
import pathlib
import re
from typing import Any

from absl import flags

from experiments.settings import config as config_lib
from experiments.settings.fields import valid_values

_OF_ABSL = ('flagfile', 'undefok')
_TYPES = {'bool': 'True or False', 'int': 'an int', 'string': 'a text'}


def refusal(
  argv: list[str], path: str, values: flags.FlagValues, error: BaseException, classes: config_lib.Classes
) -> str:
  """One sentence for what a flag, or the config file itself, has raised."""
  lines = [line for line in str(error).splitlines() if line.strip()] or ['']
  in_file = 'Traceback' in str(error)
  if isinstance(error, flags.Error) and not in_file:
    return _flag_refusal(path, values, error, classes) or _unknown_field(argv, path, classes) or ' '.join(lines)
  unknown = _unknown_field(argv, path, classes)
  if unknown:
    return unknown
  # Within a traceback the last line names the type of the error itself.
  reason = lines[-1] if in_file else f'{type(error).__name__}: {lines[-1]}'
  if reason.startswith('ValueError: '):
    # Its own words: what get_config says of its argument.
    return f'--config is {path!r}: {reason.removeprefix("ValueError: ")}'
  valid = 'a Python file whose get_config returns a ConfigDict'
  return f'--config is {path!r}, which fails with {reason}; valid is {valid}'


def _flag_refusal(path: str, values: flags.FlagValues, error: flags.Error, classes: config_lib.Classes) -> str | None:
  """The message for a flag or field whose text absl could not read; None for another error."""
  if isinstance(error, flags.UnrecognizedFlagError):
    known = [f'--{name}' for name in values if '.' not in name and name not in _OF_ABSL]
    return f'--{error.flagname} is no flag; valid are {", ".join(known)}'
  reason, message = f': {error.__context__}', str(error)
  match = re.match(r'flag --([^=]+)=', message)
  if not match or not message.endswith(reason):
    return None
  name, text = match[1].removeprefix('config.'), message[match.end() : -len(reason)]
  fields = _fields(path, classes)
  if match[1] != name and name in fields:
    return f'{name} is {text!r}; valid is {valid_values(fields[name])}'
  if match[1] != name or name not in values:
    return None
  parser = values[name].parser
  choices = ', '.join(parser.enum_values) if isinstance(parser, flags.EnumParser) else ''
  valid = f'one of {choices}' if choices else _TYPES[parser.flag_type()]
  return f'--{name} is {text!r}; valid is {valid}'


def _unknown_field(argv: list[str], path: str, classes: config_lib.Classes) -> str | None:
  valid = config_lib.field_names(_experiment(path), classes)
  for argument in argv[1:]:
    match = re.match(r'--?config\.([^=]*)', argument)
    if match and match[1] not in valid:
      nearest = difflib.get_close_matches(match[1], valid, n=1, cutoff=0) or valid
      return f'--config.{match[1]} is no field of this config; the nearest is --config.{nearest[0]}'
  return None


def _experiment(path: str) -> str:
  """The experiment that a config file is named after."""
  return pathlib.Path(path.partition(':')[0]).stem


def _fields(path: str, classes: config_lib.Classes) -> dict[str, Any]:
  """The fields of the experiment that a config file is named after, by their dotted names; none if there is none."""
  cls = classes.get(_experiment(path))
  return dict(config_lib.fields(cls)) if cls else {}
