"""The tables of docs/cost.md: `python -m experiments.cost_report` writes them there.

What is predicted comes from the shipped settings alone (`experiments/cost.py`), what is measured from the records of
runs, which keep `config.json`, `environment.jsonl` and `timing.jsonl` in a folder of docs/results/cost each.
"""

from collections.abc import Callable
import dataclasses
import json
import pathlib
import re
from typing import Any

from experiments import config as config_lib, cost, files, memory, results, timing
from experiments.settings import Point, Settings

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
PAGE, RECORDS = _DOCS / 'cost.md', _DOCS / 'results/cost'
_SCALES = ('small', 'paper', 'official')
# FLOPs a second of products of these shapes, measured: on two CPU cores in float32, and on an H200 in bfloat16.
_TWO_CORES, _GPU = 110e9, 790e12
_SIZES = ((1e15, 'P'), (1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'), (1, ''))


def filled(page: str) -> str:
  """The page with the tables that it has places for, as they are now."""
  runs = '\n'.join(map(measured, sorted(RECORDS.iterdir())))
  tables = iter((f'{by_part()}\n{by_scale()}', growth(), runs))
  place = re.compile('(<!-- tables -->\n).*?(<!-- end -->)', re.DOTALL)
  return place.sub(lambda match: match[1] + next(tables) + match[2], page)


def shipped(scale: str) -> Settings:
  """The settings of Figure 3 (left)."""
  return config_lib.from_config(config_lib.shipped('prompt_vs_head')['get_config'](scale))


def by_part() -> str:
  """The products of one pretraining step, with what the slots save."""
  settings = {scale: shipped(scale) for scale in _SCALES}
  steps = {scale: cost.pretraining_step(s) for scale, s in settings.items()}
  rows = [[part, *(_flops(step[part]) for step in steps.values())] for part in steps['small']]
  rows.append(['**a step**', *(_flops(sum(step.values())) for step in steps.values())])
  whole = {scale: cost.pretraining_step(s, read=s.corpus.chunk_length) for scale, s in settings.items()}
  rows.append(['if all positions were read', *(_flops(sum(step.values())) for step in whole.values())])
  return _table(['products of one pretraining step', *_SCALES], rows)


def by_scale() -> str:
  """What one trial at |H| = 30 takes, as its settings say."""
  rows: dict[str, Callable[[Settings], str]] = {
    'steps of pretraining': lambda s: f'{s.pretrain.num_steps:,}',
    'pretraining': lambda s: _flops(cost.pretraining(s)),
    'measuring, all along it': lambda s: _flops(cost.measurements(s) * cost.measuring(s)),
    'a step of prompt tuning, each task': lambda s: _flops(_prompt_step(s) / s.tasks_per_trial),
    'prompt tuning, each task': lambda s: _flops(cost.tuning(s, 'prompt') / s.tasks_per_trial),
    'what the heads are tuned on': lambda s: _flops(cost.tuning(s, 'head')),
    'exact posterior of an input': lambda s: _flops(cost.inference(Point(30), s.downstream.length)),
    'parameters of BERT': lambda s: f'{cost.num_params(s):,}',
    "parameters and AdamW's moments": lambda s: _bytes(cost.state_bytes(s)),
    'activations of a step': lambda s: _bytes(_activations(s)),
    'the corpus': lambda s: _bytes(cost.corpus_bytes(s)),
    'memory, all told (see experiments/memory.py)': lambda s: _bytes(memory.total(s)),
    'sent a step by each of 2 devices': lambda s: _bytes(cost.all_reduce_bytes(s, 2)),
    'sent a step by each of 8 devices': lambda s: _bytes(cost.all_reduce_bytes(s, 8)),
    'trials of the grid': lambda s: f'{len(s.grid()) * s.num_trials:,}',
    'pretraining at 110 GFLOP/s (two cores)': lambda s: _seconds(cost.pretraining(s) / _TWO_CORES),
    'pretraining at 790 TFLOP/s (H200)': lambda s: _seconds(cost.pretraining(s) / _GPU),
  }
  settings = [dataclasses.replace(shipped(scale), num_devices=1) for scale in _SCALES]
  return _table(
    ['one trial at H = 30, predicted', *_SCALES], [[what, *map(say, settings)] for what, say in rows.items()]
  )


def _prompt_step(s: Settings) -> float:
  return sum(cost.tuning_step(s, 'prompt').values())


def _activations(s: Settings) -> int:
  return cost.activation_bytes(s, s.pretrain.batch_size, s.corpus.chunk_length)


def growth() -> str:
  """By what each cost grows at the scale of the paper when one size doubles."""
  s, point, devices = shipped('paper'), Point(4, 2, 1), 2
  b, corpus = s.bert, s.corpus
  longer = dataclasses.replace(corpus, chunk_length=2 * corpus.chunk_length)
  with_bert = lambda **changes: dataclasses.replace(s, bert=dataclasses.replace(b, **changes))
  doubled: dict[str, tuple[Settings, Point, int]] = {
    'T, of chunks and inputs': (
      dataclasses.replace(
        with_bert(max_positions=2 * b.max_positions),
        corpus=longer,
        downstream=dataclasses.replace(s.downstream, length=2 * s.downstream.length),
      ),
      point,
      devices,
    ),
    'H': (s, point._replace(num_states=8), devices),
    'M, with N = 1': (s, point._replace(memory_size=4), devices),
    'N, from 1 to 2, with M = 2': (s, point._replace(num_cells=2), devices),
    'D, and the feed-forward width': (with_bert(width=2 * b.width, ffn_width=2 * b.ffn_width), point, devices),
    'layers': (with_bert(num_layers=2 * b.num_layers), point, devices),
    'tasks': (dataclasses.replace(s, tasks_per_trial=2), point, devices),
    'devices, from 2 to 4': (s, point, 4),
  }
  before = _costs(s, point, devices)
  rows = [[what, *(f'{cost / before[name]:.2f}' for name, cost in _costs(*of).items())] for what, of in doubled.items()]
  return _table(['twice', *before], rows)


def _costs(s: Settings, point: Point, num_devices: int) -> dict[str, float]:
  """Of the devices, for one of them."""
  return {
    'parameters': cost.num_params(s),
    'a step': sum(cost.pretraining_step(s).values()) / num_devices,
    'its activations': _activations(s) / num_devices,
    'its all-reduce': cost.all_reduce_bytes(s, num_devices),
    'a step of prompt tuning': _prompt_step(s),
    'exact posterior': cost.inference(point, s.downstream.length),
  }


def measured(folder: pathlib.Path) -> str:
  """What a run took beside what its settings say."""
  made = files.read_json_lines(folder / results.ENVIRONMENT_NAME)[0]
  s = _settings(json.loads((folder / 'config.json').read_text()))
  s = dataclasses.replace(s, num_devices=len(made['devices']))
  trials = files.read_json_lines(folder / timing.FILE_NAME)
  spent = lambda kind, phase: sum(row[kind].get(phase, 0.0) for row in trials)
  number = len(s.grid()) * s.num_trials
  flops = {
    'pretraining': number * cost.pretraining(s),
    # Once more where the trained model is tuned.
    'measuring': number * (cost.measurements(s) + 1) * cost.measuring(s),
    'tuning': number * sum(cost.tuning(s, method) for method in s.methods),
  }
  rows = []
  for phase in dict.fromkeys([*flops, *(phase for row in trials for phase in row['cpu_seconds'])]):
    cpu, wall = spent('cpu_seconds', phase), spent('wall_seconds', phase)
    rate = f'{_flops(flops[phase] / cpu)}/s' if phase in flops else ''
    rows.append([phase, _flops(flops[phase]) if phase in flops else '', f'{cpu:.1f} s', f'{wall:.1f} s', rate])
  packages = ', '.join(f'{name} {made["packages"][name]}' for name in ('jax', 'jaxlib', 'flax'))
  command = ' '.join(['python -m experiments.main', *made['command'][1:]])
  peak = max(row['peak_bytes'] for row in trials)
  text = (
    f'`{command}`\n\nCommit {made["commit"][:7]}, Python {made["python"]}, {packages}, {", ".join(made["devices"])}. '
  )
  text += f'Memory: predicted {_bytes(memory.total(s))}, at its peak {_bytes(peak)}.\n\n'
  return text + _table(['phase', 'predicted products on BERT', 'CPU time', 'wall time', 'products a CPU second'], rows)


def _settings(recorded: dict[str, Any]) -> Settings:
  """The settings of a run from its `config.json`; a field that is younger than the run has its default."""

  def read(value: Any) -> Any:
    if isinstance(value, dict):
      return {name: read(entry) for name, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value

  config = config_lib.shipped(recorded['experiment'])['get_config'](recorded['scale'])
  config.update(read(recorded))
  return config_lib.from_config(config)


def _table(header: list[str], rows: list[list[str]]) -> str:
  lines = [header, ['---'] * len(header), *rows]
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def _flops(number: float) -> str:
  return _in_units(number) + 'FLOP'


def _bytes(number: float) -> str:
  return _in_units(number) + 'B'


def _in_units(number: float) -> str:
  size, unit = next(pair for pair in _SIZES if number >= pair[0] or pair[0] == 1)
  return f'{number / size:.3g} {unit}'


def _seconds(seconds: float) -> str:
  hours = seconds / 3600
  return f'{hours / 24:.3g} days' if hours >= 48 else f'{hours:.3g} h' if hours >= 2 else f'{seconds:.3g} s'


if __name__ == '__main__':
  PAGE.write_text(filled(PAGE.read_text()))
