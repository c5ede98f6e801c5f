"""The tables of docs/cost.md: `python -m experiments.studies.cost.cost_report` writes them there.

What is predicted comes from the shipped settings alone (`pipeline/cost.py`), what is measured from the records of
runs, which keep `config.json`, `environment.jsonl` and `timing.jsonl` in a folder of docs/results/cost each.
"""

from collections import Counter
from collections.abc import Callable
import operator
import pathlib
import re
from typing import Any

from experiments.analysis import pages
from experiments.pipeline import communication, cost, memory_needs
from experiments.records import files, loading, results
from experiments.runtime import timing
from experiments.settings import config as config_lib
from experiments.settings.grid import Point, Settings
from experiments.studies import registry

PAGE, RECORDS = pages.DOCS / 'cost.md', pages.DOCS / 'results/cost'
COMMUNICATION = RECORDS / 'communication.jsonl'
_SCALES = ('small', 'paper', 'paper_v1', 'official')
# FLOPs a second of products of these shapes, measured: on two CPU cores in float32, and on an H200 in bfloat16.
_TWO_CORES, _GPU = 110e9, 790e12
_SIZES = ((1e18, 'E'), (1e15, 'P'), (1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'), (1, ''))


def filled(page: str) -> str:
  """The page with its tables as they are now."""
  runs = '\n'.join(map(measured, sorted(path for path in RECORDS.iterdir() if path.is_dir())))
  return put(page, [f'{by_part()}\n{by_scale()}', growth(), communicated(), runs])


def put(page: str, tables: list[str]) -> str:
  """The page with these in the places that it has for tables, in order."""
  place, left = re.compile('(<!-- tables -->\n).*?(<!-- end -->)', re.DOTALL), iter(tables)
  return place.sub(lambda match: match[1] + next(left) + match[2], page)


def shipped(scale: str, **changes: Any) -> Settings:
  """The settings of Figure 3 (left), with fields changed by their dotted names."""
  config = config_lib.shipped('prompt_vs_head')['get_config'](scale)
  config.update_from_flattened_dict(changes)
  return registry.from_config(config)


def by_part() -> str:
  """The products of one pretraining step, with what the slots save."""
  settings = {scale: shipped(scale) for scale in _SCALES}
  steps = {scale: cost.pretraining_step(s) for scale, s in settings.items()}
  rows = [[part, *(in_flops(step[part]) for step in steps.values())] for part in steps['small']]
  rows.append(['**a step**', *(in_flops(sum(step.values())) for step in steps.values())])
  whole = {scale: cost.pretraining_step(s, read=s.corpus.chunk_length) for scale, s in settings.items()}
  rows.append(['if all positions were read', *(in_flops(sum(step.values())) for step in whole.values())])
  return table(['products of one pretraining step', *_SCALES], rows)


def by_scale() -> str:
  """What one trial at |H| = 30 takes, as its settings say."""
  rows: dict[str, Callable[[Settings], str]] = {
    'steps of pretraining': lambda s: f'{s.pretrain.num_steps:,}',
    'pretraining': lambda s: in_flops(cost.pretraining(s)),
    'measuring, all along it': lambda s: in_flops(cost.measurements(s) * cost.measuring(s)),
    'a step of prompt tuning, each task': lambda s: in_flops(_prompt_step(s) / s.tasks_per_trial),
    'prompt tuning, each task': lambda s: in_flops(cost.tuning(s, 'prompt') / s.tasks_per_trial),
    'what the heads are tuned on': lambda s: in_flops(cost.tuning(s, 'head')),
    'exact posterior of an input': lambda s: in_flops(cost.inference(Point(30), s.downstream.length)),
    'parameters of BERT': lambda s: f'{cost.num_params(s):,}',
    'parameters and moments of the optimiser': lambda s: in_bytes(cost.state_bytes(s)),
    'activations of a step': lambda s: in_bytes(_activations(s)),
    'the corpus': lambda s: in_bytes(cost.corpus_bytes(s)),
    'memory, all told (see experiments/pipeline/memory_needs.py)': lambda s: in_bytes(memory_needs.total(s)),
    'sent a step by each of 2 devices': lambda s: in_bytes(_sent(s, 2)),
    'sent a step by each of 8 devices': lambda s: in_bytes(_sent(s, 8)),
    'trials of the grid': lambda s: f'{len(s.draws()):,}',
    'pretraining at 110 GFLOP/s (two cores)': lambda s: in_seconds(cost.pretraining(s) / _TWO_CORES),
    'pretraining at 790 TFLOP/s (H200)': lambda s: in_seconds(cost.pretraining(s) / _GPU),
  }
  settings = [shipped(scale, **{'mesh.data': 1}) for scale in _SCALES]
  return table(
    ['one trial at H = 30, predicted', *_SCALES], [[what, *map(say, settings)] for what, say in rows.items()]
  )


def _prompt_step(s: Settings) -> float:
  return sum(cost.tuning_step(s, 'prompt').values())


def _activations(s: Settings) -> int:
  return cost.activation_bytes(s, s.pretrain.batch_size, s.corpus.chunk_length)


def growth() -> str:
  """By what each cost grows at the scale of the paper when one size doubles."""
  s, point, devices = shipped('paper'), Point(4, 2, 1), 2
  twice = lambda *names: {name: 2 * operator.attrgetter(name)(s) for name in names}
  of_settings = {
    'T, of chunks and inputs': twice('corpus.chunk_length', 'bert.max_positions', 'downstream.length'),
    'D, and the feed-forward width': twice('bert.width', 'bert.ffn_width'),
    'layers': twice('bert.num_layers'),
    'B, chunks of a step': twice('pretrain.batch_size'),
    'tasks': twice('tasks_per_trial'),
  }
  of_point = {
    'H': point._replace(num_states=8),
    'M, with N = 1': point._replace(memory_size=4),
    'N, from 1 to 2, with M = 2': point._replace(num_cells=2),
  }
  doubled = {what: _costs(shipped('paper', **changes), point, devices) for what, changes in of_settings.items()}
  doubled |= {what: _costs(s, larger, devices) for what, larger in of_point.items()}
  doubled['devices, from 2 to 4'] = _costs(s, point, 2 * devices)
  before = _costs(s, point, devices)
  rows = [[what, *(f'{costs[name] / before[name]:.2f}' for name in before)] for what, costs in doubled.items()]
  return table(['twice', *before], rows)


def _costs(s: Settings, point: Point, num_devices: int) -> dict[str, float]:
  """What the growth of is told; of what is spread over devices, one's share."""
  return {
    'parameters': cost.num_params(s),
    'a step': sum(cost.pretraining_step(s).values()) / num_devices,
    'its activations': _activations(s) / num_devices,
    'its all-reduce': _sent(s, num_devices),
    'a step of prompt tuning': _prompt_step(s),
    'exact posterior': cost.inference(point, s.downstream.length),
  }


def _sent(s: Settings, data: int) -> float:
  return sum(cost.communication(s, data, 1, 1).values())


def communicated() -> str:
  """What each of eight devices sends a step, predicted and as XLA compiles it for CPUs."""
  rows = []
  for record in files.read_json_lines(COMMUNICATION):
    shape, predicted, found = record['mesh'], Counter[str](), Counter[str]()
    for (operation, _), size in cost.communication(shipped(record['scale']), **shape).items():
      predicted[operation] += size  # type: ignore[assignment]
    for operation, _, size in record['bytes_a_step']:
      found[operation] += size
    mesh = ' x '.join(f'{axis} {size}' for axis, size in shape.items() if size > 1)
    sizes = [f'{in_bytes(predicted[name])} / {in_bytes(found[name])}' for name in communication.SENT]
    rows.append([record['scale'], mesh, *sizes, f'{in_bytes(predicted.total())} / {in_bytes(found.total())}'])
  return table(['scale', 'mesh', *communication.SENT, 'together'], rows)


def measured(folder: pathlib.Path) -> str:
  """What a run took beside what its settings say."""
  made = files.read_json_lines(folder / results.ENVIRONMENT_NAME)[0]
  recorded = loading.json_value(folder / results.CONFIG_NAME)
  recorded.pop('num_devices', None)  # What a mesh was once.
  s = registry.from_record({**recorded, 'mesh': {'data': len(made['devices']), 'fsdp': 1, 'tensor': 1}})
  trials, predicted = files.read_json_lines(folder / timing.FILE_NAME), _by_phase(s)
  rows = []
  for phase in dict.fromkeys([*predicted, *(phase for row in trials for phase in row['cpu_seconds'])]):
    cpu, wall = (sum(row[kind].get(phase, 0.0) for row in trials) for kind in ('cpu_seconds', 'wall_seconds'))
    flops = predicted.get(phase)
    of_bert = [in_flops(flops), f'{in_flops(flops / cpu)}/s'] if flops else ['', '']
    rows.append([phase, f'{cpu:.1f} s', f'{wall:.1f} s', *of_bert])
  command = ' '.join(['python -m experiments.main', *made['command'][1:]])
  versions = ', '.join(f'{name} {made["packages"][name]}' for name in ('jax', 'jaxlib', 'flax'))
  peak = max(row['peak_bytes'] for row in trials)
  return (
    f'`{command}`\n\nCommit {made["commit"][:7]}, Python {made["python"]}, {versions}, {", ".join(made["devices"])}. '
    f'Memory: predicted {in_bytes(memory_needs.total(s))}, at its peak {in_bytes(peak)}.\n\n'
  ) + table(['phase', 'CPU time', 'wall time', 'predicted products of BERT', 'products a CPU second'], rows)


def _by_phase(s: Settings) -> cost.Flops:
  """Products of BERT in the phases of a grid; it is measured once more where it is tuned."""
  one = {
    'pretraining': cost.pretraining(s),
    'measuring': (cost.measurements(s) + 1) * cost.measuring(s),
    'tuning': sum(cost.tuning(s, method) for method in s.methods),
  }
  return {phase: len(s.draws()) * flops for phase, flops in one.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
  lines = [header, ['---'] * len(header), *rows]
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def in_flops(number: float) -> str:
  return _in_units(number) + 'FLOP'


def in_bytes(number: float) -> str:
  return _in_units(number) + 'B'


def _in_units(number: float) -> str:
  size, unit = next(pair for pair in _SIZES if number >= pair[0] or pair[0] == 1)
  return f'{number / size:.3g} {unit}'


def in_seconds(seconds: float) -> str:
  hours = seconds / 3600
  if hours >= 2:
    return f'{hours / 24:.3g} days' if hours >= 48 else f'{hours:.3g} h'
  return f'{seconds / 60:.3g} min' if seconds >= 120 else f'{seconds:.3g} s'


if __name__ == '__main__':
  files.write_whole(PAGE, filled(PAGE.read_text()))
