"""python -m experiments.main --config=NAME[:SCALE] [--workdir=DIR] [--mode=MODE] [--config.FIELD=VALUE ...]

--config   an experiment below, or the path of a config file; :SCALE selects its scale
           --config.FIELD=VALUE,VALUE,... runs each value, or the product of several lists; --help marks such fields.
           The last value of a repeated field counts
--workdir  folder of records; default: runs/EXPERIMENT-SCALE
--mode     run (default): make the missing records, then tables, figures and report.html
           report: redraw tables, figures and report.html from the records
           Grids of trials also have
           status: print the number, state and missing records of each trial
           verify: rerun trials of --workdir in a temporary folder and compare their records field by field
--trials   numbers of the trials to run, such as 0,3-5; the last trial to finish draws tables and figures
--pretrained  with --mode=verify: folder of pretrained models to reuse; all others are pretrained again
--list     print the experiments and their scales; with --config the numbers and names of its trials
--help     print this text; with --config also the fields of that experiment and their values
"""

from collections.abc import Sequence
import contextlib
import pathlib
import sys
from typing import Any

from experiments.own import code, data
from experiments.own.data import Own
from experiments.records import results, status as status_lib
from experiments.runtime import distributed, exit_status, jax_options, signals, storage
from experiments.runtime.progress import Reporter, write
from experiments.settings import config as config_lib, help_text
from experiments.settings.config import Flags
from experiments.settings.fields import Ended, printable, require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.trial import trial_numbers, trials
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS, GRIDS, SETTINGS
from hmm_jax._support import nan_guard

# Errors that end a run in a sentence, without a traceback.
_SENTENCES = (SettingsError, exit_status.RunError, Ended, storage.StorageError, nan_guard.Diverged)


def main(argv: list[str]) -> int:
  """Run one command line; return the exit status, one of `exit_status`."""
  try:
    with signals.answered():
      _main(argv)
  except _SENTENCES as error:
    # stderr may be a closed pipe; the exit status still reports the error.
    with contextlib.suppress(OSError):
      print(printable(f'error: {error}'), file=sys.stderr, flush=True)
    return exit_status.error_status(error)
  return exit_status.DONE


def _main(argv: list[str]) -> None:
  """Print help, or run the mode; raises one of _SENTENCES."""
  flags, texts = config_lib.parse(argv, _MODES)
  needs_none = flags.help or flags.list or flags.mode == 'verify'
  values = config_lib.load(flags.config, texts, SETTINGS) if flags.config or texts or not needs_none else {}
  experiment = values.get('experiment', '')
  _check_flags(flags, experiment in GRIDS or not values)
  if flags.help:
    fields = help_text.fields_text(values, SETTINGS[experiment]) if values else ''
    return write(f'{__doc__}\n{help_text.listing(EXPERIMENTS)}\n{fields}')
  if flags.list and experiment not in GRIDS:
    return write(help_text.listing(EXPERIMENTS))
  require(flags.workdir or values, '--workdir', '', 'a folder of records')
  workdir = storage.located(flags.workdir or f'runs/{experiment}-{values["scale"]}', '--workdir')
  grid, own = list[Any](), dict[str, Any]()
  for point in config_lib.points(values, SETTINGS[experiment]) if values else []:
    own |= data.resolve(point, texts)
    grid.append(registry.from_record(point))
  if flags.list:
    return write(help_text.trials_text(trials(*grid, own=data.given(own | code.imported(grid)))))
  return _MODES[flags.mode](grid, workdir, flags, own)


def _check_flags(flags: Flags, is_grid: bool) -> None:
  """Raise SettingsError at a flag that the mode, or an experiment that is no grid of trials, does not take."""
  mode, trials, pretrained = flags.mode, flags.trials, flags.pretrained
  require(is_grid or mode in ('run', 'report'), '--mode', mode, 'run or report, if the experiment is no grid of trials')
  takes_trials = is_grid and mode in ('run', 'verify')
  require(takes_trials or not trials, '--trials', trials, 'empty, but for --mode=run or verify of a grid of trials')
  require(mode == 'verify' or not pretrained, '--pretrained', pretrained, 'empty unless --mode is verify')


def run(grid: Sequence[Any], workdir: pathlib.Path, flags: Flags, own: Own) -> None:
  """Make the missing records, then tables and figures; raises SettingsError before anything is written."""
  # Fields that decide how a process runs take no list.
  settings, study = grid[0], EXPERIMENTS[grid[0].experiment]
  numbers = trial_numbers(flags.trials, len(trials(*grid))) if flags.trials else None
  jax_options.set_up(settings.compilation_cache)
  if isinstance(settings, Settings):
    distributed.initialize(settings.distributed)
  own = {**own, **code.imported(grid)}
  for one in grid:
    study.check(one, own)
  budget = getattr(settings, 'time_budget', 0.0)
  reporter = Reporter(budget, is_quiet=not distributed.is_writer())
  reporter.say(distributed.in_process_0(results.other_settings)(workdir, grid))
  with reporter.clock.counting_compilation():
    left = study.run(grid, workdir, reporter, numbers, own)
  # Any of several runs may be the last; that one finds the whole grid.
  if not (left and flags.trials):
    # The others wait until process 0 has shown it, so that all end together.
    distributed.in_process_0(study.show)(settings, workdir, reporter)
  reporter.say(reporter.clock.line(), left)


def report(grid: Sequence[Any], workdir: pathlib.Path, flags: Flags, own: Own) -> None:
  """Redraw tables, figures and the report from the records."""
  storage.check_writable(workdir, '--workdir')
  results.check_recorded(workdir, grid[0])
  require(results.load(workdir), '--workdir', str(workdir), f'a folder with records of {grid[0].experiment}')
  EXPERIMENTS[grid[0].experiment].show_any(grid[0], workdir, Reporter())


def status(grid: Sequence[Settings], workdir: pathlib.Path, flags: Flags, own: Own) -> None:
  """Print the number, state and missing records of each trial."""
  from experiments.pipeline import sweep

  results.check_recorded(workdir, grid[0])
  own = {**own, **code.imported(grid)}
  write(status_lib.text(sweep.folders(grid, workdir, own)))


def verify(grid: Sequence[Any], workdir: pathlib.Path, flags: Flags, own: Own) -> None:
  """Rerun trials of a folder and compare their records; `grid`, if any, names the user's own functions."""
  from experiments.pipeline import verify as verify_lib

  recorded = verify_lib.recorded_settings(workdir, flags.pretrained, dict.fromkeys(GRIDS, Settings))
  jax_options.set_up(recorded[0].compilation_cache)
  own = {**own, **code.imported(grid)}
  verify_lib.run(recorded, workdir, flags.trials, Reporter(), own)


_MODES = {'run': run, 'report': report, 'status': status, 'verify': verify}

if __name__ == '__main__':
  sys.exit(main(sys.argv))
