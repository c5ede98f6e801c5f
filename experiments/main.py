"""python -m experiments.main --config=prompt_vs_head[:scale] [--workdir=DIR] [--config.field=value]; --help, --list"""

from collections.abc import Sequence
import contextlib
import functools
import os
import pathlib
import re
import sys
from typing import Any, TYPE_CHECKING

from absl import flags
import jax
import ml_collections
from ml_collections import config_flags
import rich.console

from experiments.records import results, status
from experiments.runtime import cache, distributed, exit_status, nan_guard, signals, storage
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib, flag_errors, help_text
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.groups import Experiment
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS, GRIDS, SETTINGS

if TYPE_CHECKING:
  from experiments.studies.study import Study

_OF_VERIFY = 'nothing where --mode is not verify; a run has --config.pretrained'

# What ends a run in a sentence, without a traceback.
_SENTENCES = (
  *(SettingsError, exit_status.RunError, signals.Stopped),
  *(storage.StorageError, nan_guard.Diverged),
)


def main(argv: list[str]) -> int:
  """Runs one command line; returns the exit status, one of `exit_status`."""
  try:
    with signals.answered():
      _main(argv)
  except _SENTENCES as error:
    # Nobody may read any longer; the status stands.
    with contextlib.suppress(OSError):
      print(f'error: {error}', file=sys.stderr, flush=True)
    return exit_status.error_status(error)
  return exit_status.DONE


def _main(argv: list[str]) -> None:
  values, config = _parse(argv)
  if values.help or values.list:
    if config is not None:
      registry.from_config(config)
    print(help_text.help_text(config, SETTINGS, values.help) if values.help else help_text.listing(EXPERIMENTS), end='')
  elif values.mode == 'verify':
    _verify(values, config)
  else:
    _act(values, registry.from_config(config))


def _act(values: flags.FlagValues, settings: Any) -> None:
  """Does what the mode says with an experiment; raises SettingsError before anything is written, or TrialsFailed."""
  experiment = EXPERIMENTS[settings.experiment]
  workdir = _workdir(values, settings)
  chosen = _chosen(values, experiment, settings, workdir)
  if values.mode == 'status':
    _check_records(workdir, settings.experiment, values.mode)
    print(status.text(experiment.trials(settings, workdir)), end='')
    return
  if values.mode == 'run':
    _set_up(settings, joins=True)
    distributed.raise_everywhere(lambda: experiment.check(settings))
  look = lambda: _check_workdir(workdir, settings.experiment, values.mode)
  recorded, renamed = distributed.broadcast_from_process_0(look)
  if values.mode == 'merge':
    is_begun = any(not trial.absent() for trial in experiment.trials(settings, workdir).values())
    require(is_begun, '--workdir', str(workdir), 'one with a finished trial of these settings where --mode is merge')
  reporter, left = Reporter(rich.console.Console(quiet=not distributed.is_writer())), None
  if renamed:
    reporter.say(renamed)
  changed, beside = results.changed(recorded, settings), ''
  if changed and values.mode != 'report':
    what = 'has records of' if (workdir / results.FILE_NAME).exists() else 'was begun with'
    beside = f'{workdir} {what} other settings, beside which these come: {", ".join(changed)}'
    reporter.say(beside)
  if values.mode == 'run':
    # jax.debug_nans is thread-local inside some jnp functions, so it is set here too.
    looking = jax.debug_nans(True) if settings.debug_nans else contextlib.nullcontext()
    with reporter.clock.counting_compilation(), looking:
      left = experiment.run(settings, workdir, reporter, *chosen)
  elif values.mode == 'merge':
    left = experiment.merge(settings, workdir, reporter)
  # Of several processes each may be the last, and that one finds the whole grid.
  if not (left and values.trials):
    # The others wait for what process 0 shows, since all end together.
    distributed.broadcast_from_process_0(lambda: _show(values.mode, experiment, settings, workdir, reporter))
  if values.mode == 'run':
    reporter.say(reporter.clock.line())
  for sentence in filter(None, (beside, left)):
    reporter.say(sentence)


def _workdir(values: flags.FlagValues, settings: Any) -> pathlib.Path:
  """The folder of records that --workdir names, or else that of an experiment and its scale."""
  return storage.located(values.workdir or f'runs/{settings.experiment}-{settings.scale}', '--workdir')


def _show(mode: str, experiment: 'Study', settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Shows what is on record; a report, whose records may be anybody's, raises SettingsError if they do not fit."""
  try:
    experiment.show(settings, workdir, reporter)
  except (KeyError, TypeError, ValueError) as error:
    if mode != 'report' or isinstance(error, SettingsError):
      raise
    valid = f'records with the fields and values that {settings.experiment} writes'
    reason = f'{type(error).__name__}: {error}'
    raise SettingsError(f'{workdir / results.FILE_NAME} cannot be tabulated ({reason}); valid are {valid}') from error


def _verify(values: flags.FlagValues, config: ml_collections.ConfigDict | None) -> None:
  """Runs trials of a folder of records again; raises SettingsError, or Differs where they are others.

  The settings are those of the folder. A config names the folder that its experiment writes to by default.
  """
  require(bool(values.workdir or config), '--workdir', '', 'a folder of records where --mode is verify')
  reporter = Reporter(rich.console.Console())
  set_up = functools.partial(_set_up, joins=False)
  # Imported here, since it takes longer than `--list` and `--help`.
  from experiments.pipeline import verify

  grids = {name: SETTINGS[name] for name in GRIDS}
  workdir = _workdir(values, config)
  verify.run(workdir, values.trials, values.pretrained, grids, set_up, reporter)


def _set_up(settings: Experiment, joins: bool) -> None:
  """JAX as experiments use it, before anything is drawn or compiled; whether it joins other processes."""
  # What a seed draws is part of what names a model, so it must not hang on defaults or on the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_enable_x64', False)
  jax.config.update('jax_disable_most_optimizations', settings.fast_compilation)
  jax.config.update('jax_debug_nans', settings.debug_nans)
  if settings.deterministic:
    # XLA reads its flags once, when JAX first looks for devices.
    others = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{others} --xla_gpu_exclude_nondeterministic_ops=true'.strip()
  cache.keep_programs(settings.compilation_cache)
  if joins and isinstance(settings, Settings):
    distributed.initialize(settings.distributed)


def _parse(argv: list[str]) -> tuple[flags.FlagValues, Any]:
  """The flags and the config, None where help needs none; raises SettingsError in one sentence for what is wrong."""
  values = flags.FlagValues()
  # No default: absl would parse it, overrides included, before errors can be caught.
  argv, path = _located(argv)
  flags.DEFINE_string('workdir', '', '', flag_values=values)
  flags.DEFINE_enum('mode', 'run', ['run', 'report', 'merge', 'status', 'verify'], '', flag_values=values)
  flags.DEFINE_string('trials', '', '', flag_values=values)
  flags.DEFINE_string('pretrained', '', '', flag_values=values)
  flags.DEFINE_enum('help', None, ['short', 'all'], '', flag_values=values)
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
    raise SettingsError(flag_errors.refusal(argv, path, values, error, SETTINGS))
  require(values.mode == 'verify' or not values.pretrained, '--pretrained', values.pretrained, _OF_VERIFY)
  if config is None and not (values.help or values.list or values.mode == 'verify'):
    valid = f'NAME[:scale] with one of {", ".join(EXPERIMENTS)}'
    raise SettingsError(f'--config is missing; try --config=prompt_vs_head:smoke; valid is {valid}')
  decided = [name for name in ('experiment', 'scale') if any(re.match(rf'--?config\.{name}\b', word) for word in argv)]
  if decided:
    raise SettingsError(f'--config.{decided[0]} is decided by --config=NAME:SCALE; valid is any other field')
  if len(rest) > 1:
    raise SettingsError(f'{rest[1]!r} is a stray argument; valid are --flag=value only')
  return values, config


def _located(argv: list[str]) -> tuple[list[str], str]:
  """The arguments with the path of a config for its name, and PATH[:scale] of the last --config, which counts."""
  argv, path = ['--help=short' if word in ('-h', '-help', '--help') else word for word in argv], ''
  for index, argument in enumerate(argv):
    name, equals, value = argument.partition('=')
    if name in ('-config', '--config') and (equals or argv[index + 1 :]):
      path = config_lib.locate(value if equals else argv[index + 1], EXPERIMENTS)
      argv[index : index + 2 - bool(equals)] = [f'--config={path}'] if equals else ['--config', path]
  return argv, path


def _chosen(values: flags.FlagValues, experiment: 'Study', settings: Any, workdir: pathlib.Path) -> list[Sequence[int]]:
  """The numbers of the trials that a run of a grid does, as the last of its arguments.

  Another experiment takes none, and SettingsError is raised where they are asked for.
  """
  valid = f'nothing where --mode is {values.mode}'
  require(values.mode == 'run' or not values.trials, '--trials', values.trials, valid)
  if experiment.trials:
    from experiments.pipeline import sweep

    return [sweep.chosen(values.trials, experiment.trials(settings, workdir))]
  why = f'{settings.experiment} is no grid of trials, as {", ".join(GRIDS)} and recipes are'
  require(values.mode in ('run', 'report'), '--mode', values.mode, f'run or report: {why}')
  require(not values.trials, '--trials', values.trials, f'nothing: {why}')
  return []


def _check_workdir(workdir: pathlib.Path, experiment: str, mode: str) -> tuple[dict[str, Any] | None, str]:
  """The settings on record in the directory, which must not have records of another experiment, and what was renamed.

  A run makes the directory, and renames settings that cannot be parsed; the records beside them it merges again.
  """
  try:
    storage.check_writable(workdir)
    renamed = results.rename_corrupt(workdir) if mode == 'run' else ''
    recorded = _check_records(workdir, experiment, mode)
    if mode == 'run':
      workdir.mkdir(parents=True, exist_ok=True)
    return recorded, renamed
  except OSError as error:
    raise SettingsError(f'--workdir is {str(workdir)!r}; valid is a writable directory ({error.strerror})')


def _check_records(workdir: pathlib.Path, experiment: str, mode: str) -> dict[str, Any] | None:
  """The settings on record in a workdir, None where there are none.

  Raises SettingsError where they are damaged or of another experiment or version, or a report finds no records.
  """
  name = f'--workdir is {str(workdir)!r}'
  try:
    if workdir.exists() and not workdir.is_dir():
      raise SettingsError(f'{name}, which is a file; valid is a directory')
    recorded = results.check(workdir)
    found = {str(recorded.get('experiment'))} if recorded else set()
    if mode == 'report' or not recorded:
      found = {str(record.get('experiment')) for record in results.load(workdir)}
  except OSError as error:
    raise SettingsError(f'{name}; valid is a directory that can be read ({error.strerror})')
  except ImportError as error:
    raise SettingsError(f'{name}, which needs a library ({error}); valid is a local directory, or the extra gcs')
  if mode == 'report' and found != {experiment}:
    raise SettingsError(f'{name}; valid is one that holds records of {experiment} where --mode is report')
  if not found <= {experiment}:
    raise SettingsError(f'{name}, whose records are of another experiment than {experiment}; valid is another')
  return recorded


if __name__ == '__main__':
  sys.exit(main(sys.argv))
