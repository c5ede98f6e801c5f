"""python -m experiments.main --config=configs/prompt_vs_head.py[:scale] [--workdir=DIR] [--config.field=value]"""

import difflib
import pathlib
import re
import sys
import tempfile

from absl import flags
from ml_collections import config_flags
import rich.console

from experiments import benchmark
from experiments import cache
from experiments import config as config_lib
from experiments import pasture
from experiments import results
from experiments import settings as settings_lib
from experiments import sweep
from experiments.progress import Reporter
from experiments.theory import study

# No default: absl would parse it, overrides included, before errors can be caught.
_CONFIG = config_flags.DEFINE_config_file('config', None, 'File of the experiment, with :scale.')
_WORKDIR = flags.DEFINE_string('workdir', '', 'Where records go; runs/EXPERIMENT-SCALE where empty.')
_MODE = flags.DEFINE_enum('mode', 'run', ['run', 'report'], 'report: redraw table and figure from the records alone.')

# What an experiment is: `check` its settings, `run` what is missing, `show` what is on record.
_EXPERIMENTS = {
  'prompt_vs_head': sweep,
  'memory_vs_vanilla': sweep,
  'memory_cells': sweep,
  'benchmark': benchmark,
  'cow_in_the_pasture': pasture,
  'theory': study,
}


def main(argv: list[str]) -> int:
  """Runs one command line; returns the exit code."""
  try:
    settings = _parse(argv)
    experiment = _EXPERIMENTS[settings.experiment]
    experiment.check(settings)
    workdir = pathlib.Path(_WORKDIR.value or f'runs/{settings.experiment}-{settings.scale}')
    _check_workdir(workdir)
  except settings_lib.SettingsError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  cache.keep_programs(settings.compilation_cache)
  reporter = Reporter(rich.console.Console())
  if _MODE.value == 'run':
    experiment.run(settings, workdir, reporter)
  experiment.show(settings, workdir, reporter)
  return 0


def _parse(argv: list[str]) -> config_lib.AnySettings:
  """Settings from the command line; raises SettingsError with one sentence for whatever is wrong."""
  try:
    rest = flags.FLAGS(argv)
    config = _CONFIG.value
    if config is None:
      raise settings_lib.SettingsError('--config is missing; valid is --config=configs/FILE.py[:scale]')
    # A file that failed to load is reported at the first look at its fields.
    config.keys()
  except OSError:
    path = config_flags.get_config_filename(flags.FLAGS['config']).partition(':')[0]
    raise settings_lib.SettingsError(f'--config is {path!r}, which does not exist; valid is the path of a config file')
  except (AttributeError, KeyError) as error:
    raise settings_lib.SettingsError(_unknown_field(argv, error))
  except settings_lib.SettingsError:
    raise
  except (flags.Error, ValueError, TypeError, SyntaxError, ImportError) as error:
    raise settings_lib.SettingsError(_last_words(error))
  if len(rest) > 1:
    raise settings_lib.SettingsError(f'{rest[1]!r} is a stray argument; valid are --flag=value only')
  return config_lib.from_config(config)


def _last_words(error: Exception) -> str:
  """The message of an error without the traceback that config_flags puts inside it."""
  lines = [line for line in str(error).splitlines() if line.strip()]
  return re.sub(r'^\w+Error: ', '', lines[-1]) if 'Traceback' in str(error) else ' '.join(lines)


def _unknown_field(argv: list[str], error: Exception) -> str:
  valid = config_lib.field_names()
  for argument in argv[1:]:
    match = re.match(r'--?config\.([\w.]+)', argument)
    if match and match[1] not in valid:
      nearest = difflib.get_close_matches(match[1], valid, n=1, cutoff=0) or valid
      return f'--config.{match[1]} is no field of the config; the nearest is --config.{nearest[0]}'
  return _last_words(error)


def _check_workdir(workdir: pathlib.Path) -> None:
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=workdir):
      pass
  except OSError as error:
    raise settings_lib.SettingsError(f'--workdir is {str(workdir)!r}; valid is a writable directory ({error.strerror})')
  if _MODE.value == 'report' and not results.load(workdir):
    raise settings_lib.SettingsError(f'--workdir is {str(workdir)!r}; --mode=report needs one that holds records')


if __name__ == '__main__':
  sys.exit(main(sys.argv))
