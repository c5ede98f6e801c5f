"""The output of `--help` and `--list`: plain lines, which read the same on a terminal and in a pipe."""

from collections.abc import Iterable
import operator
import textwrap

import ml_collections

from experiments.settings import config as config_lib
from experiments.settings.fields import valid_values

_WIDTH = 100
_OFTEN_CHANGED = (
  *('seed', 'num_states', 'num_trials', 'tasks_per_trial', 'models', 'methods', 'corpus.num_documents'),
  *('pretrain.num_steps', 'downstream.num_train', 'prompt.length'),
)
_USAGE = """\
python -m experiments.main --config=NAME[:SCALE] [--workdir=DIR] [--mode=MODE] [--config.FIELD=VALUE ...]

  --config   a name below, or the path of a config file (a file, or whatever ends in .py or has a slash), with :SCALE
  --workdir  where records go; runs/EXPERIMENT-SCALE where it is left out
  --mode     run (default): run what is missing; report: redraw tables and figures from the records alone; for grids,
             status: print each trial's number, state and missing records;
             merge: collect the records of finished trials, then report;
             verify: run trials of the records in --workdir again, in a folder of their own, and compare them field by
             field
  --trials   run these trials of a grid alone, by their numbers, such as 0,3-5; table and figures come with the last one
  --pretrained
             where --mode is verify, pretrained models to use where they are found; else all pretrain again
  --list     the experiments and their scales
  --help     this; with --config the fields of that experiment with the values that they have there; --help=all those of
             every experiment
"""


def listing(experiments: Iterable[str]) -> str:
  """The experiments, each with what it asks or shows and its scales."""
  lines = []
  for name in experiments:
    shipped = config_lib.shipped(name)
    lines += [f'{name}  [{", ".join(shipped["SCALES"])}]', f'  {shipped["__doc__"].splitlines()[0]}']
  return '\n'.join(lines) + '\n'


def help_text(config: ml_collections.ConfigDict | None, classes: config_lib.Classes, how: str) -> str:
  """The usage; every field of `config`, or of all experiments if `how` is 'all', else the fields that people change.

  A field has its name, its value, what it means and what is valid.
  """
  if config:
    return '\n'.join([_USAGE, _fields(config, classes)])
  parts = [_USAGE, listing(classes)]
  if how == 'all':
    return '\n'.join([*parts, *(_fields(config_lib.shipped(name)['get_config'](), classes) for name in classes)])
  return '\n'.join([*parts, 'Often changed:\n', _often(config_lib.shipped('prompt_vs_head')['get_config'](), classes)])


def _often(config: ml_collections.ConfigDict, classes: config_lib.Classes) -> str:
  """A line for each of the fields that people change, with its value in a config."""
  known, lines = dict(config_lib.fields(classes[config.experiment])), []
  for name in _OFTEN_CHANGED:
    value = operator.attrgetter(name)(config)
    text = ','.join(map(str, value)) if isinstance(value, tuple) else value
    lines.append(f'  {f"--config.{name}={text}":<42} {known[name].metadata["meaning"]}\n')
  return ''.join(lines)


def _fields(config: ml_collections.ConfigDict, classes: config_lib.Classes) -> str:
  lines = [f'{config.experiment}:{config.scale}']
  for name, field in config_lib.fields(classes[config.experiment]):
    text = f'{field.metadata["meaning"]}; valid is {valid_values(field)}'
    value = f'{name} = {operator.attrgetter(name)(config)!r}'
    lines += textwrap.wrap(value, _WIDTH, initial_indent='  ', subsequent_indent=' ' * 4)
    lines += textwrap.wrap(text, _WIDTH, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  return '\n'.join(lines) + '\n'
