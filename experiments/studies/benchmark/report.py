"""The tables of a benchmark, from its record alone, at most 120 columns wide."""

from collections.abc import Callable
import pathlib
import textwrap
from typing import Any

import rich.box
import rich.table

from experiments.analysis import report, statistics
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.settings.fields import SettingsError
from experiments.studies.benchmark import measure

# Dense bf16 operations a second at most, by the name that JAX has for the chip. NVIDIA: data sheets of H100, H200 and
# A100, whose numbers with sparsity are twice these; Google: cloud.google.com/tpu/docs/v4, v5e, v5p and v6e.
PEAK_FLOPS = {
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H100 NVL': 835e12,
  'NVIDIA H200': 989e12,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
}
# What the tables read of a record, which those of before this package lack.
_FIELDS = (
  *('part', 'work', 'way', 'seconds', 'error', 'memory_bytes', 'device_peak_bytes'),
  *('flops', 'product_flops', 'tokens', 'compile_seconds', 'note'),
)
_SHOWN = ('jax', *measure.PEERS)
_UNITS = ((1.0, 's'), (1e-3, 'ms'), (1e-6, 'us'))


def workdir_tables(workdir: pathlib.Path) -> str:
  """All tables of a workdir, and a line for the machine; raises SettingsError where its records lack a field."""
  records = results.load(workdir)
  lacking = [name for name in _FIELDS if any(name not in record for record in records)]
  if lacking:
    valid = 'one whose records this version made, which a run replaces them with'
    raise SettingsError(f'--workdir is {str(workdir)!r}, whose records have no field {lacking[0]!r}; valid is {valid}')
  environments = list(environment.load(workdir, records).values())
  tables = [_speed(records)]
  if any(record['product_flops'] for record in records):
    tables.append(_steps(records, environments))
  return '\n'.join([report.as_text(table) for table in tables] + [_machine(row) for row in environments])


def _table(title: str, width: int, names: list[str], rows: list[list[str]], ends: set[int]) -> rich.table.Table:
  """Work and way as text, numbers right of them, without columns that are empty; a gap after each row in `ends`."""
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  used = [index for index in range(len(names)) if any(row[index] for row in rows)]
  for index in used:
    style: dict[str, Any] = dict(width=width) if index < 2 else dict(justify='right', no_wrap=True)
    table.add_column(names[index], **style)
  for number, row in enumerate(rows):
    table.add_row(*(row[index] for index in used), end_section=number in ends)
  return table


def _grouped(
  title: str, width: int, names: list[str], records: list[Record], cells: Callable[[Record, Record], list[str]]
) -> rich.table.Table:
  """A row for each record, made of the first of its work, which is ours, and of itself."""
  rows, ends = list[list[str]](), set[int]()
  for part, work in dict.fromkeys((record['part'], record['work']) for record in records):
    group = statistics.select(records, part=part, work=work)
    rows += [[work if record is group[0] else '', *cells(group[0], record)] for record in group]
    ends.add(len(rows) - 1)
  return _table(title, width, ['work', *names], rows, ends)


def _speed(records: list[Record]) -> rich.table.Table:
  """What is done, by whom, how fast, how near to float64 and in how much memory."""

  def cells(ours: Record, record: Record) -> list[str]:
    way = f'{record["way"]}: {record["note"]}' if record['note'] else record['way']
    ratio = ['', ''] if record is ours else _ratio(ours, record)
    return [way, *_time(record), *ratio, _error(record), _megabytes(record['memory_bytes'])]

  title = 'Time: the median between quartiles. Ratio: how many times as fast ours is, likewise, round by round'
  return _grouped(title, 24, ['way', 'time', 'quartiles', 'ratio', 'quartiles', 'error', 'MB'], records, cells)


def _steps(records: list[Record], environments: list[Record]) -> rich.table.Table:
  """Operations, and what of the chip's peak they reach; tokens; what compiling took."""
  peak = PEAK_FLOPS.get(environments[-1]['devices'][0]) if environments else None

  def cells(_: Record, record: Record) -> list[str]:
    tokens, compiling = record['tokens'] / _median(record), record['compile_seconds']
    compiled = '' if compiling is None else f'{compiling:.1f} s'
    return [
      record['way'],
      *_operations(record, peak),
      f'{tokens:,.0f}',
      compiled,
      _megabytes(record['device_peak_bytes']),
    ]

  names = ['way', 'GFLOP', 'products', 'GFLOP/s', 'of peak', 'tokens/s', 'compile', 'peak MB']
  title = 'One step: GFLOP as XLA counts them, and of its products alone, whose speed and share of the peak follow'
  return _grouped(title, 19, names, [record for record in records if record['tokens'] and record['seconds']], cells)


def _operations(record: Record, peak: float | None) -> list[str]:
  counted, of_products = record['flops'], record['product_flops']
  speed = of_products / _median(record) if of_products else None
  in_bfloat16 = record.get('dtype') == 'bfloat16'  # The peak is of no other type.
  return [
    _giga(counted) if counted else '',
    _giga(of_products) if of_products else '',
    _giga(speed) if speed else '',
    f'{speed / peak:.0%}' if speed and peak and in_bfloat16 else '',
  ]


def _giga(number: float) -> str:
  return f'{number / 1e9:,.0f}' if number >= 1e11 else f'{number / 1e9:.2f}'


def _median(record: Record) -> float:
  return measure.quartiles(record['seconds'])[1]


def _time(record: Record) -> list[str]:
  """The median, and the quartiles in its unit."""
  if not record['seconds']:
    return ['', '']
  low, middle, high = measure.quartiles(record['seconds'])
  scale, unit = next((pair for pair in _UNITS if middle >= pair[0]), _UNITS[-1])
  return [f'{middle / scale:.1f} {unit}', f'{low / scale:.1f} - {high / scale:.1f}']


def _ratio(ours: Record, record: Record) -> list[str]:
  if not ours['seconds'] or not record['seconds']:
    return ['', '']
  low, middle, high = measure.ratios(ours['seconds'], record['seconds'])
  return [f'{middle:.2f}', f'{low:.2f} - {high:.2f}']


def _error(record: Record) -> str:
  return '' if record['error'] is None else f'{record["error"]:.0e}'


def _megabytes(count: float | None) -> str:
  return '' if count is None else f'{count / 1e6:,.0f}'


def _machine(environment: Record) -> str:
  """Device, host, commit and versions."""
  versions = {**environment['packages'], **environment['peers']}
  shown = [f'{name} {version}' for name, version in versions.items() if version and name in _SHOWN]
  device = ', '.join(sorted(set(environment['devices'])))
  host = f'{environment["cores"]} cores of {environment["cpu"]} at a load of {environment["load"]:.1f} before'
  text = f'Measured on {device}, {host}, at {environment["commit"][:12]}; {", ".join(shown)}.'
  return textwrap.fill(text, 118) + '\n'
