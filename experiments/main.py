"""python -m experiments.main --config=NAME[:SCALE] [--workdir=DIR] [--mode=MODE] [--config.FIELD=VALUE ...]

--config   an experiment below, or the path of a config file; :SCALE selects its scale
--workdir  folder of records; default: runs/EXPERIMENT-SCALE
--mode     run (default): make the missing records, then tables and figures
           report: redraw tables and figures from the records
           Grids of trials also have
           status: print the number, state and missing records of each trial
           merge: collect the records of finished trials, then report
           verify: rerun trials of --workdir in a temporary folder and compare their records field by field
--trials   numbers of the trials to run, such as 0,3-5; the last trial to finish draws tables and figures
--pretrained
           with --mode=verify: folder of pretrained models to reuse; all others are pretrained again
--list     print the experiments and their scales
--help     print this text; with --config also the fields of that experiment and their values
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

from absl import flags
import jax
import rich.console

from experiments.records import files, results, status, user_data
from experiments.runtime import cache, distributed, exit_status, signals, storage
from experiments.runtime.progress import Reporter, write
from experiments.settings import config as config_lib, help_text, own_code
from experiments.settings.fields import Ended, printable, require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.groups import Experiment
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS, GRIDS, SETTINGS
from hmm_jax._support import nan_guard

# The flag of XLA by which a GPU gives the same bits each time; on a CPU it changes nothing.
_DETERMINISTIC = '--xla_gpu_exclude_nondeterministic_ops=true'
# Errors that end a run in a sentence, without a traceback.
_SENTENCES = (SettingsError, exit_status.RunError, Ended, storage.StorageError, nan_guard.Diverged)


def main(argv: list[str]) -> int:
  """Run one command line; return the exit status, one of `exit_status`."""
  try:
    with signals.answered():
      _main(argv)
  except _SENTENCES as error:
    # The reader of stderr may be gone; the exit status counts.
    with contextlib.suppress(OSError):
      print(printable(f'error: {error}'), file=sys.stderr, flush=True)
    return exit_status.error_status(error)
  return exit_status.DONE


def _main(argv: list[str]) -> None:
  values, config = parse(argv)
  if values.help:
    # The usage stands at the top of this file.
    fields = help_text.fields_text(config, SETTINGS) if config else ''
    write(f'{__doc__}\n{help_text.listing(EXPERIMENTS)}\n{fields}')
  elif values.list:
    write(help_text.listing(EXPERIMENTS))
  else:
    given: user_data.Given = {}
    if values.mode != 'verify' and config.get('distribution'):
      given = user_data.resolve(config, _workdir(values, config), config_lib.named(argv))
    settings = config and registry.from_config(config)
    if values.mode == 'verify':
      _verify(values, settings)
    else:
      _act(values, settings, given)


def parse(argv: list[str]) -> tuple[flags.FlagValues, Any]:
  """The flags and the config, None where help needs none; raises SettingsError for a bad command line."""
  values = flags.FlagValues()
  # --config.FIELD=VALUE may stand between the flags; it is parsed once the config is loaded.
  values.set_gnu_getopt()
  for name in ('config', 'workdir', 'trials', 'pretrained'):
    flags.DEFINE_string(name, '', '', flag_values=values)
  flags.DEFINE_enum('mode', 'run', ['run', 'report', 'merge', 'status', 'verify'], '', flag_values=values)
  flags.DEFINE_bool('help', False, '', short_name='h', flag_values=values)
  flags.DEFINE_bool('list', False, '', flag_values=values)
  config = None
  try:
    words = values(argv, known_only=True)
  except (flags.Error, ValueError) as error:
    raise SettingsError(' '.join(str(error).split()))
  verifies = values.mode == 'verify'
  is_flag = re.compile(r'--(?!(?:no)?config\.)').match
  if not any(map(is_flag, words)) and (values.config or not (values.help or values.list or verifies)):
    config = config_lib.load(values.config, EXPERIMENTS)
    words = config_lib.override(config, words, SETTINGS)
  for word in [*filter(is_flag, words), *words[1:]]:
    valid = ', '.join(f'--{name}' for name in values)
    raise SettingsError(f'unknown argument {word!r}; valid are --config.FIELD=VALUE, {valid}')
  require(verifies or not values.pretrained, '--pretrained', values.pretrained, 'empty unless --mode is verify')
  return values, config


def _act(values: flags.FlagValues, settings: Any, given: user_data.Given) -> None:
  """Carry out the mode for an experiment; raises SettingsError before anything is written, or TrialsFailed."""
  experiment, mode, workdir = EXPERIMENTS[settings.experiment], values.mode, _workdir(values, settings)
  is_grid, name = settings.experiment in GRIDS, settings.experiment
  require(is_grid or mode in ('run', 'report'), '--mode', mode, f'run or report: {name} is not a grid of trials')
  valid = 'empty unless --mode is run, on a grid of trials'
  require((is_grid and mode == 'run') or not values.trials, '--trials', values.trials, valid)
  # Imported here, since it takes longer than `--list` and `--help`.
  from experiments.pipeline import process_check, sweep

  chosen = []
  if mode == 'run':
    if is_grid:
      chosen = [sweep.chosen(values.trials, sweep.trials(settings, workdir))]
    set_up(settings)
    if isinstance(settings, Settings):
      distributed.initialize(settings.distributed)
  if mode != 'report':
    _import_own(settings)
  if mode == 'run':
    distributed.raise_everywhere(lambda: experiment.check(settings))
    if isinstance(settings, Settings):
      distributed.raise_everywhere(lambda: process_check.check(settings, given))
  reporter, left = Reporter(rich.console.Console(quiet=not distributed.is_writer())), None
  recorded = distributed.broadcast_from_process_0(lambda: _check_workdir(workdir, name, mode))
  if mode == 'status':
    write(status.text(sweep.trials(settings, workdir)))
    return
  if mode == 'merge':
    is_begun = any(not trial.absent() for trial in sweep.trials(settings, workdir).values())
    require(is_begun, '--workdir', str(workdir), 'a folder with a finished trial of these settings')
  changed = results.changed(recorded, settings) if mode != 'report' else []
  beside = changed and f'{workdir} holds records with other settings: {", ".join(changed)}; new records are added'
  if beside:
    reporter.say(beside)
  if mode == 'run':
    user_data.keep(workdir, given)
    # jax.debug_nans is thread-local inside some jnp functions, so it is set here too.
    with reporter.clock.counting_compilation(), jax.debug_nans(settings.debug_nans):
      left = experiment.run(settings, workdir, reporter, *chosen)
  elif mode == 'merge':
    left = sweep.merge(settings, workdir, reporter)
  # Any of several runs may be the last; that one finds the whole grid.
  if not (left and values.trials):
    # The others wait until process 0 has shown it, so that all end together.
    distributed.broadcast_from_process_0(lambda: _show(mode, settings, workdir, reporter))
  if mode == 'run':
    reporter.say(reporter.clock.line())
  # Repeat the first: a run is long.
  for sentence in filter(None, (beside, left)):
    reporter.say(sentence)


def _workdir(values: flags.FlagValues, settings: Any) -> pathlib.Path:
  """The folder of records that --workdir names, or else that of an experiment and its scale."""
  return storage.located(values.workdir or f'runs/{settings.experiment}-{settings.scale}', '--workdir')


def _check_workdir(workdir: pathlib.Path, experiment: str, mode: str) -> dict[str, Any] | None:
  """The settings on record in a folder, None where there are none.

  A run makes the folder. Raises SettingsError where something is damaged or of another experiment or version, or a
  report finds no records.
  """
  try:
    if mode != 'status':
      storage.check_writable(workdir)
    recorded = results.config(workdir)
    found = [recorded] if recorded and mode != 'report' else results.load(workdir)
    if mode == 'run':
      workdir.mkdir(parents=True, exist_ok=True)
      files.remove_partials(workdir)
  except (OSError, ImportError) as error:
    # A file stands there, the folder is not ours, or the library of the object store is missing.
    raise SettingsError(f'--workdir is {str(workdir)!r}; valid is a writable directory ({error})')
  is_of_it = all(one.get('experiment') == experiment for one in found)
  valid = f'a folder with records of {experiment} only'
  require(is_of_it and (found or mode != 'report'), '--workdir', str(workdir), valid)
  return recorded


def _show(mode: str, settings: Any, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Show what is on record; a report raises SettingsError for records that do not fit, which may be anybody's."""
  try:
    EXPERIMENTS[settings.experiment].show(settings, workdir, reporter)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    if mode != 'report' or isinstance(error, SettingsError):
      raise
    valid = f'records written by {settings.experiment}'
    raise SettingsError(f'{workdir / results.FILE_NAME} has unknown fields ({error!r}); valid are {valid}') from error


def _verify(values: flags.FlagValues, settings: Any) -> None:
  """Rerun trials of a folder of records; raises SettingsError, or Differs if the records differ.

  They run with the settings on record there. `settings`, of a config or None, name the default folder and the user's
  own functions.
  """
  require(values.workdir or settings, '--workdir', '', 'a folder of records')
  # Imported here, since it takes longer than `--list` and `--help`.
  from experiments.pipeline import verify

  def set_up_and_import(recorded: Experiment) -> None:
    set_up(recorded)
    _import_own(settings)

  workdir, reporter = _workdir(values, settings), Reporter(rich.console.Console())
  verify.run(workdir, values.trials, values.pretrained, dict.fromkeys(GRIDS, Settings), set_up_and_import, reporter)


def _import_own(settings: Any) -> None:
  """Import the user's own functions, once JAX is configured: a module may compute where it is imported."""
  if isinstance(settings, Settings):
    for field in own_code.FIELDS:
      own_code.import_named(field, getattr(settings, field))


def set_up(settings: Experiment) -> None:
  """Configure JAX, before anything is drawn or compiled."""
  # A model's id covers its seed, so draws must not depend on JAX's defaults or the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_enable_x64', False)
  jax.config.update('jax_disable_most_optimizations', settings.fast_compilation)
  jax.config.update('jax_debug_nans', settings.debug_nans)
  # XLA reads its flags once, when JAX first looks for devices; of two with one name the last wins.
  flags_of_user = os.environ.get('XLA_FLAGS', '').split()
  # A second experiment of this process finds the flag there, and records the same environment.
  if settings.deterministic and _DETERMINISTIC not in flags_of_user:
    known = f'False, since this version of JAX, {jax.__version__}, does not know {_DETERMINISTIC}'
    require(_is_known(_DETERMINISTIC), '--config.deterministic', True, known)
    os.environ['XLA_FLAGS'] = ' '.join([*flags_of_user, _DETERMINISTIC])
  cache.keep_programs(settings.compilation_cache)


def _is_known(flag: str) -> bool:
  """Try the flag in a process of its own, which XLA ends if it does not know it."""
  environment = os.environ | {'XLA_FLAGS': flag, 'JAX_PLATFORMS': 'cpu'}
  command = [sys.executable, '-c', 'import jax; jax.devices()']
  return subprocess.run(command, env=environment, capture_output=True).returncode == 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
