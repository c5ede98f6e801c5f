"""python -m experiments.main --config=configs/prompt_vs_head.py[:scale] [--workdir=DIR] [--config.field=value]"""

import difflib
import pathlib
import re
import sys
import tempfile

from absl import flags
import jax
import ml_collections
from ml_collections import config_flags
import rich.console

from experiments import benchmark
from experiments import cache
from experiments import config as config_lib
from experiments import example_4_1
from experiments import results
from experiments import sweep
from experiments.progress import Reporter
from experiments.settings import SettingsError
from experiments.theory import study

# What an experiment is: `check` whether this machine can run it, `run` what is missing, `show` what is on record.
_EXPERIMENTS = {
  'prompt_vs_head': sweep,
  'memory_vs_vanilla': sweep,
  'memory_cells': sweep,
  'benchmark': benchmark,
  'example_4_1': example_4_1,
  'theory': study,
}


_VALID_FILE = 'a Python file whose get_config returns a ConfigDict'


def main(argv: list[str]) -> int:
  """Runs one command line; returns the exit code."""
  try:
    values, config = _parse(argv)
    settings = config_lib.from_config(config)
    experiment = _EXPERIMENTS[settings.experiment]
    workdir = pathlib.Path(values.workdir or f'runs/{settings.experiment}-{settings.scale}')
    if values.mode == 'run':
      _set_up(settings)
      experiment.check(settings)
    else:
      _check_records(workdir, settings.experiment)
    _check_workdir(workdir)
  except SettingsError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  reporter = Reporter(rich.console.Console())
  if values.mode == 'run':
    experiment.run(settings, workdir, reporter)
  experiment.show(settings, workdir, reporter)
  return 0


def _set_up(settings: config_lib.AnySettings) -> None:
  """JAX as experiments use it, before anything is drawn or compiled."""
  # What a seed draws is part of what names a model, so it must not hang on defaults or on the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_disable_most_optimizations', settings.fast_compilation)
  cache.keep_programs(settings.compilation_cache)


def _parse(argv: list[str]) -> tuple[flags.FlagValues, ml_collections.ConfigDict]:
  """The flags and the config; raises SettingsError with one sentence for whatever is wrong."""
  values = flags.FlagValues()
  # No default: absl would parse it, overrides included, before errors can be caught.
  help_config = 'File of the experiment, with :scale.'
  config_flags.DEFINE_config_file('config', None, help_config, flag_values=values, sys_argv=argv)
  help_workdir = 'Where records go; runs/EXPERIMENT-SCALE where empty.'
  flags.DEFINE_string('workdir', '', help_workdir, flag_values=values)
  help_mode = 'report: redraw table and figure from the records alone.'
  flags.DEFINE_enum('mode', 'run', ['run', 'report'], help_mode, flag_values=values)
  try:
    rest, config = values(argv), values.config
    if values['config'].present:
      # Where the file could not be read, a look at any field raises the error.
      getattr(config, 'experiment', None)
      if not isinstance(config, ml_collections.ConfigDict):
        raise TypeError(f'get_config() returned a {type(config).__name__}')
  except (Exception, SystemExit) as error:
    # A config file is a program, which may fail in any way or exit.
    raise SettingsError(_refusal(argv, error))
  if config is None:
    raise SettingsError('--config is missing; valid is --config=configs/FILE.py[:scale]')
  if len(rest) > 1:
    raise SettingsError(f'{rest[1]!r} is a stray argument; valid are --flag=value only')
  return values, config


def _refusal(argv: list[str], error: BaseException) -> str:
  """One sentence for what a flag, or the config file itself, has raised."""
  lines = [line for line in str(error).splitlines() if line.strip()] or ['']
  in_file = 'Traceback' in str(error)
  if isinstance(error, flags.Error) and not in_file:
    return ' '.join(lines)
  unknown = _unknown_field(argv)
  if unknown:
    return unknown
  path = _config_path(argv)
  if not pathlib.Path(path.partition(':')[0]).is_file():
    return f'--config is {path!r}, which does not exist; valid is the path of a config file'
  # Within a traceback the last line names the type of the error itself.
  reason = lines[-1] if in_file else f'{type(error).__name__}: {lines[-1]}'
  if reason.startswith('ValueError: '):
    # Its own words: what get_config says of its argument.
    return f'--config is {path!r}: {reason.removeprefix("ValueError: ")}'
  return f'--config is {path!r}, which fails with {reason}; valid is {_VALID_FILE}'


def _config_path(argv: list[str]) -> str:
  """FILE[:scale] of the last --config, which is the one that counts."""
  path = ''
  for argument, following in zip(argv, [*argv[1:], '']):
    name, equals, value = argument.partition('=')
    if name in ('-config', '--config'):
      path = value if equals else following
  return path


def _unknown_field(argv: list[str]) -> str | None:
  valid = config_lib.field_names()
  for argument in argv[1:]:
    match = re.match(r'--?config\.([^=]*)', argument)
    if match and match[1] not in valid:
      nearest = difflib.get_close_matches(match[1], valid, n=1, cutoff=0) or valid
      return f'--config.{match[1]} is no field of the config; the nearest is --config.{nearest[0]}'
  return None


def _check_records(workdir: pathlib.Path, experiment: str) -> None:
  if {record.get('experiment') for record in results.load(workdir)} != {experiment}:
    raise SettingsError(f'--workdir is {str(workdir)!r}; --mode=report needs one that holds records of {experiment}')


def _check_workdir(workdir: pathlib.Path) -> None:
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=workdir):
      pass
  except OSError as error:
    raise SettingsError(f'--workdir is {str(workdir)!r}; valid is a writable directory ({error.strerror})')
  results.check_schema(workdir)


if __name__ == '__main__':
  sys.exit(main(sys.argv))
