"""python -m experiments.main --config=prompt_vs_head[:scale] [--workdir=DIR] [--config.field=value]; --help, --list"""

import difflib
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

from absl import flags
import jax
import ml_collections
from ml_collections import config_flags
import rich.console

from experiments import cache, config as config_lib, results, usage
from experiments.fields import SettingsError
from experiments.progress import Reporter
from experiments.registry import EXPERIMENTS
from experiments.settings import Experiment


def main(argv: list[str]) -> int:
  """Runs one command line; returns the exit code."""
  try:
    values, config = _parse(argv)
    if values.help or values.list:
      if config is not None:
        config_lib.from_config(config)
      print(usage.help_text(config) if values.help else usage.listing(), end='')
      return 0
    settings = config_lib.from_config(config)
    experiment = EXPERIMENTS[settings.experiment]
    workdir = pathlib.Path(values.workdir or f'runs/{settings.experiment}-{settings.scale}')
    if values.mode == 'run':
      _set_up(settings)
      experiment.check(settings)
    _check_workdir(workdir, settings.experiment, values.mode)
    reporter, left = Reporter(rich.console.Console()), None
    if values.mode == 'run':
      with reporter.clock.counting_compilation():
        left = experiment.run(settings, workdir, reporter)
    experiment.show(settings, workdir, reporter)
    if values.mode == 'run':
      reporter.say(reporter.clock.line())
    if left:
      reporter.say(left)
  except SettingsError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


def _set_up(settings: Experiment) -> None:
  """JAX as experiments use it, before anything is drawn or compiled."""
  # What a seed draws is part of what names a model, so it must not hang on defaults or on the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_disable_most_optimizations', settings.fast_compilation)
  if settings.deterministic:
    # XLA reads its flags once, when the first device is looked at.
    others = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{others} --xla_gpu_exclude_nondeterministic_ops=true'.strip()
  cache.keep_programs(settings.compilation_cache)


def _parse(argv: list[str]) -> tuple[flags.FlagValues, Any]:
  """The flags and the config, None where help needs none; raises SettingsError in one sentence for what is wrong."""
  values = flags.FlagValues()
  # No default: absl would parse it, overrides included, before errors can be caught.
  argv, path = _located(argv)
  flags.DEFINE_string('workdir', '', '', flag_values=values)
  flags.DEFINE_enum('mode', 'run', ['run', 'report'], '', flag_values=values)
  flags.DEFINE_bool('help', False, '', short_name='h', flag_values=values)
  flags.DEFINE_bool('list', False, '', flag_values=values)
  try:
    config_flags.DEFINE_config_file('config', None, '', flag_values=values, sys_argv=argv)
    rest, config = values(argv), values.config
    if values['config'].present:
      # Where the file could not be read, a look at any field raises the error.
      getattr(config, 'experiment', None)
      if not isinstance(config, ml_collections.ConfigDict):
        raise TypeError(f'get_config() returned a {type(config).__name__}')
  except (Exception, SystemExit) as error:
    # A config file is a program, which may fail in any way or exit.
    raise SettingsError(_refusal(argv, path, error))
  if config is None and not (values.help or values.list):
    raise SettingsError(f'--config is missing; valid is --config=NAME[:scale] with one of {", ".join(EXPERIMENTS)}')
  decided = [name for name in ('experiment', 'scale') if any(re.match(rf'--?config\.{name}\b', word) for word in argv)]
  if decided:
    raise SettingsError(f'--config.{decided[0]} is decided by --config=NAME:SCALE; valid is any other field')
  if len(rest) > 1:
    raise SettingsError(f'{rest[1]!r} is a stray argument; valid are --flag=value only')
  return values, config


def _located(argv: list[str]) -> tuple[list[str], str]:
  """The arguments with the path of a config for its name, and PATH[:scale] of the last --config, which counts."""
  argv, path = list(argv), ''
  for index, argument in enumerate(argv):
    name, equals, value = argument.partition('=')
    if name in ('-config', '--config') and (equals or argv[index + 1 :]):
      path = config_lib.locate(value if equals else argv[index + 1])
      argv[index : index + 2 - bool(equals)] = [f'--config={path}'] if equals else ['--config', path]
  return argv, path


def _refusal(argv: list[str], path: str, error: BaseException) -> str:
  """One sentence for what a flag, or the config file itself, has raised."""
  lines = [line for line in str(error).splitlines() if line.strip()] or ['']
  in_file = 'Traceback' in str(error)
  if isinstance(error, flags.Error) and not in_file:
    return ' '.join(lines)
  unknown = _unknown_field(argv, path)
  if unknown:
    return unknown
  # Within a traceback the last line names the type of the error itself.
  reason = lines[-1] if in_file else f'{type(error).__name__}: {lines[-1]}'
  if reason.startswith('ValueError: '):
    # Its own words: what get_config says of its argument.
    return f'--config is {path!r}: {reason.removeprefix("ValueError: ")}'
  valid = 'a Python file whose get_config returns a ConfigDict'
  return f'--config is {path!r}, which fails with {reason}; valid is {valid}'


def _unknown_field(argv: list[str], path: str) -> str | None:
  valid = config_lib.field_names(pathlib.Path(path.partition(':')[0]).stem)
  for argument in argv[1:]:
    match = re.match(r'--?config\.([^=]*)', argument)
    if match and match[1] not in valid:
      nearest = difflib.get_close_matches(match[1], valid, n=1, cutoff=0) or valid
      return f'--config.{match[1]} is no field of this config; the nearest is --config.{nearest[0]}'
  return None


def _check_workdir(workdir: pathlib.Path, experiment: str, mode: str) -> None:
  """A report needs records of the experiment; a run replaces them, and so must not meet those of another."""
  name = f'--workdir is {str(workdir)!r}'
  try:
    found = {record.get('experiment') for record in results.load(workdir)}
    if mode == 'report' and found != {experiment}:
      raise SettingsError(f'{name}; --mode=report needs one that holds records of {experiment}')
    if not found <= {experiment}:
      raise SettingsError(f'{name}, whose results.jsonl is of another experiment than {experiment}; valid is another')
    results.check_schema(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=workdir):
      pass
  except OSError as error:
    raise SettingsError(f'{name}; valid is a writable directory ({error.strerror})')


if __name__ == '__main__':
  sys.exit(main(sys.argv))
